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
is memory grep -Eq '^ +3 +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' out
is conversion grep -Eq '^ +ReduceScatter of g for fc8: from PARTIAL to BATCH$' out
is test_net_too grep -q 'phase TEST' out
runs of_solver 0 '^parallel ' "$CORTADO" check --solver=solver.prototxt --parallel=plan.prototxt --global_batch_size=64
runs same_ranks 0 '^parallel ' $check --parallel=plan.prototxt --ranks=4
if command -v python3 >/dev/null; then
    "$CORTADO" check --solver=solver.prototxt --parallel=plan.prototxt --json >j.json 2>/dev/null
    is json_batch json j.json '(n["global_batch"], n["micro_batches"]) == (64, 8)'
    is json_ranks json j.json '[s["ranks"] for s in n["stages"]] == [[0, 1], [2, 3]]'
    is json_shares json j.json '[s["shares"] for s in n["stages"]] == [[5, 3], [8]]'
    is json_layers json j.json '[(s["first"], s["last"], s["tensor"], s["replicas"]) for s in n["stages"]] == [("conv", "relu", 1, 2), ("fc6", "loss", 2, 1)]'
    is json_splits json j.json '[(s["layer"], s["split"]) for s in n["stages"][1]["splits"]] == [("fc6", "OUTPUT"), ("relu6", "OUTPUT"), ("fc7", "INPUT")]'
    is json_again json j.json 'n["stages"][1]["again"] == [{"first": "fc6", "last": "relu6"}]'
    is json_conversions json j.json 'n["stages"][1]["conversions"] == [{"kind": "ReduceScatter", "blob": "g", "layer": "fc8", "from": "PARTIAL", "to": "BATCH"}] and n["stages"][0]["conversions"] == []'
    is json_test json j.json 'n["test"][0]["phase"] == "TEST"'
    $check --json >plain.json 2>/dev/null
    is json_memory json j.json '[(r["rank"], r["stage"]) for r in n["ranks"]] == [(0, 0), (1, 0), (2, 1), (3, 1)] and all(r["memory_bytes"] == r["weight_bytes"] + r["kept_bytes"] + r["transient_bytes"] and r["transient_bytes"] >= 0 for r in n["ranks"])'
    # ranks 2 and 3 have half of fc6 and fc7 each, rank 0 keeps more samples than rank 1
    is json_parts json j.json '0 < n["ranks"][2]["weight_bytes"] < n["memory"]["weights"] + n["memory"]["optimiser"] and n["ranks"][0]["kept_bytes"] > n["ranks"][1]["kept_bytes"]'
    is json_without json plain.json '"stages" not in n and n["ranks"] == 1'
fi

# a cut through layers that run as one goes behind them
sed 's/last: "relu"/last: "conv"/; s/first: "fc6" last: "loss"/first: "relu" last: "loss"/' plan.prototxt >cut.prototxt
runs cut_moves 0 'cut.prototxt: layer "relu" .ReLU. begins stage 1, but runs as one with "conv": it goes to stage 0' \
    $check --parallel=cut.prototxt
is cut_moved grep -Eq '^ +0  0-1 +2 +1  5,3 +conv - relu$' out

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
runs of_test 2 'a forward alone is told of one stage with one replica, not of 2 with 2' $check --parallel=plan.prototxt --phase=TEST
runs with_nodes 2 'nodes is for jobs without it' $check --parallel=plan.prototxt --nodes=2

# ---- one rank: micro-batches are those of iter_size, what is made again changes no bit
make_case # of its own net and solver
cat >deep.prototxt <<'NET'
name: "deep"
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.00390625 }
  data_param { source: "data/train_lmdb" backend: LMDB batch_size: 16 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.00390625 }
  data_param { source: "data/test_lmdb" backend: LMDB batch_size: 20 } }
layer { name: "fc1" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "tanh1" type: "TanH" bottom: "a" top: "b" }
layer { name: "drop1" type: "Dropout" bottom: "b" top: "b" }
layer { name: "fc2" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "tanh2" type: "TanH" bottom: "c" top: "d" }
layer { name: "drop2" type: "Dropout" bottom: "d" top: "d" }
layer { name: "fc3" type: "InnerProduct" bottom: "d" top: "e" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "e" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "e" bottom: "label" top: "loss" }
NET
sed -i 's/net.prototxt/deep.prototxt/' solver.prototxt
cat >one.prototxt <<'NET'
ranks: 1 global_batch: 24 micro_batches: 3
stage { first: "fc1" last: "loss" rank: 0
  again { first: "fc1" last: "drop1" } again { first: "fc2" last: "drop2" } }
