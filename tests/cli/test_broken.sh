# Broken prototxts through the real program: exit code 2, one error line, the right place.
. "$ROOT/tests/cli/lib.sh"
cd "$ROOT/tests/golden/broken" || exit 1
while IFS= read -r line; do
    file=${line%%:*}
    option=--model
    case $file in solver_*) option=--solver ;; esac
    "$CORTADO" check $option="$file" >"$work/out" 2>&1
    rc=$?
    if [ $rc = 2 ] && grep -Fq "] $line" "$work/out" && [ "$(grep -c '^E' "$work/out")" = 1 ]; then
        ok "$file"
    else
        cd "$work"
        not_ok "$file" "exit code $rc; expected 2 and: $line"
        cd "$ROOT/tests/golden/broken"
    fi
done <expected.txt
cd "$work"

# Nets that read well and make no sense. layer() TEXT...: a net of an input and these layers.
net() {
    printf '%s\n' 'name: "n"' \
        'layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 } } }' \
        "$@" >net.prototxt
}
wrong() { # NAME PATTERN LAYERS...
    name=$1 pattern=$2
    shift 2
    net "$@"
    runs "$name" 2 "$pattern" "$CORTADO" check --model=net.prototxt
}
conv='layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param'
wrong unknown_type 'Convolutoin.*Convolution' 'layer { name: "c" type: "Convolutoin" bottom: "x" top: "c" }'
wrong unknown_bottom 'net.prototxt:3:.*"y"' 'layer { name: "r" type: "ReLU" bottom: "y" top: "r" }'
wrong top_twice '"c"' "$conv { num_output: 2 kernel_size: 3 } }" 'layer { name: "r" type: "ReLU" bottom: "x" top: "c" }'
wrong too_few_bottoms 'bottom' 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" top: "l" }'
wrong kernel_too_large 'net.prototxt:3: layer "c"' "$conv { num_output: 2 kernel_size: 11 } }"
wrong no_outputs 'num_output' "$conv { kernel_size: 3 } }"
wrong no_kernel 'kernel' "$conv { num_output: 2 } }"
wrong groups 'group' "$conv { num_output: 4 kernel_size: 3 group: 2 } }"
wrong stride_zero 'stride' "$conv { num_output: 4 kernel_size: 3 stride: 0 } }"
wrong bad_filler 'xavir' "$conv { num_output: 4 kernel_size: 3 weight_filler { type: \"xavir\" } } }"
wrong dropout_ratio 'dropout_ratio' 'layer { name: "d" type: "Dropout" bottom: "x" top: "d" dropout_param { dropout_ratio: 1.5 } }'
wrong concat_shapes 'layer "k"' "$conv { num_output: 2 kernel_size: 3 } }" 'layer { name: "k" type: "Concat" bottom: "x" bottom: "c" top: "k" }'
wrong eltwise_shapes 'layer "e"' "$conv { num_output: 2 kernel_size: 3 } }" 'layer { name: "e" type: "Eltwise" bottom: "x" bottom: "c" top: "e" }'
wrong huge 'layer "i"|layer "c"' "$conv { num_output: 4000000000 kernel_size: 1 } }" 'layer { name: "i" type: "InnerProduct" bottom: "c" top: "i" inner_product_param { num_output: 4000000000 } }'
net "$conv { num_output: 2 kernel_size: 3 } pooling_param { kernel_size: 2 } }"
runs stray_parameters 0 'net.prototxt:3: in layer "c" .Convolution.: pooling_param means nothing' "$CORTADO" check --model=net.prototxt
net "$conv { num_output: 2 kernel_size: 3 } }"
runs good_net 0 'parameters  56' "$CORTADO" check --model=net.prototxt
finish
