#!/bin/sh
# ZeRO: ranks share out what they keep of a net, and weights have the bits of ranks that keep all of it.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=13 --set=display=1 --set=deterministic=true --set=comm.bucket_mb=0.002"

# one KIND RANKS ZERO OPTIONS…
one() {
    kind=$1 n=$2 zero=$3
    shift 3
    runs "${kind}_${n}_$zero" 0 'Optimization Done' $JOB $n $train "$@" --set=memory.zero=$zero --metrics=m.jsonl --set=snapshot_prefix=z$zero
    sum_of >sum_$zero
    cp m.jsonl ${kind}_${n}_$zero.jsonl
    losses m.jsonl >losses_$zero
    is "says_${kind}_${n}_$zero" test "$(wc -l <losses_$zero)" = 20
    is "sums_${kind}_${n}_$zero" test -s sum_$zero
    if [ $n = 2 ] && { [ $kind = dense ] || [ $kind = clip ]; }; then
        "$CORTADO" check --solver=solver.prototxt --ranks=2 --global_batch_size=13 --set=comm.bucket_mb=0.002 "$@" --set=memory.zero=$zero --json=c.json >out 2>&1
        is "planned_${kind}_$zero" python3 "$ROOT/tests/cli/tiers_are.py" c.json m.jsonl
    fi
    [ $zero = 0 ] && return
    is "losses_${kind}_${n}_$zero" cmp losses_0 losses_$zero
    is "weights_${kind}_${n}_$zero" cmp sum_0 sum_$zero
}
near() { paste -d' ' "$1" "$2" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-6 * $2) bad = 1; n++ } END { exit bad || n != 20 }'; }
both() {
    b_kind=$1 b_n=$2
    shift 2
    for b_zero in ${zeros:-0 1 2 3}; do one $b_kind $b_n $b_zero "$@"; done
}

for ranks in 1 2 3 4; do both dense $ranks; done # 13 samples: shares differ
runs made 0 'Optimization Done' $JOB 1 $train --set=snapshot_prefix=made
mv made_iter_20.caffemodel.h5 s_more.caffemodel.h5
both adam 2 --set=type=AdamW --set=base_lr=0.01 --set=average.type=EMA --set=average.decay=0.9
both clip 2 --set=clip_gradients=0.5
both lamb 2 --set=type=LAMB --set=base_lr=0.01
both lars 2 --set=type=LARS --set=clip_gradients=0.7
# stages that keep pieces add up the sums of micro-batches, the others the micro-batches
for more in '' --set=clip_gradients=0.5; do
    for zero in 0 1; do one more$more 2 $zero --set=iter_size=3 $more; done
    for zero in 2 3; do
        runs more_$zero 0 'Optimization Done' $JOB 2 $train --set=iter_size=3 $more --set=memory.zero=$zero --metrics=m.jsonl --set=snapshot_prefix=z$zero
        losses m.jsonl >losses_$zero
        is more_losses_$zero near losses_0 losses_$zero
        is more_differ_$zero test -s losses_$zero
    done
