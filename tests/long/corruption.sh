#!/bin/sh
# Bits that change in the memory of a rank (tests/faults/corruption.py): CASES a mode (12: all).
# A second run goes on in RESULTS (build/corruption.jsonl).
. "$ROOT/tests/cli/lib.sh"
command -v gdb >/dev/null || {
    skip corruption "no gdb"
    finish
}
results=${RESULTS:-$ROOT/build/corruption.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/corruption.py" "$results" --most="${CASES:-12}" >out 2>&1
is every_bit_is_found test $? = 0
cat out
finish
