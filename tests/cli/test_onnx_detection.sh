# SSD's boxes as ONNX files: onnxruntime finds what DetectionOutput finds, row by row; PriorBox comes back as a table.
. "$ROOT/tests/cli/lib.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime 2>venv.log) || {
    skip onnx_detection "no virtual environment with onnx and onnxruntime: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
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
    runs theirs_$batch 0 'of the tolerance' "$python" "$ROOT/tests/golden/run_onnx.py" boxes.onnx $batch.h5 --inputs=loc,each,conf --outputs="w,$names"
    cat out
done
"$python" - <<'PY' >counts || not_ok counts "$(cat counts)"
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
# read again: boxes' priors as a table, and what is found not at all
runs refuses_found 2 'boxes.onnx: node "shared/selected" \(NonMaxSuppression\): .*DetectionOutput' "$CORTADO" convert net --from=boxes.onnx --to=boxes.prototxt
head -n 0 cases | nets "layer { name: \"in\" type: \"Input\" $given input_param { $(shapes 2) } }" >tables.prototxt
runs convert_tables 0 'wrote tables.onnx' "$CORTADO" convert model --from=$w --net=tables.prototxt --to=tables.onnx
runs read_tables 0 'wrote tables_back.prototxt' "$CORTADO" convert net --from=tables.onnx --to=tables_back.prototxt --weights_to=tables.h5
sed 's/type: "Input"/type: "DummyData"/; s/input_param/dummy_data_param/' tables_back.prototxt >tables_run.prototxt
runs tables_back 0 '' "$CORTADO" extract --model=tables_run.prototxt --weights=tables.h5 --iterations=1 --blobs=priors --to=tables_back.h5
runs tables 0 '' "$CORTADO" extract --model=test_2.prototxt --weights=$w --iterations=1 --blobs=priors --to=tables_ours.h5
is priors_come_back "$python" -c 'import h5py; a, b = [h5py.File(f)["priors"][:] for f in ("tables_back.h5", "tables_ours.h5")]; assert a.shape == (1, 2, 576) and (a == b).all()'
finish
