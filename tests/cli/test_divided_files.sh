# Files of nets that ranks run together: weights files have the bytes that one rank writes, weights
# of every format are read, one checksum is everyone's, and what codecs keep goes to other plans.
. "$ROOT/tests/cli/lib.sh"
cat >net.prototxt <<'NET'
name: "files"
layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 12 dim: 2 dim: 8 dim: 8 } data_filler { type: "gaussian" std: 1 }
  shape { dim: 12 } data_filler { type: "constant" value: 3 } } }
layer { name: "in/conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 7 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "fc6" type: "InnerProduct" bottom: "conv" top: "fc6"
  inner_product_param { num_output: 33 weight_filler { type: "xavier" } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc7" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'SOLVER'
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" type: "Adam" max_iter: 4
average { type: EMA decay: 0.9 } random_seed: 7 global_batch_size: 12
SOLVER
in_one='stage { first: "in/conv" last: "loss" rank: 0'
plan() { # NAME RANKS STAGES
    echo "ranks: $2 global_batch: 12 $3" >"$1.plan"
    echo "$1 $2" >>plans
}
plan split 2 "$in_one rank: 1 tensor: 2 layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } }"
plan inputs 3 "$in_one rank: 1 rank: 2 tensor: 3 layer { name: \"fc6\" split: INPUT } layer { name: \"fc7\" split: OUTPUT } }"
plan stages 2 'stage { first: "in/conv" last: "bn" rank: 1 } stage { first: "fc6" last: "loss" rank: 0 }'
plan mixed 4 'stage { first: "in/conv" last: "bn" rank: 2 rank: 0 share: 5 share: 7 } stage { first: "fc6" last: "loss" rank: 3 rank: 1 tensor: 2 layer { name: "fc6" split: OUTPUT } layer { name: "fc7" split: INPUT } }'
train="$CORTADO train --solver=solver.prototxt"
checksum() { sed -n 's/.*weights after iteration [0-9]*: checksum //p' out; }

# ---- a run of one rank, whose weights every plan reads and writes again
mkdir -p one again
runs one_rank 0 'Optimization Done' $train --set snapshot_prefix=one/s --set snapshot_format=BINARYPROTO
one_sum=$(checksum)
for to in h5 npz safetensors; do
    runs "to_$to" 0 '' "$CORTADO" convert model --from=one/s_iter_4.caffemodel --to="one/w.$to"
done
cp one/s_iter_4.caffemodel one/w.caffemodel
while read -r of ranks; do
    for form in caffemodel h5 npz safetensors; do
        mkdir -p "$of.$form"
        runs "${of}_$form" 0 'Optimization Done' $JOB "$ranks" $train --parallel="$of.plan" --weights="one/w.$form" \
            --set max_iter=0 --set snapshot_prefix="$of.$form/s" --set snapshot_format=BINARYPROTO
        is "${of}_${form}_checksum" [ "$(checksum)" = "$one_sum" ]
        is "${of}_${form}_bytes" cmp one/s_iter_4.caffemodel "$of.$form/s_iter_0.caffemodel"
    done
    mkdir -p "$of.set"
    runs "${of}_set" 0 'Optimization Done' $JOB "$ranks" $train --parallel="$of.plan" --snapshot=one/s_iter_4.solverstate.h5 \
        --set max_iter=4 --set snapshot_prefix="$of.set/s" --set snapshot_format=BINARYPROTO
    is "${of}_set_checksum" [ "$(checksum)" = "$one_sum" ]
    is "${of}_set_average" cmp one/s_iter_4.average.caffemodel "$of.set/s_iter_4.average.caffemodel"
done <plans

# ---- codecs: what was not sent goes on in any division
plan replicas 4 "$in_one rank: 1 rank: 2 rank: 3 tensor: 2 layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } }"
coded() { # NAME RANKS PLAN PATTERN OPTION...
    name=$1 ranks=$2 of=$3 pattern=$4
    shift 4
    mkdir -p "$name"
    runs "$name" 0 "$pattern" $JOB "$ranks" $train --parallel="$of.plan" --set type=SGD --set momentum=0.9 --set average.type=NONE \
        --set snapshot_prefix="$name/s" "$@"
}
some='compression.type=REDSYNC' few='compression.density=0.1' small='compression.min_bytes=100' held='compression.momentum_correction=true'
coded coded 4 replicas 'Optimization Done' --set $some --set $few --set $small --set $held
is coded_parts [ -s coded/s_iter_4.rank3.h5 ]
from="--snapshot=coded/s_iter_4.solverstate.h5 --set max_iter=8"
coded coded_same 4 replicas 'Optimization Done' $from --set $some --set $few --set $small --set $held
is coded_same_own [ -z "$(sed -n '/were summed and dealt out/p' out)" ]
coded coded_mixed 4 mixed 'residuals of the parts of 4 ranks were summed and dealt out to those of 4' $from --set $some --set $few --set $small --set $held
coded coded_split 2 split 'residuals of the parts of 4 ranks were summed and dealt out to those of 2' $from --set $some --set $few --set $small --set $held
coded coded_dense 3 inputs 'travel otherwise now: of [1-9][0-9]* what was not sent goes to the weights' $from
mkdir -p coded_one
runs coded_one 0 'travel otherwise now: of [1-9][0-9]* what was not sent goes to the weights' $train --set type=SGD --set momentum=0.9 \
    --set average.type=NONE --set snapshot_prefix=coded_one/s $from
finish
