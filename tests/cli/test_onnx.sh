# A net as an ONNX file: what onnx's checker and onnxruntime make of it, and what has no form there.
. "$ROOT/tests/cli/lib.sh"
. "$ROOT/tests/cli/one_python.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy h5py onnx onnxruntime 2>venv.log) || {
    skip onnx "no virtual environment with onnx and onnxruntime: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
one_python "$python" h5py onnx onnxruntime
# same NAME TEST-NET WEIGHTS ONNX BLOBS OPTION...: runs the net in both; BLOBS are what is compared and what is read
same() {
    case=$1 net=$2 weights=$3 file=$4 blobs=$5
    shift 5
    runs "ours_$case" 0 "$case.h5" "$CORTADO" extract --model="$net" --weights="$weights" --iterations=1 --blobs="$blobs" --to="$case.h5"
    theirs "$case" "$file" "$case.h5" "$@"
}
theirs() { # NAME ONNX VALUES OPTION...
    case=$1
    shift
    runs "theirs_$case" 0 'of the tolerance' $python "$ROOT/tests/golden/run_onnx.py" "$@"
    sed -n "s/^.*, worst/    $case: &/p" out
}
# back NAME ONNX BATCH OPTION...: the file read again as a net, which computes what onnxruntime makes of the file
back() {
    runs "read_$1" 0 'wrote' "$CORTADO" convert net --from="$2" --to="$1_back.prototxt" --weights_to="$1_back.h5" ${4:-}
    outputs=$($python "$ROOT/tests/golden/read_onnx.py" feed "$2" "$1_back.prototxt" "$1_fed.prototxt" "$3")
    runs "run_$1_read" 0 '' "$CORTADO" extract --model="$1_fed.prototxt" --weights="$1_back.h5" --iterations=1 --blobs="$outputs" --to="$1_read.h5"
    runs "same_$1_read" 0 'of the tolerance' $python "$ROOT/tests/golden/read_onnx.py" compare "$2" "$1_fed.prototxt" "$1_read.h5"
    rm -f "$1_back.h5"
}
# Layers "scale" and "ip" want names for what they make that are taken: norm2/scale by BatchNorm, ip/flat by a blob.
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
layer { name: "norm2" type: "BatchNorm" bottom: "conv2b" top: "norm2" }
layer { name: "scale" type: "Scale" bottom: "norm2" top: "norm2" }
layer { name: "cat" type: "Concat" bottom: "sum" bottom: "norm2" top: "cat" }
layer { name: "pool2" type: "Pooling" bottom: "cat" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool2" top: "ip/flat" }
layer { name: "ip" type: "InnerProduct" bottom: "ip/flat" top: "ip" inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 1 } } }
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
    data 'type: "gaussian" std: 1'
    body
    echo 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
    echo 'layer { name: "none" type: "Silence" bottom: "label" }'
} >test.prototxt
{
    echo 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 15 dim: 14 } } }'
    body
    echo 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
} >deploy.prototxt
cat >solver.prototxt <<'END'
net: "train.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 type: "AdamW" max_iter: 3 random_seed: 5 solver_mode: CPU snapshot_prefix: "s"
END
runs train 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs convert 0 'wrote n.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=n.onnx
runs without_net 2 'give its --net' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --to=m.onnx
sed 's/"SoftmaxWithLoss" bottom: "ip"/"HingeLoss" bottom: "ip"/' train.prototxt >hinge.prototxt
runs no_form 2 '"loss" \(HingeLoss\) has no form in ONNX here' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=hinge.prototxt --to=m.onnx
{
    cat train.prototxt
    echo 'layer { name: "twice" type: "Power" bottom: "loss" top: "twice" power_param { scale: 2 } }'
} >of_loss.prototxt
runs reads_a_loss 2 '"twice" \(Power\) reads a loss' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=of_loss.prototxt --to=m.onnx
echo 'layer { name: "in" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 } } }' >no_net.prototxt
echo 'layer { name: "silence" type: "Silence" bottom: "data" }' >>no_net.prototxt
runs nothing_left 2 'no layer of the net computes anything' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=no_net.prototxt --to=m.onnx
sed 's/num_output: 5/num_output: 6/' deploy.prototxt >wide.prototxt
runs other_shape 2 'shape 5 [0-9]+ .* in the file, 6' \
    "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=wide.prototxt --to=m.onnx

