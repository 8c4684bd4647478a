#!/bin/sh
# Training speed of the models on this machine: images/s of a full step (forward, backward, update).
#   tests/bench/nets.sh [THREADS] [MODEL BATCH ITERATIONS]...
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
threads=${1:-$(nproc)}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- lenet 64 200 quick 128 40 resnet20 128 10 alexnet 64 5 googlenet 32 3 vgg16 16 3 resnet50 16 3
json=$(mktemp)
trap 'rm -f "$json"' EXIT
printf '%-10s %6s %8s %12s\n' model batch 'step ms' images/s
while [ $# -ge 3 ]; do
    OMP_NUM_THREADS=$threads "$cortado" time --model="$root/models/$1/train_val.prototxt" --iterations="$3" \
        --set=batch_size="$2" --json="$json" --log=error >/dev/null || exit 1
    printf '%-10s %6s %8.1f %12.1f\n' "$1" "$2" \
        "$(sed -n 's/.*"step_ms":\([0-9.e+-]*\).*/\1/p' "$json" | head -1)" \
        "$(sed -n 's/.*"images_per_s":\([0-9.e+-]*\).*/\1/p' "$json" | head -1)"
    shift 3
done
