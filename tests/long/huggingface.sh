#!/bin/sh
# Weights of GPT-2, Llama and BERT through Cortado and back into transformers. CORTADO_TRANSFORMERS names
# a Python that has torch and transformers; where it is not set they come from PyPI, some gigabytes.
set -u
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" numpy safetensors torch transformers)} || {
    echo "skip huggingface: no Python with torch and transformers"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$python" "$ROOT/tests/golden/run_huggingface.py" "$CORTADO" "$work" 2>"$work/log" || {
    echo "not ok huggingface"
    tail -n 20 "$work/log"
}
