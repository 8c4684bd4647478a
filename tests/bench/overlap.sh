#!/bin/sh
# Exposed communication between pretended hosts (scripts/netns.sh; root): overlap off, with backward
# only, and with backward and the next forward, against what theory allows.
#   tests/bench/overlap.sh [HOSTS] [RATE] [OPTION...]     options go to `cortado time`
#   NETS="alexnet_fc resnet20"  MODES="off backward both"  are the defaults
# Without overlap all communication is exposed: that is its length C. What computes while it travels
# can hide it: K, the step less its exposed part, with the transfer's own load on the cores. So
# exposed should be at most 1.15 max(0, C - K) + 3 % of the step.
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

# What `cortado time` is given for a net: long steps try nothing out.
net_options() {
    case $1 in
    alexnet_fc) echo "--model=$root/tests/bench/nets/alexnet_fc.prototxt --iterations=3 --set=comm.tune_iterations=0" ;;
    resnet20) echo "--model=$root/models/resnet20/train_val.prototxt --iterations=20 --set=batch_size=32" ;;
    *) echo "--model=$1 --iterations=5" ;;
    esac
}

mode_options() {
    case $1 in
    off) echo "--overlap=false" ;;
    backward) echo "--overlap=true --set=comm.forward_overlap=false" ;;
    both) echo "--overlap=true --set=comm.forward_overlap=true" ;;
    esac
}

printf '%-12s %-9s %9s %9s %9s %9s %s\n' net overlap 'step ms' exposed compute allowed verdict
for net in ${NETS:-alexnet_fc resnet20}; do
    whole=
    for mode in ${MODES:-off backward both}; do
        # shellcheck disable=SC2046 # options are words
        "$root/scripts/netns.sh" run "$hosts" "$cortado" time $(net_options "$net") \
            $(mode_options "$mode") "$@" >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
        step=$(sed -n 's/.*: step \([0-9.]*\) ms.*/\1/p' "$log")
        exposed=$(sed -n 's/^exposed communication \([0-9.]*\) ms.*/\1/p' "$log")
        [ "$mode" = off ] && whole=$exposed
        awk -v net="$(basename "$net" .prototxt)" -v mode="$mode" -v step="$step" -v exposed="$exposed" \
            -v whole="$whole" 'BEGIN {
                compute = step - exposed
                if (mode == "off" || whole == "") { allowed = "-"; verdict = "" }
                else {
                    rest = whole - compute; if (rest < 0) rest = 0
                    allowed = sprintf("%.2f", 1.15 * rest + 0.03 * step)
                    verdict = (exposed <= allowed + 0) ? "within" : "above"
                }
                printf "%-12s %-9s %9.2f %9.2f %9.2f %9s %s\n", net, mode, step, exposed, compute, allowed, verdict }'
        [ -n "${V:-}" ] && grep -E 'allreduce of|progress:|gradients:' "$log"
    done
done
exit 0
