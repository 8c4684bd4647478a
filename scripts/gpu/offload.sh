#!/bin/sh
# A model whose weights, gradients and states take 3 times a GPU's memory: steps with weights in host memory
# (docs/memory.md), beside DeepSpeed's ZeRO-3 with parameters and optimiser offloaded where python3 has it.
# Never run on a GPU yet. Takes minutes, and 12 bytes of host memory a parameter.
#   scripts/gpu/offload.sh FOLDER [TIMES]       FOLDER as scripts/gpu/bench.sh; exits 77 where no GPU works
set -u
cd "$(dirname "$0")/../.." || exit 1
b=${1:?folder of a build with CUDA=1}
times=${2:-3}
. scripts/gpu/env.sh
if ! gpus=$("$b/cortado" info --gpus 2>&1); then
    echo "$gpus"
    echo "no GPU: nothing run"
    exit 77
fi
echo "$gpus"
models=models
[ ! -d "$b/models" ] || models=$b/models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# GPT-2 XL's blocks have 12 w^2 + 13 w parameters, w = 1600; its tables 1600 (50257 + 1024). Adam in f32:
# 16 bytes a parameter, of which 12 in host memory.
gib=$(echo "$gpus" | sed -n 's/^gpu 0 .*, \([0-9.]*\) GiB.*/\1/p')
host_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
blocks=$(awk -v gib="$gib" -v host="$host_kib" -v times="$times" 'BEGIN {
    n = times * gib * 1073741824 / 16; most = 0.85 * host * 1024 / 12; if (n > most) n = most
    k = int((n - 82049600) / 30740800); print (k < 1) ? 1 : k }')
awk -v k="$blocks" 'BEGIN { n = 82049600 + k * 30740800
    printf "%d blocks: %.2f billion parameters, %.1f GiB with Adam\n", k, n / 1e9, 16 * n / 1073741824 }'
sed "s/^  count: 48 /  count: $blocks /" "$models/gpt2_xl/train_val.prototxt" >"$work/net.prototxt"
grep -q "^  count: $blocks " "$work/net.prototxt" || { echo "the net has no repeat of 48 blocks"; exit 1; }
for precision in F32 BF16; do
    if "$b/cortado" time --model="$work/net.prototxt" --solver_mode=gpu --iterations=3 --set=type=AdamW --set=momentum=0.9 \
        --set=base_lr=1e-4 --set=memory.weights=HOST --set=recompute=BLOCKS --set=precision=$precision \
        --json="$work/json" --log=error >"$work/out" 2>&1; then
        printf 'cortado   %-5s %10.1f ms a step\n' $precision "$(sed -n 's/.*"step_ms":\([0-9.e+-]*\).*/\1/p' "$work/json" | head -1)"
    else
        echo "cortado $precision failed: $(tail -1 "$work/out")"
    fi
done
if python3 -c 'import deepspeed' 2>/dev/null; then
    python3 tests/bench/deepspeed_offload.py "$blocks"
else
    echo "no DeepSpeed: nothing to compare with"
fi
