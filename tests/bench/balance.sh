#!/bin/sh
# How evenly the work of training steps is split, on more threads than the machine has cores: sums of `cortado time --balance`.
#   tests/bench/balance.sh THREADS [NET BATCH ITERATIONS]...   net: a folder of models, or lstm1500 (its batch is fixed: any number)
# mean: processor time of a thread over all passes; last: where each pass waits for its last thread; first: what the first thread
# does in a step beyond the mean; wake: of it in each region, since threads that wait sleep here. Of each thread and pass the least of the iterations.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
threads=$1
shift
[ $# -ge 3 ] || set -- alexnet 64 3 vgg16 16 2 googlenet 64 3 resnet50 64 3 resnet20 128 6 lstm1500 20 2 alexnet 1 6 resnet50 1 6
printf '%-10s %5s %7s %9s %9s %7s %9s %9s\n' net batch threads "mean ms" "last ms" "even %" "first ms" "wake ms"
while [ $# -ge 3 ]; do
    model=$root/models/$1/train_val.prototxt
    batch=--set=batch_size=$2
    [ "$1" = lstm1500 ] && model=$root/models/lstm/train_val_1500.prototxt && batch=
    out=$(mktemp)
    # shellcheck disable=SC2086
    OMP_WAIT_POLICY=passive OMP_NUM_THREADS=$threads "$cortado" time --balance --limits=false --model="$model" $batch \
        --iterations="$3" --log=error >"$out" || { cat "$out"; rm -f "$out"; exit 1; }
    awk -v net="$1" -v batch="$2" -v threads="$threads" '
        /^balance   layers/ { mean = $5; last = $10; even = $(NF - 2) }
        /^balance   not/ { print; exit }
        /^ +steps:/ { printf "%-10s %5s %7s %9s %9s %7s %9s", net, batch, threads, mean, last, even, $(NF - 2) }
        /^ +to wake/ { printf " %9s\n", $7 }' "$out"
    rm -f "$out"
    shift 3
done
