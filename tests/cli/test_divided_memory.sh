# memory { } with --parallel: shards, casts and files change no bit of what the same ranks do without.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
cat >net.prototxt <<'NET'
name: "memory"
layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 12 dim: 2 dim: 8 dim: 8 } data_filler { type: "gaussian" std: 1 }
  shape { dim: 12 } data_filler { type: "constant" value: 3 } } }
layer { name: "in/conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 7 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "fc6" type: "InnerProduct" bottom: "conv" top: "fc6"
  inner_product_param { num_output: 33 weight_filler { type: "xavier" } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
repeat { count: 3 prefix: "m%d_" bottom: "fc6" top: "m"
  layer { name: "fc" type: "InnerProduct" bottom: "fc6" top: "fc" inner_product_param { num_output: 33 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "fc" top: "m" }
}
layer { name: "fc7" type: "InnerProduct" bottom: "m" top: "fc7"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc7" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'SOLVER'
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 type: "AdamW" max_iter: 4 display: 1 snapshot: 2
snapshot_format: BINARYPROTO test_iter: 1 test_interval: 2 random_seed: 7 global_batch_size: 12
average { type: EMA decay: 0.9 } deterministic: true comm { bucket_mb: 0.002 }
SOLVER
in_one='stage { first: "in/conv" last: "loss" rank: 0'
cut='layer { name: "fc6" split: OUTPUT } layer { name: "m0_fc" split: INPUT }'
plan() { echo "ranks: $2 global_batch: 12 micro_batches: $3 $4" >"$1.plan"; } # NAME RANKS MICRO-BATCHES STAGES
plan alone 1 2 "$in_one }"
plan replicas 2 1 "$in_one rank: 1 share: 5 share: 7 }"
plan split 2 1 "$in_one rank: 1 tensor: 2 $cut }" # a rank is alone with its parts, and is not with the convolution
plan parts 4 1 "$in_one rank: 1 rank: 2 rank: 3 tensor: 2 share: 5 share: 7 layer { name: \"in/conv\" split: OUTPUT } layer { name: \"bn\" split: OUTPUT } layer { name: \"fc6\" split: INPUT } layer { name: \"m1_fc\" split: OUTPUT } layer { name: \"m2_fc\" split: INPUT } }"
plan pipeline 2 3 'stage { first: "in/conv" last: "bn" rank: 0 } stage { first: "fc6" last: "loss" rank: 1 }'
plan mixed 4 1 "stage { first: \"in/conv\" last: \"bn\" rank: 0 rank: 1 share: 5 share: 7 } stage { first: \"fc6\" last: \"loss\" rank: 2 rank: 3 tensor: 2 $cut }"
plan square 4 2 'stage { first: "in/conv" last: "bn" rank: 0 rank: 1 } stage { first: "fc6" last: "loss" rank: 2 rank: 3 share: 4 share: 2 }'

have_python=$(command -v python3 || true)
[ -n "$have_python" ] || skip memory "no python3"
train="$CORTADO train --solver=solver.prototxt"
what() { # losses of steps and tests, the checksum
    sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p; s/.*Test net output #0: loss = \([0-9.e+-]*\) .*/test \1/p
        s/.*weights after iteration [0-9]*: checksum //p' out
}
first() { # NAME RANKS PLAN SETTING…: what the others are compared with
    of=$1 ranks=$2 with="--parallel=$3.plan"
    shift 3
    runs "${of}_whole" 0 'Optimization Done' $JOB "$ranks" $train "$with" --set snapshot_prefix="$of" "$@"
    what >"$of.is"
    is "${of}_said" test "$(wc -l <"$of.is")" = 8
}
same() { # NAME SETTING…: as the first, with these besides what it has
    by=$1
    shift
    runs "${of}_$by" 0 'Optimization Done' $JOB "$ranks" $train "$with" --set snapshot_prefix="$of.$by" --metrics=m.jsonl "$@"
    what >my.is
    is "${of}_${by}_same" cmp "$of.is" my.is
    is "${of}_${by}_set" cmp "${of}_iter_4.caffemodel" "$of.${by}_iter_4.caffemodel"
    is "${of}_${by}_average" cmp "${of}_iter_4.average.caffemodel" "$of.${by}_iter_4.average.caffemodel"
}
planned() { # [files] SETTING…: what check says of the run before
    files=
    [ "$1" != files ] || { files=files && shift; }
    "$CORTADO" check --solver=solver.prototxt "$with" --json "$@" >said 2>>out || not_ok "${of}_${by}_check" "check fails"
    [ -z "$have_python" ] || is "${of}_${by}_memory" sh -c "python3 \"$ROOT/tests/cli/ranks_are.py\" m.jsonl said $files >>out 2>&1"
}
export CORTADO_POISON=1

# ---- shards; statistics, which do not learn, lie behind what comes and goes
first shards 2 replicas
same three --set memory.zero=3 --set memory.prefetch=1
planned --set memory.zero=3 --set memory.prefetch=1

# ---- weights that layers round to bf16 travel so; each rank's ranges of them are of its own groups
first rounded 4 parts --set precision=BF16
same 3 --set precision=BF16 --set memory.zero=3

# ---- casts: gradients in 16 bits, by halves of the same allreduces; whoever is alone rounds, too
cast='--set compression.min_bytes=100 --set compression.type'
first bf16_square 4 square $cast=BF16
for zero in 1 2 3; do same $zero $cast=BF16 --set memory.zero=$zero; done
planned $cast=BF16 --set memory.zero=3
for run in 'split 2' 'pipeline 2'; do
    first "bf16_${run% *}" "${run#* }" "${run% *}" $cast=BF16
    same 3 $cast=BF16 --set memory.zero=3
done
narrow="$cast=FP16 --set compression.warmup_iter=2 --set clip_gradients=0.5"
first fp16_split 2 split $narrow
same 2 $narrow --set memory.zero=2

# ---- weights in files: they come for each forward and backward, of each micro-batch in flight
mkdir files
disk='--set memory.path=files --set memory.chunk_mb=0.004 --set memory.checksum=true --set memory.weights=FILE'
disk3="$disk --set memory.zero=3 --set memory.state=FILE"
sum_of() { sed -n 's/.*weights after iteration [0-9]*: checksum //p' out; }
for run in 'alone 1' 'pipeline 2' 'square 4'; do
    first "file_${run% *}" "${run#* }" "${run% *}"
    same disk $disk
    planned files $disk
done
same async $disk --set snapshot_async=true
same disk3 $disk3 --set snapshot_async=true
planned files $disk3
# sets and weights come to files, and from there
runs resumed 0 'Optimization Done' $JOB 4 $train "$with" $disk3 --set snapshot_prefix=r --snapshot=file_square_iter_2.solverstate.h5
is resumed_same test "$(sum_of)" = "$(tail -n 1 file_square.is)"
runs back 0 'Optimization Done' $JOB 4 $train "$with" --set snapshot_prefix=r --snapshot=file_square.disk3_iter_2.solverstate.h5
is back_same test "$(sum_of)" = "$(tail -n 1 file_square.is)"
for how in "$disk" "$disk3"; do
    runs loaded 0 'Optimization Done' $JOB 4 $train "$with" $how --set snapshot_prefix=r --set max_iter=0 --weights=file_square_iter_4.caffemodel
    is loaded_same cmp file_square_iter_4.caffemodel r_iter_0.caffemodel
done
lamb='--set type=LAMB --set clip_gradients=0.5'
first file_lamb 4 mixed $lamb
same disk $disk $lamb
same disk3 $disk3 $lamb
runs timed 0 'lie in files in' $JOB 2 "$CORTADO" time --solver=solver.prototxt --parallel=pipeline.plan --iterations=2 --limits=false $disk
runs weights_of_shards 2 'take zero: 3, or 0' $JOB 4 $train --parallel=mixed.plan $disk --set memory.zero=1
finish
