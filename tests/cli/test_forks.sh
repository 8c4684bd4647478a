# Nets of NVIDIA's and Intel's forks: what is taken, ignored in one line, refused by name.
. "$ROOT/tests/cli/lib.sh"

# net FILE: its first lines come from stdin
net() {
    cat - >"$1"
    cat >>"$1" <<'NET'
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
NET
}

# ---- hints: fields that say how a fork runs a net
net plain.prototxt </dev/null
runs plain 0 '' "$CORTADO" check --model=plain.prototxt --strict
is plain_says_nothing sh -c '! grep -q ignored out'
net nvidia.prototxt <<'NET'
default_forward_type: FLOAT16
default_backward_type: FLOAT
default_forward_math: FLOAT
global_grad_scale: 1e3
default_conv_algos_override: "1," "2,3"
layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 4 } } forward_type: FLOAT backward_math: FLOAT16
        cudnn_math_override: -1 }
layer { name: "b" type: "Split" bottom: "a" top: "b" forward_type: FLOAT }
NET
runs nvidia 0 'nvidia.prototxt: ignored: default_forward_type, default_backward_type, default_forward_math, default_conv_algos_override, global_grad_scale, forward_type, backward_math, cudnn_math_override \(hints for NVIDIA.s engines\)$' \
    "$CORTADO" check --model=nvidia.prototxt --phase=TRAIN
is nvidia_in_one_line sh -c '[ $(grep -c ignored out) = 1 ]'
runs strict 2 'nvidia.prototxt:1:1: "default_forward_type" is a hint for NVIDIA.s engines, and --strict lets none be ignored; take it out' \
    "$CORTADO" check --model=nvidia.prototxt --strict
cat >both.prototxt <<'NET'
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
eltwise_mem_sharing: false
multinode: { model_parallel { layer_from: "a>" num_nodes: 2 } compress_layer_type_list < layer_type: ["x", "y"] > }
layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_norm_param { engine: MKL2017 }
        quantization_param { bw_layer_in: 8 scale_in: [1.5, 2] } multinode { num_nodes: 1 } }
NET
runs both 0 'both.prototxt: ignored: eltwise_mem_sharing \(hints for NVIDIA.s engines\), multinode, quantization_param, engine \(hints for Intel.s engines\)$' \
    "$CORTADO" check --model=both.prototxt
echo 'net: "both.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 solver_data_type: FLOAT16' >solver.prototxt
runs solver 0 'solver.prototxt: ignored: solver_data_type \(hints for NVIDIA.s engines\)$' "$CORTADO" check --solver=solver.prototxt
runs solver_strict 2 'solver.prototxt:1:[0-9]+: "solver_data_type" is a hint' "$CORTADO" check --solver=solver.prototxt --strict
sed -i 's/ solver_data_type.*//' solver.prototxt
runs solver_net_strict 2 'both.prototxt:2:1: "eltwise_mem_sharing" is a hint' "$CORTADO" check --solver=solver.prototxt --strict
echo 'multinode { model_parallel { layer_from: "a" }' >open.prototxt
runs not_closed 2 'open.prototxt:1:11: this "\{" is not closed' "$CORTADO" check --model=open.prototxt
echo 'default_forward_type FLOAT' >colon.prototxt
runs no_colon 2 'colon.prototxt:1:22: default_forward_type: expected ":"' "$CORTADO" check --model=colon.prototxt
echo 'default_forward_type: }' >value.prototxt
runs no_value 2 'default_forward_type: expected a value' "$CORTADO" check --model=value.prototxt
echo 'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 4 } forward_type: FLOAT } }' >place.prototxt
runs elsewhere 2 'unknown field "forward_type"' "$CORTADO" check --model=place.prototxt
# ---- BatchNorm that scales, layers with a ReLU
net fused.prototxt <<'NET'
bn_stats_batch_size: 2
NET
cat >>fused.prototxt <<'NET'
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3 relu: true } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" batch_norm_param { scale_bias: true scale_filler { value: 2 } } }
NET
runs fused 0 '^bn_scale +Scale +bn +4 2 6 6 .288. +4 ' "$CORTADO" check --model=fused.prototxt --phase=TRAIN
is fused_relu grep -Eq '^conv_relu +ReLU +conv ' out
runs stats_batch 2 'layer "bn" \(BatchNorm\): stats_batch_size 3 does not divide the batch of 4 samples' \
    "$CORTADO" check --model=fused.prototxt --phase=TRAIN --set='layer[bn].batch_norm_param.stats_batch_size=3'
