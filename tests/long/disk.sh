#!/bin/sh
# Disks that fail at the calls of sets, metrics, conversions and plans (tests/faults/disk.py): CASES a mode (50; "all": each call).
# A second run goes on in RESULTS (build/disk.jsonl).
. "$ROOT/tests/cli/lib.sh"
can_preload || {
    skip disk "a sanitizer must come first"
    finish
}
results=${RESULTS:-$ROOT/build/disk.jsonl}
[ "${CASES:=50}" = all ] && most= || most=--most=$CASES
# shellcheck disable=SC2086 # nothing, or an option
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/disk.py" "$results" $most >out 2>&1
is every_fault_is_told test $? = 0
cat out
finish
