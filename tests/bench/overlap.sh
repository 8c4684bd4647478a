#!/bin/sh
# Exposed communication between pretended hosts (scripts/netns.sh; root): overlap off, with backward
# only, and with backward and the next forward, against the least that a step must expose.
#   tests/bench/overlap.sh [HOSTS] [RATE] [OPTION...]     options go to `cortado time`
#   NETS="alexnet_fc alexnet resnet20"  MODES="off backward both"  are the defaults
#   V=1: what the ranks say of their choices, too; KEEP=FOLDER: leaves profiles there, and traces
# The least comes from overlap_theory.py: the run's own list of steps and times (so with the
# transfer's load on the cores), which gradient is ready when and needed when, and the link's rate.
# Above is what exposes more than 1.15 times that, and 3 % of the step.
# Where ranks share cores, one waits while another computes, which counts as exposed though no time is
# lost: with as many hosts as cores the figure says what it says on a real machine.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/bench
cortado=${CORTADO:-$root/cortado}
hosts=${1:-4} rate=${2:-1gbit}
[ $# -ge 1 ] && shift
[ $# -ge 1 ] && shift
"$root/scripts/netns.sh" up "$hosts" "$rate" || exit 1
dir=$(mktemp -d)
trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1

# What `cortado time` is given for a net: where steps are long they try only who moves the messages
# (comm { progress: AUTO }), and keep the model's algorithms.
net_options() {
    case $1 in
    alexnet_fc) echo "--model=$here/nets/alexnet_fc.prototxt --iterations=5 --set=comm.tune_iterations=1" ;;
    alexnet) echo "--model=$root/models/alexnet/train_val.prototxt --iterations=5 --set=batch_size=16 --set=comm.tune_iterations=1" ;;
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

bits=$(echo "$rate" | sed 's/gbit$/e9/; s/mbit$/e6/; s/kbit$/e3/')
printf '%-12s %-9s %9s %9s %9s %9s %9s %9s %s\n' net overlap 'step ms' exposed compute link least allowed verdict
for net in ${NETS:-alexnet_fc alexnet resnet20}; do
    for mode in ${MODES:-off backward both}; do
        name=$(basename "$net" .prototxt)
        trace=
        [ -n "${KEEP:-}" ] && trace="--trace=$dir/$name.$mode.trace.json --trace_iterations=1-1000"
        # shellcheck disable=SC2046,SC2086 # options are words
        "$root/scripts/netns.sh" run "$hosts" "$cortado" time $(net_options "$net") \
            $(mode_options "$mode") --json="$dir/$name.$mode.json" $trace "$@" >"$dir/log" 2>&1 ||
            { tail -n 20 "$dir/log"; exit 1; }
        if [ "$rate" = none ]; then
            figures="- - - - -"
        else
            figures=$(python3 "$here/overlap_theory.py" "$dir/$name.$mode.json" "$mode" "$hosts" "$bits") || exit 1
        fi
        echo "$name $mode $figures" | awk '{
            allowed = 1.15 * $7 + 0.03 * $3
            printf "%-12s %-9s %9s %9s %9s %9s %9s %9.2f %s\n", $1, $2, $3, $4, $5, $6, $7, allowed,
                ($4 <= allowed) ? "within" : "above" }'
        [ -n "${V:-}" ] && grep -E 'allreduce of|progress:|gradients:' "$dir/log"
        [ -n "${KEEP:-}" ] && cp "$dir/$name.$mode."* "$KEEP/"
    done
done
exit 0
