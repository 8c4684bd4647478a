# train --parallel with a GPU a rank: replicas, layers split over ranks, stages. Losses, weights and test
# results are those of one rank on the host, up to the order of sums.
# Needs two GPUs, or a build whose GPUs and NCCL are stand-ins (make CUDA=emulated).
. "$ROOT/tests/cli/lib.sh"
gpus=$("$CORTADO" info --gpus 2>/dev/null)
emulated=
case $gpus in *"emulated on the host"*) emulated=1 CORTADO_EMULATED_GPUS=4 CORTADO_EMULATED_NCCL=1 ;; esac
n_gpu=$(echo "$gpus" | grep -c '^gpu [0-9]')
if [ -n "$emulated" ]; then
    export CORTADO_EMULATED_GPUS CORTADO_EMULATED_NCCL
    n_gpu=4
elif [ "$n_gpu" -lt 2 ]; then
    skip gpu_divided "needs two GPUs"
    finish
fi
"$CORTADO" convert digits --to=data --count=400 --seed=3 >out 2>&1 || { not_ok convert "digits"; finish; }
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
halves='layer { name: "fc6" split: OUTPUT } layer { name: "fc7" split: INPUT }'
plan() { # NAME RANKS MICRO-BATCHES STAGES
    [ "$2" -le "$n_gpu" ] || return 0
    echo "ranks: $2 global_batch: 12 micro_batches: $3 $4" >"$1.plan"
    echo "$1 $2 $3" >>plans
}
plan shares 2 1 "$in_one rank: 1 share: 7 share: 5 }"
plan split 2 1 "$in_one rank: 1 tensor: 2 $halves }"
plan stages 2 1 'stage { first: "conv1" last: "pool1" rank: 0 } stage { first: "fc6" last: "loss" rank: 1 }'
plan pipeline 2 4 'stage { first: "conv1" last: "pool1" rank: 0 } stage { first: "fc6" last: "loss" rank: 1 }'
plan classes 3 1 "$in_one rank: 1 rank: 2 tensor: 3 layer { name: \"conv1\" split: OUTPUT } layer { name: \"fc6\" split: INPUT } layer { name: \"relu7\" split: REPLICATE } layer { name: \"fc8\" split: OUTPUT } layer { name: \"loss\" split: OUTPUT } }"
plan replicas 4 1 "$in_one rank: 1 rank: 2 rank: 3 tensor: 2 share: 7 share: 5 $halves }"
plan mixed 4 2 "stage { first: \"conv1\" last: \"pool1\" rank: 0 rank: 1 share: 2 share: 4 } stage { first: \"fc6\" last: \"loss\" rank: 2 rank: 3 tensor: 2 $halves }"

have_python=$(command -v python3 || true)
[ -n "$have_python" ] || skip weights "no python3"
near() { # A B LIMIT: .caffemodel.h5 files
    for f in "$1" "$2"; do "$CORTADO" convert model --from="$f" --to="$f.npz" --force >>out 2>&1 || return 1; done
    python3 "$ROOT/tests/cli/near.py" "$1.npz" "$2.npz" "$3" 8 >>out 2>&1
}
losses() { # of each iteration, then of the test
    sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p; s/.*Test net output #1: loss = \([0-9.e+-]*\) .*/test \1/p' out
}
# a step's numbers go through some thousand roundings, in another order
same_losses() { paste one.losses my.losses | awk '{ d = $2 - $4; if (d < 0) d = -d; if (($1 != $3) || (d > 1e-4 * ($2 + 1))) exit 1; n++ } END { exit n != 8 }'; }
train="$CORTADO train --solver=solver.prototxt"
for micro in 1 2 4; do
    mkdir -p "one$micro"
    runs "one_rank_$micro" 0 'Iteration 6, loss' $train --global_batch_size=$((12 / micro)) --set "iter_size=$micro" --set "snapshot_prefix=one$micro/s"
    losses >"one$micro/losses"
done
while read -r of ranks micro; do
    for sum in NCCL HOST; do
        mkdir -p "$of"
        runs "${of}_$sum" 0 'Iteration 6, loss' $JOB "$ranks" $train --parallel="$of.plan" --solver_mode=gpu --set "comm.gpu_sum=$sum" --set "snapshot_prefix=$of/s"
        losses >my.losses
        cp "one$micro/losses" one.losses
        is "${of}_${sum}_losses" same_losses
        is "${of}_${sum}_on_gpus" grep -Eq 'forward: [0-9]+ of [0-9]+ steps in [0-9]+ graph' out
        [ -z "$have_python" ] || is "${of}_${sum}_weights" near "one$micro/s_iter_6.caffemodel.h5" "$of/s_iter_6.caffemodel.h5" 1e-3
        cp out "$of$sum.log"
        # only ranks of one stage have gradients in common
        case $sum$of in
        NCCLshares | NCCLsplit | NCCLclasses | NCCLreplicas | NCCLmixed) is "${of}_by_nccl" grep -q 'added up on the GPUs, by nccl' out ;;
        *) is "${of}_${sum}_by_host" test -z "$(grep 'by nccl' out)" ;;
        esac
    done
done <plans
for of in split classes replicas mixed; do # values cross no host; those of uneven shares, too
    [ ! -f "${of}NCCL.log" ] || [ $of = mixed ] || is "${of}_values_by_nccl" grep -q 'values of a replica are exchanged on the GPUs, by nccl' "${of}NCCL.log"
    [ ! -f "${of}NCCL.log" ] || is "${of}_layers_there" test -z "$(grep -E '(CopyToParts|SumParts|Gather|ReduceScatter|ScatterToParts). has no form' "${of}NCCL.log" "${of}HOST.log")"
done
[ "$n_gpu" -lt 4 ] || is replicas_of_parts grep -Eq 'gradients of replicas .*by nccl' replicasNCCL.log
# from a snapshot of stages on GPUs to a tensor group on the host, and the other way
resume() { # NAME FROM MODE
    mkdir -p "$1_after_$2"
    runs "$1_after_$2" 0 'Iteration 6, loss' $JOB 2 $train --parallel="$1.plan" --solver_mode="$3" \
        --set "snapshot_prefix=$1_after_$2/s" --snapshot="$2/s_iter_3.solverstate.h5"
    [ -z "$have_python" ] || is "$1_after_$2_weights" near one1/s_iter_6.caffemodel.h5 "$1_after_$2/s_iter_6.caffemodel.h5" 1e-3
}
resume split stages cpu
resume stages split gpu
runs tests 0 '^accuracy = ' $JOB 2 "$CORTADO" test --model=net.prototxt --weights=one1/s_iter_6.caffemodel.h5 --iterations=3 --parallel=split.plan --gpu=0
runs times 0 'images/s .batch 12.' $JOB 2 "$CORTADO" time --solver=solver.prototxt --solver_mode=gpu --iterations=2 --limits=false --parallel=split.plan
# a sum of one of several groups that never ends: the library tells of it, or the watchdog
if [ -n "$emulated" ]; then
    LIMIT=60
    broken="$train --parallel=split.plan --solver_mode=gpu"
    for n in 5 9; do
        runs "failed_$n" 1 'rank 1.*sum over ranks: NCCL: remote process exited' $JOB 1 $broken : -np 1 env CORTADO_EMULATED_NCCL_FAIL=$n $broken
    done
    runs nobody_tells 6 'no progress for 3 s .*replica exchange values on the GPUs, by nccl' \
        $JOB 2 env "CORTADO_EMULATED_NCCL_FAIL=9 silent" $broken --set watchdog_seconds=3
    unset LIMIT
fi
finish
