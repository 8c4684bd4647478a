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

python=
for p in ${PYTHON:-} python3 /usr/bin/python3; do
    if "$p" -c 'import torch' >/dev/null 2>&1; then python=$p && break; fi
done
# same NAME TEST-NET BLOB WEIGHTS ONNX: six digits are printed, of sums of some hundred products
same() {
    runs "ours_$1" 0 "$3 = " "$CORTADO" test --model="$2" --weights="$4" --iterations=1
    sed -n "s/.*] $3 = \([-0-9.e+]*\)\$/\1/p" out >ours
    if [ -z "$python" ]; then
        skip "numbers_$1" "no Python with PyTorch"
        return
    fi
    runs "theirs_$1" 0 '' "$python" "$ROOT/tests/golden/run_onnx.py" "$5" 0.5
    grep -v checker out >theirs
    is "numbers_$1" awk 'NR == FNR { a[FNR] = $1; n = FNR; next }
        { d = $1 - a[FNR]; m = FNR; s = a[FNR] < 0 ? -a[FNR] : a[FNR]
          if (d < 0) d = -d
          if (d > 2e-5 * (1 + s)) { bad++; print "    " FNR ": ours " a[FNR] ", theirs " $1 } }
        END { exit !(n > 0 && n == m && !bad) }' ours theirs
}
same net test.prototxt prob s_iter_3.caffemodel.h5 n.onnx

# ---- every other layer that has a form, flattened into one blob
formulas=$(sed -n '/^#define CT_NEURON_LAYERS(X)/,/^$/p' "$ROOT/layers/engine/neuron/neuron_math.h" |
    tr -d '\\\n' | sed 's/ X(/\n&/g' | sed -n '/{ .op = "/s/^[^"]*"\([^"]*\)".*/\1/p')
is formulas_are_listed test -n "$formulas"
many() { # INPUT-LAYER
    echo 'name: "many"'
    echo "$1"
    names=
    while IFS='|' read -r name type bottoms fields; do
        [ -n "$name" ] || continue
        tops="top: \"$name\""
        case $type in Slice) tops="top: \"$name\" top: \"${name}_rest\"" ;; esac
        echo "layer { name: \"$name\" type: \"$type\" $(for b in $bottoms; do printf 'bottom: "%s" ' "$b"; done) $tops $fields }"
        echo "layer { name: \"flat_$name\" type: \"Flatten\" bottom: \"$name\" top: \"flat_$name\" }"
        names="$names flat_$name"
    done <<'END'