same net test.prototxt s_iter_3.caffemodel.h5 n.onnx data,prob --inputs=data --outputs=prob
# ---- any batch: that of the file was 2
runs any_batch 0 'wrote n.onnx, for any batch$' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=n.onnx --force
back any n.onnx 5
is batch_has_a_name test "$($python -c "
import onnx
g = onnx.load('n.onnx').graph
print([[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (g.input[0], g.output[0])])")" = "[['batch', 3, 15, 14], ['batch', 5]]"
runs fixed_batch 0 'wrote f.onnx$' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=f.onnx --fixed_batch
back fixed f.onnx -
is batch_is_a_size grep -q 'dim: 2' fixed_back.prototxt
sed 's/name: "prob" type: "Softmax" bottom: "ip"/name: "pairs" type: "Reshape" bottom: "ip" top: "pairs" reshape_param { shape { dim: 1 dim: 10 } } }\nlayer { name: "prob" type: "Softmax" bottom: "pairs"/' deploy.prototxt >pairs.prototxt
runs no_other_batch 0 "wrote p.onnx, for the net's batch alone: .*pairs" "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=pairs.prototxt --to=p.onnx
is no_error_told sh -c '! grep -q ERROR out'
back pairs p.onnx -
sed 's/dim: 1 dim: 10/dim: 1 dim: -1/' pairs.prototxt >joined.prototxt
runs other_nodes 0 "for the net's batch alone: .*would be another with one more" "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=joined.prototxt --to=j.onnx
runs fixed_weights 2 'is no .onnx file' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --to=w.npz --fixed_batch

# ---- a blob that its last layer writes in place: the output has its name
for f in test deploy; do sed 's/bottom: "ip" top: "prob"/bottom: "ip" top: "ip"/' $f.prototxt >own_$f.prototxt; done
runs in_place 0 'wrote own.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=own_deploy.prototxt --to=own.onnx
same in_place own_test.prototxt s_iter_3.caffemodel.h5 own.onnx data,ip --inputs=data --outputs=ip
back in_place own.onnx 3

# ---- large values beside the file
runs external 0 'wrote e.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=e.onnx --external_data
is external_is_beside test "$(stat -c %s e.onnx)" -lt "$(stat -c %s n.onnx)" -a -s e.onnx.data
same external test.prototxt s_iter_3.caffemodel.h5 e.onnx data,prob --inputs=data --outputs=prob
back external e.onnx 3
rm e.onnx
runs external_there 2 'e.onnx.data exists already; --force replaces it' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=e.onnx --external_data
is external_nothing_new test ! -e e.onnx
runs external_replaced 0 'wrote e.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=deploy.prototxt --to=e.onnx --external_data --force
truncate -s -1 e.onnx.data
runs external_short 3 'wants [0-9]* bytes from byte [0-9]* on of the file e.onnx.data' "$CORTADO" convert net --from=e.onnx --to=e.prototxt

# of the training net: the same without labels and loss; what is made of labels alone is left out with them, and an
# accuracy ends nothing
runs convert_train 0 'wrote t.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=train.prototxt --to=t.onnx
same train test.prototxt s_iter_3.caffemodel.h5 t.onnx data,prob --inputs=data --outputs=prob
{
    cat train.prototxt | sed 's/top: "loss" }/top: "loss" top: "p" } layer { name: "m" type: "Silence" bottom: "loss" }/'
    echo 'layer { name: "half" type: "Power" bottom: "label" top: "half" power_param { scale: 0.5 } }'
    echo 'layer { name: "back" type: "BatchReindex" bottom: "half" bottom: "half" top: "back" }'
    echo 'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }'
    echo 'layer { name: "hinge" type: "Silence" bottom: "back" }'
} >labels.prototxt
runs convert_labels 0 'wrote l.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=labels.prototxt --to=l.onnx
same labels labels.prototxt s_iter_3.caffemodel.h5 l.onnx data,p --inputs=data --outputs=p
# nothing but accuracy reads the last layer: it is the output
sed 's/type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"/type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy"/' train.prototxt >scores.prototxt
runs convert_scores 0 'wrote a.onnx' "$CORTADO" convert model --from=s_iter_3.caffemodel.h5 --net=scores.prototxt --to=a.onnx
same scores scores.prototxt s_iter_3.caffemodel.h5 a.onnx data,ip --inputs=data --outputs=ip

# ---- models as they are trained and used, with made-up data where they look for theirs
cat >images.py <<'PY'
"""images.py SIZE: eight PNG files of coloured squares, and on standard output the list of them."""
import random
import struct
import sys
import zlib

size = int(sys.argv[1])
random.seed(size)
for k in range(8):
    colours = [[bytes(random.randrange(256) for _ in range(3)) for _ in range(8)] for _ in range(8)]
    rows = b"".join(b"\0" + b"".join(colours[8 * y // size][8 * x // size] for x in range(size)) for y in range(size))
    png = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        png += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    with open(f"{size}_{k}.png", "wb") as f:
        f.write(png)
    print(f"{size}_{k}.png {k}")
PY
"$CORTADO" convert digits --to=data/mnist --count=100 >out 2>&1
for size in 32 256; do $python images.py $size >$size.txt; done
mkdir data/imagenet data/cifar10
for set in imagenet/train imagenet/val; do "$CORTADO" convert images --list=256.txt --root="$work/" --to=data/${set}_lmdb >out 2>&1; done
for set in cifar10/train cifar10/test; do
    "$CORTADO" convert images --list=32.txt --root="$work/" --to=data/${set}_lmdb --mean=data/cifar10/mean.binaryproto --force >out 2>&1
done
# model NAME LOGITS: two steps of training, then both forms of the net. AlexNet's widest layers are made narrower: 6 M weights, not 61
model() {
    sed 's/batch_size: [0-9]*/batch_size: 8/; s/num_output: 4096/num_output: 256/' "$ROOT/models/$1/train_val.prototxt" >"$1.prototxt"
    sed 's/shape { dim: 1 /shape { dim: 8 /; s/num_output: 4096/num_output: 256/' "$ROOT/models/$1/deploy.prototxt" >"$1_deploy.prototxt"
    sed "s/train.prototxt/$1.prototxt/; s/max_iter: 3/max_iter: 2/; s/\"s\"/\"$1\"/; s/0.01/0.0001/" solver.prototxt >"$1_solver.prototxt"
    runs "train_$1" 0 'Optimization Done' "$CORTADO" train --solver="$1_solver.prototxt"
    weights=$1_iter_2.caffemodel.h5
    runs "convert_$1" 0 'wrote' "$CORTADO" convert model --from="$weights" --net="$1.prototxt" --to="$1.onnx"
    same "$1" "$1.prototxt" "$weights" "$1.onnx" "data,$2" --logits="$2" --inputs=data --outputs=prob
    runs "convert_$1_deploy" 0 'wrote' "$CORTADO" convert model --from="$weights" --net="$1_deploy.prototxt" --to="$1_deploy.onnx"
    theirs "$1_deploy" "$1_deploy.onnx" "$1.h5" --logits="$2" --inputs=data --outputs=prob
    back "$1" "$1_deploy.onnx" 8
    rm -f "$1"*.onnx "$1"_iter_*
}
model lenet ip2
model quick ip2
model alexnet fc8
model resnet20 fc

# ---- every other layer that has a form, flattened so that other layers may read it too
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
clip|Clip|c|clip_param { min: -2 max: 3 }
relu6|ReLU6|c|
prelu|PReLU|c|
prelu1|PReLU|c|prelu_param { channel_shared: true }
swish|Swish|c|swish_param { beta: 1.5 }
gelu|GELU|c|
gelu_tanh|GELU|c|gelu_param { approximate: TANH }
rows|InnerProduct|c|inner_product_param { axis: 2 num_output: 7 weight_filler { type: "gaussian" std: 0.2 } bias_filler { type: "gaussian" } }
last|InnerProduct|rows|inner_product_param { axis: -1 num_output: 5 bias_term: false transpose: true weight_filler { type: "gaussian" std: 0.4 } }
within|LRN|c|lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.7 beta: 0.6 }
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
embed|Embed|argmax|param { name: "table" } embed_param { num_output: 3 input_dim: 6 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } }
tied|InnerProduct|embed|param { name: "table" } inner_product_param { axis: -1 num_output: 6 bias_term: false }
threshold|Threshold|c|threshold_param { threshold: 0.25 }
bias|Bias|c|bias_param { axis: 1 num_axes: 2 filler { type: "gaussian" } }
gates|Pooling|c|pooling_param { pool: AVE global_pooling: true }
largest|Pooling|c|pooling_param { global_pooling: true }
factors|Reshape|gates|reshape_param { shape { dim: 0 dim: 0 } }
scaled|Scale|c factors|scale_param { axis: 0 }
axpy|Axpy|gates c elu|
upsample|Upsample|c|upsample_param { scale_h: 2 scale_w: 3 }
interp|Interp|c|interp_param { height: 9 width: 8 }
depth|DepthwiseConvolution|c|convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "gaussian" std: 0.5 } }
deconv|Deconvolution|c|convolution_param { num_output: 4 group: 2 kernel_size: 3 stride: 2 pad: 1 weight_filler { type: "gaussian" std: 0.5 } }
weighted|Eltwise|c elu|eltwise_param { coeff: -0.5 coeff: 2 }
product|Eltwise|c elu tanh|eltwise_param { operation: PROD }
middle|Flatten|c|flatten_param { axis: 2 }
softmax|Softmax|c|softmax_param { axis: -1 }
rms_norm|RMSNorm|c|rms_norm_param { axis: 2 scale_filler { type: "gaussian" std: 1 } }
swiglu|SwiGLU|c elu|
swiglu1|SwiGLU|interp|
matmul|MatMul|c tanh|matmul_param { transpose_b: true alpha: 0.5 }
matmul_a|MatMul|c elu|matmul_param { transpose_a: true }
position|Position|c|position_param { max_length: 8 weight_filler { type: "gaussian" std: 1 } }
places|Threshold|sum|
position2|Position|c places|position_param { max_length: 8 weight_filler { type: "gaussian" std: 1 } }
sines|Position|c|position_param { type: SINUSOIDAL }
sines2|Position|c places|position_param { type: SINUSOIDAL max_length: 3 }
tokens|Reshape|tanh|reshape_param { shape { dim: 0 dim: 6 dim: 30 } }
few|Slice|tokens|slice_param { axis: 1 slice_point: 4 }
attention|Attention|tokens|attention_param { num_heads: 3 num_kv_heads: 1 causal: true rope { base: 100 } }
pairs|Attention|tokens|attention_param { num_heads: 6 num_kv_heads: 2 window: 3 causal: true scale: 0.4 rope { dim: 2 interleaved: true } }
both_ways|Attention|tokens places|attention_param { num_heads: 2 rope { dim: 2 } }
across|Attention|few tokens tokens|attention_param { num_heads: 10 }
behind|Attention|few tokens tokens places|attention_param { num_heads: 5 causal: true rope { interleaved: true } }
sync|SyncBN|c|bn_param { slope_filler { type: "gaussian" std: 1 } }
parameter|Parameter||parameter_param { shape { dim: 6 dim: 6 } }
with_parameter|Scale|c parameter|scale_param { axis: 1 bias_term: true bias_filler { type: "gaussian" } }
rois|Threshold|noise|
roi|ROIPooling|c rois|roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 4 }
largest_of|Eltwise|c elu tanh|eltwise_param { operation: MAX }
dropped|Dropout|c|
copies|Split|c|
END
    for type in $formulas; do # as their own table says them
        echo "layer { name: \"by_$type\" type: \"$type\" bottom: \"c\" top: \"by_$type\" }"
        echo "layer { name: \"flat_$type\" type: \"Flatten\" bottom: \"by_$type\" top: \"flat_$type\" }"
        names="$names flat_$type"
    done
    echo "layer { name: \"small\" type: \"Silence\" bottom: \"slice_rest\" bottom: \"few_rest\" }"
}
shape='shape { dim: 2 dim: 3 dim: 6 dim: 5 } shape { dim: 2 dim: 6 dim: 3 dim: 2 } shape { dim: 4 dim: 5 }'
given='top: "data" top: "small" top: "noise"'
fillers='data_filler { type: "gaussian" } data_filler { value: 0.5 } data_filler { type: "gaussian" std: 1 }'
many "layer { name: \"in\" type: \"DummyData\" $given dummy_data_param { $shape $fillers } }" >test.prototxt
many "layer { name: \"in\" type: \"Input\" $given input_param { $shape } }" >deploy.prototxt
{
    cat test.prototxt
    echo 'layer { name: "loss" type: "Reduction" bottom: "with_parameter" top: "loss" loss_weight: 1 }'
} >train.prototxt
cat >solver.prototxt <<'END'
net: "train.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: 1 random_seed: 5 solver_mode: CPU snapshot_prefix: "m"
END
runs train_many 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs convert_many 0 'wrote m.onnx, for any batch' "$CORTADO" convert model --from=m_iter_1.caffemodel.h5 --net=deploy.prototxt --to=m.onnx
# a processor with other blocks converts other values between layers; the model is the same
runs convert_in_blocks 0 'wrote blocks.onnx' env CORTADO_SIMD=portable "$CORTADO" convert model --from=m_iter_1.caffemodel.h5 --net=deploy.prototxt --to=blocks.onnx
is blocks_do_not_show cmp m.onnx blocks.onnx
outputs=$(sed -n 's/.*type: "Flatten".* top: "\(flat_[^"]*\)".*/\1/p' test.prototxt | paste -sd,)
same many test.prototxt m_iter_1.caffemodel.h5 m.onnx "data,noise,$outputs" --inputs=data,noise --outputs="$outputs"
back many m.onnx - --sizes=batch:3
is attention_comes_back test "$(grep -c 'type: "Attention"' many_back.prototxt) $(grep -c 'type: "Softmax"' many_back.prototxt)" = "5 1"
is with_its_window grep -q 'window: 3' many_back.prototxt
is with_its_segments test "$(sed -n '/type: "Attention"/,/attention_param/p' many_back.prototxt | grep -c bottom:)" = 17 # 3 each, and two

