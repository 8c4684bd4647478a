#!/bin/sh
# Do two builds train to the same bits? LeNet and CIFAR-10 quick, 50 deterministic steps, every codec,
# several numbers of ranks; and resumed from iteration 25 on every other number of ranks. Compares the
# weights of the last snapshots, learned and statistic, byte by byte.
#   tests/bench/same_bits.sh OLD NEW        two cortado programs
#   NETS="lenet quick" CODECS="none topk" RANKS="1 2 4"   less of it
set -u
old=$1 new=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${NETS:=lenet quick}" "${CODECS:=none bf16 topk redsync onebit powersgd}" "${RANKS:=1 2 4}"
: "${MPIRUN:=mpirun}" "${MPIRUN_FLAGS=--oversubscribe --bind-to none}" "${BATCH:=32}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY=passive
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-bits.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
passed=0 failed=0

"$old" convert digits --to=digits --count=2000 --seed=1 >log 2>&1 || { cat log; exit 1; }
# without_data FILE: the layers of a net but for those that read data
without_data() {
    awk '
        /^layer *[{]/ { inside = 1; depth = 0; text = ""; data = 0 }
        inside {
            text = text $0 "\n"
            if ($0 ~ /type: *"Data"/) data = 1
            line = $0
            depth += gsub(/[{]/, "", line) - gsub(/[}]/, "", line)
            if (depth == 0) { inside = 0; if (!data) printf "%s", text }
        }' "$1"
}
net_of() { # NET: its train_val; quick on images drawn at random
    case $1 in
    lenet) sed "s#data/mnist/\(train\|test\)_lmdb#digits/\1_lmdb#" "$root/models/lenet/train_val.prototxt" ;;
    quick)
        echo 'layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {'
        echo "  shape { dim: $BATCH dim: 3 dim: 32 dim: 32 } shape { dim: $BATCH }"
        echo '  data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 3 } } }'
        without_data "$root/models/quick/train_val.prototxt"
        ;;
    esac
}
# trains PROGRAM RANKS NET CODEC FOLDER [SNAPSHOT]: FOLDER/s_iter_50.caffemodel.h5
trains() {
    mkdir -p "$5"
    sed "s#snapshot_prefix: .*#snapshot_prefix: \"$5/s\"#" "solver_$3.prototxt" >"$5/solver.prototxt"
    # shellcheck disable=SC2086
    $MPIRUN $MPIRUN_FLAGS -np "$2" "$1" train --solver="$5/solver.prototxt" --compression="$4" \
        ${6:+--snapshot=$6} >"$5/log" 2>&1 </dev/null
}
# compares A B NAME: weights of two snapshots
compare() {
    if [ -f "$1" ] && [ -f "$2" ] && "$old" convert model --from="$1" --to=a.npz >log 2>&1 &&
        "$old" convert model --from="$2" --to=b.npz >log 2>&1 && cmp -s a.npz b.npz; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "differs: $3"
        tail -n 3 "$(dirname "$1")/log" "$(dirname "$2")/log"
    fi
    rm -f a.npz b.npz
}
for net in $NETS; do
    net_of "$net" >"net_$net.prototxt"
    cat >"solver_$net.prototxt" <<EOF
net: "net_$net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005
max_iter: 50 snapshot: 25 snapshot_after_train: true display: 0 test_interval: 100000
test_initialization: false test_iter: 1 global_batch_size: $BATCH random_seed: 7 deterministic: true
snapshot_prefix: "s"
EOF
    for codec in $CODECS; do
        case $codec in
        topk | redsync) spec="$codec:density=0.05,min_bytes=1024" ;;
        *) spec="$codec" ;;
        esac
        for n in $RANKS; do
            for side in old new; do
                eval program=\$$side
                trains "$program" "$n" "$net" "$spec" "$side.$n" || true
            done
            compare "old.$n/s_iter_50.caffemodel.h5" "new.$n/s_iter_50.caffemodel.h5" "$net, $codec, $n ranks"
        done
        for n in $RANKS; do
            for m in $RANKS; do
                [ "$n" != "$m" ] || continue
                for side in old new; do
                    eval program=\$$side
                    trains "$program" "$m" "$net" "$spec" "$side.$n.$m" "$side.$n/s_iter_25.solverstate.h5" || true
                done
                compare "old.$n.$m/s_iter_50.caffemodel.h5" "new.$n.$m/s_iter_50.caffemodel.h5" \
                    "$net, $codec, resumed from $n on $m ranks"
            done
        done
        rm -rf old.* new.*
    done
    echo "$net: $passed the same, $failed differ"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