c|Convolution|data|convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" } }
sigmoid|Sigmoid|c|
tanh|TanH|c|
elu|ELU|c|elu_param { alpha: 0.7 }
exp|Exp|c|exp_param { base: 2 scale: 0.5 shift: 0.25 }
log|Log|sigmoid|log_param { base: 10 scale: 3 shift: 0.5 }
power|Power|sigmoid|power_param { power: 1.7 scale: 2 shift: 0.5 }
affine|Power|c|power_param { scale: 2 shift: 0.5 }
clip|Clip|c|clip_param { min: -0.5 max: 0.7 }
relu6|ReLU6|c|
prelu|PReLU|c|
prelu1|PReLU|c|prelu_param { channel_shared: true }
swish|Swish|c|swish_param { beta: 1.5 }
gelu|GELU|c|
layer_norm|LayerNorm|c|layer_norm_param { axis: 2 scale_filler { type: "gaussian" } bias_filler { type: "gaussian" } }
mvn|MVN|c|
mvn_across|MVN|c|mvn_param { across_channels: true normalize_variance: false }
normalize|Normalize|c|norm_param { across_spatial: false channel_shared: false scale_filler { type: "gaussian" } }
normalize1|Normalize|c|
bn|BN|c|bn_param { slope_filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" } }
permute|Permute|c|permute_param { order: 0 order: 3 order: 1 }
reshape|Reshape|c|reshape_param { shape { dim: 0 dim: -1 dim: 3 } }
shuffle|ShuffleChannel|c|shuffle_channel_param { group: 2 }
slice|Slice|c|slice_param { slice_point: 2 }
crop|Crop|c small|crop_param { offset: 1 }
tile|Tile|c|tile_param { axis: 1 tiles: 2 }
sum|Reduction|c|reduction_param { axis: 2 coeff: 0.5 }
mean|Reduction|c|reduction_param { operation: MEAN axis: 2 }
asum|Reduction|c|reduction_param { operation: ASUM axis: 3 }
sumsq|Reduction|c|reduction_param { operation: SUMSQ axis: 2 }
argmax|ArgMax|c|argmax_param { axis: 1 }
embed|Embed|argmax|embed_param { num_output: 3 input_dim: 6 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } }
threshold|Threshold|c|threshold_param { threshold: 0.25 }
bias|Bias|c|bias_param { axis: 1 num_axes: 2 filler { type: "gaussian" } }
gates|Pooling|c|pooling_param { pool: AVE global_pooling: true }
largest|Pooling|c|pooling_param { global_pooling: true }
factors|Reshape|gates|reshape_param { shape { dim: 0 dim: 0 } }
scaled|Scale|c factors|scale_param { axis: 0 bias_term: true bias_filler { type: "gaussian" } }
axpy|Axpy|gates c elu|
upsample|Upsample|c|upsample_param { scale_h: 2 scale_w: 3 }
interp|Interp|c|interp_param { height: 9 width: 8 }
depth|DepthwiseConvolution|c|convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "gaussian" std: 0.5 } }
deconv|Deconvolution|c|convolution_param { num_output: 4 group: 2 kernel_size: 3 stride: 2 pad: 1 weight_filler { type: "gaussian" std: 0.5 } }
weighted|Eltwise|c elu|eltwise_param { coeff: -0.5 coeff: 2 }
product|Eltwise|c elu tanh|eltwise_param { operation: PROD }
middle|Flatten|c|flatten_param { axis: 2 }
END
    for type in $formulas; do # as their own table says them
        echo "layer { name: \"by_$type\" type: \"$type\" bottom: \"c\" top: \"by_$type\" }"
        echo "layer { name: \"flat_$type\" type: \"Flatten\" bottom: \"by_$type\" top: \"flat_$type\" }"
        names="$names flat_$type"
    done
    echo "layer { name: \"small\" type: \"Silence\" bottom: \"slice_rest\" }"
    echo "layer { name: \"all\" type: \"Concat\" top: \"all\" $(for b in $names; do printf 'bottom: "%s" ' "$b"; done) }"
}
shape='shape { dim: 2 dim: 3 dim: 6 dim: 5 } shape { dim: 2 dim: 6 dim: 3 dim: 2 }'
many "layer { name: \"in\" type: \"DummyData\" top: \"data\" top: \"small\" dummy_data_param { $shape data_filler { value: 0.5 } data_filler { value: 0.5 } } }" >test.prototxt
many "layer { name: \"in\" type: \"Input\" top: \"data\" top: \"small\" input_param { $shape } }" >deploy.prototxt
{
    many "layer { name: \"in\" type: \"DummyData\" top: \"data\" top: \"small\" dummy_data_param { $shape data_filler { type: \"gaussian\" } data_filler { value: 0.5 } } }"
    echo 'layer { name: "loss" type: "Reduction" bottom: "all" top: "loss" loss_weight: 1 }'
} >train.prototxt
cat >solver.prototxt <<'END'
net: "train.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: 1 random_seed: 5 solver_mode: CPU snapshot_prefix: "m"
END
runs train_many 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs convert_many 0 'wrote m.onnx' "$CORTADO" convert model --from=m_iter_1.caffemodel.h5 --net=deploy.prototxt --to=m.onnx
# a processor with other blocks converts other values between layers; the model is the same
runs convert_in_blocks 0 'wrote blocks.onnx' env CORTADO_SIMD=portable "$CORTADO" convert model --from=m_iter_1.caffemodel.h5 --net=deploy.prototxt --to=blocks.onnx
is blocks_do_not_show cmp m.onnx blocks.onnx
same many test.prototxt all m_iter_1.caffemodel.h5 m.onnx
finish
