#!/bin/sh
# Trainings that hang or break at many moments (tests/faults/hangs.py): CASES a mode (12).
# A second run goes on in RESULTS (build/hangs.jsonl).
. "$ROOT/tests/cli/lib.sh"
can_preload || {
    skip hangs "a sanitizer must come first"
    finish
}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/hangs.py" "${RESULTS:-$ROOT/build/hangs.jsonl}" --most="${CASES:-12}" >out 2>&1
is every_hang_ends test $? = 0
cat out
finish
