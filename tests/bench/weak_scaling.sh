#!/bin/sh
# Weak scaling on described machines: the studies of docs/performance.md. SIMULATED and MODELLED, never measured.
#   tests/bench/weak_scaling.sh FOLDER [PROFILES]
#   NODES=1,64,256,1024,4096,10240,40960  KINDS=simulated,modelled  SEED=1  ROWS="alexnet resnet50 vgg16"  are the defaults
# PROFILES holds alexnet.json, resnet50.json and vgg16.json, of `cortado time --json` on an idle machine;
# those that are missing are taken there first. The folder keeps every run: the same command goes on.
# swCaffe's single-node speeds: AlexNet 94.17 images/s with 256, 128, 64 a node, ResNet-50 5.56 with 32.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
out=${1:?usage: weak_scaling.sh FOLDER [PROFILES]}
profiles=${2:-$out/profiles}
nodes=${NODES:-1,64,256,1024,4096,10240,40960}
mkdir -p "$profiles"

profile() { # NET BATCH STEPS
    [ -f "$profiles/$1.json" ] ||
        "$cortado" time --model="$root/models/$1/train_val.prototxt" --set=batch_size="$2" \
            --iterations="$3" --json="$profiles/$1.json"
}

study() { # FOLDER MACHINE NET IMAGES_PER_S BATCH NODES OPTION...
    folder=$out/$1 machine=$2 net=$3 speed=$4 batch=$5 list=$6
    shift 6
    "$cortado" scale --machine="$machine" --net="$net" --profile="$profiles/$net.json" --images_per_s="$speed" \
        --batch="$batch" --nodes="$list" --kind="${KINDS:-simulated,modelled}" --iterations=2 --no_bench \
        --out="$folder" "$@"
}

ways=overlap-off,overlap-backward,swcaffe
for row in ${ROWS:-alexnet resnet50 vgg16}; do
    case $row in
    alexnet) batches="256 128 64" speed=94.17 machines="taihulight taihulight_fitted" list=$nodes; profile alexnet 256 16 ;;
    resnet50) batches=32 speed=5.56 machines="taihulight taihulight_fitted" list=$nodes; profile resnet50 32 18 ;;
    # a GPU of P100's class: some 154 images/s of VGG-16
    vgg16) batches=64 speed=154 machines="daint ethernet_100g" list=${VGG_NODES:-1,64,128,256,512,1024}; profile vgg16 16 10 ;;
    esac
    for machine in $machines; do
        for batch in $batches; do
            study plain "$machine" "$row" $speed "$batch" "$list" --ablate=$ways
            [ "$row" = vgg16 ] && continue
            study jitter "$machine" "$row" $speed "$batch" "$list" --jitter_seed="${SEED:-1}"
        done
    done
done