# ---- LSTMs: texts that end anywhere, with states that go over from batch to batch, and with states as blobs
texts() { # INPUT-LAYER
    echo "name: \"texts\" $1"
    cat <<'END'
layer { name: "cont" type: "Threshold" bottom: "noise" top: "cont" }
layer { name: "carry" type: "LSTM" bottom: "x" bottom: "cont" top: "carry"
  recurrent_param { num_output: 5 weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" } } }
layer { name: "states" type: "LSTM" bottom: "carry" bottom: "cont" bottom: "h0" bottom: "c0" top: "states" top: "h" top: "c"
  recurrent_param { num_output: 6 expose_hidden: true weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" } } }
layer { name: "out" type: "InnerProduct" bottom: "states" top: "out" inner_product_param { axis: 2 num_output: 3 weight_filler { type: "gaussian" std: 0.5 } } }
END
}
given='top: "x" top: "noise" top: "h0" top: "c0"'
shape='shape { dim: 7 dim: 3 dim: 4 } shape { dim: 7 dim: 3 } shape { dim: 1 dim: 3 dim: 6 } shape { dim: 1 dim: 3 dim: 6 }'
filler='data_filler { type: "gaussian" std: 1 }'
texts "layer { name: \"in\" type: \"DummyData\" $given dummy_data_param { $shape $filler $filler $filler $filler } }" >texts.prototxt
texts "layer { name: \"in\" type: \"Input\" $given input_param { $shape } }" >texts_deploy.prototxt
(cat texts.prototxt && echo 'layer { name: "loss" type: "Reduction" bottom: "out" top: "loss" loss_weight: 1 }') >train.prototxt
runs train_texts 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs convert_texts 0 'wrote texts.onnx, for any batch' "$CORTADO" convert model --from=m_iter_1.caffemodel.h5 --net=texts_deploy.prototxt --to=texts.onnx
runs texts_values 0 texts.h5 "$CORTADO" extract --model=texts.prototxt --weights=m_iter_1.caffemodel.h5 --iterations=1 --blobs=x,noise,h0,c0,h,c,out --to=texts.h5
$python - <<'PY'
import h5py, numpy
with h5py.File("texts.h5", "a") as f:  # the first batch begins with zeros
    for name in ("carry/h", "carry/c"):
        f[name] = numpy.zeros((1, 3, 5), "f4")
PY
theirs texts texts.onnx texts.h5 --inputs=x,noise,h0,c0,carry/h,carry/c --outputs=c,h,out --also=carry/h_last,carry/c_last
back texts texts.onnx - --sizes=batch:2
# one text a column: one node, both ways
$python "$ROOT/tests/golden/make_onnx.py" . >out
for case in lstm lstm_states lstm_back_states lstm_both_states; do
    runs "read_$case" 0 'wrote' "$CORTADO" convert net --from=$case.onnx --to=$case.prototxt --weights_to=$case.h5
    runs "write_$case" 0 'wrote' "$CORTADO" convert model --from=$case.h5 --net=$case.prototxt --to=${case}_2.onnx
    back ${case}_2 ${case}_2.onnx -
    case $case in *both*) nodes=2 ;; *) nodes=1 ;; esac # a node for each direction
    is "${case}_is_one_node" test "$($python -c "import onnx; print(sum(n.op_type == 'LSTM' for n in onnx.load('${case}_2.onnx').graph.node))")" = $nodes
done
finish
