# The check of layer types' places: it passes; a toy function, a toy layer and a toy of CUDA that
# stand in one place alone fail by the name of each other place.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_layers.sh"
list=layers/engine/neuron/neuron_math.h
runs as_it_is 0 '' "$check"

mkdir whole
(cd "$ROOT" && tar -cf - layers docs tests/unit cli/onnx) | tar -xf - -C whole
fresh() { # what the check reads, as links; what is appended to is copied (sed -i makes a file of its own)
    rm -rf tree && cp -al whole tree || exit 1
    for file in docs/layers.md docs/layers-functions.md layers/cuda/maps_cuda.cu tests/unit/layers/types/test_layer_every.c; do
        cp --remove-destination "whole/$file" "tree/$file"
    done
}
toy_function() { # FORMULA: a row in the list of functions
    fresh
    sed -i "s/^#define CT_NEURON_LAYERS(X) .*/&\n    X(toy, \"Toy\", abs, NULL, NULL, NULL, backward, { .op = $1 }) \\\\/" tree/$list
}
toy_layer() { # a file with a layer type
    fresh
    printf '%s\n' 'const ct_layer_ops ct_layer_toy = {' '    .type = "Toy",' '};' >tree/layers/types/toy_layer.c
}

toy_function '"Abs"'
runs function_without_docs 1 'docs/layers-functions.md: no row for Toy' "$check" tree
echo '| Toy | `|x|` |' >>tree/docs/layers-functions.md
runs function_with_formula 0 '' "$check" tree
toy_function NULL
echo '| Toy | `|x|` |' >>tree/docs/layers-functions.md
runs function_without_row 1 'test_layer_every.c: nothing for Toy, which has no formula' "$check" tree
runs function_without_case 1 'test_layer_neuron.c: nothing for Toy' "$check" tree
runs function_without_onnx 1 'cli/onnx: no form of Toy' "$check" tree

toy_layer
runs layer_not_listed 1 'CT_LAYER_TYPES has no X.toy.' "$check" tree
runs layer_without_test 1 'test_layer_every.c: no row for Toy' "$check" tree
runs layer_without_docs 1 'nothing about Toy' "$check" tree
sed -i 's/^#define CT_LAYER_TYPES(X) .*/&\n    X(toy) \\/' tree/layers/types/layer_types.h
echo '// "Toy"' >>tree/tests/unit/layers/types/test_layer_every.c
echo 'Toy does nothing.' >>tree/docs/layers.md
runs layer_everywhere 0 '' "$check" tree

fresh
echo 'const ct_device_override ct_cuda_toy = { "Toy", NULL, NULL, NULL };' >>tree/layers/cuda/maps_cuda.cu
runs cuda_not_listed 1 'CT_CUDA_OVERRIDES has no X.toy.' "$check" tree
fresh
runs copy_is_whole 0 '' "$check" tree
finish
