#!/bin/sh
# Drawn requests to drawn servers, by tests/faults/answers.py: CASES of SEED (100 of 1).
# A second run goes on in RESULTS (build/answers.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
has libmicrohttpd || { skip answers "built without libmicrohttpd"; finish; }
results=${RESULTS:-$ROOT/build/answers.jsonl}
CORTADO_LIBRARY=${CORTADO_LIBRARY:-$(dirname "$CORTADO")/lib/libcortado.so} MPIRUN="$MPIRUN $MPIRUN_FLAGS" \
    python3 "$ROOT/tests/faults/answers.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" >out 2>&1
is each_answer_is_right test $? = 0
cat out
finish
