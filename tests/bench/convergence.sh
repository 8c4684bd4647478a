#!/bin/bash
# What compression costs in accuracy: the same training with every codec, from several seeds.
#   tests/bench/convergence.sh FOLDER [NET...]       quick lenet (both), quick_short, ptb, resnet20
# FOLDER holds what can be made again: data sets, snapshots, logs. Finished runs become rows of
# docs/results/convergence/runs.csv and curves.csv (ROWS=another folder) and are not run again; one that was stopped goes on
# from its last snapshot. So it can be stopped and called at any time, and several can work side by side.
# Real data is found through TEST_DATA: mnist/*.gz of LeCun's files, cifar10/cifar10_jpg.tar.xz (all 60 000
# images as JPEG), ptb/ptb.*.txt.
#   SEEDS="1 2 3" RANKS="2 4" ONLY="dense redsync" LIMIT=1500 (seconds a run may take)
#   CORTADO, MPIRUN: the program and how jobs start
# What AUTO chooses (auto_4, auto_64: on so many simulated nodes) is in docs/results/convergence/auto.csv; where that lacks a
# net, `cortado check --nodes` is asked, for the machine tests/bench/eth_1g.prototxt and images_per_s of recipe().
# Nothing else here depends on the speed of the machine: no time is in the rows.
# tests/bench/convergence_table.py makes tables and plots of the rows.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1" && work=$(cd "$1" && pwd) || exit 1
shift
cortado=${CORTADO:-$root/cortado}
rows=${ROWS:-$root/docs/results/convergence}
: "${MPIRUN:=mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1}"
: "${LIMIT:=1500}"
export OMP_NUM_THREADS=1
mkdir -p "$rows"
[ -f "$rows/runs.csv" ] ||
    echo "net,name,compression,ranks,seed,iterations,measure,value,loss,density,bytes_coded,bytes_sent" >"$rows/runs.csv"
[ -f "$rows/auto.csv" ] || echo "net,nodes,parameter,codec,exchange" >"$rows/auto.csv"
[ -f "$rows/curves.csv" ] || echo "net,name,ranks,seed,iteration,value,loss" >"$rows/curves.csv"

say() { echo "$(date +%H:%M:%S) $*"; }
die() {
    echo "convergence.sh: $*" >&2
    exit 1
}

