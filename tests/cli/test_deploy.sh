# convert net --deploy: the net for use that belongs to a net for training, as the models' own are.
. "$ROOT/tests/cli/lib.sh"
shapes() { "$CORTADO" check --model=$1 --phase=TEST 2>/dev/null | grep -vE '^net | Input ' | sed 's/data_input_0/data_data_0/g' | tr -s ' ' >$2; }
for m in quick lenet googlenet resnet50 inception_v3 squeezenet ssd300; do
    runs makes_$m 0 '' "$CORTADO" convert net --deploy --from="$ROOT/models/$m/train_val.prototxt" --to=$m.prototxt
    shapes $m.prototxt made
    shapes "$ROOT/models/$m/deploy.prototxt" own
    is there_$m test -s made
    is same_net_$m cmp made own
done
is crop_and_mean grep -Pzq 'serve \{\s+transform_param \{\s+crop_size: 224\s+mean_value: 104\s+mean_value: 117\s+mean_value: 123\s+\}\s+new_height: 256\s+new_width: 256' resnet50.prototxt
# images with boxes: each is resized from its own size
is of_any_size sh -c 'grep -q resize_param ssd300.prototxt && ! grep -q new_height ssd300.prototxt'
is finds_boxes sh -c 'tail -40 ssd300.prototxt | grep -q "type: \"DetectionOutput\"" && ! grep -qE "Evaluate|MultiBox" ssd300.prototxt'
is no_filler sh -c '! grep -q filler quick.prototxt'
is no_rates sh -c '! grep -qE "lr_mult|include|loss_weight" quick.prototxt googlenet.prototxt'

