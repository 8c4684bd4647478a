# cortado check: phases, solvers, JSON, pictures, data that is not there; Caffe's shapes.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }

cat >net.prototxt <<'NET'
name: "n"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { source: "none" batch_size: 4 } }
layer { name: "t" type: "Input" top: "data" top: "label" include { phase: TEST } input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "b" type: "BatchNorm" bottom: "c" top: "c" }
layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "extra" type: "Silence" bottom: "label" include { stage: "extra" } }
layer { name: "a" type: "Accuracy" bottom: "ip" bottom: "label" top: "a" include { phase: TEST } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "l" }
NET
check="$CORTADO check --model=net.prototxt"

# ---- phases, and data that is not there
sed '/type: "Input"/d' net.prototxt >train.prototxt
runs no_shape 2 'none is not there, .*--data_shape=C,H,W' "$CORTADO" check --model=train.prototxt
runs of_input 0 'top "data" of layer "d" \(Data\) has 3x8x8, as layer "t" \(Input\)' $check
runs both_phases 0 'phase TRAIN' $check --data-shape=3,8,8
is second_phase grep -q 'phase TEST' out
is batch_shape grep -Eq '^d +Data +data +4 3 8 8 ' out
is second_top grep -Eq '^ +label +4 \(4\)' out
is no_reorder sh -c '! grep -q Reorder out'
runs train_alone 0 'phase TRAIN' $check --data_shape=data=3,8,8 --phase=TRAIN
is train_is_alone sh -c '! grep -q "phase TEST" out'
runs test_alone 0 'phase TEST' $check --phase=TEST
runs parameters 0 '^parameters  845, learned 845; and 9 statistics' $check --data_shape=3,8,8
runs caffe_memory 0 'Memory required for data: ' $check --data_shape=3,8,8
runs other_shape 0 ' 4 1 20 30 ' $check --data_shape=1,20,30
for phase in train test; do
    printf 'layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "none" batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n' >of_$phase.prototxt
done
printf 'train_net: "of_train.prototxt" test_net: "of_test.prototxt" test_iter: 1 test_interval: 1 base_lr: 1
lr_policy: "fixed" max_iter: 1\n' >of.prototxt
runs shapes_of_tests 0 'phase TEST' "$CORTADO" check --solver=of.prototxt --data_shape=3,8,8
printf 'input: "a" layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 2 dim: 3 } } }\n' >twice.prototxt
runs input_twice 0 '^a  *Input  *a  *2 3' "$CORTADO" check --model=twice.prototxt
printf 'input: "a" input: "b" layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 2 } } }\n' >unmade.prototxt
runs input_unmade 2 'unmade.prototxt:1:1: input "b" has neither "input_shape" nor "input_dim"' \
    "$CORTADO" check --model=unmade.prototxt
runs wrong_shape 2 'data_shape=3,x: expected CHANNELS,HEIGHT,WIDTH' $check --data_shape=3,x
runs zero_shape 2 'data_shape=0,2,2: expected' $check --data_shape=0,2,2
# ---- what a training would refuse
{ cat of.prototxt && echo 'comm { allreduce: "rign" }'; } >spelt.prototxt
{ cat of.prototxt && printf 'memory {\n  weights: FILE\n  zero: 1\n}\n'; } >shared.prototxt
{ echo && cat of.prototxt && echo 'net: "of_train.prototxt"'; } >two.prototxt
refused() { # NAME PATTERN SETTING…
    name=refused_$1 pattern=$2
    shift 2
    runs "$name" 2 "$pattern" "$CORTADO" check --solver=of.prototxt --data_shape=3,8,8 --ranks=2 "$@"
}
for zero in 1 2; do refused shares_$zero 'take zero: 3, or 0' --set=memory.zero=$zero --set=memory.weights=FILE; done
for what in state weights; do
    refused verified_$what "verify_memory and memory . $what: FILE . do not go together" --set=memory.$what=FILE --set=verify_memory=true
    refused outer_$what "outer and memory . $what: FILE . do not go together" --set=memory.$what=FILE --set=outer.groups=2