# ---- data
need() { [ -n "${TEST_DATA:-}" ] && [ -e "$TEST_DATA/$1" ] || die "TEST_DATA names no folder with $1"; }
data_lenet() {
    [ -d "$work/data/mnist/test_lmdb" ] && return
    need mnist
    "$cortado" convert mnist --from="$TEST_DATA/mnist" --to="$work/data/mnist" || die "mnist"
}
# The first thousand training images of each class, and all test images.
data_quick() {
    [ -d "$work/data/cifar10/test_lmdb" ] && return
    need cifar10/cifar10_jpg.tar.xz
    tar xJf "$TEST_DATA/cifar10/cifar10_jpg.tar.xz" -C "$work" || die "cifar10"
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
data_ptb() {
    [ -f "$work/data/ptb/train.h5" ] && return
    need ptb
    "$cortado" convert text --from="$TEST_DATA/ptb" --to="$work/data/ptb" || die "ptb"
}
# All 50 000 training images, in a folder of its own: the net names its data as quick does.
data_resnet20() {
    [ -d "$work/all/data/cifar10/test_lmdb" ] && return
    [ -d "$work/cifar10_jpg" ] || data_quick
    [ -d "$work/cifar10_jpg" ] || tar xJf "$TEST_DATA/cifar10/cifar10_jpg.tar.xz" -C "$work" || die "cifar10"
    for part in train test; do
        label=0
        for class in "$work/cifar10_jpg/$part"/*/; do
            ls "$class" | sed "s|^|$part/$(basename "$class")/|; s|\$| $label|"
            label=$((label + 1))
        done >"$work/all_$part.txt"
        mkdir -p "$work/all/data/cifar10"
        "$cortado" convert images --list="$work/all_$part.txt" --root="$work/cifar10_jpg" \
            --to="$work/all/data/cifar10/${part}_lmdb" || die "cifar10"
    done
}

# ---- what is trained: iterations, dense ones at the start (a tenth), every how many a test, options
recipe() {
    folder=$work test_iter=100 seeds="1 2 3" keep=1000 images_per_s= clipped= local_clip=
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
    ptb) # six of the thirteen epochs, the last two with half and a quarter of the rate. Dense clips the norm of the whole
        # gradient at 0.25. Codecs clip the six large parameters each: at 0.25 / sqrt(6) the norm of all has the same bound.
        iterations=13938 every=2323 batch=20 measure=perplexity test_iter=184 seeds="1 2" images_per_s=1300
        options="" clipped="--set=clip_gradients=-1" local_clip=0.102 ;;
    resnet20) # a tenth of the iterations of the paper, 15 epochs, rate dropped at half and three quarters of them
        iterations=6000 every=1000 batch=128 measure=accuracy seeds="1 2" folder=$work/all images_per_s=6800
        options="--set=stepvalue=[3000,4500]" ;;
    *) die "$1 is no net of this matrix" ;;
    esac
    warmup=$((iterations / 10))
    solver=$root/models/${1%_short}/solver.prototxt
    [ "$1" != ptb ] || solver=$root/models/lstm/solver.prototxt
}

# ---- with what: a name, and what --compression gets. The first two are run first, for all seeds.
codecs() { # NET
    sparse="density=0.001,exchange=allgather"
    cat <<END
1 dense
1 redsync redsync:$sparse
END
    case $1 in
    ptb | resnet20)
        cat <<END
2 auto_4 auto
2 auto_64 auto
END
        # what AUTO takes for most layers there, alone
        [ "$1" != resnet20 ] || echo "2 redsync_gtopk redsync:density=0.001,exchange=gtopk"
        ;;
    *)
        cat <<END
2 topk topk:$sparse
2 redsync_quantised redsync:$sparse,quantize=true
2 redsync_gtopk redsync:density=0.001,exchange=gtopk
2 redsync_oktopk redsync:density=0.001,exchange=oktopk
2 redsync_search redsync:$sparse,selection=search
2 redsync_sampled redsync:$sparse,selection=sampled
2 powersgd powersgd:rank=2
2 onebit onebit
2 bf16 bf16
2 fp16 fp16
3 redsync_plain redsync:$sparse,momentum_correction=false
3 redsync_trimmed redsync:$sparse,selection=trimmed
3 redsync_resync redsync:$sparse,resync_iter=500
END
        ;;
    esac
}

# ---- what AUTO chooses on N nodes of one rank, each with its share of two of the batch: rows of auto.csv
prescribe() { # NET NODES
    grep -q "^$1,$2," "$rows/auto.csv" && return
    profile=$work/profile.$1.json
    share=$((batch / 2)) # of a rank
    [ -f "$profile" ] || (cd "$folder" && exec "$cortado" time --solver="$solver" $clipped --set=batch_size=$share --iterations=10 \
        --json="$profile") >"$profile.log" 2>&1 </dev/null || die "$profile.log"
    "$cortado" check --solver="$solver" $clipped --set=batch_size=$share --nodes="$2" --machine="$root/tests/bench/eth_1g.prototxt" \
        --profile="$profile" --images_per_s=$images_per_s --compression=auto:density=0.001,min_bytes=4096 >"$profile.$2.txt" 2>&1 ||
        die "$profile.$2.txt"
    sed -n '/^verdict/,$s/^\([a-z0-9]*\) (\([a-z]*\)): /\1 \2 /p' "$profile.$2.txt" |
        awk -v of="$1,$2" '{ for (i = 3; i <= NF; ++i) print of "," $i "," $1 "," $2; n += NF - 2 } END { if (!n) print of ",,none," }' >>"$rows/auto.csv"
}

# The solver whose net has these codecs in its parameters.
prescribed() { # NET NODES
    prescribe "$1" "$2"
    to=$work/auto/$1.$2
    mkdir -p "$to"
    cp "$solver" "$to/solver.prototxt"
    "$root/tests/bench/compress_params.py" "$(dirname "$solver")/train_val.prototxt" "$rows/auto.csv" "$1" "$2" \
        "density: 0.001 min_bytes: 4096 warmup_iter: $warmup${local_clip:+ local_clip: $local_clip}" >"$to/train_val.prototxt" || die "$to"
    solver=$to/solver.prototxt
}

# ---- one run
value_of() { sed -n "s/.*\"$1\":\([-+0-9.e]*\).*/\1/p"; }
# The tests of a file of metrics: iteration, measure, loss. Of those that were made again the last counts.
tests_of() {
    awk -v name="$2" '
        function value(of) { return match($0, "\"" of "\":[-+0-9.e]+") ? substr($0, RSTART + length(of) + 3, RLENGTH - length(of) - 3) : "" }
        /"event":"test"/ { i = value("iter"); if (!(i in row)) order[++n] = i; row[i] = value(name) "," value("loss") }
        END { for (k = 1; k <= n; ++k) print order[k] "," row[order[k]] }' "$1"
}
# The run itself, if its log is not that of one that ended well; from its last snapshot where there is one.
train() { # NET NAME COMPRESSION RANKS SEED LOG
    [ -f "$6.jsonl" ] && tests_of "$6.jsonl" $measure | grep -q "^$iterations," && return
    always=min_bytes=4096,warmup_iter=$warmup${local_clip:+,local_clip=$local_clip}
    case $3 in
    "") codec= ;;
    auto) prescribed "$1" "${2#auto_}"; codec="$clipped --compression=none${local_clip:+:local_clip=$local_clip}" ;;
    *:*) codec="$clipped --compression=$3,$always" ;;
    *) codec="$clipped --compression=$3:$always" ;;
    esac
    state=$work/state/$(basename "$6")
    mkdir -p "$state"
    (cd "$folder" && exec timeout "$LIMIT" $MPIRUN -np "$4" "$cortado" train --solver="$solver" $options \
        --global_batch_size=$batch --seed="$5" --iterations=$iterations --set=test_interval=$every --set=test_iter=$test_iter \
        --set=display=100 --set=snapshot=$keep --set=snapshot_keep=1 --set=snapshot_after_train=false \
        --set=snapshot_prefix="$state/at" --snapshot=auto --set=watchdog_seconds=0 --set=comm.tune_iterations=0 \
        --set=comm.progress=POLL --topology="${TOPOLOGY:-auto}" $codec --metrics="$6.jsonl") >>"$6.log" 2>&1 </dev/null &&
        rm -rf "$state"
}

