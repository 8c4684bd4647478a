#!/bin/sh
# Fails where a layer type is missing in a place that names them all: its list, the docs, the test of
# every type. Functions of one number are rows of CT_NEURON_LAYERS, other types one ct_layer_ops each.
# Usage: scripts/check_layers.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"
list=layers/engine/neuron/neuron_math.h
bad=0
miss() {
    echo "$*"
    bad=1
}
# rows LIST FILE: the first arguments of X(...) in a list macro
rows() {
    sed -n "/^#define $1(X)/,/^\$/p" "$2" | grep -oE '^ +X\([^)]*' | sed 's/^ *X(//'
}

functions=$(rows CT_NEURON_LAYERS $list)
[ -n "$functions" ] || miss "$list: no CT_NEURON_LAYERS"
rows_of_functions=$(sed -n '/^#define CT_NEURON_LAYERS(X)/,/^$/p' $list | tr -d '\\\n' | sed 's/ X(/\n X(/g')
for type in $(echo "$functions" | sed 's/^[^"]*"\([^"]*\)".*/\1/'); do
    grep -q "^| $type |" docs/layers-functions.md ||
        miss "docs/layers-functions.md: no row for $type of CT_NEURON_LAYERS"
    # a formula is tested and exported as it stands
    echo "$rows_of_functions" | grep "\"$type\"" | grep -q '\.op = "' && continue
    for place in tests/unit/layers/types/test_layer_every.c tests/unit/layers/types/test_layer_neuron.c; do
        grep -q "\"$type\"" $place || miss "$place: nothing for $type, which has no formula"
    done
    grep -q "{ \"$type\", " cli/onnx/*.c || miss "cli/onnx: no form of $type, which has no formula"
done

listed=$(rows CT_LAYER_TYPES layers/types/layer_types.h)
for name in $(grep -hoE '^const ct_layer_ops ct_layer_\w+' layers/types/*.c | sed 's/.*ct_layer_//'); do
    echo "$listed" | grep -qx "$name" ||
        miss "layers/types/layer_types.h: CT_LAYER_TYPES has no X($name)"
done
for type in $(grep -hoE '^    \.type = "\w+"|^const ct_layer_ops .* = [A-Z_]+\("\w+"|^    [A-Z_]+\("\w+", \w+\);' \
    layers/types/*.c | sed 's/.*"\(.*\)".*/\1/'); do
    grep -q "\"$type\"" tests/unit/layers/types/test_layer_every.c ||
        miss "tests/unit/layers/types/test_layer_every.c: no row for $type"
    case $type in # no file names them
        Reorder | Cast | ToBlocks | CopyToParts | SumParts | Gather | ReduceScatter | ScatterToParts | Send | Receive)
            continue ;;
    esac
    grep -qE "(^|[^A-Za-z])$type([^A-Za-z]|\$)" docs/layers*.md ||
        miss "docs/layers*.md: nothing about $type"
done

listed=$(rows CT_CUDA_OVERRIDES layers/cuda/overrides.h)
for name in $(grep -hoE '^(extern )?const ct_device_override ct_cuda_\w+ =' layers/cuda/*.cu |
    sed 's/.*ct_cuda_//; s/ =//'); do
    echo "$listed" | grep -qx "$name" ||
        miss "layers/cuda/overrides.h: CT_CUDA_OVERRIDES has no X($name)"
done
exit $bad
