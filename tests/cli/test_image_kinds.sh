#!/bin/sh
# WebP and TIFF files that Pillow wrote, read as Pillow reads them; damaged ones in one line.
. "$ROOT/tests/cli/lib.sh"
for kind in webp tiff; do
    has "$kind" || { skip image_kinds "built without $kind"; finish; }
done
python=$("$ROOT/scripts/test_venv.sh" numpy pillow==12.3.0) || { skip image_kinds "no numpy and Pillow"; finish; }
"$python" "$ROOT/tests/cli/image_kinds.py" make || not_ok made "Pillow writes no files"
n=$(wc -l <list)
dump() { # NAME IS_COLOR
    cat >"$1.prototxt" <<EOF
name: "kinds"
layer { name: "data" type: "ImageData" top: "data" top: "label" image_data_param { source: "list" batch_size: 1 shuffle: false is_color: $2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF
    runs "reads_$1" 0 '' "$CORTADO" time --data --model="$1.prototxt" --dump_batches="$1.npz" --iterations="$n"
}
dump colour true
dump gray false
"$python" "$ROOT/tests/cli/image_kinds.py" same colour.npz gray.npz >same 2>err || not_ok compared "$(tail -n 1 err)"
cat same
is all_compared [ "$(grep -c '^ok' same)" = $((2 * n)) ]

# what is damaged
mkdir photos photos/a photos/b
bad() { # NAME FILE WHAT
    rm -f photos/*/*
    cp lossless.webp photos/a/good.webp
    cp "$2" "photos/b/$2"
    runs "$1" 3 "photos/b/$2.*$3" "$CORTADO" convert images --from=photos --to=set --resize=16x16
}
for file in lossless.webp lossy.webp lzw.tif deflate.tiff; do
    head -c $(($(wc -c <$file) / 2)) $file >half_$file
    bad "half_$file" half_$file 'bad (WebP|TIFF): '
done
printf 'II*\0\377\377\377\377' >far.tif
bad far_away far.tif 'bad TIFF: '
printf 'RIFF\0\0\0\0WEBPVP8 ' >no.webp
bad no_header no.webp 'bad WebP: no header'
"$python" -c "
from PIL import Image
a, b = Image.new('RGB', (16, 16)), Image.new('RGB', (16, 16), 'red')
a.save('moves.webp', save_all=True, append_images=[b], lossless=True)
import struct
# 65535 x 65535 pixels in 200 bytes
tags = [(256, 4, 1, 65535), (257, 4, 1, 65535), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, 65535), (279, 4, 1, 8)]
open('huge.tif', 'wb').write(struct.pack('<2sHIH', b'II', 42, 8, len(tags)) + b''.join(struct.pack('<HHII', *t) for t in tags) + bytes(4))
"
bad animated moves.webp 'an animated WebP; expected one picture'
bad huge huge.tif 'too large'
finish
