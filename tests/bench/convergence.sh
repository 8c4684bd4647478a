#!/bin/bash
# What compression costs in accuracy: the same training with every codec, from three seeds.
#   tests/bench/convergence.sh FOLDER [NET...]       lenet quick (both), quick_short, ptb, resnet20
# FOLDER holds what can be made again: data sets, logs. Finished runs become rows of
# docs/convergence/runs.csv and curves.csv (ROWS=another folder) and are not run again, so that it can
# be stopped and called at any time, and several can work side by side. Real data is found through CORTADO_DATA: mnist/*.gz of LeCun's
# files, cifar10/cifar10_jpg.tar.xz (all 60 000 images as JPEG), ptb/ptb.*.txt.
#   SEEDS="1 2 3" RANKS="2 4" ONLY="dense redsync" LIMIT=1500 (seconds a run may take)
#   CORTADO, MPIRUN: the program and how jobs start
# Nothing here depends on the speed of the machine: no time is in the rows.
# tests/bench/convergence_table.py makes tables and plots of the rows.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1" && work=$(cd "$1" && pwd) || exit 1
shift
cortado=${CORTADO:-$root/cortado}
rows=${ROWS:-$root/docs/convergence}
: "${MPIRUN:=mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1}"
: "${LIMIT:=1500}"
export OMP_NUM_THREADS=1
mkdir -p "$rows"
[ -f "$rows/runs.csv" ] ||
    echo "net,name,compression,ranks,seed,iterations,measure,value,loss,density,bytes_coded,bytes_sent" >"$rows/runs.csv"
[ -f "$rows/curves.csv" ] || echo "net,name,ranks,seed,iteration,value,loss" >"$rows/curves.csv"

say() { echo "$(date +%H:%M:%S) $*"; }
die() {
    echo "convergence.sh: $*" >&2
    exit 1
}

# ---- data
need() { [ -n "${CORTADO_DATA:-}" ] && [ -e "$CORTADO_DATA/$1" ] || die "CORTADO_DATA names no folder with $1"; }
data_lenet() {
    [ -d "$work/data/mnist/test_lmdb" ] && return
    need mnist
    "$cortado" convert mnist --from="$CORTADO_DATA/mnist" --to="$work/data/mnist" || die "mnist"
}
# The first thousand training images of each class, and all test images.
data_quick() {
    [ -d "$work/data/cifar10/test_lmdb" ] && return
    need cifar10/cifar10_jpg.tar.xz
    tar xJf "$CORTADO_DATA/cifar10/cifar10_jpg.tar.xz" -C "$work" || die "cifar10"
    for part in train test; do
        label=0
        for class in "$work/cifar10_jpg/$part"/*/; do
            ls "$class" | head -n 1000 | sed "s|^|$part/$(basename "$class")/|; s|\$| $label|"
            label=$((label + 1))
        done >"$work/$part.txt"
    done
    mkdir -p "$work/data/cifar10"
    "$cortado" convert images --list="$work/train.txt" --root="$work/cifar10_jpg" --to="$work/data/cifar10/train_lmdb" \
        --mean="$work/data/cifar10/mean.binaryproto" || die "cifar10"
    "$cortado" convert images --list="$work/test.txt" --root="$work/cifar10_jpg" --to="$work/data/cifar10/test_lmdb" || die "cifar10"
}
data_ptb() { die "ptb: rows are planned, not yet run"; }
data_resnet20() { die "resnet20: rows are planned, not yet run"; }

# ---- what is trained: iterations, dense ones at the start (a tenth), every how many a test, options
recipe() {
    case $1 in
    lenet) # Caffe's settings, a fifth of the iterations
        iterations=2000 every=400 batch=64 measure=accuracy
        options="" ;;
    quick) # Caffe's settings and iterations: 4000, then 1000 with a tenth of the rate
        iterations=5000 every=1000 batch=100 measure=accuracy
        options="--set=lr_policy=multistep --set=stepvalue=4000 --set=gamma=0.1" ;;
    quick_short) # not enough for 0.1 % of 2 ranks: what is not sent is late by 500 iterations
        iterations=1500 every=300 batch=100 measure=accuracy
        options="--set=lr_policy=multistep --set=stepvalue=1200 --set=gamma=0.1" ;;
    ptb | resnet20) die "$1: not yet run" ;;
    *) die "$1 is no net of this matrix" ;;
    esac
    warmup=$((iterations / 10))
}

# ---- with what: a name, and what --compression gets. The first two are run first, for all seeds.
codecs() {
    sparse="density=0.001,exchange=allgather"
    cat <<END
1 dense
1 redsync redsync:$sparse
2 topk topk:$sparse
2 redsync_quantised redsync:$sparse,quantize=true
2 redsync_gtopk redsync:density=0.001,exchange=gtopk
2 redsync_oktopk redsync:density=0.001,exchange=oktopk
2 redsync_search redsync:$sparse,selection=search
2 redsync_sampled redsync:$sparse,selection=sampled
2 powersgd powersgd:rank=2
2 onebit onebit
3 bf16 bf16
3 fp16 fp16
3 redsync_plain redsync:$sparse,momentum_correction=false
3 redsync_trimmed redsync:$sparse,selection=trimmed
3 redsync_resync redsync:$sparse,resync_iter=500
END
}

# ---- one run
value_of() { sed -n "s/.*\"$1\":\([-+0-9.e]*\).*/\1/p"; }
# "event":"test" of a file of metrics: iteration, measure, loss
tests_of() { sed -n "s/.*\"event\":\"test\",\"iter\":\([0-9]*\).*\"$2\":\([^,}]*\),\"loss\":\([^,}]*\).*/\1,\2,\3/p" "$1"; }

# The run itself, if its log is not that of one that ended well.
train() { # NET COMPRESSION RANKS SEED LOG
    [ -f "$5.jsonl" ] && tests_of "$5.jsonl" $measure | grep -q "^$iterations," && return
    rm -f "$5.log" "$5.jsonl"
    case $2 in
    "") codec= ;;
    *:*) codec="--compression=$2,min_bytes=4096,warmup_iter=$warmup" ;;
    *) codec="--compression=$2:min_bytes=4096,warmup_iter=$warmup" ;;
    esac
    (cd "$work" && exec timeout "$LIMIT" $MPIRUN -np "$3" "$cortado" train --solver="$root/models/${1%_short}/solver.prototxt" $options \
        --global_batch_size=$batch --seed="$4" --iterations=$iterations --set=test_interval=$every --set=test_iter=100 \
        --set=display=100 --set=snapshot=0 --set=snapshot_after_train=false --set=watchdog_seconds=0 \
        --set=comm.tune_iterations=0 --set=comm.progress=POLL --topology="${TOPOLOGY:-auto}" $codec \
        --metrics="$5.jsonl") >"$5.log" 2>&1 </dev/null
}

