#!/bin/sh
# What each part of the CPU's side brings: training speed and largest resident memory with all parts,
# and with one of them off in turn.
#   tests/bench/ablation.sh [ROUNDS [MODEL BATCH ITERATIONS]...]
# fuse: layers that run as one; winograd; layout: channels in blocks (off: convolutions in plain
# order); memory: activations that share memory by lifetime. In turns, each line one run.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
rounds=${1:-1}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- alexnet 64 4 googlenet 32 3 resnet50 16 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() { # LABEL MODEL-FILE OPTION...: of $model $batch $iterations
    label=$1 file=$2
    shift 2
    kib=$(python3 -c 'import resource, subprocess, sys
r = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(r.returncode)' "$cortado" time --model="$file" --iterations="$iterations" --limits=false \
        --set=batch_size="$batch" --json="$folder/time.json" --log=error "$@") || exit 1
    printf '%-10s %5s %-10s %9s %9s %7d\n' "$model" "$batch" "$label" \
        "$(sed -n 's/.*"step_ms":\([0-9.e+-]*\).*/\1/p' "$folder/time.json" | head -1)" \
        "$(sed -n 's/.*"images_per_s":\([0-9.e+-]*\).*/\1/p' "$folder/time.json" | head -1)" \
        $((kib / 1024))
}
printf '%-10s %5s %-10s %9s %9s %7s\n' model batch without 'step ms' images/s MiB
while [ $# -ge 3 ]; do
    model=$1 batch=$2 iterations=$3
    net=$root/models/$model/train_val.prototxt
    sed 's/type: "Convolution"/& ct_kernel { forward: "direct" }/' "$net" >"$folder/plain.prototxt"
    for round in $(seq "$rounds"); do
        run - "$net"
        run fuse "$net" --set=fuse=false
        run winograd "$net" --set=winograd=NEVER
        run layout "$folder/plain.prototxt"
        CORTADO_UNSHARED=1 run memory "$net"
    done
    shift 3
done
