#!/bin/sh
# ZeRO: ranks share out what they keep of a net, and weights have the bits of ranks that keep all of it.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=display=1 --set=deterministic=true --set=comm.bucket_mb=0.002"

# one KIND RANKS ZERO OPTIONS…
one() {
    kind=$1 n=$2 zero=$3
    shift 3
    runs "${kind}_${n}_$zero" 0 'Optimization Done' $JOB $n $train "$@" --set=memory.zero=$zero --metrics=m.jsonl --set=snapshot_prefix=z$zero
    sum_of >sum_$zero
    losses m.jsonl >losses_$zero
    is "says_${kind}_${n}_$zero" test "$(wc -l <losses_$zero)" = 20
    is "sums_${kind}_${n}_$zero" test -s sum_$zero
    [ $zero = 0 ] && return
    is "losses_${kind}_${n}_$zero" cmp losses_0 losses_$zero
    is "weights_${kind}_${n}_$zero" cmp sum_0 sum_$zero
}
both() {
    b_kind=$1 b_n=$2
    shift 2
    for b_zero in 0 1; do one $b_kind $b_n $b_zero "$@"; done
}

for ranks in 1 2; do both dense $ranks; done
both adam 2 --set=type=AdamW --set=base_lr=0.01 --set=average.type=EMA --set=average.decay=0.9
both more 2 --set=iter_size=3
both after 2 --set=comm.forward_overlap=false
both off 2 --set=comm.overlap=false
both thread 2 --set=comm.progress=THREAD
for ranks in 3 4; do both same_sums $ranks --set=reproducible_sum=true; done
rm -f *_iter_*

# sets of snapshots: of whole states, whoever had them; other ranks and stages go on from them
adam="--set=type=Adam --set=base_lr=0.01 --set=average.type=SWA --set=average.interval=2 --set=snapshot=10 --set=snapshot_format=BINARYPROTO"
runs whole 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=whole
sum_of >sum_whole
runs shards 0 'Optimization Done' $JOB 2 $train $adam --set=snapshot_prefix=shards --set=memory.zero=1
sum_of >sum_shards
is same_end cmp sum_whole sum_shards
is same_average cmp whole_iter_20.average.caffemodel shards_iter_20.average.caffemodel
for way in 'whole 1' 'shards 0' 'shards 1'; do
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
