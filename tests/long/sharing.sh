#!/bin/sh
# Two jobs that want the same files (tests/faults/sharing.py): DELAYS of the second (8) a mode.
# A second run goes on in RESULTS (build/sharing.jsonl).
. "$ROOT/tests/cli/lib.sh"
results=${RESULTS:-$ROOT/build/sharing.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/sharing.py" "$results" --delays="${DELAYS:-8}" >out 2>&1
is every_pair_is_right test $? = 0
cat out
finish
