# convert net --deploy: the net for use that belongs to a net for training, as the models' own are.
. "$ROOT/tests/cli/lib.sh"
shapes() { "$CORTADO" check --model=$1 --phase=TEST 2>/dev/null | grep -vE '^net | Input ' | tr -s ' ' >$2; }
for m in quick lenet googlenet resnet50 inception_v3 squeezenet; do
    runs makes_$m 0 '' "$CORTADO" convert net --deploy --from="$ROOT/models/$m/train_val.prototxt" --to=$m.prototxt
    shapes $m.prototxt made
    shapes "$ROOT/models/$m/deploy.prototxt" own
    is there_$m test -s made
    is same_net_$m cmp made own
done
is crop_and_mean grep -Pzq 'serve \{\s+transform_param \{\s+crop_size: 224\s+mean_value: 104\s+mean_value: 117\s+mean_value: 123\s+\}\s+new_height: 256\s+new_width: 256' resnet50.prototxt
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

cat >made_up.prototxt <<'NET'
layer { name: "data" type: "Input" top: "data" top: "label" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
runs no_samples 2 'no net for use can be made of it: in phase TEST it needs a data layer of samples' \
    "$CORTADO" convert net --deploy --from=made_up.prototxt --to=x
is nothing_left test ! -e x
runs there_already 2 'quick.prototxt exists already' "$CORTADO" convert net --deploy --from="$ROOT/models/quick/train_val.prototxt" --to=quick.prototxt
finish
