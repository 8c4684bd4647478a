# GPT-2, Llama and BERT, small, beside what transformers had of the same weights: tests/golden/run_transformers.py.
. "$ROOT/tests/cli/lib.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy safetensors h5py 2>venv.log) || {
    skip transformers "no virtual environment with safetensors and h5py: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
mkdir nets
runs compared 0 'bert_embedding' "$python" "$ROOT/tests/golden/run_transformers.py" "$CORTADO" "$ROOT/tests/golden/transformers" nets
grep -E '^(ok|not ok) ' out
is all_are_near sh -c '! grep -q "^not ok" out'
finish
