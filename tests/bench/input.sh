#!/bin/sh
# How fast samples come: images/s of `cortado convert images`, of reading the sets it made, and of
# decoding and augmenting files, beside Pillow (decoding, resizing) and dd (reading) in the same run.
#   tests/bench/input.sh FOLDER LIST ROOT [REPEATS [PASSES]]
# LIST has lines "path label" of photographs below ROOT; it is taken PASSES (8) times over, so that a
# run is long enough. FOLDER gets the sets, 200 kB an image. Best of REPEATS (3). Files are in the page
# cache: the first row brings them there. Pillow is left out where python3 has none (PYTHON=).
set -u
folder=${1:?folder} list=${2:?list} base=${3:?root} repeats=${4:-3} passes=${5:-8}
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado} python=${PYTHON:-python3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$folder" && cd "$folder" || exit 1
i=0
while [ $i -lt "$passes" ]; do
    cat "$list"
    i=$((i + 1))
done >list.txt
n=$(grep -c . list.txt)

seconds() { # COMMAND...: the least of REPEATS
    best=
    for k in $(seq "$repeats"); do
        begin=$(date +%s.%N)
        "$@" >log 2>&1 || { tail -3 log >&2; echo 0; return; }
        best=$(echo "$begin $(date +%s.%N) ${best:-1e9}" | awk '{ s = $2 - $1; print (s < $3) ? s : $3 }')
    done
    echo "$best"
}
row() { # NAME COMMAND...
    name=$1
    shift
    seconds "$@" | awk -v name="$name" -v n="$n" '{ printf "%-44s %8.0f images/s  %8.2f s\n", name, $1 ? n / $1 : 0, $1 }'
}
has_pillow() { "$python" -c 'import PIL' 2>/dev/null; }
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
    elif mode == 'augment':
        x, y = random.randrange(33), random.randrange(33)
        image = image.crop((x, y, x + 224, y + 224))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        image.tobytes()
    else:
        image.tobytes()
PY
}

echo "$n images of $list"
sed "s|^|$base/|; s| [^ ]*\$||" list.txt | tr '\n' '\0' >paths
row "dd of the files" sh -c 'xargs -0 cat <paths | dd of=/dev/null bs=1M'
for threads in 1 2; do
    row "convert to 256x256 pixels, $threads threads" env OMP_NUM_THREADS=$threads "$cortado" convert images \
        --list=list.txt --root="$base" --to=raw --resize=256x256 --force
    row "convert to 256x256 JPEG, $threads threads" env OMP_NUM_THREADS=$threads "$cortado" convert images \
        --list=list.txt --root="$base" --to=jpeg --resize=256x256 --encoded --force
done
if has_pillow; then
    row "Pillow: decode, resize" pillow convert
    row "Pillow: decode, resize, encode" pillow encode
fi

# ---- reading: data layers alone, batches of 64, crop 224, mirror, three mean values
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
best() { # NAME RANKS COMMAND...: the most images/s; rank 0 tells its own, the others keep step
    name=$1 ranks=$2
    shift 2
    for k in $(seq "$repeats"); do
        "$@" 2>log | sed -n 's/^\([0-9.]*\) images\/s; \([0-9.]*\) images.*/\1 \2/p'
    done | sort -g | tail -n 1 |
        awk -v name="$name" -v p="$ranks" '{ printf "%-44s %8.0f images/s  %8.0f a core in use\n", name, p * $1, $2 }'
}
steps=$((${STEPS:-60}))
for set in raw jpeg; do
    row "dd of $set/data.mdb" dd if=$set/data.mdb of=/dev/null bs=1M
    best "read $set, 1 rank" 1 env OMP_NUM_THREADS=1 "$cortado" time --model=$set.prototxt --data --iterations=$steps
    for one in false true; do
        best "read $set, 2 ranks, node_reader: $one" 2 env OMP_NUM_THREADS=1 mpirun --oversubscribe --bind-to none -np 2 \
            "$cortado" time --model=$set.prototxt --data --iterations=$steps --set=node_reader=$one
    done
done
best "files: decode, resize 256, crop 224, 1 core" 1 taskset -c 0 env OMP_NUM_THREADS=1 "$cortado" time \
    --model=files.prototxt --data --iterations=$steps
PIN="taskset -c 0"
has_pillow && row "Pillow: the same, 1 core" pillow augment
exit 0
