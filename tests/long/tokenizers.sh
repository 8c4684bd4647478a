#!/bin/sh
# Ids of mixed Unicode against tokenizers, tiktoken and gguf: other vocabularies and many more texts than
# tests/cli/test_tokenizer.sh has. Some minutes.
set -u
python=$("$ROOT/scripts/test_venv.sh" numpy tokenizers tiktoken gguf) || {
    echo "skip tokenizers: no virtual environment with tokenizers, tiktoken and gguf"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-tokenizers.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
rc=0
for seed in 101 102 103 104; do
    mkdir "$work/$seed"
    (cd "$work/$seed" && "$python" "$ROOT/tests/golden/run_tokenizers.py" "$CORTADO" "$ROOT"/docs/layers*.md \
        --seed=$seed --rounds=30) >"$work/log" || rc=1
    sed "s/^\(not ok\|ok\) .*/&_$seed/" "$work/log"
done
exit $rc
