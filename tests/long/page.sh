#!/bin/sh
# The page at / of cortado serve in a real headless browser: Chromium or Chrome, or what CORTADO_BROWSER names. It types,
# clicks, drops pictures, and reads what came. Half a minute.
. "$ROOT/tests/cli/lib.sh"
browser=${CORTADO_BROWSER:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} || {
    not_ok page "no browser: install chromium (Debian: apt-get install chromium), or name one in CORTADO_BROWSER"
    finish
}
if ! has libmicrohttpd; then
    not_ok page "built without libmicrohttpd"
    finish
fi

. "$ROOT/tests/cli/tiny_net.sh"
net 'layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 20000 } } }' 'causal: true' "$head" >texts.prototxt
net 'layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } } }' '' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >embed.prototxt
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'The quick brown fox jumps over the lazy dog. '; done >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
net 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 2 seq_len: 100 vocabulary: 259 } }' 'causal: true' "$head
layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"head\" bottom: \"next\" top: \"loss\" softmax_param { axis: 2 } }" >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.01 lr_policy: "fixed" max_iter: 100 snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
rm -f out
python3 "$ROOT/tests/cli/chat_tokenizer.py" >tokenizer.json
echo 'a-key' >keys

# page CASE NET WEIGHTS OPTIONS -- ARGUMENTS: a server, and the browser at it
page() {
    case=$1 options="--model=$2 --weights=$3 $4"
    shift 4
    "$CORTADO" serve $options --listen=127.0.0.1:0 >"$case.at" 2>"$case.log" </dev/null &
    pid=$!
    i=0
    while [ ! -s "$case.at" ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    timeout -k 5 300 python3 "$ROOT/tests/long/page.py" "$browser" "$(sed -n 's/.* at //p' "$case.at")" "$case" "$@" >asked 2>err
    rc=$?
    cat asked
    [ $rc = 0 ] || failed=1
    [ $rc = 0 ] || grep -q '^not ok' asked || not_ok "page_$case" "$(tail -n 5 err)"
    kill -TERM $pid
    wait $pid
}
# LeNet, which has hardly learnt, and digits as files
sed 's/^max_iter.*/max_iter: 2/; s/^test_i.*//; s/^snapshot: .*//; s/^random_seed.*//' "$ROOT/models/lenet/solver.prototxt" >solver.prototxt
cp "$ROOT/models/lenet/train_val.prototxt" .
mkdir -p data
"$CORTADO" convert digits --to=data/mnist --count=600 --seed=3 >out 2>&1 || not_ok digits "no data"
runs picture_weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --set=random_seed=4
rm -f out
for i in 0 1 2 3 4 5 6 7 8 9; do echo "digit \"$i\" <b>"; done >names
{ echo 'serve { labels: "names" transform_param { scale: 0.00390625 } }'
  cat "$ROOT/models/lenet/deploy.prototxt"; } >lenet.prototxt
python3 - <<'END'
import struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
rows = b"".join(b"\0" + bytes((x * x * 3 + 7 * y) % 251 for x in range(28)) for y in range(28))
open("picture.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
                                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
open("text.png", "wb").write(b"no picture at all")
END
page classes lenet.prototxt lenet_iter_2.caffemodel.h5 '' "$PWD/picture.png" "$PWD/text.png"
page embedding embed.prototxt w_iter_100.caffemodel.h5 '--tokenizer=bytes --api_key_file=keys' a-key
page text texts.prototxt w_iter_100.caffemodel.h5 '--tokenizer=bytes'
page chat texts.prototxt w_iter_100.caffemodel.h5 '--tokenizer=tokenizer.json --chat_template=CHATML'
finish
