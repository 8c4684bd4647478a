# ONNX files of others as nets: each operator beside onnxruntime, and what is refused, with its node.
# (Files of our own, read again: test_onnx.sh. PyTorch's: tests/long/onnx_torch.sh.)
. "$ROOT/tests/cli/lib.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime 2>venv.log) || {
    skip onnx_read "no virtual environment with onnx and onnxruntime: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
read_onnx=$ROOT/tests/golden/read_onnx.py
runs make 0 conv "$python" "$ROOT/tests/golden/make_onnx.py" .
names=$(cat out)
for case in $names; do
    runs "net_$case" 0 'wrote' "$CORTADO" convert net --from="$case.onnx" --to="$case.prototxt" --weights_to="$case.h5"
done
is erf_is_gelu grep -q 'type: "GELU"' gelu_old.prototxt
is means_are_layer_norm grep -q 'type: "LayerNorm"' layer_norm_old.prototxt
is a_sum_is_a_bias test "$(grep -c type: matmul.prototxt)" = 2
# one net of all: a program that starts once
runs feed 0 '' "$python" "$read_onnx" feed_all $names
runs run_all 0 '' "$CORTADO" extract --model=all.fed --weights=all.h5 --iterations=1 --blobs="$(paste -sd, out)" --to=all.values
runs as_onnxruntime 0 'of the tolerance' "$python" "$read_onnx" compare_all $names
grep 'of the tolerance' out
# ---- axes that have names
"$python" - <<'PY'
import onnx
from onnx import TensorProto, helper
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "t", 3])
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "named.onnx")
PY
runs sizes 0 'wrote named.prototxt, which has no weights' "$CORTADO" convert net --from=named.onnx --to=named.prototxt --sizes=t:5,n:4 --weights_to=named.h5
is sizes_are_taken test "$(sed -n 's/.*dim: //p' named.prototxt | paste -sd' ')" = "4 5 3"
is no_weights_no_file test ! -e named.h5
runs one_is_the_batch 0 'wrote' "$CORTADO" convert net --from=named.onnx --to=named.prototxt --sizes=t:5 --force
is batch_of_one test "$(sed -n 's/.*dim: //p' named.prototxt | paste -sd' ')" = "1 5 3"
runs weights_not_asked 0 '--weights_to=FILE would write its weights' "$CORTADO" convert net --from=conv.onnx --to=other.prototxt
runs weights_of_no_onnx 2 'is no .onnx file' "$CORTADO" convert net --from=conv.prototxt --to=other2.prototxt --weights_to=w.h5
runs weights_there 2 'conv.h5 exists already; --force replaces it' "$CORTADO" convert net --from=conv.onnx --to=other2.prototxt --weights_to=conv.h5
runs deploy 2 'becomes a net for use' "$CORTADO" convert net --from=conv.onnx --to=other2.prototxt --deploy
mkdir -p beside/conv.onnx.data/full
runs beside_a_folder 3 'cannot make beside/conv.onnx.data' "$CORTADO" convert model --from=conv.h5 --net=conv.prototxt --to=beside/conv.onnx --external_data --force
is no_files_on_the_way test "$(ls beside)" = conv.onnx.data
head -c 100 conv.onnx >cut.onnx
runs cut 3 'no ONNX model, or a damaged file' "$CORTADO" convert net --from=cut.onnx --to=cut.prototxt
# ---- what is refused leaves nothing behind
mkdir bad
runs make_bad 0 Sin "$python" "$ROOT/tests/golden/make_onnx.py" bad bad
cp out bad/names
while IFS='|' read -r case rc pattern; do
    runs "bad_$case" "$rc" "bad/$case.onnx: .*$pattern" "$CORTADO" convert net --from="bad/$case.onnx" --to="bad/$case.prototxt" --weights_to="bad/$case.h5"
    is "bad_${case}_leaves_nothing" test ! -e "bad/$case.prototxt" -a ! -e "bad/$case.h5"
done <bad/names
finish