done
zeros='0 1 3'
both after 2 --set=comm.forward_overlap=false
both off 2 --set=comm.overlap=false
both thread 2 --set=comm.progress=THREAD
zeros='0 1'
for how in hier torus tree swing; do both $how 3 --set=comm.allreduce=$how; done
# casts: gradients in 16 bits, by halves of the same allreduces, so the bits are the same
zeros='0 1 3'
cast='--set=compression.min_bytes=100'
both bf16 2 --set=compression.type=BF16 $cast --set=comm.forward_overlap=false
zeros='0 3'
both fp16 2 --set=compression.type=FP16 $cast --set=compression.warmup_iter=5 --set=clip_gradients=0.5
zeros='0 2'
export CORTADO_POISON=1
both bf16_hier 3 --set=compression.type=BF16 $cast --set=comm.allreduce=hier
unset CORTADO_POISON
# on one rank the codec rounds, and gradients share a window as they do without
runs alone 0 'Optimization Done' $JOB 1 $train --set=compression.type=BF16 $cast --metrics=m.jsonl
sum_of >sum_0
losses m.jsonl >losses_0
one alone 1 3 --set=compression.type=BF16 $cast
# of 8790 elements rank 0 sends the other's part in 2 bytes in place of 4: 4320 of 8640, and of 150, with up to
# 16 that fill their bucket up, 64 to 86
sent() { sed -n 's/.*"event":"train","iter":19,.*"bytes_sent":\([0-9]*\).*/\1/p' "$1"; }
saves() { awk -v d="$(sent after_2_$1.jsonl)" -v c="$(sent bf16_2_$1.jsonl)" 'BEGIN { s = d - c; exit !(s >= 2 * (4320 + 64) && s <= 2 * (4320 + 86) + 4 * 16) }'; }
for zero in 1 3; do is bf16_saves_$zero saves $zero; done
zeros='0 3'
both same_sums 3 --set=reproducible_sum=true
# with precision BF16 the weights of "ip", 8640 of 8806 numbers, come in 16 bits, alone in a bucket or with others
# that do not: rank 0 sends half of them to rank 1
for ranks in 2 3 4; do both narrow $ranks --set=precision=BF16; done
both mixed 3 --set=precision=BF16 --set=comm.bucket_mb=0.05 --set=type=Adam --set=base_lr=0.01
# once a step, since they stay for backward; without forward overlap a step counts all that it sends
for precision in F32 BF16; do
    runs sends_$precision 0 'Optimization Done' $JOB 2 $train --set=memory.zero=3 --set=precision=$precision \
        --set=comm.forward_overlap=false --metrics=sends_$precision.jsonl --set=snapshot_prefix=sends
done
all_sent() { sed -n 's/.*"event":"train",.*"bytes_sent":\([0-9]*\).*/\1/p' "sends_$1.jsonl" | awk '{ s += $1 } END { print s }'; }
less() { [ $(($(all_sent F32) - $(all_sent BF16))) = $((20 * 8640)) ]; }
is narrow_sends_less less
printf 'name: "other" layer { name: "in" type: "Data" top: "data" top: "label" data_param { source: "data/test_lmdb" backend: LMDB batch_size: 20 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_size: 5 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 10 } ct_kernel { forward: "ref" } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n' >other.prototxt
sed 's/^net: .*/train_net: "net.prototxt" test_net: "other.prototxt"/' solver.prototxt >other.solver
runs read_otherwise 2 'net "other" reads ip\[0\] in f32, which the net that trains rounds' $JOB 2 "$CORTADO" train --solver=other.solver --set=precision=BF16 --set=memory.zero=3 --set=snapshot_prefix=other
# the first steps try both halves of sums where nothing is promised; all ranks go on alike, and two with the same bits
tried() { grep -c "$1 of .* buckets* of .*; tried: .*, " out; }
one few 2 0
for ranks in 1 2 3 4; do
    for zero in 0 1 3; do
        runs tries_${ranks}_$zero 0 'Optimization Done' $JOB $ranks $train --set=memory.zero=$zero --set=deterministic=false --set=comm.tune_iterations=2 --set=comm.progress=POLL --set=checksum_interval=3 --metrics=m.jsonl --set=snapshot_prefix=tries
        for half in reduce_scatter allgather; do
            if [ $ranks = 1 ] || [ $zero = 0 ]; then n=0; else n=2; fi
            is tries_${half}_${ranks}_$zero test "$(tried $half)" = $n
        done
        losses m.jsonl >losses_tried
        [ $ranks != 2 ] || is tried_losses_$zero cmp losses_0 losses_tried
    done
done
# weights from a file come to the ranks that keep them
both loaded 2 --weights=s_more.caffemodel.h5
zeros=
rm -f *_iter_*

