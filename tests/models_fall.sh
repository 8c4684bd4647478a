#!/bin/sh
# 20 iterations of training on one batch of made data: the loss must fall. For each NAME under models/:
#   tests/models_fall.sh NAME...      BATCH (2), ITERATIONS (20) and RATE (a net's own, see rate_of) may be set
# The batch is images of random coloured squares, or sentences of random words; a data set has just one batch,
# images are as large as the crop and not mirrored, so that nothing changes but weights and dropout.
. "$ROOT/tests/cli/lib.sh"
BATCH=${BATCH:-2}
ITERATIONS=${ITERATIONS:-20}
command -v python3 >/dev/null || { skip models "needs python3"; finish; }

cat >images.py <<'PY'
"""images.py SIZE COUNT [VALUES]: SIZE x SIZE PNG files of coloured squares, and list.txt of 'file label';
with VALUES grey ones of 0 to VALUES - 1, to be labels."""
import random
import struct
import sys
import zlib

size, count = int(sys.argv[1]), int(sys.argv[2])
values = int(sys.argv[3]) if len(sys.argv) > 3 else 256
channels, kind_of_png = (3, 2) if values == 256 else (1, 0)
random.seed(size)
with open("list.txt", "w", encoding="ascii") as out:
    for k in range(count):
        colours = [[bytes(random.randrange(values) for _ in range(channels)) for _ in range(8)] for _ in range(8)]
        rows = b"".join(b"\0" + b"".join(colours[8 * y // size][8 * x // size] for x in range(size)) for y in range(size))
        png = b"\x89PNG\r\n\x1a\n"
        for kind, body in ((b"IHDR", struct.pack(">IIBBBBB", size, size, 8, kind_of_png, 0, 0, 0)), (b"IDAT", zlib.compress(rows)),
                           (b"IEND", b"")):
            png += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        with open(f"{size}_{values}_{k}.png", "wb") as f:
            f.write(png)
        out.write(f"{size}_{values}_{k}.png {k}\n")
PY

# of the input: pixels of the crop, or of the sample where nothing is cropped
size_of() {
    sed -n 's/.*crop_size: \([0-9]*\).*/\1/p; s/.*synthetic_shape { dim: [0-9]* dim: \([0-9]*\) .*/\1/p' "$1" | head -n 1
}
rate_of() {
    case $1 in
    lstm*) echo 1 ;;
    gpt* | llama* | bert* | minilm) echo 0.001 ;; # by AdamW
    fcn8s) echo 1e-11 ;; # its loss is a sum
    vgg16 | vgg19 | ssd300) echo 0.0001 ;;
    alexnet | caffenet | squeezenet) echo 0.003 ;; # without BatchNorm
    cifar10_full | quick | googlenet) echo 0.001 ;;
    *) echo 0.01 ;;
    esac
}
# the set that model $1 reads, made once a size; sets $set
make_set() {
    case $1 in
    lstm*)
        set=words.h5
        [ -e $set ] && return
        python3 -c "import random; random.seed(1); print(' '.join(str(random.randrange(500)) for _ in range(35 * $BATCH + 1)))" >words.txt
        "$CORTADO" convert text --from=words.txt --to=$set >out 2>&1
        ;;
    gpt* | llama* | bert* | minilm)
        set=tokens.bin
        [ -e $set ] && return
        python3 -c "
import random, struct, sys
random.seed(1)
ids = [random.randrange(100) for _ in range(32 * $BATCH + 1)]
sys.stdout.buffer.write(struct.pack(f'<{len(ids)}H', *ids))" >$set
        ;;
    *)
        size=$(size_of "$2")
        case $1 in fcn8s) size=64 BATCH=1 ;; ssd300) size=300 ;; esac
        gray=
        case $1 in lenet) gray=--gray ;; esac
        set=set_$size$gray
        [ -e "$set" ] && return
        python3 images.py "$size" "$BATCH"
        "$CORTADO" convert images --list=list.txt --root="$PWD/" --to="$set" $gray >out 2>&1
        case $1 in
        ssd300)
            while read -r image _; do boxes >"${image%.png}.xml"; done <list.txt
            sed 's/\(.*\)\.png .*/\1.png \1.xml/' list.txt >boxes.txt
            "$CORTADO" convert annotated --list=boxes.txt --root="$PWD/" --to=boxes >out 2>&1
            ;;
        fcn8s)
            python3 images.py "$size" "$BATCH" 21
            "$CORTADO" convert images --list=list.txt --root="$PWD/" --to=labels --gray >out 2>&1
            ;;
        esac
        ;;
    esac
}
# two true boxes, of two classes, in an image of 300 x 300
boxes() {
    echo '<annotation>'
    for k in 1 2; do
        echo "<object><name>class$k</name><bndbox><xmin>$((30 * k))</xmin><ymin>60</ymin><xmax>$((90 * k))</xmax><ymax>240</ymax></bndbox></object>"
    done
    echo '</annotation>'
}
falls() { # of the losses in ./losses: the last five beside the first three
    awk '{ l[NR] = $1 } END {
        for (i = 1; i <= 3; i++) a += l[i] / 3
        for (i = NR - 4; i <= NR; i++) b += l[i] / 5
        printf "    %d losses, from %.4f to %.4f\n", NR, a, b
        exit !(NR >= 20 && b < 0.98 * a) }' losses
}
wanted=$BATCH
for name in "$@"; do
    BATCH=$wanted
    make_set "$name" "$ROOT/models/$name/train_val.prototxt"
    [ -e "$set" ] || { not_ok "$name" "no data"; continue; }
    sed -E -e "s#source: \"[^\"]*_label_lmdb\"#source : \"labels\"#" -e "s#source: \"[^\"]*\"#source: \"$PWD/$set\"#; s/batch_size: [0-9]+/batch_size: $BATCH/; s/steps: [0-9]+/steps: 35/; s/seq_len: [0-9]+/seq_len: 32/" \
        -e 's/mirror: true//; s/mean_file: "[^"]*"/mean_value: 128/' \
        "$ROOT/models/$name/train_val.prototxt" >net.prototxt
    cat >solver.prototxt <<EOS
net: "net.prototxt" base_lr: ${RATE:-$(rate_of "$name")} lr_policy: "fixed" momentum: 0.9 max_iter: $ITERATIONS display: 1
snapshot_after_train: false snapshot_prefix: "x" random_seed: 1 solver_mode: CPU
EOS
    case $name in ssd300) sed -i -E "s#source: \"[^\"]*\"#source: \"boxes\"#; /^ *(batch_sampler|expand_param|distort_param)/d" net.prototxt ;; esac
    case $name in lstm*) echo 'clip_gradients: 1' >>solver.prototxt ;; esac
    case $name in gpt* | llama* | bert* | minilm) echo 'type: "AdamW" clip_gradients: 1' >>solver.prototxt ;; esac
    if timeout "${LIMIT:-900}" "$CORTADO" train --solver=solver.prototxt >out 2>&1 </dev/null; then
        sed -n 's/.*Iteration [0-9]*.*, loss = \([0-9.e+-]*\).*/\1/p' out >losses
        is "$name" falls
    else
        not_ok "$name" "training failed"
    fi
done
finish
