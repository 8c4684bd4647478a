#!/bin/sh
# Steps between pretended hosts (scripts/netns.sh; root), dense and overlapped against codecs.
#   tests/bench/codec_steps.sh [HOSTS] [RATE] [OPTION...]     4 1gbit; options go to `cortado time`
#   NETS="alexnet lstm"  WAYS="none redsync:... ..."  ITERATIONS=3  TUNE=1 (comm { tune_iterations } of auto)
#   TURNS=1: all ways so many times in turn, then the medians of each way's medians
#   KEEP=FOLDER: leaves the profiles and logs there
# The batches are small, so that dense communication takes five times the computation and more:
# `link` is what the wire needs for the dense gradient, `compute` the rest of the step.
# Where ranks share cores, `exposed` holds waits for ranks that compute, too.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/bench
cortado=${CORTADO:-$root/cortado}
hosts=${1:-4} rate=${2:-1gbit}
[ $# -ge 1 ] && shift
[ $# -ge 1 ] && shift
top="redsync:density=0.001"
: "${WAYS:=none $top,exchange=allgather $top,exchange=gtopk $top,exchange=oktopk $top,quantize=true,exchange=allgather}"
"$root/scripts/netns.sh" up "$hosts" "$rate" >/dev/null || exit 1
dir=$(mktemp -d)
trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export OMP_NUM_THREADS=1

net_options() {
    case $1 in
    # at its own rate it does not learn eight images of noise, but diverges, with some codecs and not with others
    alexnet) echo "--model=$root/models/alexnet/train_val.prototxt --set=batch_size=2 --set=base_lr=0.0001" ;;
    lstm) echo "--model=$root/models/lstm/train_val_1500.prototxt --set=batch_size=1 --set=layer[data].text_data_param.steps=${STEPS:-4}" ;;
    vgg16) echo "--model=$root/models/vgg16/train_val.prototxt --set=batch_size=1 --set=base_lr=0.0001" ;;
    resnet50) echo "--model=$root/models/resnet50/train_val.prototxt --set=batch_size=1 --set=base_lr=0.001" ;;
    *) echo "--model=$1" ;;
    esac
}

bits=$(echo "$rate" | sed 's/gbit$/e9/; s/mbit$/e6/; s/kbit$/e3/')

one_way() { # NET WAY: a row
    codec= tune=0
    [ "$2" = none ] || codec="--compression=$2"
    case $2 in auto*) tune=${TUNE:-1} ;; esac # with 0 the model alone would choose
    # shellcheck disable=SC2046 # options are words
    "$root/scripts/netns.sh" run "$hosts" "$cortado" time $(net_options "$1") --iterations="${ITERATIONS:-3}" \
        --set=comm.tune_iterations=$tune --json="$dir/json" $codec $more >"$dir/log" 2>&1 ||
        { tail -n 20 "$dir/log"; exit 1; }
    figures=$(python3 "$here/overlap_theory.py" "$dir/json" both "$hosts" "$bits") || exit 1
    all=$(sed -n 's/.*compression, a step in all: //p' "$dir/log" | tail -n 1)
    echo "$1 $2 $figures" >>"$dir/rows"
    echo "$1 $2 $figures" |
        awk -v all="$all" '{ printf "%-8s %-44s %9s %9s %9s %9s  %s\n", $1, $2, $3, $4, $5, $6, all }'
    [ -n "${KEEP:-}" ] || return 0
    cp "$dir/json" "$KEEP/$1.$(echo "$2" | tr ':,=' ___).json"
    cp "$dir/log" "$KEEP/$1.$(echo "$2" | tr ':,=' ___).log"
}

more="$*"
printf '%-8s %-44s %9s %9s %9s %9s  %s\n' net way 'step ms' exposed compute link 'a step in all'
for net in ${NETS:-alexnet lstm}; do
    for turn in $(seq "${TURNS:-1}"); do
        [ "$turn" = 1 ] || echo "turn $turn"
        for way in $WAYS; do
            one_way "$net" "$way"
        done
    done
done
[ "${TURNS:-1}" = 1 ] || sort -k 1,2 -k 3,3g "$dir/rows" | awk '
    function put() {
        if (n) printf "%-8s %-44s %9.0f  median of %d, %.0f to %.0f\n", net, way, (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2, n, v[1], v[n]
    }
    ($1 " " $2) != (net " " way) { put(); n = 0; net = $1; way = $2 }
    { v[++n] = $3 }
    END { put() }'
exit 0
