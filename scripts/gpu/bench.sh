#!/bin/sh
# Timings on a GPU: what make bench-gpu runs. Under 8 minutes.
#   scripts/gpu/bench.sh FOLDER [SECONDS]       as scripts/gpu/test.sh; exits 77 where no GPU works
# Prints the GPU with its measured copy bandwidth and product rate, kernels in GB/s as shares of it, products
# of fully connected layers with epilogues beside separate kernels, recurrent layers by their own steps beside
# cuDNN's, and training steps of models in f32 and bf16, beside PyTorch's (eager and compiled) where python3
# has torch; steps of small kernels with and without graphs.
set -u
cd "$(dirname "$0")/../.." || exit 1
b=${1:?folder of a build with CUDA=1}
limit=${2:-420}
. scripts/gpu/env.sh
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
end=$(($(date +%s) + limit))
within() { # SECONDS COMMAND...: fewer near the end
    most=$1 left=$((end - $(date +%s)))
    shift
    timeout $((left < 1 ? 1 : left < most ? left : most)) "$@"
}

if ! gpus=$("$b/cortado" info --gpus 2>&1); then
    echo "$gpus"
    echo "no GPU: nothing run"
    exit 77
fi
echo "$gpus"
[ -x "$b/tests/bench/bench_gpu" ] && timeout 90 "$b/tests/bench/bench_gpu"
[ -x "$b/tests/bench/bench_gpu_products" ] && timeout 90 "$b/tests/bench/bench_gpu_products"
[ -x "$b/tests/bench/bench_gpu_cells" ] && timeout 60 "$b/tests/bench/bench_gpu_cells"

models=models
[ ! -d "$b/models" ] || models=$b/models # a bundle brings them
json=$(mktemp)
trap 'rm -f "$json"' EXIT
printf '%-11s %6s %5s %9s %12s\n' model batch bits 'step ms' 'samples/s'
for job in "alexnet 256 20" "vgg16 64 10" "resnet50 128 10" "googlenet 128 10" "lstm_large 20 20"; do
    set -- $job
    for precision in F32 BF16; do
        [ "$(date +%s)" -lt "$end" ] || { echo "out of time: $1 $precision and what follows not run"; break 2; }
        if ! within 100 "$b/cortado" time --model="$models/$1/train_val.prototxt" --solver_mode=gpu \
            --iterations="$3" --set=batch_size="$2" --set=precision=$precision --json="$json" --log=error >"$json.out" 2>&1; then
            echo "$1 $2 $precision: failed: $(tail -1 "$json.out")"
            continue
        fi
        printf '%-11s %6s %5s %9.2f %12.1f\n' "$1" "$2" $precision \
            "$(sed -n 's/.*"step_ms":\([0-9.e+-]*\).*/\1/p' "$json" | head -1)" \
            "$(sed -n 's/.*"images_per_s":\([0-9.e+-]*\).*/\1/p' "$json" | head -1)"
    done
done
# "lstm_large" counts columns of 35 words
# what graphs from the loss to the new weights bring where kernels are small
printf '\n%-11s %6s %8s %14s %14s\n' model batch rule 'graphs ms' 'kernels ms'
for job in "lenet 64 200 SGD" "lenet 64 200 LAMB" "quick 100 100 SGD" "resnet20 32 50 SGD" "resnet50 8 20 SGD" "resnet50 8 20 LAMB" "lstm 20 50 SGD"; do
    set -- $job
    [ -f "$models/$1/train_val.prototxt" ] || { echo "$1: no such model"; continue; }
    [ "$(date +%s)" -lt "$end" ] || { echo "out of time: $1 $4 and what follows not run"; break; }
    row=
    for graph in true false; do
        : >"$json"
        within 60 "$b/cortado" time --model="$models/$1/train_val.prototxt" --solver_mode=gpu --iterations="$3" --set=batch_size="$2" \
            --set=type="$4" --set=momentum=0.9 --set=cuda_graph=$graph --json="$json" --log=error >"$json.out" 2>&1 || row="$row failed: $(tail -1 "$json.out")"
        row="$row $(sed -n 's/.*"step_ms":\([0-9.e+-]*\).*/\1/p' "$json" | head -1)"
    done
    printf '%-11s %6s %8s %14s %14s\n' "$1" "$2" "$4" $row
done
rm -f "$json.out"
if python3 -c 'import torch, torchvision' 2>/dev/null && [ "$(date +%s)" -lt "$end" ]; then
    SECONDS_LEFT=$((end - $(date +%s))) timeout $((end - $(date +%s) + 30)) python3 tests/bench/torch_gpu.py
else
    echo "no PyTorch with torchvision, or out of time: nothing to compare with"
fi
