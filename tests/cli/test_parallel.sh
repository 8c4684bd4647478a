# check --parallel: the table, JSON, and refusals in one line with the exit code.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }

cat >net.prototxt <<'NET'
name: "n"
layer { name: "d" type: "DummyData" top: "x" top: "y" include { phase: TRAIN } dummy_data_param {
  shape { dim: 16 dim: 3 dim: 8 dim: 8 } shape { dim: 16 } } }
layer { name: "t" type: "DummyData" top: "x" top: "y" include { phase: TEST } dummy_data_param {
  shape { dim: 5 dim: 3 dim: 8 dim: 8 } shape { dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }
layer { name: "fc6" type: "InnerProduct" bottom: "c" top: "f" inner_product_param { num_output: 8 } }
layer { name: "relu6" type: "ReLU" bottom: "f" top: "f" }
layer { name: "fc7" type: "InnerProduct" bottom: "f" top: "g" inner_product_param { num_output: 8 } }
layer { name: "fc8" type: "InnerProduct" bottom: "g" top: "s" inner_product_param { num_output: 5 } }
layer { name: "accuracy" type: "Accuracy" bottom: "s" bottom: "y" top: "a" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "s" bottom: "y" top: "l" }
NET
cat >solver.prototxt <<'NET'
net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 test_iter: 1 test_interval: 2
NET
hash=$("$CORTADO" check --model=net.prototxt --phase=TRAIN 2>/dev/null | sed -n 's/^net .* hash //p')
cat >plan.prototxt <<NET
net_hash: "$hash"
ranks: 4 global_batch: 64 micro_batches: 8
stage { first: "conv" last: "relu" rank: 0 rank: 1 share: 5 share: 3 }
stage { first: "fc6" last: "loss" rank: 2 rank: 3 tensor: 2
  layer { name: "fc6" split: OUTPUT } layer { name: "fc7" split: INPUT }
  again { first: "fc6" last: "relu6" } }
NET
check="$CORTADO check --model=net.prototxt"

# ---- what it shows
runs shows 0 '^parallel +plan.prototxt: 4 ranks, 2 stages, global batch 64 in 8 micro-batches of 8$' \
    $check --parallel=plan.prototxt
is stage_0 grep -Eq '^ +0  0-1 +2 +1  5,3 +conv - relu$' out
is stage_1 grep -Eq '^ +1  2-3 +1 +2  8 +fc6 - loss$' out
is splits grep -Eq '^ +split fc6 OUTPUT, relu6 OUTPUT, fc7 INPUT$' out
is again grep -Eq '^ +again fc6 - relu6$' out
is conversion grep -Eq '^ +ReduceScatter of g for fc8: from PARTIAL to BATCH$' out
is test_net_too grep -q 'phase TEST' out
runs of_solver 0 '^parallel ' "$CORTADO" check --solver=solver.prototxt --parallel=plan.prototxt --global_batch_size=64
runs same_ranks 0 '^parallel ' $check --parallel=plan.prototxt --ranks=4
if command -v python3 >/dev/null; then
    $check --parallel=plan.prototxt --json >j.json 2>/dev/null
    is json_batch json j.json '(n["global_batch"], n["micro_batches"]) == (64, 8)'
    is json_ranks json j.json '[s["ranks"] for s in n["stages"]] == [[0, 1], [2, 3]]'
    is json_shares json j.json '[s["shares"] for s in n["stages"]] == [[5, 3], [8]]'
    is json_layers json j.json '[(s["first"], s["last"], s["tensor"], s["replicas"]) for s in n["stages"]] == [("conv", "relu", 1, 2), ("fc6", "loss", 2, 1)]'
    is json_splits json j.json '[(s["layer"], s["split"]) for s in n["stages"][1]["splits"]] == [("fc6", "OUTPUT"), ("relu6", "OUTPUT"), ("fc7", "INPUT")]'
    is json_again json j.json 'n["stages"][1]["again"] == [{"first": "fc6", "last": "relu6"}]'
    is json_conversions json j.json 'n["stages"][1]["conversions"] == [{"kind": "ReduceScatter", "blob": "g", "layer": "fc8", "from": "PARTIAL", "to": "BATCH"}] and n["stages"][0]["conversions"] == []'
    is json_test json j.json 'n["test"][0]["phase"] == "TEST"'
    $check --json >plain.json 2>/dev/null
    is json_without json plain.json '"stages" not in n'
fi

# ---- what it refuses: one line, with the place
one_line() { [ "$(grep -c '^E' out)" = 1 ]; }
refuses() { # NAME EXIT-CODE PATTERN, of wrong.prototxt
    runs "$1" "$2" "$3" $check --parallel=wrong.prototxt
    is "$1_in_one_line" one_line
}
sed "s/$hash/50610790edf0873b/" plan.prototxt >wrong.prototxt
refuses other_net 2 "wrong.prototxt:1: the file is for a net of hash 50610790edf0873b, but \"n\" has hash $hash"
is nothing_shown sh -c '! grep -q "^net " out'
sed 's/"fc6" last/"fc5" last/' plan.prototxt >wrong.prototxt
refuses unknown_layer 2 'wrong.prototxt:4: stage 1 names "fc5", .* did you mean "fc6"'
sed 's/"conv" last: "relu"/"conv" last: "conv"/' plan.prototxt >wrong.prototxt
refuses gap 2 'wrong.prototxt:4: layer "relu" .ReLU. is in no stage: '
sed 's/rank: 3 tensor/rank: 1 tensor/' plan.prototxt >wrong.prototxt
refuses rank_twice 2 'wrong.prototxt:4: stage 1 has rank 1, which is in stage 0 already'
sed 's/micro_batches: 8/micro_batches: 7/' plan.prototxt >wrong.prototxt
refuses not_divisible 2 'wrong.prototxt:2: global_batch 64 cannot be divided by micro_batches 7'
sed 's/share: 3/share: 4/' plan.prototxt >wrong.prototxt
refuses shares 2 'wrong.prototxt:3: stage 0: its shares add up to more than 8'
sed 's/split: INPUT/split: HEADS/' plan.prototxt >wrong.prototxt
refuses not_splittable 2 'wrong.prototxt:5: layer "fc7" .InnerProduct. cannot be split HEADS: '
sed 's/tensor: 2/tensor: 2 tenser: 1/' plan.prototxt >wrong.prototxt
refuses unknown_field 2 'wrong.prototxt:4:.*"tenser"; did you mean "tensor"'
runs other_ranks 4 'plan.prototxt:2: ranks is 4, but --ranks has 2' $check --parallel=plan.prototxt --ranks=2
runs other_batch 2 'plan.prototxt:2: global_batch is 64, but global_batch_size 32' $check --parallel=plan.prototxt --global_batch_size=32
runs missing 3 'no.prototxt: No such file' $check --parallel=no.prototxt
runs of_test 2 'phase TRAIN, not with --phase=TEST' $check --parallel=plan.prototxt --phase=TEST
runs with_nodes 2 'nodes is for jobs without it' $check --parallel=plan.prototxt --nodes=2
finish
