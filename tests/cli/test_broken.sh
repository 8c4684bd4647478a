# Broken prototxts through the real program: exit code 2, one error line, the right place.
. "$ROOT/tests/cli/lib.sh"
broken() { # FOLDER: every line of its expected.txt; a message that ends with "*" may go on
    cd "$ROOT/tests/golden/$1" || exit 1
    while IFS= read -r line; do
        file=${line%%:*}
        option=--model
        case $1/$file in broken/solver_* | broken_solver/*) option=--solver ;; esac
        "$CORTADO" check $option="$file" >"$work/out" 2>&1
        rc=$?
        if [ $rc = 2 ] && grep -Fq "] ${line%\*}" "$work/out" && [ "$(grep -c '^E' "$work/out")" = 1 ]; then
            ok "$1_$file"
        else
            cd "$work"
            not_ok "$1_$file" "exit code $rc; expected 2 and: $line"
            cd "$ROOT/tests/golden/$1"
        fi
    done <expected.txt
    cd "$work"
}
broken broken
broken broken_solver

# A wrong value of an option names the option, not the file.
cp "$ROOT/tests/golden/broken_solver/net.prototxt" .
printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "step" gamma: 0.1' 'stepsize: 5 max_iter: 9' 'comm { bucket_mb: 1 }' >solver.prototxt
runs set_wrong_value 2 '[]] --set: stepsize is 0, lr_policy "step" needs' "$CORTADO" check --solver=solver.prototxt --set=stepsize=0
runs set_and_file 2 '[]] solver.prototxt:3:13: max_iter is -1' sh -c 'sed s/max_iter:.9/max_iter:-1/ solver.prototxt >s && mv s solver.prototxt && exec "$0" check --solver=solver.prototxt --set=stepsize=2' "$CORTADO"
runs comm_value 2 '[]] solver.prototxt:4:8: comm . bucket_mb: -2 .: expected a size' sh -c 'sed "s/max_iter:-1/max_iter: 9/; s/bucket_mb: 1/bucket_mb: -2/" solver.prototxt >s && mv s solver.prototxt && exec "$0" check --solver=solver.prototxt' "$CORTADO"
printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "fixed" max_iter: 9' 'compression { type: TOPK density: 2 }' >solver.prototxt
runs compression_value 2 '[]] solver.prototxt:3:1: compression.*density' "$CORTADO" check --solver=solver.prototxt
printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "fixed" max_iter: 9' 'test_interval: 3' >solver.prototxt
runs test_nets 2 '[]] solver.prototxt:3:1: test_interval is 3, but test_iter' "$CORTADO" check --solver=solver.prototxt

# What a file says may have any characters: a message stays one line, and moves no cursor.
printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "a\nE1 \033[2J\177b" max_iter: 9' >solver.prototxt
runs control_characters 2 'lr_policy "a\\nE1 \\x1b\[2J\\x7fb" is unknown' "$CORTADO" check --solver=solver.prototxt
printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "fixed" max_iter: 9 solver_mode: CPU' 'precision: TF32' >solver.prototxt
runs precision_of_gpus 2 'solver.prototxt:3:1: precision TF32 is for GPUs' "$CORTADO" train --solver=solver.prototxt
start() { # NAME FIELD MESSAGE
    printf '%s\n' 'net: "net.prototxt"' 'base_lr: 0.1 lr_policy: "fixed" max_iter: 9' "$2" >solver.prototxt
    runs "start_$1" 2 "$3" "$CORTADO" check --solver=solver.prototxt
}
start inf 'warmup { iterations: 3 start_factor: inf }' 'solver.prototxt:3:[0-9]+: warmup.start_factor is inf, needs at least 0'
start below 'warmup { iterations: 3 start_factor: -1 }' 'solver.prototxt:3:[0-9]+: warmup.start_factor is -1, needs at least 0'
start intel 'warmup_iter: 3 warmup_start_lr: nan' 'solver.prototxt:3:[0-9]+: warmup_start_lr is nan'
start nvidia 'rampup_interval: 3 rampup_lr: inf' 'solver.prototxt:3:[0-9]+: rampup_lr is inf'
# Lists and token files that are not there.
missing() { # NAME LAYER
    echo "layer { name: \"d\" top: \"x\" top: \"y\" $2 }" >missing.prototxt
    printf '%s\n' 'net: "missing.prototxt"' 'base_lr: 0.1 lr_policy: "fixed" max_iter: 9 solver_mode: CPU' >solver.prototxt
    runs "missing_$1" 3 "missing.prototxt:1: layer .d. \($1\): cannot open none: No such file" "$CORTADO" train --solver=solver.prototxt
}
missing ImageData 'type: "ImageData" image_data_param { source: "none" batch_size: 2 }'
missing WindowData 'type: "WindowData" window_data_param { source: "none" batch_size: 2 crop_size: 3 }'
missing TokenData 'type: "TokenData" token_data_param { source: "none" batch_size: 2 seq_len: 3 }'

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
