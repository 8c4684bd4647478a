#!/bin/sh
# Fields of the schema at the edges of their values, drawn by tests/faults/fields.py: CASES of SEED (100 of 1).
# A second run goes on in RESULTS (build/fields.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
results=${RESULTS:-$ROOT/build/fields.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/fields.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" >out 2>&1
is every_field_is_right test $? = 0
cat out
finish
