#!/bin/sh
# LeNet on rendered digits with 2 ranks, once with dense gradients, once with top-k compression, and
# a table of both. Needs no download. `make demo` runs it; by hand: CORTADO=./cortado scripts/demo.sh
#   ITERATIONS=1000 RANKS=2     in the environment change the size
set -eu
cd "$(dirname "$0")/.."
root=$PWD
cortado=${CORTADO:-$root/cortado} mpirun=${MPIRUN:-mpirun} flags=${MPIRUN_FLAGS-}
ranks=${RANKS:-2} iterations=${ITERATIONS:-1000}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"

echo "Rendering digits"
"$cortado" convert digits --to=data/mnist --seed=1 2>convert.log || { cat convert.log >&2; exit 1; }

# run NAME OPTION...: train, show the log's essence as it comes, keep the metrics
run() {
    name=$1
    shift
    echo
    echo "Training LeNet, $ranks ranks, $name gradients"
    {
        $mpirun $flags -np "$ranks" "$cortado" train --solver="$root/models/lenet/solver.prototxt" \
            --iterations="$iterations" --global_batch_size=64 --seed=1 --metrics="$name.jsonl" \
            --set=test_interval=$((iterations / 4)) --set=test_iter=$((20 / ranks)) --set=snapshot=0 --set=snapshot_prefix="$name" "$@" 2>&1
        echo $? >"$name.rc"
    } | tee "$name.log" | sed -un 's/^.*\] \(Iteration [0-9]*\) (\(.*\) iter.s, .*), loss = \(.*\)$/  \1  loss \3  (\2 steps a second)/p
        s/^.*\] *Test net output #0: \(accuracy = .*\)$/  test \1/p; /^E/p'
    rc=$(cat "$name.rc")
    [ "$rc" = 0 ] || { tail -n 20 "$name.log" >&2; exit "$rc"; }
}

# number FILE EVENT FIELD WHAT: the last value, or the mean over all but the first event
number() {
    awk -v event="\"event\":\"$2\"" -v field="\"$3\":" -v what="$4" '
        index($0, event) && (at = index($0, field)) {
            v = substr($0, at + length(field)) + 0
            if (n++ > 0) { sum += v; m++ }
            last = v
        }
        END { print (what == "last") ? last : (m > 0 ? sum / m : last) }' "$1"
}

row() {
    printf '%-24s %9.2f %% %10.0f %17.2f ms %14.1f kB\n' "$1" \
        "$(awk -v a="$(number "$2" test accuracy last)" 'BEGIN { print 100 * a }')" \
        "$(number "$2" train images_per_s mean)" "$(number "$2" train comm_exposed_ms mean)" \
        "$(awk -v b="$(number "$2" train bytes_sent mean)" 'BEGIN { print b / 1000 }')"
}

run dense
run compressed --compression=topk:density=0.01,min_bytes=16384

echo
printf '%-24s %11s %10s %20s %17s\n' "gradients" "accuracy" "images/s" "exposed comm/step" "sent/rank, step"
row "dense" dense.jsonl
row "top-k, density 0.01" compressed.jsonl