# a table that a head has, too: its rows come beside its gradient, which lives longest; what gradients leave
# in memory that others get is NaN
mkdir text
awk 'BEGIN { srand(1); for (i = 0; i < 900; i++) for (k = 0; k < 9; k++) printf "w%d%s", (rand() < 0.5) ? int(rand() * 20) : int(rand() * 390), (k < 8) ? " " : "\n" }' >text/my.train.txt
head -n 40 text/my.train.txt | tee text/my.valid.txt >text/my.test.txt
runs text 0 '' "$CORTADO" convert text --from=text --to=words
tied='param { name: "wte" }'
cat >text.prototxt <<EOF2
layer { name: "data" type: "TextData" top: "w" top: "cont" top: "y" text_data_param { source: "words/train.h5" batch_size: 3 steps: 5 } }
layer { name: "e" type: "Embed" bottom: "w" top: "e" $tied embed_param { input_dim: 400 num_output: 12 bias_term: false weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "f" type: "InnerProduct" bottom: "e" top: "f" inner_product_param { num_output: 12 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "t" type: "TanH" bottom: "f" top: "f" }
layer { name: "h" type: "InnerProduct" bottom: "f" top: "h" $tied inner_product_param { num_output: 400 axis: 2 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "h" bottom: "y" top: "loss" softmax_param { axis: 2 } }
EOF2
sed 's/net.prototxt/text.prototxt/; /^test_/d' solver.prototxt >text.solver
grep -q 'text.prototxt' text.solver || not_ok solver 'no text.prototxt'
whole=$train
train="$CORTADO train --solver=text.solver --global_batch_size=12 --set=display=1 --set=deterministic=true --set=comm.bucket_mb=0.002"
export CORTADO_POISON=1
for ranks in 1 3; do both tied $ranks --set=type=Adam --set=base_lr=0.01; done
# an Embed reads the table as it is
zeros='0 3' both tied_bf16 2 --set=type=Adam --set=base_lr=0.01 --set=precision=BF16
unset CORTADO_POISON
train=$whole
rm -f *_iter_*

# sets of snapshots: of whole states, whoever had them; other ranks and stages go on from them
adam="--set=type=Adam --set=base_lr=0.01 --set=average.type=SWA --set=average.interval=2 --set=snapshot=10 --set=snapshot_format=BINARYPROTO"
runs whole 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=whole
sum_of >sum_whole
runs shards 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=shards --set=memory.zero=1
sum_of >sum_shards
is same_end cmp sum_whole sum_shards
is same_average cmp whole_iter_20.average.caffemodel shards_iter_20.average.caffemodel
runs apart 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=apart --set=memory.zero=3
sum_of >sum_apart
is apart_end cmp sum_whole sum_apart
is apart_average cmp whole_iter_20.average.caffemodel apart_iter_20.average.caffemodel
is apart_weights cmp whole_iter_20.caffemodel apart_iter_20.caffemodel
for way in 'whole 1' 'shards 3' 'apart 0' 'apart 2'; do
    from=${way% *} zero=${way#* }
    rm -f *_iter_20.*
    runs resume_${from}_$zero 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=more --set=memory.zero=$zero --snapshot=${from}_iter_10.solverstate.h5
    sum_of >sum_more
    is resumed_${from}_$zero cmp sum_whole sum_more
done
runs fewer 0 'Optimization Done' $JOB 3 $train $adam --set=snapshot_prefix=three --set=memory.zero=1 --snapshot=shards_iter_10.solverstate.h5
runs fewer_whole 0 'Optimization Done' $JOB 3 $train $adam --set=snapshot_prefix=three --snapshot=shards_iter_10.solverstate.h5
sum_of >sum_three
is there test -s sum_three

runs codec 2 'compression topk sends them whole' $JOB 2 $train --set=memory.zero=1 --set=compression.type=TOPK
runs range 2 'memory.zero is 4, needs 0 to 3' $JOB 2 $train --set=memory.zero=4
finish
