# SSD's boxes as ONNX files: onnxruntime finds what DetectionOutput finds, row by row. Read again, the layer comes back;
# PriorBox comes back as a table.
. "$ROOT/tests/cli/lib.sh"
. "$ROOT/tests/cli/one_python.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime 2>venv.log) || {
    skip onnx_detection "no virtual environment with onnx and onnxruntime: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
one_python "$python" h5py onnx onnxruntime
# 4 classes, 144 priors; "tied" has two scores only, so that the order of equals counts
nets() { # INPUT-LAYER FIELDS-OF-EACH...
    echo "name: \"boxes\" $1"
    cat <<'END'
layer { name: "pa" type: "PriorBox" bottom: "fa" bottom: "data" top: "pa"
  prior_box_param { min_size: 7 max_size: 15 aspect_ratio: 2 flip: true clip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: 8 } }
layer { name: "pb" type: "PriorBox" bottom: "fb" bottom: "data" top: "pb" prior_box_param { min_size: 20 max_size: 34 aspect_ratio: 2 flip: true } }
layer { name: "priors" type: "Concat" bottom: "pa" bottom: "pb" top: "priors" concat_param { axis: 2 } }
layer { name: "w" type: "InnerProduct" bottom: "conf" top: "w" inner_product_param { num_output: 1 } }
layer { name: "tied" type: "Threshold" bottom: "conf" top: "tied" threshold_param { threshold: 0.6 } }
END
    while IFS='|' read -r name loc conf fields; do
        echo "layer { name: \"$name\" type: \"DetectionOutput\" bottom: \"$loc\" bottom: \"$conf\" bottom: \"priors\" top: \"$name\""
        echo "  detection_output_param { num_classes: 4 $fields } }"
    done
}
cat >cases <<'END'
shared|loc|conf|nms_param { nms_threshold: 0.45 top_k: 40 } keep_top_k: 25 code_type: CENTER_SIZE confidence_threshold: 0.3
each_class|each|conf|share_location: false nms_param { nms_threshold: 0.3 } code_type: CENTER_SIZE confidence_threshold: 0.5
corners|loc|conf|nms_param { nms_threshold: 0.2 top_k: 100 } keep_top_k: 150 code_type: CORNER variance_encoded_in_target: true background_label_id: 2
corner_sizes|each|conf|share_location: false nms_param { nms_threshold: 0.5 top_k: 30 } keep_top_k: 50 code_type: CORNER_SIZE background_label_id: -1
equals|loc|tied|nms_param { nms_threshold: 0.6 top_k: 60 } keep_top_k: 40 code_type: CENTER_SIZE confidence_threshold: 0.5
nothing|loc|conf|nms_param { nms_threshold: 0.45 top_k: 40 } keep_top_k: 25 code_type: CENTER_SIZE confidence_threshold: 2
END
names=$(cut -d'|' -f1 cases | paste -sd,)
given='top: "loc" top: "each" top: "conf" top: "data" top: "fa" top: "fb"'
shapes() { # BATCH
    echo "shape { dim: $1 dim: 576 } shape { dim: $1 dim: 2304 } shape { dim: $1 dim: 576 }
      shape { dim: $1 dim: 3 dim: 44 dim: 40 } shape { dim: $1 dim: 2 dim: 6 dim: 5 } shape { dim: $1 dim: 2 dim: 3 dim: 2 }"
}
filler='data_filler { type: "gaussian" std: 1 } data_filler { type: "gaussian" std: 1 } data_filler { type: "uniform" min: 0 max: 1 }'
filler="$filler data_filler { } data_filler { } data_filler { }"
nets "layer { name: \"in\" type: \"Input\" $given input_param { $(shapes 2) } }" <cases >deploy.prototxt
for batch in 2 5; do
    nets "layer { name: \"in\" type: \"DummyData\" $given dummy_data_param { $(shapes $batch) $filler } }" <cases >test_$batch.prototxt
done
# weights of the one layer that has some
cat >train.prototxt <<'END'
layer { name: "in" type: "DummyData" top: "conf" dummy_data_param { shape { dim: 1 dim: 576 } } }
layer { name: "w" type: "InnerProduct" bottom: "conf" top: "w" inner_product_param { num_output: 1 weight_filler { type: "gaussian" } } }
layer { name: "loss" type: "Reduction" bottom: "w" top: "loss" loss_weight: 1 }
END
echo 'train_net: "train.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 random_seed: 5 solver_mode: CPU snapshot_prefix: "w"' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
w=w_iter_1.caffemodel.h5
runs convert 0 'wrote boxes.onnx, for any batch' "$CORTADO" convert model --from=$w --net=deploy.prototxt --to=boxes.onnx
for batch in 2 5; do
    runs ours_$batch 0 '' "$CORTADO" extract --model=test_$batch.prototxt --weights=$w --iterations=1 --blobs="loc,each,conf,w,$names" --to=$batch.h5
    runs theirs_$batch 0 'of the tolerance' $python "$ROOT/tests/golden/run_onnx.py" boxes.onnx $batch.h5 --inputs=loc,each,conf --outputs="w,$names"
    cat out
