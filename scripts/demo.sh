#!/bin/sh
# LeNet on rendered digits with 2 ranks, once with dense gradients, once with top-k compression, and
# a table of both. Needs no download. `make demo` runs it; by hand: CORTADO=./cortado scripts/demo.sh
# Logs, metrics, curves and the table stay in a folder, which another run writes over.
#   ITERATIONS=1000 RANKS=2 FOLDER=build/demo     in the environment change the size and the place
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cortado=${CORTADO:-$root/cortado} mpirun=${MPIRUN:-mpirun} flags=${MPIRUN_FLAGS-}
[ -n "${CORTADO:-}" ] || [ -x "$cortado" ] || cortado=cortado # installed
case $cortado in */*) cortado=$(cd "$(dirname "$cortado")" && pwd)/$(basename "$cortado") ;; esac
ranks=${RANKS:-2} iterations=${ITERATIONS:-1000}
folder=${FOLDER:-}
if [ -z "$folder" ] && [ -f "$root/Makefile" ]; then folder=$root/build/demo; fi
mkdir -p "${folder:=cortado-demo}"
cd "$folder"
trap 'exit 1' INT TERM

echo "Rendering digits"
"$cortado" convert digits --to=data/mnist --seed=1 --force 2>convert.log || { cat convert.log >&2; exit 1; }

# run NAME OPTION...: train, show the log's essence as it comes, keep the metrics
run() {
    name=$1
    shift
    echo
    echo "Training LeNet, $ranks ranks, $name gradients"
    {
        $mpirun $flags -np "$ranks" "$cortado" train --solver="$root/models/lenet/solver.prototxt" \
            --iterations="$iterations" --global_batch_size=64 --seed=1 --metrics="$name.jsonl" --overwrite \
            --set=test_interval=$((iterations / 4)) --set=test_iter=$((20 / ranks)) --set=snapshot=0 --set=snapshot_prefix="$name" "$@" 2>&1
        echo $? >"$name.rc"
    } | tee "$name.log" | sed -un 's/^.*\] \(Iteration [0-9]*\) (\(.*\) iter.s, .*), loss = \(.*\)$/  \1  loss \3  (\2 steps a second)/p
        s/^.*\] *Test net output #0: \(accuracy = .*\)$/  test \1/p; /^E/p'
    rc=$(cat "$name.rc")
    rm -f "$name.rc"
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
        END { print (what == "last") ? last : (m > 0 ? sum / m : last) + 0 }' "$1"
}
mean() { number "$1.jsonl" train "$2" mean; }
step_ms() { awk -v a="$(mean "$1" wait_data_ms)" -v b="$(mean "$1" compute_ms)" -v c="$(mean "$1" comm_exposed_ms)" 'BEGIN { print a + b + c }'; }
codec_ms() { awk -v a="$(mean "$1" select_ms)" -v b="$(mean "$1" pack_ms)" -v c="$(mean "$1" unpack_ms)" 'BEGIN { print a + b + c }'; }

row() {
    printf '%-20s %8.2f %% %10.0f %11.2f ms %12.2f ms %9.2f ms %11.1f kB\n' "$1" \
        "$(awk -v a="$(number "$2.jsonl" test accuracy last)" 'BEGIN { print 100 * a }')" \
        "$(mean "$2" images_per_s)" "$(step_ms "$2")" "$(mean "$2" comm_exposed_ms)" "$(codec_ms "$2")" \
        "$(awk -v b="$(mean "$2" bytes_sent)" 'BEGIN { print b / 1000 }')"
}

# What the table shows about time, from its own numbers.
explain() {
    awk -v ranks="$ranks" -v dense="$(step_ms dense)" -v waits="$(mean dense comm_exposed_ms)" \
        -v sparse="$(step_ms compressed)" -v codec="$(codec_ms compressed)" -v bytes="$(mean dense bytes_sent)" 'BEGIN {
        printf "\nA compressed step takes %.2f ms, a dense one %.2f ms. ", sparse, dense
        if (sparse > dense) {
            printf "On one machine compression costs time: the %d ranks\n", ranks
            printf "exchange gradients through its memory, so a dense step waits only %.2f ms for them. That is the most\n", waits
            printf "that compression could save. Selecting, packing and unpacking entries takes %.2f ms, on cores that the\n", codec
            printf "layers need too, and sparse messages need more rounds than dense sums in memory.\n"
        } else {
            printf "A dense step waits %.2f ms for gradients, and\n", waits
            printf "coding takes %.2f ms: here compression did not cost time, although the ranks share one memory.\n", codec
        }
        printf "Between machines it is another matter: over 1 Gbit/s the %.1f MB of a dense step alone take %.0f ms.\n", bytes / 1e6, bytes * 8 / 1e6
        print "cortado check --solver=FILE --nodes=N says what it would gain there."
    }'
}

run dense
run compressed --compression=topk:density=0.01,min_bytes=16384
"$cortado" report dense.jsonl compressed.jsonl --to=curves.html --log=error

echo
{
    printf '%-20s %10s %10s %14s %15s %12s %14s\n' "gradients" "accuracy" "images/s" "step" "waits for them" "coding" "sent/rank, step"
    row "dense" dense
    row "top-k, density 0.01" compressed
    explain
} | tee table.txt
echo
echo "Kept in $PWD: curves.html, table.txt, and dense and compressed, each .log and .jsonl (metrics)"