run_one() { # NET NAME COMPRESSION RANKS SEED
    net=$1 name=$2 with=$3 ranks=$4 seed=$5
    log=$work/logs/$net.$name.$ranks.$seed
    mkdir -p "$work/logs"
    exec 9>"$log.lock"
    flock -n 9 || return # another one is at it
    grep -q "^$net,$name,[^,]*,$ranks,$seed,$iterations," "$rows/runs.csv" && return
    train "$net" "$with" "$ranks" "$seed" "$log" || {
        say "$net $name ranks $ranks seed $seed FAILED: $log.log"
        return
    }
    last=$(tests_of "$log.jsonl" $measure | tail -n 1)
    [ "${last%%,*}" = $iterations ] || { say "$log.jsonl: no last test"; return; }
    density=$(sed -n 's/.*compression, a step in all: .*density \([0-9.e+-]*\) %.*/\1/p' "$log.log")
    event=$(grep '"event":"train"' "$log.jsonl" | tail -n 1)
    coded=$(echo "$event" | value_of bytes_coded)
    sent=$(echo "$event" | value_of bytes_sent)
    tests_of "$log.jsonl" $measure | sed "s/^/$net,$name,$ranks,$seed,/" >>"$rows/curves.csv"
    echo "$net,$name,${with//,/;},$ranks,$seed,$iterations,$measure,$(echo "$last" | cut -d, -f2,3),$density,$coded,$sent" >>"$rows/runs.csv"
    say "$(tail -n 1 "$rows/runs.csv")"
}

[ $# -ge 1 ] || set -- lenet quick
for net; do
    recipe "$net"
    "data_${net%_short}"
done
for turn in 1 2 3; do
    for ranks in ${RANKS:-2}; do
        for seed in ${SEEDS:-1 2 3}; do
            for net; do
                recipe "$net"
                while read -r when name with; do
                    [ "$when" = $turn ] || continue
                    [ -z "${ONLY:-}" ] || case " $ONLY " in *" $name "*) ;; *) continue ;; esac
                    run_one "$net" "$name" "$with" "$ranks" "$seed"
                done < <(codecs)
            done
        done
    done
done
say "all rows are there"