done
$python - <<'PY' >counts || not_ok counts "$(cat counts)"
import h5py
with h5py.File("5.h5") as f:
    for name in ("shared", "each_class", "corners", "corner_sizes", "equals", "nothing"):
        rows = f[name][0, 0]
        found = rows[rows[:, 0] >= 0]
        print(name, len(rows), len(found))
        assert (len(found) > 0) == (name != "nothing") and (f[name][0, 0, len(found):] == -1).all()
        assert name in ("equals", "nothing") or len(set(found[:, 1])) >= 3, "all of one class"
PY
# what falls with each box, ONNX cannot say
printf '%s\n' 'falls|loc|conf|nms_param { nms_threshold: 0.6 eta: 0.9 } code_type: CENTER_SIZE' |
    nets "layer { name: \"in\" type: \"Input\" $given input_param { $(shapes 2) } }" >falls.prototxt
runs eta 2 'layer "falls" \(DetectionOutput\): an eta below 1, with which the threshold falls, has no form in ONNX here' \
    "$CORTADO" convert model --from=$w --net=falls.prototxt --to=falls.onnx
# read again: the same layer, whose rows are the same bit for bit; and written again, for onnxruntime
for batch in 2 5; do
    $python - $batch "w,$names" <<'PY'
import sys, h5py, numpy
with h5py.File(f"{sys.argv[1]}.h5") as f:  # what is fed, and what comes out
    numpy.savez("boxes.npz", **{name: f[name][:] for name in ["loc", "each", "conf"] + sys.argv[2].split(",")})
PY
    runs read_$batch 0 'wrote back.prototxt' "$CORTADO" convert net --from=boxes.onnx --to=back.prototxt --weights_to=back.h5 --sizes=batch:$batch --force
    is layers_come_back_$batch test "$(grep -c 'type: "DetectionOutput"' back.prototxt)" = "$(wc -l <cases)"
    $python "$ROOT/tests/golden/read_onnx.py" feed boxes.onnx back.prototxt fed.prototxt - >outputs
    runs run_read_$batch 0 '' "$CORTADO" extract --model=fed.prototxt --weights=back.h5 --iterations=1 --blobs="$(cat outputs)" --to=read_$batch.h5
    is same_rows_$batch $python - $batch "$names" <<'PY'
import sys, h5py
with h5py.File(f"{sys.argv[1]}.h5") as a, h5py.File(f"read_{sys.argv[1]}.h5") as b:
    for name in sys.argv[2].split(","):
        assert a[name].shape == b[name].shape and (a[name][:] == b[name][:]).all(), name
PY
    runs write_again_$batch 0 'wrote again.onnx, for any batch' "$CORTADO" convert model --from=back.h5 --net=back.prototxt --to=again.onnx --force
    runs theirs_again_$batch 0 'of the tolerance' $python "$ROOT/tests/golden/run_onnx.py" again.onnx $batch.h5 --inputs=loc,each,conf --outputs="w,$names"
done
# where one thing is otherwise than in our own files, nothing is read
cat >change.py <<'PY'
"""change.py WHAT: boxes.onnx with one thing changed, as WHAT.onnx."""
import sys
import numpy
import onnx
from onnx import numpy_helper

model, what = onnx.load("boxes.onnx"), sys.argv[1]
nodes = {n.name: n for n in model.graph.node}
values = {t.name: t for t in model.graph.initializer}


def put(name, value):
    values[name].CopyFrom(numpy_helper.from_array(value, name))


if what == "inputs":
    n = nodes["shared/high"]
    n.input[0], n.input[1] = n.input[1], n.input[0]
elif what == "axis":
    nodes["shared/judged"].attribute[0].i = 0
elif what == "attribute":
    nodes["shared/selected"].attribute.append(onnx.helper.make_attribute("center_point_box", 1))
elif what == "mark":
    put("shared/mark", numpy.float32(2))
elif what == "background":
    v = numpy_helper.to_array(values["shared/background"]).copy()
    v[0, 1, 0] = -1
    put("shared/background", v)
elif what == "limit":
    put("shared/nms_most", numpy.array([39], "i8"))
elif what == "output":  # the operator's own output is wanted, too
    model.graph.output.append(onnx.helper.make_tensor_value_info("shared/selected", onnx.TensorProto.INT64, None))
onnx.save(model, what + ".onnx")
PY
for what in inputs axis attribute mark background limit output; do
    is change_$what $python change.py $what
    runs refuses_$what 2 "$what.onnx: node \"shared/selected\" \(NonMaxSuppression\): .*as Cortado's own files" \
        "$CORTADO" convert net --from=$what.onnx --to=$what.prototxt
