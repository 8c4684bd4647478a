# A net as an ONNX file: what another implementation makes of it, and what has no form there.
. "$ROOT/tests/cli/lib.sh"
body() { # the net between its data and its end
    cat <<'END'
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 stride: 2 pad: 1 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "sc1" type: "Scale" bottom: "conv1" top: "conv1"
  scale_param { bias_term: true filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "constant" value: 0.2 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "norm1" type: "LRN" bottom: "conv1" top: "norm1" lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 } }
layer { name: "pool1" type: "Pooling" bottom: "norm1" top: "pool1" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "conv2a" type: "Convolution" bottom: "pool1" top: "conv2a"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 2 weight_filler { type: "xavier" } } }
layer { name: "conv2b" type: "Convolution" bottom: "pool1" top: "conv2b"
  convolution_param { num_output: 8 kernel_size: 1 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "conv2a" bottom: "conv2b" top: "sum" }
layer { name: "leaky" type: "ReLU" bottom: "sum" top: "sum" relu_param { negative_slope: 0.1 } }
layer { name: "cat" type: "Concat" bottom: "sum" bottom: "conv2b" top: "cat" }
layer { name: "pool2" type: "Pooling" bottom: "cat" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool2" top: "pool2" }
layer { name: "ip" type: "InnerProduct" bottom: "pool2" top: "ip" inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 1 } } }
END
}
data() { # FILLER
    echo 'name: "n" layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {'
    echo "shape { dim: 2 dim: 3 dim: 15 dim: 14 } shape { dim: 2 } data_filler { $1 } data_filler { type: \"constant\" value: 2 } } }"
}
{
    data 'type: "gaussian" std: 1'
    body
    echo 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
} >train.prototxt
{
    data 'type: "constant" value: 0.5'
    body
    echo 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
    echo 'layer { name: "none" type: "Silence" bottom: "label" }'
} >test.prototxt
{
    echo 'name: "n" layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 15 dim: 14 } } }'
    body
    echo 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
} >deploy.prototxt
cat >solver.prototxt <<'END'
net: "train.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 type: "AdamW" max_iter: 3 random_seed: 5 solver_mode: CPU snapshot_prefix: "s"
END
runs train 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs convert 0 'wrote n.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=n.onnx
runs without_net 2 'give its --net' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --to=m.onnx
runs no_form 2 '"loss" \(SoftmaxWithLoss\) has no form in ONNX here' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=train.prototxt --to=m.onnx
sed 's/num_output: 5/num_output: 6/' deploy.prototxt >wide.prototxt
runs other_shape 2 'shape 5 [0-9]+ .* in the file, 6' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=wide.prototxt --to=m.onnx

runs ours 0 'prob = ' "$CORTADO" test --model=test.prototxt --weights=s_iter_3.caffemodel.h5 --iterations=1
sed -n 's/.*prob = \([0-9.e+-]*\)$/\1/p' out | tail -n 10 >ours
python=
for p in ${PYTHON:-} python3 /usr/bin/python3; do
    if "$p" -c 'import torch' >/dev/null 2>&1; then python=$p && break; fi
done
if [ -z "$python" ]; then
    skip numbers "no Python with PyTorch"
    finish
fi
runs theirs 0 '' "$python" "$ROOT/tests/golden/run_onnx.py" n.onnx 0.5
grep -v checker out >theirs
# six digits are printed; sums of some hundred products
is numbers awk 'NR == FNR { a[FNR] = $1; n = FNR; next } { d = $1 - a[FNR]; if (d < 0) d = -d; if (d > 1e-5) bad++; m = FNR }
    END { exit !(n == 10 && m == 10 && !bad) }' ours theirs
finish
