# A Filter: check, training, ranks that keep other numbers of samples, resuming, tests, extract.
. "$ROOT/tests/cli/lib.sh"
"$CORTADO" convert digits --to=data --count=600 --seed=3 >out 2>&1 || { not_ok convert "digits"; finish; }
# of the digits only those from 6 on are learned: some 6 of 16
cat >net.prototxt <<'EOF'
name: "Some"
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/train_lmdb" backend: LMDB batch_size: 16 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/test_lmdb" backend: LMDB batch_size: 20 } }
layer { name: "large" type: "Threshold" bottom: "label" top: "large" threshold_param { threshold: 5.5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "keep" type: "Filter" bottom: "conv" bottom: "label" bottom: "large" top: "kept" top: "digit" }
layer { name: "pool" type: "Pooling" bottom: "kept" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "digit" top: "loss" }
layer { name: "right" type: "Accuracy" bottom: "ip" bottom: "digit" top: "right" include { phase: TEST } }
EOF
cat >solver.prototxt <<'EOF'
net: "net.prototxt"
test_iter: 5
test_interval: 30
base_lr: 0.05
momentum: 0.9
lr_policy: "fixed"
max_iter: 60
display: 1
snapshot: 0
snapshot_prefix: "s"
random_seed: 5
global_batch_size: 16
EOF
train="$CORTADO train --solver=solver.prototxt"
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }

runs check 0 '^pool +Pooling +pool +<= 16 6 6 6' "$CORTADO" check --model=net.prototxt --phase=TRAIN
"$CORTADO" check --model=net.prototxt --phase=TEST --json >check.json 2>/dev/null
if command -v python3 >/dev/null; then
    is json python3 -c 'import json
tops = {t["name"]: t for l in json.load(open("check.json"))["layers"] for t in l["tops"]}
assert tops["kept"]["shape"] == [20, 6, 12, 12] and tops["kept"]["varies"], tops
assert "varies" not in tops["conv"] and "varies" not in tops["loss"], tops'
else
    skip json "needs python3"
fi

runs train 0 'Optimization Done' $train --metrics=one.jsonl
losses one.jsonl >one
is learns awk 'NR <= 5 { a += $2 } NR > 55 { b += $2 } END { exit !(NR == 60 && b < 0.5 * a) }' one
is tested sh -c "grep -q '\"event\":\"test\",\"iter\":60' one.jsonl"

# the means are over what passes on all ranks, and Dropout goes by the place among them
runs two_ranks 0 'Optimization Done' $JOB 2 $train --metrics=two.jsonl --set=snapshot_prefix=t
losses two.jsonl >two
is same_as_one awk 'NR == FNR { a[$1] = $2; next } { d = $2 - a[$1]; n++; if (d * d > 1e-8) bad = 1 } END { exit bad || n != 60 }' one two
runs one_has_none 0 'Optimization Done' $JOB 3 $train --set=global_batch_size=3 --set=snapshot_prefix=n --iterations=20
runs accumulates 0 'Optimization Done' $train --set=iter_size=2 --set=snapshot_prefix=a --iterations=10

# resumed exactly
runs stop 0 'Optimization Done' $train --iterations=25 --set=snapshot_prefix=p
runs resume 0 'Optimization Done' $train --snapshot=p_iter_25.solverstate.h5 --metrics=rest.jsonl --set=snapshot_prefix=q
losses rest.jsonl >rest
is exact sh -c 'tail -n +26 one | cmp - rest'

weights=$(ls s_iter_60.caffemodel*)
runs test 0 'right = ' "$CORTADO" test --model=net.prototxt --weights="$weights" --iterations=5
runs extract 0 'some.h5: digit, ' "$CORTADO" extract --model=net.prototxt --weights="$weights" --blobs=digit,kept --to=some.h5 --iterations=3
is fewer awk '/some.h5: digit, / { n = $NF } { for (i = 1; i <= NF; i++) if ($i == "digit,") n = $(i + 1) } END { exit !(n > 0 && n < 60) }' out

sed 's/bottom: "digit" top: "loss"/bottom: "label" top: "loss"/' net.prototxt >bad.prototxt
runs refused 2 'layer "loss" \(SoftmaxWithLoss\): .*; it cannot follow layer "keep" \(Filter\)' \
    "$CORTADO" check --model=bad.prototxt --phase=TRAIN
finish