done
refused outer_verified 'outer and verify_memory do not go together' --set=outer.groups=2 --set=verify_memory=true
refused allreduce 'spelt.prototxt:3:1?[0-9]: unknown allreduce "rign"; did you mean "ring"' --solver=spelt.prototxt
refused allreduce_option '--set: allreduce "ring,": a name without a limit before others' --set=comm.allreduce=ring,
refused shares_at 'shared.prototxt:5:[0-9]+: memory . weights: FILE zero: 1 .: among ranks' --solver=shared.prototxt
refused best 'solver.prototxt:1:1: best.metric is "lost", which test net #0 does not have; its outputs are l|--set: best.metric is "lost", which test net #0' --set=best.metric=lost
refused two_nets 'two.prototxt:2:1: more than one net to train' --solver=two.prototxt
refused groups 'outer.groups is 3, but 2 ranks make no such groups' --set=outer.groups=3
refused topology 'topology "2x2": 2 nodes of 2 ranks, but 2 ranks run' --set=comm.topology=2x2
runs any_ranks 0 'phase TRAIN' "$CORTADO" check --solver=of.prototxt --data_shape=3,8,8 --set=comm.topology=2x2 --set=outer.groups=3
echo 'ranks: 2 global_batch: 2 stage { first: "ip" last: "loss" rank: 0 rank: 1 }' >two.plan
refused divided_outer 'of.prototxt:1:1: outer and --parallel do not go together' --parallel=two.plan --set=outer.groups=2
refused divided_points '--set: type "OptEx" and --parallel do not go together' --parallel=two.plan --set=type=OptEx
runs alone_shares_none 0 'phase TRAIN' "$CORTADO" check --solver=of.prototxt --data_shape=3,8,8 --set=memory.zero=1 --set=memory.weights=FILE
# ---- the optimiser's state: 0, 1 and 2 arenas of 431080 numbers, each tensor padded to 64 bytes
runs optimiser_sgd 0 "the optimiser's state 1.6 MiB" "$CORTADO" check --solver="$ROOT/models/lenet/solver.prototxt"
runs optimiser_adam 0 "the optimiser's state 3.3 MiB" "$CORTADO" check --solver="$ROOT/models/lenet/solver.prototxt" --set=type=Adam
runs optimiser_average 0 "the optimiser's state 4.9 MiB" \
    "$CORTADO" check --solver="$ROOT/models/lenet/solver.prototxt" --set=type=Adam --set=average.type=EMA
"$CORTADO" check --solver="$ROOT/models/lenet/solver.prototxt" --set=type=Adam --json=adam.json >out 2>&1
is optimiser_json json adam.json 'n["memory"]["optimiser"] == n["memory"]["weights"]'
runs no_optimiser 0 'weights and gradients [0-9.]+ MiB; Caffe' $check --data_shape=3,8,8
runs stage 0 '^extra +Silence' $check --phase=TEST --stage=extra
runs train_net 0 'net n has no data in phase TEST: not checked there' "$CORTADO" check --model=train.prototxt --data_shape=3,8,8
cat >images.prototxt <<'NET'
layer { name: "d" type: "ImageData" top: "x" top: "y" image_data_param { source: "none" batch_size: 4 new_height: 20 new_width: 30 } }
layer { name: "s" type: "Silence" bottom: "x" bottom: "y" }
NET
runs net_says_it 0 '^d +ImageData +x +4 3 20 30 ' "$CORTADO" check --model=images.prototxt --data_shape=3,8,8
sed 's/new_height: 20 new_width: 30//' images.prototxt >any.prototxt
runs images_any 0 '^d +ImageData +x +4 1 8 9 ' "$CORTADO" check --model=any.prototxt --data_shape=1,8,9
cat >rows.prototxt <<'NET'
layer { name: "d" type: "HDF5Data" top: "x" top: "y" top: "z" hdf5_data_param { source: "none" batch_size: 4 } }
layer { name: "s" type: "Silence" bottom: "x" bottom: "y" bottom: "z" }
NET
runs rows 0 '^ +z +4 7 2 \(56\)' "$CORTADO" check --model=rows.prototxt --data_shape=3,2,2 --data_shape=z=7,2
is rows_label grep -Eq '^ +y +4 \(4\)' out

