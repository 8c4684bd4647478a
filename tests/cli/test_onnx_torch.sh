# ONNX files that PyTorch's two exporters wrote, read as nets: outputs are PyTorch's. tests/golden/make_torch_onnx.py
# made them; larger nets are exported anew in tests/long/onnx_torch.sh.
. "$ROOT/tests/cli/lib.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime 2>venv.log) || {
    skip onnx_torch "no virtual environment with onnx and onnxruntime: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
read_onnx=$ROOT/tests/golden/read_onnx.py
cp "$ROOT"/tests/golden/torch/*.onnx "$ROOT"/tests/golden/torch/*.npz .
names=$(ls *.onnx | sed 's/\.onnx$//')
is both_exporters test "$(ls old_*.onnx | wc -l)" = "$(ls new_*.onnx | wc -l)"
for case in $names; do
    runs "net_$case" 0 'wrote' "$CORTADO" convert net --from="$case.onnx" --to="$case.prototxt" --weights_to="$case.h5" --sizes=n:2
done
for case in *bert*.prototxt *gpt*.prototxt; do
    is "attends_${case%.prototxt}" test "$(grep -c 'type: "Attention"' "$case") $(grep -c 'type: "Softmax"' "$case")" = "1 0"
done
is gpt_is_causal grep -q 'causal: true' new_gpt.prototxt
is bert_is_not sh -c '! grep -q causal new_bert.prototxt'
runs feed 0 '' "$python" "$read_onnx" feed_all $names
runs run_all 0 '' "$CORTADO" extract --model=all.fed --weights=all.h5 --iterations=1 --blobs="$(paste -sd, out)" --to=all.values
runs as_torch 0 'of the tolerance' "$python" "$read_onnx" compare_all $names
grep 'of the tolerance' out
finish
