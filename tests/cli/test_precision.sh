# Training in bf16: the same bits from run to run and after a resume, on one rank and on two; ranks
# agree with one rank.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
# a first layer, a layer in blocks whose values are bf16 on both sides, a fully connected one
sed -n '/name: "in"/,/data_param/p' net.prototxt >deep.prototxt
cat >>deep.prototxt <<'EOF'
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 24 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool2" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF
mv deep.prototxt net.prototxt
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=display=1 --set=precision=BF16"

runs trains 0 'Optimization Done' $train --set=snapshot_prefix=one --metrics=one.jsonl
whole=$(sum_of)
is sum_is_there test "${whole%% *}" = 20
losses one.jsonl >one
$train --set=precision=F32 --set=snapshot_prefix=f32 >out 2>&1 </dev/null
is not_f32 test "$(sum_of) of 20" != "$whole of 20"
$train --set=snapshot_prefix=again >out 2>&1 </dev/null
is repeats test "$(sum_of)" = "$whole"
$train --set=snapshot_prefix=part --iterations=10 >out 2>&1 </dev/null
runs resumes 0 'resuming after 10 iterations' $train --set=snapshot_prefix=part --snapshot=auto
is resume_is_exact test "$(sum_of)" = "$whole"

# of two ranks other sums are rounded to f32; a value that crosses a tie moves by 2^-8 of itself
runs ranks 0 'Optimization Done' $JOB 2 $train --set=snapshot_prefix=two --metrics=two.jsonl
whole=$(sum_of)
losses two.jsonl >two
is losses_agree test "$(wc -l <two)" = 20
is losses_are_near awk 'NR == FNR { one[$1] = $2; next } { d = $2 - one[$1]; if (d < 0) d = -d; if (d > $2 / 256) bad = 1 } END { exit bad }' one two
$JOB 2 $train --set=snapshot_prefix=half --iterations=10 >out 2>&1 </dev/null
runs ranks_resume 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train --set=snapshot_prefix=half --snapshot=auto
is ranks_resume_is_exact test "$(sum_of) of 20" = "$whole of 20"
finish
