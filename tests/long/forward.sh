#!/bin/sh
# Drawn nets by every way that computes them, by tests/faults/forward.py: CASES of SEED (100 of 1); in onnxruntime, too.
# A second run goes on in RESULTS (build/forward.jsonl).
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
python=$("$ROOT/scripts/test_venv.sh" numpy onnx onnxruntime) || {
    not_ok venv "no virtual environment with onnx and onnxruntime"
    finish
}
results=${RESULTS:-$ROOT/build/forward.jsonl}
CORTADO_LIBRARY=${CORTADO_LIBRARY:-$(dirname "$CORTADO")/lib/libcortado.so} MPIRUN="$MPIRUN $MPIRUN_FLAGS" \
    python3 "$ROOT/tests/faults/forward.py" "$results" --cases="${CASES:-100}" --seed="${SEED:-1}" \
    --onnxruntime="$python" >out 2>&1
is every_way_is_right test $? = 0
cat out
finish
