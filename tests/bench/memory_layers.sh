#!/bin/sh
# Layers that memory bounds, each alone on arrays larger than the caches, with what `cortado time`
# says of them: GB/s of the bytes that must move, and % of the memory's measured speed.
#   tests/bench/memory_layers.sh [blocked|plain [BATCH [ITERATIONS [OPTION...]]]]
# blocked: channels in blocks, as behind a convolution; plain: N, C, H, W. A batch of 24: 77 MB an array.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
kind=${1:-blocked} batch=${2:-24} iterations=${3:-7}
[ $# -gt 3 ] && shift 3 || set --
net=$(mktemp --suffix=.prototxt)
trap 'rm -f "$net"' EXIT
last=data
layer() { # NAME TYPE FIELDS: on top of the last
    echo "layer { name: '$1' type: '$2' bottom: '$last' top: '$1' $3 }"
    last=$1
}
{
    echo "name: 'memory_$kind' fuse: false"
    [ "$kind" = blocked ] && channels=3 || channels=64
    echo "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param {
            shape { dim: $batch dim: $channels dim: 112 dim: 112 } data_filler { type: 'gaussian' std: 1 } } }
          layer { name: 'label' type: 'DummyData' top: 'label' dummy_data_param {
            shape { dim: $batch } data_filler { type: 'constant' value: 1 } } }"
    if [ "$kind" = blocked ]; then
        layer conv Convolution "convolution_param { num_output: 64 kernel_size: 1 weight_filler { type: 'msra' } }"
    else
        layer first Scale "scale_param { bias_term: true }"
    fi
    layer bn BatchNorm ""
    layer scale Scale "scale_param { bias_term: true }"
    layer bias Bias ""
    layer relu ReLU ""
    layer lrn LRN "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    layer max_3x3s1 Pooling "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }"
    layer ave_3x3s1 Pooling "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }"
    echo "layer { name: 'sum' type: 'Eltwise' bottom: 'max_3x3s1' bottom: 'ave_3x3s1' top: 'sum' }
          layer { name: 'concat' type: 'Concat' bottom: 'sum' bottom: 'lrn' top: 'concat' }"
    last=concat
    layer max_3x3s2 Pooling "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"
    echo "layer { name: 'ave_3x3s2' type: 'Pooling' bottom: 'concat' top: 'ave_3x3s2'
            pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
          layer { name: 'max_2x2s2' type: 'Pooling' bottom: 'concat' top: 'max_2x2s2'
            pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
          layer { name: 'global' type: 'Pooling' bottom: 'max_2x2s2' top: 'global'
            pooling_param { pool: AVE global_pooling: true } }
          layer { name: 'sum2' type: 'Eltwise' bottom: 'max_3x3s2' bottom: 'ave_3x3s2' top: 'sum2' }
          layer { name: 'softmax' type: 'Softmax' bottom: 'sum' top: 'softmax' }
          layer { name: 'drop' type: 'Dropout' bottom: 'softmax' top: 'drop' }
          layer { name: 'global2' type: 'Pooling' bottom: 'drop' top: 'global2'
            pooling_param { pool: AVE global_pooling: true } }
          layer { name: 'global3' type: 'Pooling' bottom: 'sum2' top: 'global3'
            pooling_param { pool: AVE global_pooling: true } }
          layer { name: 'all' type: 'Concat' bottom: 'global' bottom: 'global2' bottom: 'global3' top: 'all' }"
    last=all
    layer ip InnerProduct "inner_product_param { num_output: 10 weight_filler { type: 'xavier' } }"
    echo "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }"
} >"$net"
"$cortado" time --model="$net" --iterations="$iterations" "$@"