NET
grep -v again one.prototxt >kept.prototxt; echo "}" >>kept.prototxt
train="$CORTADO train --solver=solver.prototxt"
weights() { "$CORTADO" convert model --from="$1_iter_20.caffemodel.h5" --to="$1.npz" >out 2>&1; }
losses() { grep -oE "(loss|accuracy) = [0-9.e+-]+" "$1"; }
runs by_iter_size 0 'Iteration 20|iteration 20' $train --set=snapshot_prefix=i --set=iter_size=3 --global_batch_size=8
losses out >i.txt
runs by_file 0 'one.prototxt: 24 samples a step in 3 micro-batches' $train --set=snapshot_prefix=f --parallel=one.prototxt
losses out >f.txt
runs by_file_kept 0 '' $train --set=snapshot_prefix=k --parallel=kept.prototxt
weights i && weights f && weights k
is same_weights cmp i.npz f.npz
is same_weights_kept cmp i.npz k.npz
is tells_losses grep -q 'loss' i.txt
is same_losses cmp i.txt f.txt
runs resumed 0 '' $train --set=snapshot_prefix=f --parallel=one.prototxt --snapshot=f_iter_10.solverstate.h5
is resumed_weights sh -c 'mv f.npz first.npz; "$CORTADO" convert model --from=f_iter_20.caffemodel.h5 --to=f.npz >out 2>&1; cmp f.npz first.npz'
runs iter_size_counts_schedules 0 '' $train --set=snapshot_prefix=g --parallel=one.prototxt --set=iter_size=2
runs by_iter_size_6 0 '' $train --set=snapshot_prefix=h --set=iter_size=6 --global_batch_size=8
weights g && weights h
is same_weights_6 cmp g.npz h.npz
# memory: of a segment what it reads is kept
wide() { # N: blocks of a product, TanH and Dropout
    echo 'layer { name: "in" type: "DummyData" top: "x0" top: "y" dummy_data_param { shape { dim: 99 dim: 64 } shape { dim: 99 } } }'
    for i in $(seq 1 "$1"); do
        echo "layer { name: \"fc$i\" type: \"InnerProduct\" bottom: \"x$((i - 1))\" top: \"a$i\" inner_product_param { num_output: 64 } }"
        echo "layer { name: \"tanh$i\" type: \"TanH\" bottom: \"a$i\" top: \"b$i\" }"
        echo "layer { name: \"wide$i\" type: \"InnerProduct\" bottom: \"b$i\" top: \"c$i\" inner_product_param { num_output: 512 } }"
        echo "layer { name: \"act$i\" type: \"TanH\" bottom: \"c$i\" top: \"d$i\" }"
        echo "layer { name: \"back$i\" type: \"InnerProduct\" bottom: \"d$i\" top: \"x$i\" inner_product_param { num_output: 64 } }"
    done
    echo "layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"x$1\" bottom: \"y\" top: \"l\" }"
}
plan() { # N FIRST: with segments for the blocks from FIRST on
    echo 'ranks: 1 global_batch: 512 micro_batches: 2 stage { first: "fc1" last: "loss" rank: 0'
    for i in $(seq "$2" "$1"); do echo "again { first: \"fc$i\" last: \"back$i\" }"; done
    echo '}'
}
wide 6 >wide.prototxt
plan 6 1 >all.prototxt
plan 6 4 >half.prototxt
plan 0 1 >none.prototxt
runs names_memory 0 '^recompute   what `again` names saves [0-9.]+ MiB of ' "$CORTADO" check --model=wide.prototxt --phase=TRAIN --parallel=all.prototxt
runs names_nothing 0 '^parallel ' "$CORTADO" check --model=wide.prototxt --phase=TRAIN --parallel=none.prototxt
is no_recompute sh -c '! grep -q "^recompute " out'
if command -v python3 >/dev/null; then
    for f in all half none; do "$CORTADO" check --model=wide.prototxt --phase=TRAIN --parallel=$f.prototxt --json=$f.json >out 2>&1; done
    cat >less.py <<'PY'
import json
a, h, n = (json.load(open(f + ".json")) for f in ("all", "half", "none"))
planned = [p["memory"]["planned"] for p in (a, h, n)]
assert [p["batch"] for p in (a, h, n)] == [256] * 3
wide = 256 * 512 * 4 # a value of 512 numbers a sample; two a block, and two of 64, are kept
assert planned[0] <= planned[2] - 5 * wide and planned[0] < planned[1] < planned[2], planned
assert a["recompute"]["never_planned"] == planned[2] and a["recompute"]["blocks_planned"] == planned[0]
assert "recompute" not in n
PY
    is less_memory python3 less.py
fi

# DummyData gives micro-batches, too
cat >made.prototxt <<'NET'
layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 6 dim: 5 } shape { dim: 6 } shape { dim: 1 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 1 } } top: "z" }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "f" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "no" type: "Silence" bottom: "z" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "y" top: "l" }
NET
sed 's/dim: 6/dim: 4/g' made.prototxt >made4.prototxt
printf 'net: "made.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 20 snapshot: 20 random_seed: 3 solver_mode: CPU\n' >made_solver.prototxt
echo 'ranks: 1 global_batch: 8 micro_batches: 2 stage { first: "fc" last: "loss" rank: 0 }' >made_plan.prototxt
runs dummy 0 '' "$CORTADO" train --solver=made_solver.prototxt --parallel=made_plan.prototxt --set=snapshot_prefix=m
runs dummy_iter_size 0 '' "$CORTADO" train --solver=made_solver.prototxt --set=net=made4.prototxt --set=iter_size=2 --set=snapshot_prefix=n
weights m && weights n
is dummy_weights cmp m.npz n.npz

# what train does not take
runs not_the_job 4 'plan.prototxt:2: ranks is 4, but the job has 1' $train --parallel=plan.prototxt
runs unknown_again 2 'wrong.prototxt:3: again of stage 0 names "fc4", .* did you mean "fc1"' sh -c \
    "sed 's/first: \"fc2\"/first: \"fc4\"/' one.prototxt >wrong.prototxt; $train --parallel=wrong.prototxt"
runs tokens_of_none 2 'batch_tokens' $train --parallel=one.prototxt --set=batch_tokens=100
finish