# two heads of one weight stay, with what leads to them; names of classes and weights that are shared, too
cat >two.prototxt <<'NET'
class_name: "a" class_name: "b"
layer { name: "in" type: "DummyData" top: "x" top: "y" top: "z"
  dummy_data_param { shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" param { name: "w" } inner_product_param { num_output: 2 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "x" top: "ip2" param { name: "w" lr_mult: 2 } inner_product_param { num_output: 2 bias_term: false } }
layer { name: "y2" type: "Power" bottom: "y" top: "y2" power_param { scale: 1 } }
layer { name: "one" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y2" top: "one" }
layer { name: "two" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "z" top: "two" }
layer { name: "off" type: "EuclideanLoss" bottom: "ip" bottom: "ip2" top: "off" }
NET
runs two_heads 0 '' "$CORTADO" convert net --deploy --from=two.prototxt --to=two.deploy
is heads [ "$(grep -cE '  type: "Softmax"' two.deploy)" = 2 ]
is two_named grep -q 'top: "two"' two.deploy
is no_labels sh -c '! grep -qE "\"(y|z|y2|off)\"" two.deploy'
is shared [ "$(grep -c 'name: "w"' two.deploy)" = 2 ]
is classes grep -q 'class_name: "b"' two.deploy
runs runs_it 0 '' "$CORTADO" check --model=two.deploy --phase=TEST

# what tests read, also where rules exclude, or go by a level
cat >rules.prototxt <<'NET'
layer { name: "train" type: "DummyData" top: "x" top: "y" exclude { phase: TEST } dummy_data_param { shape { dim: 4 dim: 7 } shape { dim: 4 } } }
layer { name: "level" type: "DummyData" top: "x" top: "y" include { min_level: 1 } dummy_data_param { shape { dim: 4 dim: 9 } shape { dim: 4 } } }
layer { name: "test" type: "DummyData" top: "x" top: "y" include { phase: TEST max_level: 0 } dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
NET
runs by_rules 0 '' "$CORTADO" convert net --deploy --from=rules.prototxt --to=rules.deploy
is shape_by_rules sh -c 'tr -d " \n" <rules.deploy | grep -q "shape{dim:1dim:3}"'

# what makes another size of samples in tests: the Input's is theirs, and serve does the same to pictures
of_size() { # NAME TYPE-AND-SHAPE TRANSFORM
    cat >$1.prototxt <<NET
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { $3 }
  data_param { batch_size: 2 synthetic_shape { $2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
}
input_is() { tr -d ' \n' <$1 | grep -q "shape{dim:1dim:3dim:$2dim:$3}"; }
of_size crop_h 'dim: 3 dim: 64 dim: 60' 'crop_h: 48 crop_w: 40 mean_value: 3'
runs makes_crop_h 0 '' "$CORTADO" convert net --deploy --from=crop_h.prototxt --to=crop_h.deploy
is input_of_crop_h input_is crop_h.deploy 48 40
is serves_crop_h grep -Pzq 'mean_value: 3\s+crop_h: 48\s+crop_w: 40\s+\}\s+new_height: 64\s+new_width: 60' crop_h.deploy
of_size resize 'dim: 3 dim: 64 dim: 60' 'resize_param { height: 48 width: 40 interp_mode: LINEAR } crop_size: 32'
runs makes_resize 0 '' "$CORTADO" convert net --deploy --from=resize.prototxt --to=resize.deploy
is input_of_resize input_is resize.deploy 32 32
is serves_resize grep -Pzq 'crop_size: 32\s+resize_param \{\s+height: 48\s+width: 40\s+interp_mode: LINEAR\s+\}\s+\}\s+new_height: 64\s+new_width: 60' resize.deploy
of_size resize_alone 'dim: 3 dim: 64 dim: 60' 'resize_param { height: 48 width: 40 }'
runs makes_resize_alone 0 '' "$CORTADO" convert net --deploy --from=resize_alone.prototxt --to=resize_alone.deploy
is input_of_resize_alone input_is resize_alone.deploy 48 40
of_size chance 'dim: 3 dim: 64 dim: 60' 'random_resize_param { min_size: 40 max_size: 48 } crop_size: 32'
runs sizes_by_chance 2 'layer "data" has transform_param.random_resize_param in phase TEST, by which sizes are drawn' \
    "$CORTADO" convert net --deploy --from=chance.prototxt --to=x
of_size too_small 'dim: 3 dim: 30 dim: 60' 'crop_h: 48 crop_w: 40'
runs crop_too_large 3 'layer "data": the sample is 30 x 60, pad 0, crop_h 48, crop_w 40' \
    "$CORTADO" convert net --deploy --from=too_small.prototxt --to=x
sed 's/type: "Data"/type: "AnnotatedData"/' crop_h.prototxt >boxes.prototxt
runs with_boxes 0 '' "$CORTADO" convert net --deploy --from=boxes.prototxt --to=boxes.deploy
is input_with_boxes input_is boxes.deploy 48 40
sed 's/synthetic_shape.*} }/source: "not_there" } }/' boxes.prototxt >no_size.prototxt
runs of_no_size 2 'no net for use can be made of it: in phase TEST it needs a data layer of samples whose source is there' \
    "$CORTADO" convert net --deploy --from=no_size.prototxt --to=x

sed 's/phase: TEST/phase: TRAIN/' crop_h.prototxt >made_up.prototxt
runs no_samples 2 'no net for use can be made of it: in phase TEST it needs a data layer of samples' \
    "$CORTADO" convert net --deploy --from=made_up.prototxt --to=x
cat >labels.prototxt <<'NET'
layer { name: "data" type: "Input" top: "data" top: "label" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "data" bottom: "label" top: "loss" }
NET
runs no_layers 2 'no net for use can be made of it: in phase TEST it needs layers that work on samples alone' \
    "$CORTADO" convert net --deploy --from=labels.prototxt --to=x
is nothing_left test ! -e x
runs there_already 2 'quick.prototxt exists already' "$CORTADO" convert net --deploy --from="$ROOT/models/quick/train_val.prototxt" --to=quick.prototxt
finish
