# train --parallel on several ranks: losses, weights and test results are those of one rank up to
# the order of sums, and any plan goes on from any other's snapshot.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
make_digits() {
    "$CORTADO" convert digits --to=data --count=400 --seed=3 >out 2>&1 || { not_ok convert "digits"; finish; }
}
make_digits
cat >net.prototxt <<'NET'
name: "parts"
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/train_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/test_lmdb" backend: LMDB batch_size: 20 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "fc6" type: "InnerProduct" bottom: "pool1" top: "fc6"
  inner_product_param { num_output: 33 weight_filler { type: "xavier" } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" dropout_param { dropout_ratio: 0.3 } }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7"
  inner_product_param { num_output: 19 weight_filler { type: "xavier" } } }
layer { name: "relu7" type: "ReLU" bottom: "fc7" top: "fc7" }
layer { name: "fc8" type: "InnerProduct" bottom: "fc7" top: "fc8"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "fc8" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc8" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'NET'
net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001 max_iter: 6
display: 1 random_seed: 7 snapshot: 3 global_batch_size: 12 test_iter: 2 test_interval: 6
NET
in_one='stage { first: "conv1" last: "loss" rank: 0'
# ---- plans: NAME RANKS MICRO-BATCHES STAGES
plan() {
    echo "ranks: $2 global_batch: 12 micro_batches: $3 $4" >"$1.plan"
    echo "$1 $2" >>plans
}
plan shares 2 1 "$in_one rank: 1 share: 7 share: 5 }"
plan split 2 1 "$in_one rank: 1 tensor: 2 layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } }"
plan inputs 3 1 "$in_one rank: 1 rank: 2 tensor: 3 layer { name: \"conv1\" split: OUTPUT } layer { name: \"fc6\" split: INPUT } layer { name: \"fc8\" split: OUTPUT } }"
plan copies 2 1 "$in_one rank: 1 tensor: 2 layer { name: \"conv1\" split: REPLICATE } layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } layer { name: \"fc8\" split: REPLICATE } layer { name: \"loss\" split: REPLICATE } layer { name: \"accuracy\" split: REPLICATE } }"
plan replicas 4 1 "$in_one rank: 1 rank: 2 rank: 3 tensor: 2 share: 7 share: 5 layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } }"
plan classes 3 1 "$in_one rank: 1 rank: 2 tensor: 3 layer { name: \"fc6\" split: OUTPUT } layer { name: \"fc7\" split: INPUT } layer { name: \"relu7\" split: REPLICATE } layer { name: \"fc8\" split: OUTPUT } layer { name: \"loss\" split: OUTPUT } }"
all_on_one=$(printf 'layer { name: "%s" split: ONE part: 1 } ' conv1 fc6 fc7 fc8 accuracy loss) # rank 0 has no weights
plan weightless 2 1 "$in_one rank: 1 tensor: 2 $all_on_one }"
plan stages 2 1 'stage { first: "conv1" last: "pool1" rank: 0 } stage { first: "fc6" last: "loss" rank: 1 }'
plan uneven_stages 3 1 'stage { first: "conv1" last: "pool1" rank: 2 rank: 0 share: 7 share: 5 } stage { first: "fc6" last: "loss" rank: 1 }'
plan mixed 4 1 'stage { first: "conv1" last: "pool1" rank: 0 rank: 1 share: 5 share: 7 } stage { first: "fc6" last: "loss" rank: 2 rank: 3 tensor: 2 layer { name: "fc6" split: OUTPUT } layer { name: "fc7" split: INPUT } }'
plan pipeline 2 4 'stage { first: "conv1" last: "pool1" rank: 0 } stage { first: "fc6" last: "loss" rank: 1 }'
plan three_stages 3 3 'stage { first: "conv1" last: "pool1" rank: 0 } stage { first: "fc6" last: "drop6" rank: 1 } stage { first: "fc7" last: "loss" rank: 2 }'

# Weights files as close as the order of f32 sums allows.
near() { # A B LIMIT: .caffemodel.h5 files
    for f in "$1" "$2"; do "$CORTADO" convert model --from="$f" --to="$f.npz" --force >>out 2>&1 || return 1; done
    python3 "$ROOT/tests/cli/near.py" "$1.npz" "$2.npz" "$3" 8 >>out 2>&1
}
# What check says of each rank's memory is what train planned and allocated.
memory() { # PLAN METRICS SETTING…
    of_plan=$1 metrics=$2
    shift 2
    "$CORTADO" check --solver=solver.prototxt --parallel="$of_plan.plan" --json "$@" >said 2>>out || return 1
    python3 "$ROOT/tests/cli/ranks_are.py" "$metrics" said >>out 2>&1
}
losses() { # of each iteration, then of the test
    sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p; s/.*Test net output #1: loss = \([0-9.e+-]*\) .*/test \1/p' out
}
tests() { sed -n 's/.*Test net output #0: accuracy = \([0-9.]*\).*/\1/p' out; }
same_losses() { paste one.losses my.losses | awk '{ d = $2 - $4; if (d < 0) d = -d; if (($1 != $3) || (d > 1e-5 * ($2 + 1))) exit 1; n++ } END { exit n != 8 }'; }
train="$CORTADO train --solver=solver.prototxt"

for micro in 1 3 4; do
    mkdir -p one$micro
    runs one_rank_$micro 0 'Iteration 6, loss' $train --global_batch_size=$((12 / micro)) --set "iter_size=$micro" --set snapshot_prefix=one$micro/s
    losses >one$micro/losses
    tests >one$micro/tests
done
have_python=$(command -v python3 || true)
[ -n "$have_python" ] || skip weights "no python3"
while read -r of ranks; do
    micro=$(sed 's/.*micro_batches: \([0-9]*\).*/\1/' "$of.plan")
    mkdir -p "$of"
    runs "$of" 0 'Iteration 6, loss' $JOB "$ranks" $train --parallel="$of.plan" --set snapshot_prefix="$of/s" --metrics="$of/metrics"
    losses >my.losses
    cp one$micro/losses one.losses
    is "${of}_losses" same_losses
    tests >my.tests
    is "${of}_tests" cmp -s my.tests one$micro/tests
    [ -z "$have_python" ] || is "${of}_weights" near "one$micro/s_iter_6.caffemodel.h5" "$of/s_iter_6.caffemodel.h5" 1e-4
    [ -z "$have_python" ] || is "${of}_memory" memory "$of" "$of/metrics"
done <plans

# ---- norms are those of the whole net's weights: in clipping, and in the ratios of LARS and LAMB
norms() { # RULE PLANS SETTING…
    rule=$1 of_plans=" $2 "
    shift 2
    mkdir -p "$rule"
    runs "one_$rule" 0 'Iteration 6, loss' $train --set "snapshot_prefix=$rule/one" "$@"
    losses >one.losses
    while read -r of ranks; do
        case $of_plans in *" $of "*) ;; *) continue ;; esac
        runs "${of}_$rule" 0 'Iteration 6, loss' $JOB "$ranks" $train --parallel="$of.plan" --set "snapshot_prefix=$rule/$of" "$@"
        losses >my.losses
        is "${of}_${rule}_losses" same_losses
        [ -z "$have_python" ] || is "${of}_${rule}_weights" near "$rule/one_iter_6.caffemodel.h5" "$rule/${of}_iter_6.caffemodel.h5" 1e-4
    done <plans
}
norms clip "split uneven_stages mixed" --set clip_gradients=0.5
# micro-batches of a file: of their mean, as one rank with iter_size 4 limits four times the sum
runs one_clipped_4 0 'Iteration 6, loss' $train --global_batch_size=3 --set iter_size=4 --set clip_gradients=2 --set snapshot_prefix=clip/four
losses >one.losses
in_turn='ranks: 1 global_batch: 12 micro_batches: 4 stage { first: "conv1" last: "loss" rank: 0 }'
echo "$in_turn" >in_turn.plan
for of in "pipeline 2" "in_turn 1"; do
    runs "${of% *}_clip" 0 'Iteration 6, loss' $JOB "${of#* }" $train --parallel="${of% *}.plan" --set clip_gradients=0.5 --set "snapshot_prefix=clip/${of% *}"
    losses >my.losses
    is "${of% *}_clip_losses" same_losses
