#!/bin/sh
# Drawn command lines of every verb, and how they end, by tests/faults/commands.py: CASES of SEED (100 of 1).
# A second run goes on in RESULTS (build/commands.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
results=${RESULTS:-$ROOT/build/commands.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/commands.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" >out 2>&1
is every_command_ends_as_it_must test $? = 0
cat out
finish
