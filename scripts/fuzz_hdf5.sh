#!/bin/sh
# Fuzzes the HDF5 readers: scripts/fuzz_hdf5.sh PROGRAM SECONDS FOLDER [CORPUS…]
#
# The HDF5 library breaks down over some broken files by itself. So the program runs in processes
# that may end, and afterwards each input that ended one is looked at. A fault counts as ours where
# our code, not the library, comes first in a stack of the report: in that of the fault, or in that
# of the allocation whose end was passed. Exit code 1: there is one.
set -u
program=$1 seconds=$2 folder=$3
shift 3
found=$folder.found
rm -rf "$found" && mkdir -p "$found" "$folder" || exit 1
FUZZ_SEEDS=$folder "$program" -max_total_time="$seconds" -fork=1 -ignore_crashes=1 -ignore_ooms=1 \
    -ignore_timeouts=1 -rss_limit_mb=1024 -timeout=10 -artifact_prefix="$found/" \
    "$folder" "$@" >"$found/log" 2>&1
grep -E '^#[0-9]+:' "$found/log" | tail -n 1

# inputs to begin with that end a process are left out by libFuzzer without a word
ours=0 library=0
for input in "$found"/crash-* "$found"/oom-* "$found"/timeout-* "$found"/leak-* "$folder"/seed.* \
    $([ $# = 0 ] || find "$@" -type f); do
    [ -f "$input" ] || continue
    log=$found/$(basename "$input").log
    if "$program" -rss_limit_mb=1024 -timeout=10 "$input" >"$log" 2>&1; then
        rm -f "$log"
        continue
    fi
    # the first frame of each stack that is neither the sanitizer's nor libc's
    if awk '/^ *#0 / { open = 1 }
            open && /libhdf5/ { open = 0 }
            open && / [^ ]*(framework|layers|comm|topology|tests)\/[^ ]*\.[ch]:/ { bad = 1; open = 0 }
            END { exit bad ? 0 : 1 }' "$log" || grep -q 'runtime error' "$log"; then
        ours=$((ours + 1))
        echo "fuzz_hdf5: $input"
        grep -E -m 1 'SUMMARY|runtime error' "$log"
    else
        library=$((library + 1))
    fi
done
echo "fuzz_hdf5: $ours inputs end in our code, $library in the HDF5 library itself ($found)"
[ "$ours" = 0 ]