done
norms lars mixed --set type=LARS --set base_lr=1
norms lamb replicas --set type=LAMB --set momentum2=0.99 --set delta=1e-6 --set clip_gradients=0.5

# ---- any plan goes on from any other's snapshot
resume() { # NAME RANKS FROM
    mkdir -p "$1_after_$3"
    runs "$1_after_$3" 0 'Iteration 6, loss' $JOB "$2" $train --parallel="$1.plan" --set snapshot_prefix="$1_after_$3/s" \
        --snapshot="$3/s_iter_3.solverstate.h5"
    [ -z "$have_python" ] || is "$1_after_$3_weights" near one1/s_iter_6.caffemodel.h5 "$1_after_$3/s_iter_6.caffemodel.h5" 1e-4
}
resume split 2 mixed
resume replicas 4 inputs
resume stages 2 one1
mkdir -p one_after_mixed
runs one_after_mixed 0 'Iteration 6, loss' $train --set snapshot_prefix=one_after_mixed/s --snapshot=mixed/s_iter_3.solverstate.h5
[ -z "$have_python" ] || is one_after_mixed_weights near one1/s_iter_6.caffemodel.h5 one_after_mixed/s_iter_6.caffemodel.h5 1e-4

# ---- ZeRO: ranks with the same weights share out what they keep, and have the bits of those that keep all
echo 'ranks: 4 global_batch: 12 micro_batches: 2 stage { first: "conv1" last: "pool1" rank: 0 rank: 1 }
stage { first: "fc6" last: "loss" rank: 2 rank: 3 share: 4 share: 2 }' >square.plan
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' out; }
bits="$train --iterations=4 --set test_interval=4 --set snapshot=2 --set deterministic=true --set comm.bucket_mb=0.002"
shards() { # PLAN RANKS ZEROS SETTING…
    of=$1 ranks=$2 zeros=$3
    shift 3
    for zero in 0 $zeros; do
        runs "${of}_zero_$zero" 0 'Iteration 4, loss' $JOB "$ranks" $bits --parallel="$of.plan" --set memory.zero=$zero --set snapshot_prefix="$of$zero" --metrics=zero.metrics "$@"
        losses >my.losses
        sum_of >my.sum
        [ $zero != 0 ] || cp my.losses zero.losses
        [ $zero != 0 ] || cp my.sum zero.sum
        is "${of}_zero_${zero}_losses" cmp zero.losses my.losses
        is "${of}_zero_${zero}_weights" cmp zero.sum my.sum
    done
    [ -z "$have_python" ] || is "${of}_zero_memory" memory "$of" zero.metrics --set deterministic=true --set comm.bucket_mb=0.002 --set memory.zero="$zero" "$@"
    is "${of}_zero_said" test -s my.sum -a "$(wc -l <my.losses)" = 6
}
export CORTADO_POISON=1
shards square 4 '1 3' --set type=AdamW --set base_lr=0.01 --set average.type=EMA --set average.decay=0.9 --set clip_gradients=0.5
shards replicas 4 3 --set type=LAMB --set base_lr=0.01
shards uneven_stages 3 2 --set comm.forward_overlap=false
unset CORTADO_POISON
# sets are whole ones
for from in 0 3; do
    runs "square_after_zero_$from" 0 'Iteration 4, loss' $bits --set type=AdamW --set base_lr=0.01 --set average.type=EMA --set average.decay=0.9 \
        --set clip_gradients=0.5 --set snapshot_prefix=after --snapshot=square${from}_iter_2.solverstate.h5
    sum_of >after$from
