#!/bin/sh
# Writes NAME.TRAIN.txt and NAME.TEST.txt beside each NAME.prototxt of this folder, from the log of
# Caffe's own program: a line "LAYER: SHAPE; SHAPE" a layer, then what it says of memory.
#   make_golden_check.sh CAFFE
set -eu
caffe=$1
cd "$(dirname "$0")"
for f in *.prototxt; do
    for phase in TRAIN TEST; do
        "$caffe" time -model "$f" -phase $phase -iterations 1 2>&1 | awk '
            / Setting up / { if (layer != "") print layer; layer = $NF ":"; next }
            / Top shape: / { sub(/.* Top shape: */, ""); sub(/\([0-9]*\) *$/, ""); sub(/ *$/, ""); layer = layer " " $0 ";" }
            / Memory required for data: / { memory = $NF }
            END { print layer; print "memory " memory }' >"${f%.prototxt}.$phase.txt"
    done
done
