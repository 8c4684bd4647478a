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

# ---- what layers carry from batch to batch: columns of the whole batch in a set, whoever has them
mkdir text
awk 'BEGIN { srand(1); for (i = 0; i < 300; i++) { w = int(rand() * 29); for (k = 0; k < 9; k++) {
    printf "w%d%s", w, (k < 8) ? " " : "\n"; w = (3 * w + 1) % 29 } } }' >text/my.train.txt
cp text/my.train.txt text/my.valid.txt
cp text/my.train.txt text/my.test.txt
runs text 0 'vocabulary of 30' "$CORTADO" convert text --from=text --to=data
cat >words.prototxt <<'NET'
name: "words"
layer { name: "text" type: "TextData" top: "words" top: "cont" top: "next"
  text_data_param { source: "data/train.h5" batch_size: 6 steps: 7 } }
layer { name: "embed" type: "Embed" bottom: "words" top: "embed"
  embed_param { input_dim: 30 num_output: 12 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "rnn" type: "RNN" bottom: "lstm" bottom: "cont" top: "rnn"
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "score" type: "InnerProduct" bottom: "rnn" top: "score"
  inner_product_param { num_output: 30 axis: 2 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET
cat >words_solver.prototxt <<'SOLVER'
net: "words.prototxt" base_lr: 0.05 lr_policy: "fixed" max_iter: 6 display: 1 snapshot: 3 random_seed: 5
SOLVER
words() { # NAME RANKS PLAN OPTION...
    who=$1 ranks=$2 of=$3
    shift 3
    mkdir -p "$who"
    [ "$of" = none ] || set -- "$@" --parallel="$of.plan"
    runs "$who" 0 'Optimization Done' $JOB "$ranks" "$CORTADO" train --solver=words_solver.prototxt --set snapshot_prefix="$who/s" "$@"
    is "${who}_state" [ -z "$(sed -n '/starts from zeros/p' out)" ]
    sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p' out >"$who/losses"
}
near() { # OF TO: losses of iterations 3 to 5
    awk 'NR == FNR { loss[$1] = $2; next } ($1 in loss) && ($1 > 2) { d = loss[$1] - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) bad = 1; n++ }
        END { exit bad || (n != 3) }' "$1/losses" "$2/losses"
}
echo "ranks: 3 global_batch: 6 stage { first: \"embed\" last: \"lstm\" rank: 2 rank: 0 share: 4 share: 2 } stage { first: \"rnn\" last: \"loss\" rank: 1 }" >columns.plan
echo "ranks: 4 global_batch: 6 stage { first: \"embed\" last: \"embed\" rank: 0 } stage { first: \"lstm\" last: \"loss\" rank: 3 rank: 2 rank: 1 tensor: 3 layer { name: \"rnn\" split: REPLICATE } layer { name: \"score\" split: OUTPUT } }" >deals.plan
words whole 1 none
words columns 3 columns
words deals 4 deals
is columns_near near whole columns
is deals_near near whole deals
words columns_on 3 columns --snapshot=deals/s_iter_3.solverstate.h5
words deals_on 4 deals --snapshot=whole/s_iter_3.solverstate.h5
words whole_on 1 none --snapshot=columns/s_iter_3.solverstate.h5
for of in columns_on deals_on whole_on; do is "${of}_near" near whole "$of"; done

# ---- a DummyData of both phases: micro-batches in TRAIN, the file's batch in TEST
sed '/^layer { name: "bn"/d' net.prototxt >both.prototxt
awk '/name: "in"/ { held = 1; text = "" } !held { print } held { text = text $0 "\n" } held && /value: 3/ { held = 0
    small = text; gsub(/dim: 12/, "dim: 4", small); sub(/dummy_data_param/, "include { phase: TRAIN } dummy_data_param", small)
    sub(/dummy_data_param/, "include { phase: TEST } dummy_data_param", text); printf "%s%s", small, text }' both.prototxt >each.prototxt
phases() { # NAME NET RANKS OPTION...
    who=$1 net=$2 ranks=$3
    shift 3
    runs "phases_$who" 0 'Optimization Done' $JOB "$ranks" $train --set net="$net" --set snapshot_prefix=one/phases --set display=1 \
        --set average.type=NONE --set test_iter=3 --set test_interval=2 "$@"
    sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p; s/.*Test net output #0: loss = \([0-9.e+-]*\) .*/test \1/p' out >"$who.phases"
}
same_phases() { # A B
    paste "$1.phases" "$2.phases" | awk '{ d = $2 - $4; if (d < 0) d = -d; if (($1 != $3) || (d > 1e-5 * ($2 + 1))) exit 1; n++ } END { exit n != 7 }'
}
in_turn='micro_batches: 3 stage { first: "in/conv" last:'
echo "ranks: 1 global_batch: 12 $in_turn \"loss\" rank: 0 }" >alone.plan
echo "ranks: 2 global_batch: 12 $in_turn \"in/conv\" rank: 0 } stage { first: \"fc6\" last: \"loss\" rank: 1 }" >in_two.plan
echo "ranks: 3 global_batch: 12 $in_turn \"loss\" rank: 0 rank: 1 rank: 2 share: 2 share: 1 share: 1 }" >dealt.plan
phases one each.prototxt 1 --global_batch_size=4 --set iter_size=3
phases alone both.prototxt 1 --parallel=alone.plan
phases in_two both.prototxt 2 --parallel=in_two.plan
phases dealt both.prototxt 3 --parallel=dealt.plan
for of in alone in_two dealt; do is "phases_${of}_same" same_phases one "$of"; done

# … and in `test`: the losses of one rank
scores() { # NAME RANKS OPTION...
    who=$1 ranks=$2
    shift 2
    runs "scores_$who" 0 '^loss = ' $JOB "$ranks" "$CORTADO" test --model=both.prototxt --iterations=3 \
        --weights="$(ls one/phases_iter_*.caffemodel* | head -n 1)" "$@"
    sed -n 's/^loss = \([0-9.e+-]*\) .*/x \1/p' out >"$who.scores"
}
scores one 1
scores in_two 2 --parallel=in_two.plan
scores dealt 3 --parallel=dealt.plan
for of in in_two dealt; do
    is "scores_${of}_same" awk 'NR == 1 { a = $2 } NR == 2 { d = a - $2; if (d < 0) d = -d; found = (d <= 1e-5 * (a + 1)) }
        END { exit !found }' one.scores "$of.scores"
done
finish
