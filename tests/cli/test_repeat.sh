# `repeat` in nets: the text that it stands for, what check says of copies, messages, training.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }

cat >net.prototxt <<'NET'
name: "n"
layer { name: "d" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 6 dim: 16 } shape { dim: 6 } data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 2 } } }
repeat {
  count: 3 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "fc" type: "InnerProduct" bottom: "x" top: "f"
    inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "f" top: "f" }
  layer { name: "drop" type: "Dropout" bottom: "f" top: "f" include { phase: TRAIN } }
  layer { name: "proj" type: "InnerProduct" bottom: "f" top: "p"
    inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "p" top: "x" }
}
layer { name: "out" type: "InnerProduct" bottom: "x" top: "o" inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "o" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'EOF'
base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 max_iter: 4 display: 1 snapshot: 4
solver_mode: CPU random_seed: 7 deterministic: true snapshot_prefix: "s"
EOF

# ---- what it stands for
runs convert 0 '' "$CORTADO" convert net --from=net.prototxt --to=long.prototxt
is no_repeat sh -c '! grep -q repeat long.prototxt'
is all_layers [ "$(grep -c '^layer {' long.prototxt)" = 18 ]
is first_reads grep -q 'bottom: "h1_x"' long.prototxt
is behind_reads sh -c "sed -n '/name: \"out\"/,/top/p' long.prototxt | grep -q 'bottom: \"h2_x\"'"
is rules_stay [ "$(grep -c 'phase: TRAIN' long.prototxt)" = 3 ]
runs convert_again 0 '' "$CORTADO" convert net --from=long.prototxt --to=longer.prototxt
is same_again cmp long.prototxt longer.prototxt
printf 'net_param {\n%s\n}\n' "$(cat net.prototxt)" | cat - solver.prototxt >with_net.prototxt
runs convert_solver 0 '' "$CORTADO" convert solver --from=with_net.prototxt --to=long_solver.prototxt
is solver_layers grep -q 'name: "h2_fc"' long_solver.prototxt

# ---- check: a block once, the totals of all
runs check 0 '^x 3: h0_fc to h0_' "$CORTADO" check --model=net.prototxt --phase=TRAIN
cp out short.out
is first_copy grep -q '^h0_drop ' short.out
is no_second_copy sh -c '! grep -q "^h1_" short.out'
runs check_long 0 '^h2_fc ' "$CORTADO" check --model=long.prototxt --phase=TRAIN
is same_totals sh -c 'sed -n "/^net /,\$p" short.out | grep -v ^recompute >a; sed -n "/^net /,\$p" out >b; cmp a b'
is sum_of_copies grep -Eq '^x 3: .* 3216 ' short.out # 3 x (16 x 32 + 32 + 32 x 16 + 16)
runs check_test 0 '^h0_relu ' "$CORTADO" check --model=net.prototxt --phase=TEST
is without_dropout sh -c '! grep -q drop out'
# copies that differ are all shown
runs check_unlike 0 '^h2_fc ' "$CORTADO" check --model=net.prototxt --phase=TRAIN --set='layer[h1_fc].inner_product_param.num_output=24'
# another count, of an option
sed 's/count: 3/count: 5/' net.prototxt >five.prototxt
runs check_five 0 '^x 5: h0_fc to h0_' "$CORTADO" check --model=five.prototxt --phase=TRAIN
cp out five.out
runs count_set 0 '^x 5: h0_fc to h0_' "$CORTADO" check --model=net.prototxt --phase=TRAIN --set=repeat.count=5
is count_same cmp five.out out
if command -v python3 >/dev/null; then
    "$CORTADO" check --model=net.prototxt --phase=TRAIN --json=j.json >out 2>&1
    is json_copies json j.json '[l["copy"] for l in n["layers"] if l["name"].endswith("_fc")] == [0, 1, 2]'
    is json_of json j.json '{l.get("of", 1) for l in n["layers"]} == {1, 3}'
fi

# ---- the same weights as of the long form, option by option
printf 'net: "net.prototxt"\n' | cat - solver.prototxt >short_solver.prototxt
printf 'net: "long.prototxt"\n' | cat - solver.prototxt >other_solver.prototxt
printf 'net: "five.prototxt"\n' | cat - solver.prototxt >five_solver.prototxt
runs trains_five 0 'Optimization Done' "$CORTADO" train --solver=five_solver.prototxt
sed -n 's/.*checksum //p' out >five.sum
runs trains_count 0 'Optimization Done' "$CORTADO" train --solver=short_solver.prototxt --set=repeat.count=5
sed -n 's/.*checksum //p' out >count.sum
is count_trains_the_same sh -c '[ -s five.sum ] && cmp five.sum count.sum'
runs count_of_inline 2 'repeat.count is for nets in files of their own' "$CORTADO" check --solver=with_net.prototxt --set=repeat.count=5
runs train 0 'iteration 4|Iteration 4' "$CORTADO" train --solver=short_solver.prototxt --set=snapshot_prefix=a
runs train_long 0 '' "$CORTADO" train --solver=other_solver.prototxt --set=snapshot_prefix=b
runs list_a 0 '' "$CORTADO" convert model --from=a_iter_4.caffemodel.h5 --to=a.npz
runs list_b 0 '' "$CORTADO" convert model --from=b_iter_4.caffemodel.h5 --to=b.npz
is same_weights cmp a.npz b.npz

# ---- blocks made again in backward: less memory, the same weights
runs check_never 0 '^recompute   NEVER; BLOCKS saves ' "$CORTADO" check --model=net.prototxt --phase=TRAIN
runs check_blocks 0 '^recompute   BLOCKS; BLOCKS saves .* does 5[0-9] % of forward' "$CORTADO" check --model=net.prototxt --phase=TRAIN --set=recompute=BLOCKS
runs check_long_blocks 0 'no repeat, so there are no blocks' "$CORTADO" check --model=long.prototxt --phase=TRAIN --set=recompute=BLOCKS
is no_line sh -c '! grep -q "^recompute  " out'
if command -v python3 >/dev/null; then
    for r in NEVER BLOCKS true; do
        "$CORTADO" check --model=net.prototxt --phase=TRAIN --set=recompute=$r --json=$r.json >out 2>&1
    done
    is json_never json NEVER.json 'n["recompute"]["is"] == "NEVER" and n["memory"]["planned"] == n["recompute"]["never_planned"]'
    is json_blocks json BLOCKS.json 'n["recompute"]["is"] == "BLOCKS" and n["memory"]["planned"] == n["recompute"]["blocks_planned"] < n["recompute"]["never_planned"]'
    is json_share json BLOCKS.json '0.4 < n["recompute"]["blocks_share"] < 0.6'
    is json_true json true.json 'n["recompute"]["is"] == "CHEAP"'
fi
runs train_blocks 0 '' "$CORTADO" train --solver=short_solver.prototxt --set=snapshot_prefix=c --set=recompute=BLOCKS --set=iter_size=2
runs train_never 0 '' "$CORTADO" train --solver=short_solver.prototxt --set=snapshot_prefix=d --set=iter_size=2
for s in c d; do "$CORTADO" convert model --from=${s}_iter_4.caffemodel.h5 --to=$s.npz >out 2>&1; done
is blocks_weights cmp c.npz d.npz
runs ranks_blocks 0 '' $JOB 2 "$CORTADO" train --solver=short_solver.prototxt --set=snapshot_prefix=e --set=recompute=BLOCKS
runs ranks_never 0 '' $JOB 2 "$CORTADO" train --solver=short_solver.prototxt --set=snapshot_prefix=f
for s in e f; do "$CORTADO" convert model --from=${s}_iter_4.caffemodel.h5 --to=$s.npz >out 2>&1; done
is ranks_weights cmp e.npz f.npz
runs auto 0 'recompute AUTO: NEVER, the net needs' "$CORTADO" train --solver=short_solver.prototxt --set=recompute=AUTO
cat >small.prototxt <<'EOF'
name: "small" source: "a test" level { name: "node" size: 1 latency_us: 1 bandwidth_gbs: 9 }
level { name: "machine" size: 2 latency_us: 1 bandwidth_gbs: 1 }
node_class { name: "tiny" nodes: "0-1" memory_gib: 1e-5 }
EOF
runs auto_small 2 'recompute AUTO: BLOCKS, with which the net needs' \
    "$CORTADO" check --model=net.prototxt --phase=TRAIN --set=recompute=AUTO --nodes=1 --machine=small.prototxt
sed 's/^name: "n"/name: "n" recompute: BLOKS/' net.prototxt >wrong.prototxt
runs wrong_value 2 'recompute: unknown value "BLOKS"; did you mean "BLOCKS"' "$CORTADO" check --model=wrong.prototxt

# ---- what is made again has steps of its own, which profiles hold and the model reads
runs time 0 '' "$CORTADO" time --model=net.prototxt --iterations=3 --limits=false --set=recompute=BLOCKS --json=time.json
is time_steps sh -c 'grep -q "\"kind\":\"again\"" time.json'
runs verdict 0 'compression on 2 nodes' "$CORTADO" check --model=net.prototxt --phase=TRAIN --set=recompute=BLOCKS --nodes=2 --profile=time.json

# ---- messages: where a copy is at fault, its name says which
sed 's/"proj" type: "InnerProduct" bottom: "f"/"proj" type: "InnerProduct" bottom: "g"/' net.prototxt >wrong.prototxt
runs wrong_bottom 2 'wrong.prototxt:10, copy 0: layer "h0_proj" .*unknown bottom "g"' "$CORTADO" check --model=wrong.prototxt
runs set_wrong 2 'net.prototxt:6, copy 1: layer "h1_fc" .*num_output' "$CORTADO" check --model=net.prototxt --set='layer[h1_fc].inner_product_param.num_output=0'
sed 's/name: "relu" type: "ReLU"/& pooling_param { }/' net.prototxt >odd.prototxt
runs warned_once 0 'odd.prototxt:8: in layer "h0_relu" .*pooling_param means nothing' "$CORTADO" check --model=odd.prototxt --phase=TRAIN
is one_warning [ "$(grep -c 'means nothing' out)" = 1 ]
runs set_copy 2 'no layer "h3_fc"; did you mean "h' "$CORTADO" check --model=net.prototxt --set='layer[h3_fc].inner_product_param.num_output=24'
runs set_count 2 'net_param.repeat.*a repeat cannot be set' "$CORTADO" check --model=net.prototxt --set=net_param.repeat='{}'
sed 's/prefix: "h%d_"/prefix: "h"/' net.prototxt >wrong.prototxt
runs no_number 2 'wrong.prototxt:5:12: repeat: prefix "h": 3 copies need "%d" in it' "$CORTADO" check --model=wrong.prototxt
sed 's/count: 3/count: 0/' net.prototxt >wrong.prototxt
runs no_copies 2 'wrong.prototxt:5:3: repeat: count is 0' "$CORTADO" convert net --from=wrong.prototxt --to=w.prototxt
sed 's/name: "out"/name: "h1_sum"/' net.prototxt >wrong.prototxt
runs clash 2 'wrong.prototxt:14:1: two layers are called "h1_sum": copy 1 of the repeat of line 4' "$CORTADO" check --model=wrong.prototxt
finish