done
head -n 0 cases | nets "layer { name: \"in\" type: \"Input\" $given input_param { $(shapes 2) } }" >tables.prototxt
runs convert_tables 0 'wrote tables.onnx' "$CORTADO" convert model --from=$w --net=tables.prototxt --to=tables.onnx
runs read_tables 0 'wrote tables_back.prototxt' "$CORTADO" convert net --from=tables.onnx --to=tables_back.prototxt --weights_to=tables.h5
sed 's/type: "Input"/type: "DummyData"/; s/input_param/dummy_data_param/' tables_back.prototxt >tables_run.prototxt
runs tables_back 0 '' "$CORTADO" extract --model=tables_run.prototxt --weights=tables.h5 --iterations=1 --blobs=priors --to=tables_back.h5
runs tables 0 '' "$CORTADO" extract --model=test_2.prototxt --weights=$w --iterations=1 --blobs=priors --to=tables_ours.h5
is priors_come_back $python -c 'import h5py; a, b = [h5py.File(f)["priors"][:] for f in ("tables_back.h5", "tables_ours.h5")]; assert a.shape == (1, 2, 576) and (a == b).all()'
# ---- a small SSD: two maps of features, with a head for locations and one for scores on each
ssd() { # INPUT-LAYER DETECTS
    echo "name: \"ssd\" $1"
    cat <<'END'
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 stride: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 stride: 2 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "r2" type: "ReLU" bottom: "c2" top: "c2" }
END
    for k in 1 2; do
        for head in l s; do
            cat <<END
layer { name: "$head$k" type: "Convolution" bottom: "c$k" top: "$head$k"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "${head}p$k" type: "Permute" bottom: "$head$k" top: "${head}p$k" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "${head}f$k" type: "Flatten" bottom: "${head}p$k" top: "${head}f$k" }
END
        done
        cat <<END
layer { name: "p$k" type: "PriorBox" bottom: "c$k" bottom: "data" top: "p$k" prior_box_param { min_size: $((6 * k)) max_size: $((12 * k))
  aspect_ratio: 2 clip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
END
    done
    cat <<'END'
layer { name: "locations" type: "Concat" bottom: "lf1" bottom: "lf2" top: "locations" }
layer { name: "confidences" type: "Concat" bottom: "sf1" bottom: "sf2" top: "confidences" }
layer { name: "table" type: "Concat" bottom: "p1" bottom: "p2" top: "table" concat_param { axis: 2 } }
layer { name: "rows" type: "Reshape" bottom: "confidences" top: "rows" reshape_param { shape { dim: 0 dim: -1 dim: 4 } } }
layer { name: "shares" type: "Softmax" bottom: "rows" top: "shares" softmax_param { axis: 2 } }
layer { name: "flat" type: "Flatten" bottom: "shares" top: "flat" }
END
    [ "$2" = yes ] || return 0
    cat <<'END'
layer { name: "found" type: "DetectionOutput" bottom: "locations" bottom: "flat" bottom: "table" top: "found" detection_output_param {
  num_classes: 4 nms_param { nms_threshold: 0.45 top_k: 60 } keep_top_k: 30 code_type: CENTER_SIZE confidence_threshold: 0.4 } }
END
}
image='dim: 1 dim: 3 dim: 32 dim: 24'
{
    ssd "layer { name: \"in\" type: \"DummyData\" top: \"data\" dummy_data_param { shape { $image } data_filler { type: \"gaussian\" std: 1 } } }" no
    echo 'layer { name: "all" type: "Concat" bottom: "locations" bottom: "flat" top: "all" } layer { name: "none" type: "Silence" bottom: "table" }'
    echo 'layer { name: "loss" type: "Reduction" bottom: "all" top: "loss" loss_weight: 1e-6 }'
} >train.prototxt
sed -i 's/"w"/"ssd"/' solver.prototxt
runs ssd_weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
ssd "layer { name: \"in\" type: \"Input\" top: \"data\" input_param { shape { $image } } }" yes >ssd.prototxt
runs ssd_convert 0 'wrote ssd.onnx, for any batch' "$CORTADO" convert model --from=ssd_iter_1.caffemodel.h5 --net=ssd.prototxt --to=ssd.onnx
for batch in 1 8; do
    runs ssd_read_$batch 0 'wrote' "$CORTADO" convert net --from=ssd.onnx --to=ssd_back.prototxt --weights_to=ssd_back.h5 --sizes=batch:$batch --force
    outputs=$($python "$ROOT/tests/golden/read_onnx.py" feed ssd.onnx ssd_back.prototxt ssd_fed.prototxt $batch)
    runs ssd_run_$batch 0 '' "$CORTADO" extract --model=ssd_fed.prototxt --weights=ssd_back.h5 --iterations=1 --blobs="$outputs" --to=ssd_read.h5
    runs ssd_same_$batch 0 'of the tolerance' $python "$ROOT/tests/golden/read_onnx.py" compare ssd.onnx ssd_fed.prototxt ssd_read.h5
    cat out
    is ssd_finds_$batch $python - $batch <<'PY'
import sys, h5py
with h5py.File("ssd_read.h5") as f:
    rows, n = f["found"][0, 0], int(sys.argv[1])
found = rows[rows[:, 0] >= 0]
assert len(rows) == 30 * n and len(found) > 5 * n and len(set(found[:, 1])) > 1 and len(set(found[:, 0])) == n, found
PY
done
finish