run_one() { # NET NAME COMPRESSION RANKS SEED
    net=$1 name=$2 with=$3 ranks=$4 seed=$5
    log=$work/logs/$net.$name.$ranks.$seed
    mkdir -p "$work/logs"
    exec 9>"$log.lock"
    flock -n 9 || return # another one is at it
    grep -q "^$net,$name,[^,]*,$ranks,$seed,$iterations," "$rows/runs.csv" && return
    train "$net" "$name" "$with" "$ranks" "$seed" "$log" || {
        say "$net $name ranks $ranks seed $seed FAILED: $log.log"
        return
    }
    last=$(tests_of "$log.jsonl" $measure | tail -n 1)
    [ "${last%%,*}" = $iterations ] || { say "$log.jsonl: no last test"; return; }
    density=$(sed -n 's/.*compression, a step in all: .*density \([0-9.e+-]*\) %.*/\1/p' "$log.log" | tail -n 1) # a run that went on has two
    event=$(grep '"event":"train"' "$log.jsonl" | tail -n 1)
    coded=$(echo "$event" | value_of bytes_coded)
    sent=$(echo "$event" | value_of bytes_sent)
    tests_of "$log.jsonl" $measure | sed "s/^/$net,$name,$ranks,$seed,/" >>"$rows/curves.csv"
    echo "$net,$name,${with//,/;},$ranks,$seed,$iterations,$measure,$(echo "$last" | cut -d, -f2,3),$density,$coded,$sent" >>"$rows/runs.csv"
    say "$(tail -n 1 "$rows/runs.csv")"
}

[ $# -ge 1 ] || set -- quick lenet
for net; do
    recipe "$net"
    "data_${net%_short}"
done
for turn in 1 2 3; do
    for ranks in ${RANKS:-2}; do
        for seed in ${SEEDS:-1 2 3}; do
            for net; do
                recipe "$net"
                case " ${SEEDS:-$seeds} " in *" $seed "*) ;; *) continue ;; esac
                while read -r when name with; do
                    [ "$when" = $turn ] || continue
                    [ -z "${ONLY:-}" ] || case " $ONLY " in *" $name "*) ;; *) continue ;; esac
                    recipe "$net"
                    run_one "$net" "$name" "$with" "$ranks" "$seed"
                done < <(codecs "$net")
            done
        done
    done
done
say "all rows are there"