runs writes 0 '' "$CORTADO" convert net --from=fused.prototxt --to=plain_form.prototxt
is written_plainly sh -c '! grep -Eq "scale_bias|relu:|bn_stats|^ +scale_filler" plain_form.prototxt'
sed 's/name: "conv"/name: "bn_scale"/' fused.prototxt >name.prototxt
runs name 2 'name.prototxt:4:1: layer "bn" \(BatchNorm\) would get a layer "bn_scale" behind it, and the net has one of that name; rename either' \
    "$CORTADO" check --model=name.prototxt
sed 's/top: "bn"/top: "bn" top: "more"/' fused.prototxt >tops.prototxt
runs tops 2 'layer "bn" \(BatchNorm\): with a scale or a ReLU of its own it needs a name and one top, not 2' "$CORTADO" check --model=tops.prototxt
sed 's/name: "bn"/& param { } param { } param { } param { } param { } param { }/' fused.prototxt >params.prototxt
runs params 2 'layer "bn" \(BatchNorm\): 6 of "param" and 0 of "blobs" for its 5 statistics and weights' "$CORTADO" check --model=params.prototxt
sed 's/kernel_size: 3/& weight_filler { type: "gabor" }/' fused.prototxt >gabor.prototxt
runs gabor 2 'filler "gabor" of Intel.s fork, a table of edge filters, is not there; start from "gaussian", or from weights' \
    "$CORTADO" check --model=gabor.prototxt

# ---- the OpenCL branch's
cat >opencl.prototxt <<'NET'
layer { name: "m" type: "MemoryData" top: "data" device: 1 memory_data_param { dim: 2 dim: 3 dim: 9 dim: 9 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 engine: LIBDNN } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 dilation: 2 dilation: 3 } }
NET
runs opencl 0 'opencl.prototxt: ignored: device \(hints for the OpenCL branch.s engines\)$' "$CORTADO" check --model=opencl.prototxt
is opencl_dim grep -Eq '^m +MemoryData +data +2 3 9 9' out
is opencl_dilation grep -Eq '^pool +Pooling +pool +2 4 5 4' out
sed 's/dim: 2 dim: 3/channels: 3 &/' opencl.prototxt >both_dim.prototxt
runs both_dim 2 'memory_data_param: dim is the whole shape: give it, or batch_size, channels, height and width' \
    "$CORTADO" check --model=both_dim.prototxt
sed 's/dilation: 3/dilation: 3 pool: STOCHASTIC/' opencl.prototxt >stochastic.prototxt
runs stochastic 2 'layer "pool" \(Pooling\): pooling_param: STOCHASTIC goes without a dilation' "$CORTADO" check --model=stochastic.prototxt

# ---- sizes by chance
sizes() { # FIELDS
    echo "layer { name: \"d\" type: \"Data\" top: \"d\" data_param { batch_size: 2 } transform_param { $1 } }" >sizes.prototxt
}
sizes 'crop_size: 16 random_resize_param { min_size: 20 max_size: 24 resize_param { interp_mode: CUBIC } }'
runs sizes_intel 0 '^d +Data +d +2 3 16 16' "$CORTADO" check --model=sizes.prototxt --data-shape=3,32,40
sizes 'crop_size: 16 img_rand_resize_lower: 20 img_rand_resize_upper: 24 interpolation_algo_down: INTER_AREA'
runs sizes_nvidia 0 '^d +Data +d +2 3 16 16' "$CORTADO" check --model=sizes.prototxt --data-shape=3,32,40
sizes 'random_aspect_ratio_param { }'
runs sizes_refused 2 'random_aspect_ratio_param makes images of many sizes: give crop_size' "$CORTADO" check --model=sizes.prototxt --data-shape=3,32,40

