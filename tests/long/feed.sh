#!/bin/sh
# Drawn data sets, and what nets are fed of them, by tests/faults/feed.py: CASES of SEED (100 of 1).
# A second run goes on in RESULTS (build/feed.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
results=${RESULTS:-$ROOT/build/feed.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/feed.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" >out 2>&1
is every_sample_is_right test $? = 0
cat out
finish
