#!/bin/sh
# Every shipped net as an ONNX file with weights by chance, run by onnxruntime at batch 1 and 8, and read again: one table.
# CORTADO_MODELS names those to take, else all whose weights have less than 2 GB; CORTADO_TRANSFORMERS as in onnx_torch.sh.
# CORTADO_TABLE names a file to which each model's line is added. What is "ok" there is not run again, but printed.
set -u
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime)} || {
    echo "skip onnx_models: no Python with onnx and onnxruntime"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
rc=0
for deploy in "$ROOT"/models/*/deploy.prototxt; do
    model=$(basename "$(dirname "$deploy")")
    case " ${CORTADO_MODELS:-$model} " in *" $model "*) ;; *) continue ;; esac
    case ${CORTADO_MODELS:-}$model in gpt2_large | gpt2_xl) echo "skip $model: more than 2 GB of weights" && continue ;; esac
    if [ -f "${CORTADO_TABLE:-}" ] && grep "^ok $model," "$CORTADO_TABLE"; then continue; fi
    mkdir "$work/$model" && cd "$work/$model" || exit 1
    "$python" "$ROOT/tests/golden/run_models_onnx.py" "$CORTADO" "$deploy" "$model" >line 2>log || rc=1
    cat line
    [ -z "${CORTADO_TABLE:-}" ] || cat line >>"$CORTADO_TABLE"
    tail -n 5 log | sed 's/^/    | /'
    cd "$work" && rm -rf "$model"
done
exit $rc