# ---- refused by name, with what takes their place
# refused FIELD INSTEAD LAYER
refused() {
    printf 'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "b" bottom: "a" top: "b" %s }\n' "$3" >refused.prototxt
    runs "$1" 2 "refused.prototxt:2:.*: unknown field \"$1\"; it belongs to the .* fork of Caffe, and is not supported; instead: $2" \
        "$CORTADO" check --model=refused.prototxt
}
refused label_smoothing 'give distributions as labels' 'type: "SoftmaxWithLoss" loss_param { label_smoothing: 0.1 }'
refused pre_fixed_normalizer 'normalization: NONE' 'type: "SoftmaxWithLoss" loss_param { pre_fixed_normalizer: 9 }'
refused fuse_type 'relu: true for FUSED_CONV_RELU' 'type: "Convolution" convolution_param { num_output: 1 kernel_size: 1 fuse_type: FUSED_CONV_RELU }'
refused reorg_param 'Reshape, Permute and Reshape' 'type: "Reorg" reorg_param { stride: 2 }'
printf 'layer { name: "b" type: "SoftmaxWithLoss" loss_param { normalization: PRE_FIXED } }\n' >fixed.prototxt
runs pre_fixed 2 'unknown value "PRE_FIXED"; it belongs to the R-FCN and Intel forks .*; instead: NONE with a loss_weight' \
    "$CORTADO" check --model=fixed.prototxt
printf 'net: "plain.prototxt" base_lr: 1 lr_policy: "fixed" larc_policy: "clip"\n' >larc.prototxt
runs larc_policy 2 'larc.prototxt:1:.*"larc_policy"; it belongs to the NVIDIA fork .*; instead: type: "LARS" scales rates; none clips them' \
    "$CORTADO" check --solver=larc.prototxt

for type in ManhattanLoss MergeCrop Affinity; do
    printf 'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "b" type: "%s" bottom: "a" bottom: "a" top: "b" }\n' $type >refused.prototxt
    case $type in
    M*Loss) with='L1Loss is: a sum of' ;;
    MergeCrop) with='a Crop of the second bottom with offset, and a Concat' ;;
    *) with='read them with HDF5Data' ;;
    esac
    runs "refused_$type" 2 "layer \"b\" \($type\): this layer type is not supported: .*$with" "$CORTADO" check --model=refused.prototxt
done

# ---- two layers with weights and one name, which Caffe takes: each has its own
printf 'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 4 } }
layer { name: "ip_2" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 5 } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "d" inner_product_param { num_output: 6 } }\n' >twice.prototxt
runs twice 0 'twice.prototxt:4: layer "ip" \(InnerProduct\): an earlier layer .* this one is called "ip_3" here' \
    "$CORTADO" check --model=twice.prototxt --phase=TEST --json=twice.json
is twice_names sh -c 'grep -o "\"name\": *\"ip[_0-9]*\[0\]\"" twice.json | tr -d " " | tr "\n" " " | grep -q "^\"name\":\"ip\[0\]\" \"name\":\"ip_2\[0\]\" \"name\":\"ip_3\[0\]\" $"'

# ---- MemoryData: transform_param is for images, and programs set arrays
cat >memory.prototxt <<'NET'
layer { name: "m" type: "MemoryData" top: "data" top: "label" transform_param { crop_size: 4 scale: 0.5 }
        memory_data_param { batch_size: 2 channels: 3 height: 4 width: 4 } }
NET
runs memory 0 'layer "m" \(MemoryData\): transform_param is not applied: arrays that a program sets come to the net as they are' \
    "$CORTADO" check --model=memory.prototxt --phase=TRAIN
is memory_shape grep -Eq '^m +MemoryData +data +2 3 4 4' out
finish
