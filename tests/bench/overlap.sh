#!/bin/sh
# Exposed communication without overlap, with backward alone, and into the next forward, between pretended hosts (scripts/netns.sh; root).
#   tests/bench/overlap.sh [HOSTS] [RATE] [OPTION...]     options go to `cortado time`
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
hosts=${1:-4} rate=${2:-1gbit}
[ $# -ge 1 ] && shift
[ $# -ge 1 ] && shift
"$root/scripts/netns.sh" up "$hosts" "$rate" || exit 1
log=$(mktemp)
trap '"$root/scripts/netns.sh" down; rm -f "$log"' EXIT
export OMP_NUM_THREADS=1
printf '%-12s %-8s %10s %22s\n' net overlap 'step ms' 'exposed communication'
for net in "alexnet_fc tests/bench/nets/alexnet_fc.prototxt 4" \
    "resnet20 models/resnet20/train_val.prototxt 8 --set=batch_size=32"; do
    set -- $net -- "$@"
    name=$1 file=$root/$2 iterations=$3 batch=
    shift 3
    [ "$1" = -- ] || { batch=$1; shift; }
    shift
    for overlap in off backward both; do
        case $overlap in
            off) how=--overlap=false ;;
            backward) how=--set=comm.forward_overlap=false ;;
            both) how=--overlap=true ;;
        esac
        "$root/scripts/netns.sh" run "$hosts" "$cortado" time --model="$file" --iterations="$iterations" \
            $how $batch "$@" >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
        printf '%-12s %-8s %10s %19s ms\n' $name $overlap \
            "$(sed -n 's/.*: step \([0-9.]*\) ms.*/\1/p' "$log")" \
            "$(sed -n 's/^exposed communication \([0-9.]*\) ms.*/\1/p' "$log")"
    done
done
