#!/bin/sh
# Weights of GPT-2, Llama and BERT through Cortado and back into transformers; losses, gradients, logits and embeddings
# of larger nets than those of tests/golden/transformers. CORTADO_TRANSFORMERS names
# a Python that has torch and transformers; where it is not set they come from PyPI, some gigabytes.
set -u
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" numpy safetensors h5py torch transformers)} || {
    echo "skip huggingface: no Python with torch and transformers"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$python" "$ROOT/tests/golden/run_huggingface.py" "$CORTADO" "$work" 2>"$work/log" || {
    echo "not ok huggingface"
    tail -n 20 "$work/log"
}
for seed in 1 2 3; do
    mkdir "$work/$seed" "$work/$seed/nets"
    "$python" "$ROOT/tests/golden/make_transformers_golden.py" "$work/$seed" 8 $seed 2>>"$work/log" &&
        "$python" "$ROOT/tests/golden/run_transformers.py" "$CORTADO" "$work/$seed" "$work/$seed/nets" || {
        echo "not ok transformers_$seed"
        tail -n 20 "$work/log"
    }
done