done
is square_after_zero cmp after0 after3
is square_after_zero_said test -s after3

# ---- test by a file
score() { grep -E '^(Loss|accuracy|loss)' out | sed 's/ (.*//' >"$1.score"; }
weights=one1/s_iter_6.caffemodel.h5
runs test_one 0 '^accuracy = ' "$CORTADO" test --model=net.prototxt --weights=$weights --iterations=3
score one
while read -r of ranks; do
    runs "test_$of" 0 '^accuracy = ' $JOB "$ranks" "$CORTADO" test --model=net.prototxt --weights=$weights --iterations=3 --parallel="$of.plan"
    score my
    runs "time_$of" 0 'images/s .batch 12.' $JOB "$ranks" "$CORTADO" time --solver=solver.prototxt --iterations=2 --limits=false --parallel="$of.plan"
    is "test_${of}_same" sh -c 'paste one.score my.score | awk "{ d = \$NF - \$(NF / 2); if (d < 0) d = -d; if (d > 1e-5) exit 1; n++ } END { exit n != 3 }"'
done <plans

# ---- a rank that stops, and one that dies, in the middle of a schedule
begin() { # NAME SECONDS: a run without end; rank: the process of one of its ranks
    mkdir -p "$1"
    $JOB 2 $train --parallel=pipeline.plan --iterations=100000000 --set display=0 --set test_interval=100000000 \
        --set test_initialization=false --set snapshot=0 --set watchdog_seconds="$2" --set snapshot_prefix="$1/s" >out 2>&1 &
    job=$!
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q 'Solving parts' out && break
        sleep 1
    done
    sleep 1
    rank=$(ps -eo pid,args | grep "[t]rain .*snapshot_prefix=$1/s" | grep -v mpirun | grep -v ' sh ' | awk '{ print $1 }' | tail -n 1)
}
# Where a step ends nobody waits for a value of a stage: who is stopped just then is stopped once more.
for again in 1 2 3 4 5 6; do
    begin stopped$again 4
    kill -STOP "$rank" && stopped_one=0
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        grep -q '^E.*no progress' out && break
        sleep 1
    done
    kill -CONT "$rank"
    wait $job
    stopped_ends=$?
    grep -q '^E.*no progress for 4 s in exchange of gradients and update; no value is waited for' out || break
done
is stopped_one test "$stopped_one" = 0
is stopped_ends test $stopped_ends != 0
is stopped_says grep -Eq 'no progress for 4 s in stage [01]: (forward|backward) of micro-batch [0-3]; it waits for rank [01]: value' out
begin killed 60
is killed_ran grep -q 'Solving parts' out
is killed_one kill -KILL "$rank"
wait $job
is killed_ends test $? != 0
finish
