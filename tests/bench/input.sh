#!/bin/sh
# How fast samples come: images/s of `cortado convert images`, of reading the sets it made, and of
# decoding and augmenting files, beside Pillow (decoding, resizing) and dd (reading) in the same run.
#   tests/bench/input.sh FOLDER LIST ROOT [ROUNDS [PASSES]]
# LIST has lines "path label" of photographs below ROOT; it is taken PASSES (8) times over, so that a
# row is long enough. FOLDER gets the sets, 200 kB an image. All rows run in turns, ROUNDS (5) times:
# median (least, most). A round before brings the files into the page cache and does not count.
# Pillow is left out where PYTHON (python3) has none.
set -u
folder=${1:?folder} list=${2:?list} base=${3:?root} rounds=${4:-5} passes=${5:-8}
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado} python=${PYTHON:-python3} steps=${STEPS:-60}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$folder" && cd "$folder" || exit 1
for i in $(seq "$passes"); do cat "$list"; done >list.txt
sed "s|^|$base/|; s| [^ ]*\$||" list.txt | tr '\n' '\0' >paths
n=$(grep -c . list.txt)
rm -f rates

note() { # NAME IMAGES-A-SECOND [A-CORE-IN-USE]
    [ "$round" = 0 ] || [ -z "${2:-}" ] || echo "$1;$2;${3:-}" >>rates
}
row() { # NAME COMMAND...: all images of the list
    name=$1
    shift
    begin=$(date +%s.%N)
    "$@" >log 2>&1 || { echo "$name failed:" >&2 && tail -n 3 log >&2 && return; }
    note "$name" "$(echo "$begin $(date +%s.%N) $n" | awk '{ print $3 / ($2 - $1) }')"
}
read_set() { # NAME RANKS COMMAND...: rank 0 tells its own rate; the others keep step
    name=$1 ranks=$2
    shift 2
    "$@" >log 2>&1 || { echo "$name failed:" >&2 && tail -n 3 log >&2 && return; }
    note "$name" $(sed -n 's/^\([0-9.]*\) images\/s; \([0-9.]*\) images.*/\1 \2/p' log |
        awk -v p="$ranks" '{ print p * $1, $2 }')
}
pillow() { # MODE: convert, encode, augment
    ${PIN:-} "$python" - "$1" list.txt "$base" <<'PY'
import io, random, sys
from PIL import Image
mode, names, base = sys.argv[1:]
random.seed(1)
for line in open(names):
    image = Image.open(base + '/' + line.rsplit(None, 1)[0]).convert('RGB').resize((256, 256), Image.BILINEAR)
    if mode == 'encode':
        image.save(io.BytesIO(), 'JPEG', quality=95)
        continue
    if mode == 'augment':
        x, y = random.randrange(33), random.randrange(33)
        image = image.crop((x, y, x + 224, y + 224))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
    image.tobytes()
PY
}

# data layers alone: batches of 64, crop 224, mirror, three mean values
net() { # NAME LAYER-FIELDS
    cat >"$1.prototxt" <<NET
name: "$1"
layer { name: "data" top: "data" top: "label" $2
  transform_param { crop_size: 224 mirror: true mean_value: 104 mean_value: 117 mean_value: 123 } }
NET
}
lmdb() { echo "type: \"Data\" data_param { source: \"$1\" backend: LMDB batch_size: 64 threads: 1 }"; }
net raw "$(lmdb raw)"
net jpeg "$(lmdb jpeg)"
net files "type: \"ImageData\" image_data_param { source: \"list.txt\" root_folder: \"$base/\" batch_size: 64
  new_height: 256 new_width: 256 shuffle: true threads: 1 }"
alone="env OMP_NUM_THREADS=1 $cortado time --data --iterations=$steps"
both="env OMP_NUM_THREADS=1 mpirun --oversubscribe --bind-to none -np 2 $cortado time --data --iterations=$steps"

for round in $(seq 0 "$rounds"); do
    row "dd of the files" sh -c 'xargs -0 cat <paths | dd of=/dev/null bs=1M'
    for t in 1 2; do
        convert="env OMP_NUM_THREADS=$t $cortado convert images --list=list.txt --root=$base --force --resize=256x256"
        row "convert to pixels, 256x256, $t threads" $convert --to=raw
        row "convert to JPEG, 256x256, $t threads" $convert --to=jpeg --encoded
    done
    if "$python" -c 'import PIL' 2>/dev/null; then
        row "Pillow: decode, resize" pillow convert
        row "Pillow: decode, resize, encode" pillow encode
        PIN="taskset -c 0" row "Pillow: decode, resize, crop 224, 1 core" pillow augment
    fi
    read_set "files: decode, resize, crop 224, 1 core" 1 taskset -c 0 $alone --model=files.prototxt
    for set in raw jpeg; do
        row "dd of $set/data.mdb" dd if=$set/data.mdb of=/dev/null bs=1M
        read_set "read $set, 1 rank" 1 $alone --model=$set.prototxt
        read_set "read $set, 2 ranks, each for itself" 2 $both --model=$set.prototxt --set=node_reader=false
        read_set "read $set, 2 ranks, one reader" 2 $both --model=$set.prototxt --set=node_reader=true
    done
done
echo "$n images of $list, images/s: median (least, most); a core in use"
cut -d';' -f1 rates | awk '!seen[$0]++' | while IFS= read -r name; do
    grep -F "$name;" rates | sort -t';' -k2,2g | awk -F';' -v name="$name" '{ v[NR] = $2; c[NR] = $3 }
        END { m = int((NR + 1) / 2); printf "%-42s %8.0f (%.0f, %.0f) %s\n", name, v[m], v[1], v[NR], c[m] ? "; " int(c[m]) : "" }'
done
