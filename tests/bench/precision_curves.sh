#!/bin/sh
# Loss curves of precisions: the same short training with each, one rank, one seed.
#   tests/bench/precision_curves.sh FOLDER [NET ITERATIONS EVERY]...   net: lenet, quick, resnet20
# FOLDER holds data/mnist and data/cifar10 as the models name them. Rows go to docs/results/convergence/precision.csv (ROWS=file):
# net, precision, seed, iteration, loss (mean of the last EVERY iterations), test accuracy, test loss (over TESTS batches).
# On a GPU: PRECISIONS="F32 TF32 BF16 FP16" EXTRA=--solver_mode=gpu ROWS=file, since rows do not name the device.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
rows=${ROWS:-$root/docs/results/convergence/precision.csv}
seed=${SEED:-1}
[ $# -ge 4 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$1
shift
[ -f "$rows" ] || echo "net,precision,seed,iteration,loss,accuracy,test_loss" >"$rows"
while [ $# -ge 3 ]; do
    for precision in ${PRECISIONS:-F32 BF16}; do
        out=$(mktemp)
        (cd "$folder" && exec "$cortado" train --solver="$root/models/$1/solver.prototxt" --seed="$seed" --iterations="$2" \
            --set=test_interval="$3" --set=test_iter="${TESTS:-50}" --set=display="$3" --set=average_loss="$3" --set=snapshot=0 \
            --set=snapshot_after_train=false --set=precision=$precision ${EXTRA:-} --metrics="$out" --overwrite --log=error) || exit 1
        awk -v head="$1,$precision,$seed" '
            function value(of) { return match($0, "\"" of "\":[-+0-9.e]+") ? substr($0, RSTART + length(of) + 3, RLENGTH - length(of) - 3) : "" }
            /"event":"train"/ { loss[value("iter")] = value("loss") }
            /"event":"test"/ { i = value("iter"); if (i > 0 && !(i in seen)) order[++n] = i; seen[i] = value("accuracy") "," value("loss") }
            END { for (k = 1; k <= n; ++k) print head "," order[k] "," loss[order[k]] "," seen[order[k]] }' "$out" >>"$rows"
        rm -f "$out"
    done
    shift 3
done