# ---- solvers
cat >solver.prototxt <<'NET'
net: "net.prototxt" test_iter: 3 test_interval: 10 base_lr: 0.1 lr_policy: "fixed" max_iter: 5
test_state { stage: "extra" }
NET
runs solver 0 'phase TRAIN' "$CORTADO" check --solver=solver.prototxt --data_shape=3,8,8
is solver_tests grep -Eq '^extra +Silence' out
sed 's/max_iter: 5//' solver.prototxt >endless.prototxt
runs solver_no_end 0 'max_iter is not set: training needs it' "$CORTADO" check --solver=endless.prototxt --data_shape=3,8,8
sed 's/"fixed"/"fixd"/' solver.prototxt >wrong.prototxt
runs solver_policy 2 'fixd' "$CORTADO" check --solver=wrong.prototxt --data_shape=3,8,8
sed 's/test_iter: 3//' solver.prototxt >wrong.prototxt
runs solver_tests_wrong 2 'test_state is given 1 times for 0|test_interval is 10, but test_iter' "$CORTADO" check --solver=wrong.prototxt --data_shape=3,8,8

# ---- JSON
if command -v python3 >/dev/null; then
    "$CORTADO" check --solver=solver.prototxt --data_shape=3,8,8 --json >j.json 2>err
    is json_alone python3 -m json.tool j.json /dev/null
    is json_phase json j.json 'n["phase"] == "TRAIN" and [t["phase"] for t in n["test"]] == ["TEST"]'
    is json_scalar json j.json 'n["layers"][-1]["tops"] == [{"name": "l", "shape": []}]'
    is json_in_place json j.json '[l["tops"][0]["name"] for l in n["layers"]][1:4] == ["c", "c", "c"]'
    is json_bottoms json j.json '[l["bottoms"] for l in n["layers"]][:4] == [[], ["data"], ["c"], ["c"]]'
    is json_split json j.json '"label_t_1_split" in [l["name"] for l in n["test"][0]["layers"]]'
    is json_counts json j.json 'n["parameters"] == 845 and n["statistics"] == 9 and n["test"][0]["learned"] == 0'
    is json_memory json j.json 'set(n["memory"]) == {"planned", "peak_alive", "unshared", "weights", "caffe_data", "optimiser", "tiers", "chunk_loads"}'
    is json_weights json j.json 'n["layers"][1]["weights"][0] == {"name": "c[0]", "shape": [4, 3, 3, 3], "statistic": False, "shared": False}'
    runs json_file 0 'phase TEST' $check --data_shape=3,8,8 --json=f.json
    is json_file_there python3 -m json.tool f.json /dev/null
    runs json_nowhere 3 'nowhere' $check --data_shape=3,8,8 --json=nowhere/f.json
    # what Caffe says of the same nets
    for net in small googlenet; do
        for phase in TRAIN TEST; do
            "$CORTADO" check --model="$ROOT/tests/golden/check/$net.prototxt" --phase=$phase --json 2>err |
                python3 "$ROOT/tests/cli/shapes_of.py" >out
            is shapes_of_${net}_$phase cmp out "$ROOT/tests/golden/check/$net.$phase.txt"
        done
    done
else
    skip json "needs python3"
fi

# ---- the picture
runs dot 0 '' $check --phase=TEST --dot=n.dot
is dot_graph grep -q '^digraph "n" {' n.dot
is dot_layer grep -q 'label="c\\nConvolution\\n112 weights"' n.dot
is dot_arrow grep -q 'label="c\\n2 x 4 x 6 x 6"' n.dot
is dot_chain test "$(grep -c ' -> ' n.dot)" = 12
is dot_closed grep -q '^}' n.dot
runs dot_nowhere 3 'nowhere' $check --phase=TEST --dot=nowhere/n.dot
mkdir bin
printf '#!/bin/sh\n[ "$1" = -Tsvg ] && [ "$2" = -o ] && grep -q digraph "$4" && echo "<svg/>" >"$3"\n' >bin/dot
chmod +x bin/dot
runs svg 0 '' env PATH="$PWD/bin:$PATH" $check --phase=TEST --dot=n.svg
is svg_there grep -q '<svg/>' n.svg
printf '#!/bin/sh\nexit 7\n' >bin/dot
runs svg_fails 3 'dot could not write n.svg \(exit code 7\)' env PATH="$PWD/bin:$PATH" $check --phase=TEST --dot=n.svg
runs svg_needs_dot 2 'needs Graphviz' env PATH=/nonexistent $check --phase=TEST --dot=n.svg
is nothing_left sh -c '! ls | grep -q "n.svg.*dot"'
finish
