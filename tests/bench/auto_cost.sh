#!/bin/sh
# What `compression { type: AUTO }` costs where dense is fastest: 2 ranks in shared memory, pairs of runs
# in turns, medians of the pairs' ratios (AUTO over dense, to be 1.02 at most).
#   tests/bench/auto_cost.sh [PAIRS]        5
#   NETS="lenet quick alexnet"  RANKS=2
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
pairs=${1:-5}
: "${MPIRUN:=mpirun --oversubscribe --bind-to none}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

options() {
    case $1 in
    lenet) echo "--set=batch_size=32 --iterations=${STEPS:-400}" ;;
    quick) echo "--set=batch_size=50 --iterations=${STEPS:-60}" ;;
    *) echo "--set=batch_size=16 --iterations=${STEPS:-6}" ;;
    esac
}

step() { # NET COMPRESSION: ms
    # shellcheck disable=SC2046 # options are words
    $MPIRUN -np "${RANKS:-2}" "$cortado" time --model="$root/models/$1/train_val.prototxt" $(options "$1") \
        --compression="$2" >"$dir/log" 2>&1 || { tail -n 20 "$dir/log" >&2; exit 1; }
    sed -n 's/.*: step \([0-9.]*\) ms =.*/\1/p' "$dir/log"
}

printf '%-8s %10s %10s %8s  %s\n' net 'dense ms' 'AUTO ms' ratio 'of the pairs'
for net in ${NETS:-lenet alexnet}; do
    i=0
    : >"$dir/pairs"
    while [ $i -lt "$pairs" ]; do
        i=$((i + 1))
        if [ $((i % 2)) = 1 ]; then
            a=$(step "$net" none)
            b=$(step "$net" auto:density=0.001)
        else
            b=$(step "$net" auto:density=0.001)
            a=$(step "$net" none)
        fi
        echo "$a $b" >>"$dir/pairs"
    done
    awk '{ print $2 / $1 }' "$dir/pairs" | sort -n | tr '\n' ' ' >"$dir/ratios"
    median() { sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
    printf '%-8s %10.3f %10.3f %8.3f  %s\n' "$net" "$(awk '{ print $1 }' "$dir/pairs" | median)" \
        "$(awk '{ print $2 }' "$dir/pairs" | median)" "$(tr ' ' '\n' <"$dir/ratios" | grep . | median)" "$(cat "$dir/ratios")"
done
