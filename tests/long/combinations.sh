#!/bin/sh
# Options that meet each other, drawn by tests/faults/combinations.py: CASES of SEED (100 of 1).
# A second run goes on in RESULTS (build/combinations.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
results=${RESULTS:-$ROOT/build/combinations.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/combinations.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" >out 2>&1
is every_combination_is_right test $? = 0
cat out
finish
