#!/bin/bash
# What `memory` costs: stages of ZeRO and files beside what is kept whole. The figures of
# docs/results/2026-11-27-memory.md.
#   [ROUNDS=3] [RANKS="2 4"] [THREADS=N] tests/bench/memory.sh stages|files|bytes|resident FOLDER
# FOLDER has data/gpt2/train.bin (docs/language-models.md), and takes the files.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
mpirun=${MPIRUN:-mpirun --oversubscribe --bind-to none}
what=${1:?} folder=$(cd "${2:?}" && pwd)
cd "$folder" || exit 1
gpt="--model=$root/models/gpt2/train_val.prototxt --set=type=AdamW --set=base_lr=1e-5 --set=recompute=CHEAP"
field() { sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p" "$1" | head -1; }
# timed RANKS OPTIONS…: milliseconds of a step, its bytes sent
timed() {
    n=$1
    shift
    OMP_NUM_THREADS=$((${THREADS:-$(nproc)} / n > 0 ? ${THREADS:-$(nproc)} / n : 1)) $mpirun -np "$n" "$cortado" time \
        "$@" --limits=false --log=error --set=comm.tune_iterations=0 --json=bench.json >bench.log 2>&1 || { tail -3 bench.log; return; }
    printf '%10.1f ms %14s bytes\n' "$(field bench.json step_ms)" "$(field bench.json bytes_sent)"
}
case $what in
stages) # in turn, so that what the machine does meets all
    for round in $(seq ${ROUNDS:-3}); do
        for ranks in ${RANKS:-2 4}; do
            for zero in 0 1 2 3; do
                printf 'gpt2 B1 ranks %s zero %s ' $ranks $zero
                timed $ranks $gpt --set=batch_size=1 --iterations=3 --set=memory.zero=$zero
            done
        done
        for zero in 0 1 2 3; do
            printf 'alexnet B64 ranks 2 zero %s ' $zero
            timed 2 --model="$root/models/alexnet/train_val.prototxt" --set=batch_size=64 --iterations=4 --set=memory.zero=$zero
        done
    done ;;
files)
    for round in $(seq ${ROUNDS:-3}); do
        for batch in 1 4; do
            for state in HOST FILE; do
                printf 'gpt2 B%s state %s ' $batch $state
                timed 1 $gpt --set=batch_size=$batch --iterations=4 --set=memory.state=$state --set=memory.path=.
            done
        done
    done ;;
bytes)
    for ranks in 1 2 4; do
        for zero in 0 1 2 3; do
            OMP_NUM_THREADS=1 $mpirun -np $ranks "$cortado" train --solver="$root/models/gpt2/solver.prototxt" --set=clip_gradients=-1 \
                --set=batch_tokens=$((1024 * ranks)) --set=batch_size=1 --set=max_iter=1 --set=snapshot_after_train=false --set=snapshot=0 \
                --set=test_initialization=false --set=memory.zero=$zero --metrics=bytes.jsonl --overwrite=true >bench.log 2>&1
            printf 'gpt2 ranks %s zero %s ' $ranks $zero
            sed -n 's/.*\("ranks":\[.*\]\).*/\1/p' bytes.jsonl
        done
    done ;;
resident) # the most that a job of one rank had resident, in MiB, against what is planned; no data is needed
    printf '%-14s %10s %10s %10s\n' net planned peak allowed
    cd "$root" || exit 1
    for net in lenet:64 cifar10_full:100 alexnet:32 resnet20:32 lstm:20 gpt2:1; do
        python3 tests/bench/resident.py "$cortado" models/${net%:*}/solver.prototxt ${net#*:}
    done ;;
esac
