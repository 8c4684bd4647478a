# cortado plan --model, --solver: plans of nets under a limit of memory, their files, and refusals.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }
fails() { # NAME PATTERN OPTION...: 2, with one line
    name=$1 pattern=$2
    shift 2
    runs "$name" 2 "$pattern" "$CORTADO" plan --limits=100,12 "$@"
    is "${name}_in_one_line" [ "$(grep -c '^E' out)" = 1 ]
}

cat >lenet.prototxt <<'NET'
name: "LeNet"
layer { name: "mnist" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 64 dim: 1 dim: 28 dim: 28 } shape { dim: 64 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1"
  inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'NET'
net: "gpt.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 3 display: 1
NET
cat >gpt.prototxt <<'NET'
name: "GPT"
layer { name: "data" type: "DummyData" top: "tokens" top: "next"
  dummy_data_param { shape { dim: 4 dim: 64 } shape { dim: 4 dim: 64 } } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 100 num_output: 64 bias_term: false weight_filler { type: "gaussian" std: 0.02 } } }
repeat { count: 8 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "ln1" type: "LayerNorm" bottom: "x" top: "ln1" }
  layer { name: "qkv" type: "InnerProduct" bottom: "ln1" top: "qkv"
    inner_product_param { num_output: 192 axis: 2 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 4 causal: true } }
  layer { name: "out" type: "InnerProduct" bottom: "attn" top: "out"
    inner_product_param { num_output: 64 axis: 2 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "sum1" type: "Eltwise" bottom: "x" bottom: "out" top: "sum1" }
  layer { name: "ln2" type: "LayerNorm" bottom: "sum1" top: "ln2" }
  layer { name: "fc" type: "InnerProduct" bottom: "ln2" top: "fc"
    inner_product_param { num_output: 256 axis: 2 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "gelu" type: "GELU" bottom: "fc" top: "fc" }
  layer { name: "proj" type: "InnerProduct" bottom: "fc" top: "proj"
    inner_product_param { num_output: 64 axis: 2 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "sum2" type: "Eltwise" bottom: "sum1" bottom: "proj" top: "x" }
}
layer { name: "ln_f" type: "LayerNorm" bottom: "x" top: "ln_f" }
layer { name: "head" type: "InnerProduct" bottom: "ln_f" top: "head" param { name: "wte" }
  inner_product_param { num_output: 100 axis: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET

# ---- without a limit all is kept; what it reads is what check prints
plan="$CORTADO plan --limits=100,12"
runs keeps 0 '^  nothing is made again$' $plan --model=lenet.prototxt
is says_the_machine grep -q '^machine     100 GFLOP/s, 12 GB/s, as --limits says$' out
is says_the_chain grep -Eq '^chain       [0-9]+ blocks' out
is one_configuration grep -q '^searched 1 configurations in ' out
runs measures 0 '^machine     [0-9.e+]+ GFLOP/s, [0-9.]+ GB/s, measured$' "$CORTADO" plan --model=lenet.prototxt
sed 's/dim: 64 /dim: 16 /g' lenet.prototxt >small.prototxt
runs batch 0 'hash [0-9a-f]*, 16 samples a step' $plan --model=small.prototxt

# what the runtime takes is part of --memory_gib
runtime=$($plan --model=lenet.prototxt --json 2>/dev/null | sed -n 's/.*"runtime":\([0-9]*\).*/\1/p')
gib() { awk -v g="$1" -v r="${runtime:-0}" 'BEGIN { printf "%.6f", g + r / 2^30 }'; }
is runtime_counts test "${runtime:-0}" -gt 1000000
fails runtime_alone '\-\-memory_gib=0\.001: expected more than the [0-9]+ MiB that a rank takes before it has a net' --model=lenet.prototxt --memory_gib=0.001

# ---- a GPT whose copies are made again
runs limited 0 '^  again h[0-9]_ln[12] - h[0-9]_sum[12]: [0-9]+ blocks?, ' $plan --model=gpt.prototxt --memory_gib="$(gib 0.0097)" --out=p.prototxt --top=3
is does_not_fit grep -Eq '^limit +[0-9.]+ MiB, of which the runtime takes [0-9]+; keeping everything does not fit: [0-9.]+ of 9\.9 MiB$' out
is written grep -q '^written: p.prototxt, for cortado train --parallel=p.prototxt$' out
is top grep -Eq '^segments +MiB ' out
runs file_is_read 0 '^ +again h[0-9]_ln[12] - ' "$CORTADO" check --model=gpt.prototxt --parallel=p.prototxt
runs twice 0 '' $plan --model=gpt.prototxt --memory_gib="$(gib 0.0097)" --out=q.prototxt
is same_again cmp p.prototxt q.prototxt
if command -v python3 >/dev/null; then
    $plan --model=gpt.prototxt --memory_gib="$(gib 0.0097)" --json >j.json 2>/dev/null
    "$CORTADO" check --model=gpt.prototxt --parallel=p.prototxt --phase=TRAIN --json >c.json 2>/dev/null
    is json_fits json j.json 'n["ranks"][0]["memory_bytes"] <= 0.0097 * 2**30 and n["data_parallel_step_s"] is None'
    is json_runtime json j.json '(lambda r: (lambda t: t["runtime"] == '"$runtime"' == t["sum"] - r["memory_bytes"] and abs(t["limit"] - t["runtime"] - 0.0097 * 2**30) < 2000)(r["memory"]["tiers"][0]))(n["ranks"][0])'
    is json_sum json j.json '(lambda r: r["memory_bytes"] == r["weight_bytes"] + r["kept_bytes"] + r["transient_bytes"])(n["ranks"][0])'
    is json_times json j.json 'n["step_s"] > n["whole"]["step_s"] > 0 and n["ranks"][0]["again_s"] > 0'
    is json_stage json j.json '[(s["first"], s["last"], s["ranks"]) for s in n["stages"]] == [("wte", "loss", [0])] and len(n["stages"][0]["again"]) > 0'
    is json_file json j.json 'n["parallel"] == open("p.prototxt").read()'
    is json_copies json j.json 'n["blocks"] >= 16 and n["unlike"] < n["blocks"]'
    planned=$(python3 -c 'import json; r = json.load(open("j.json"))["ranks"][0]; print(r["kept_bytes"] + r["transient_bytes"])')
    is check_plans_the_same grep -q "[:, ]$planned[,}]" c.json
    $plan --model=gpt.prototxt --json >all.json 2>/dev/null
    is json_of_all json all.json 'n["step_s"] == n["data_parallel_step_s"] and n["stages"][0]["again"] == []'
fi

# ---- the solver's states count; the plan runs, with the numbers of the net that keeps everything
runs of_solver 0 '^plan ' $plan --solver=solver.prototxt --memory_gib="$(gib 0.0115)" --out=l.prototxt
is solver_again grep -q 'again {' l.prototxt
sum_of() { sed -n 's/.*weights after iteration 3: checksum //p' out; }
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --seed=3 --deterministic
whole=$(sum_of)
runs trains_planned 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --seed=3 --deterministic --parallel=l.prototxt
is same_weights [ -n "$whole" -a "$whole" = "$(sum_of)" ]

# ---- GPUs of a described node: where model state lies, and the largest net (modelled)
cat >gpus.prototxt <<'M'
name: "two" level { name: "node" size: 2 latency_us: 1 bandwidth_gbs: 10 } level { name: "machine" size: 1 latency_us: 2 bandwidth_gbs: 1 }
node_class { name: "g" memory_gib: 0.002 gpus: 2 gpu_memory_gib: 0.0035 gpu_gbs: 8 host_gbs: 50 gpu_tflops: 1 }
M
tiers="$CORTADO plan --solver=adam.prototxt --set=memory.chunk_mb=0.03125"
sed 's/momentum/type: "Adam" momentum/' solver.prototxt >adam.prototxt
runs largest 0 '^largest +[0-9]+ copies of the repeat, ' $tiers --machine=gpus.prototxt --largest=layers
count=$(sed -n 's/^largest *\([0-9]*\) copies.*/\1/p' out)
is says_tiers [ "$(grep -Ec '^(device|host) ' out)" = 2 ]
is says_modelled grep -q '^step .* modelled: operations ' out
is some_copies [ "${count:-0}" -gt 2 -a "${count:-0}" -lt 8 ]
most=0
for n in 1 2 3 4 5 6 7 8; do # by brute force
    if $tiers --machine=gpus.prototxt --set=repeat.count=$n >out 2>&1; then most=$n; fi
done
is largest_is_brute_force [ "$most" = "$count" ]
runs one_more 2 'does not fit two: each GPU.s part of the node.s memory lacks [0-9.]+ MiB of 1\.0 ' $tiers --machine=gpus.prototxt --set=repeat.count=$((count + 1))
runs no_solver 0 '^assumed +Adam, and precision BF16' "$CORTADO" plan --model=gpt.prototxt --set=memory.chunk_mb=0.03125 --machine=gpus.prototxt --set=repeat.count=1
is says_12_bytes grep -q '^model state 12 bytes a parameter' out
runs small_gpu 2 'each GPU, for activations and windows, lacks ' $tiers --machine=gpus.prototxt --largest=layers --usable=0.1
runs files 0 '^file ' $tiers --machine=gpus.prototxt --set=repeat.count=$((count + 1)) --tiers=device,host,file
if command -v python3 >/dev/null; then
    $tiers --machine=gpus.prototxt --largest=layers --json >l.json 2>/dev/null
    is json_largest json l.json 'n["largest"]["count"] == '$count' and n["largest"]["parameters"] == n["parameters"] > 0 and n["modelled"]'
    is json_ranks json l.json 'len(n["ranks"]) == 2 and n["ranks"][0]["memory"]["chunk_loads"] > 0'
    is json_sums json l.json 'all(t["sum"] == sum(t[k] for k in "weights gradients states window activations logits communication".split()) <= t["limit"] for r in n["ranks"] for t in r["memory"]["tiers"])'
    # 12 bytes a parameter or more: the last chunk of a rank may have room left
    is json_state json l.json '(lambda b: n["parameters"] * 12 <= b < n["parameters"] * 12 + 2 * 3 * 32768 + 20000)(sum(t["weights"] + t["states"] for r in n["ranks"] for t in r["memory"]["tiers"]))'
    $tiers --machine=gpus.prototxt --largest=layers --state_bytes=14 --attention=reference --json >p.json 2>/dev/null
    is json_less json p.json 'n["largest"]["count"] < '$count
fi
# the machine and the net of docs/memory.md
big="$CORTADO plan --model=$ROOT/tests/bench/nets/gpt_4096.prototxt --machine=v100_8"
runs big 0 '^largest +[0-9]+ copies of the repeat, (2[4-9]|3[0-9])\.' $big --largest=layers
count=$(sed -n 's/^largest *\([0-9]*\) copies.*/\1/p' out)
runs big_one_more 2 'does not fit v100_8' $big --set=repeat.count=$((count + 1))
runs big_published 0 '^net .* (1[89]|2[0-9])[0-9]{9} parameters' $big --state_bytes=14 --usable=0.8 --attention=reference --set=repeat.count=90
runs not_layers 2 '\-\-largest=width: expected layers' $tiers --machine=gpus.prototxt --largest=width
runs no_machine 2 'need --machine=NAME' $tiers --largest=layers
runs no_gpus 2 'no class of its nodes has GPUs' $tiers --largest=layers --machine=fat_tree_edr
runs no_repeat 2 'this net has none' "$CORTADO" plan --model=lenet.prototxt --machine=v100_8 --largest=layers
runs bad_usable 2 '\-\-usable=1\.5: expected a number above 0 and at most 1' $tiers --machine=gpus.prototxt --usable=1.5
runs bad_tiers 2 '\-\-tiers=disk: expected device,host' $tiers --machine=gpus.prototxt --tiers=disk
runs bad_count 2 'repeat.count=none: expected a whole number' $tiers --set=repeat.count=none
runs no_count 2 'the count of a net.s only repeat; here are 0' $plan --model=lenet.prototxt --set=repeat.count=2

# ---- what it refuses
fails nothing_fits 'nothing fits: keeping everything takes [0-9.]+ MiB of 1\.0, and the plan that takes least [0-9.]+ MiB \(--memory_gib=[0-9.]+\)' --model=gpt.prototxt --memory_gib="$(gib 0.001)"
least=$(sed -n 's/.*(--memory_gib=\([0-9.]*\)).*/\1/p' out)
runs least_fits 0 '^plan ' $plan --model=gpt.prototxt --memory_gib="$least"
fails lenet_does_not_shrink 'nothing fits: keeping everything takes [0-9.]+ MiB of 5\.1, and' --model=lenet.prototxt --memory_gib="$(gib 0.005)"
fails no_limit '\-\-memory_gib=-1: expected a number above 0' --model=gpt.prototxt --memory_gib=-1
fails bad_limit '\-\-memory_gib=2GB: expected a number above 0' --model=gpt.prototxt --memory_gib=2GB
runs bad_machine 2 '\-\-limits=fast: expected two numbers above 0' "$CORTADO" plan --model=gpt.prototxt --limits=fast
fails no_net 'needs one of --model=FILE, --solver=FILE, --chain=FILE and --pipeline=FILE'
fails two 'needs one of' --model=gpt.prototxt --chain=chain.json
runs missing 3 'none.prototxt' $plan --model=none.prototxt
sed '/SoftmaxWithLoss/d' lenet.prototxt >open.prototxt
fails no_loss 'has nothing to plan: no layer runs backward' --model=open.prototxt
finish
