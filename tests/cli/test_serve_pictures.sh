# cortado serve with a net of pictures: classes of files by curl, in a form and as the body, pictures as numbers
# by KServe, what the net's file says of serving, and what is refused with which words.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd; then
    skip serve_pictures "built without libmicrohttpd"
    finish
fi
if ! command -v curl >/dev/null || ! has png turbojpeg; then
    skip serve_pictures "no curl, or built without libpng or libjpeg-turbo"
    finish
fi

# LeNet with the weights of two steps, and digits as files
mkdir -p data net
"$CORTADO" convert digits --to=data/mnist --count=600 --seed=3 >out 2>&1 || { not_ok convert "no digits"; finish; }
sed 's/^max_iter.*/max_iter: 2/; s/^test_i.*//; s/^snapshot: .*//; s/^random_seed.*//' "$ROOT/models/lenet/solver.prototxt" >solver.prototxt
cp "$ROOT/models/lenet/train_val.prototxt" .
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --set=random_seed=4
weights=lenet_iter_2.caffemodel.h5
cat >pictures.py <<'END'
import struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
def png(width, height, rows):
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
def pixels(k):
    return [(i * i * (k + 3) + 7 * i) % 251 for i in range(784)]
if __name__ == "__main__":
    for k in range(3):
        p = pixels(k)
        open("%d.png" % k, "wb").write(png(28, 28, b"".join(b"\0" + bytes(p[28 * y:28 * y + 28]) for y in range(28))))
    open("giant.png", "wb").write(png(60000, 60000, b"\0" * 60001))
    open("cut.jpg", "wb").write(open("plain.jpg", "rb").read()[:300])
    j = open("progressive.jpg", "rb").read()
    last = j.rindex(b"\xff\xda")
    open("scans.jpg", "wb").write(j[:last] + 70 * j[last:-2] + b"\xff\xd9")
    open("text.png", "wb").write(b"no picture at all")
END
for f in plain gray cmyk progressive; do cp "$ROOT/tests/golden/images/$f.jpg" .; done
python3 pictures.py
for i in 0 1 2 3 4 5 6 7 8 9; do echo "digit \"$i\""; done >net/names
{ echo 'serve { labels: "names" name: "digits" max_queue: 20 max_batch_tokens: 32 transform_param { scale: 0.00390625 } }'
  cat "$ROOT/models/lenet/deploy.prototxt"; } >net/deploy.prototxt

# what is wrong at the start: one line with file, line and field
serve="$CORTADO serve --listen=unix:none --weights=$weights"
bad() { # NAME PATTERN SERVE
    { echo "name: \"Bad\""; echo "serve { $3 }"; grep -v '^name' "$ROOT/models/lenet/deploy.prototxt"; } >bad.prototxt
    runs "$1" "${4:-2}" "$2" $serve --model=bad.prototxt
}
bad bad_field 'bad.prototxt:2:9: unknown field "lables"; did you mean "labels"' 'lables: "names"'
bad bad_queue 'bad.prototxt:2:9: serve.max_queue=0: expected 1 to 100000' 'max_queue: 0'
bad bad_budget 'bad.prototxt:2:9: serve.max_batch_tokens=5000: expected AUTO, or 1 to 4096' 'max_batch_tokens: 5000'
bad bad_wait 'bad.prototxt:2:9: serve.max_wait_ms=-1: expected milliseconds' 'max_wait_ms: -1'
bad bad_template 'bad.prototxt:2:9: serve.chat_template=MINE: expected CHATML' 'chat_template: "MINE"'
bad one_side 'bad.prototxt:2:9: serve has new_height 30 and new_width 0: give both' 'new_height: 30'
bad other_size 'bad.prototxt:2:.*: serve: pictures become 1 30 30 .*, expected 1 28 28' 'new_height: 30 new_width: 30'
bad other_crop 'bad.prototxt:2:.*: serve: pictures become 1 24 24 .*, expected 1 28 28' 'transform_param { crop_size: 24 }'
bad mirrored 'bad.prototxt:2:27: serve.transform_param.mirror: pictures that are asked for are not mirrored' 'transform_param { mirror: true }'
bad coloured "bad.prototxt:2:.*: serve.transform_param.force_color: the net's Input has 1 channels" 'transform_param { force_color: true }'
bad means 'bad.prototxt:2:.*: serve: 3 mean_value for 1 channels' 'transform_param { mean_value: 1 mean_value: 2 mean_value: 3 }'
bad no_mean 'bad.prototxt:2:.*: serve: mean_file nothing.binaryproto' 'transform_param { mean_file: "nothing.binaryproto" }' 3
runs padded 2 'batching=PADDED: pictures have one size' $serve --model=net/deploy.prototxt --batching=PADDED
bad no_labels 'bad.prototxt:2:9: serve.labels=nothing.names: No such file' 'labels: "nothing.names"' 3
bad tokens 'bad.prototxt:2:9: serve.tokenizer=bytes: the net takes pictures, and no tokens' 'tokenizer: "bytes"'
head -n 9 net/names >nine
bad few_labels 'bad.prototxt:2:9: serve.labels=nine: 9 names, expected 10, one for each class of the net' 'labels: "nine"'
sed 's/digit "4"//' net/names >gap
bad empty_label 'gap:5: empty, expected the name of class 4' 'labels: "gap"'

# a crop by height and width takes the same of larger pictures as one by crop_size
python3 -c 'import pictures
open("large.png", "wb").write(pictures.png(40, 40, b"".join(b"\0" + bytes((x * y * 7 + x) % 256 for x in range(40)) for y in range(40))))'
crop() { # NAME TRANSFORM
    { echo "serve { transform_param { $2 scale: 0.00390625 } }"; cat "$ROOT/models/lenet/deploy.prototxt"; } >crop.prototxt
    "$CORTADO" predict --model=crop.prototxt --weights=$weights --format=json large.png >$1 2>out
}
crop crop_size 'crop_size: 28'
crop crop_h 'crop_h: 28 crop_w: 28'
crop resized 'resize_param { height: 40 width: 40 } crop_h: 28 crop_w: 28'
is crop_classified grep -q '"probability"' crop_size
is crop_h_alike cmp crop_size crop_h
is crop_resized_alike cmp crop_size resized

# up OPTION...: a server in the background; $pid
up() {
    rm -f at
    "$CORTADO" serve "$@" --listen=unix:sock >at 2>log </dev/null &
    pid=$!
    i=0
    while [ ! -s at ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    is starts [ -s at ]
}
down() {
    kill -TERM $pid
    wait $pid
    rc=$?
    is ends [ $rc = 0 ]
}
# ask NAME STATUS PATTERN PATH CURL-OPTION...: the reply is in ./out
ask() {
    name=$1 want=$2 pattern=$3 path=$4
    shift 4
    status=$(curl -sS --unix-socket sock -o out -w '%{http_code}' "http://x$path" "$@" 2>curl.err)
    if [ "$status" != "$want" ]; then
        not_ok "$name" "status $status instead of $want: $(cat curl.err)"
    elif ! grep -Eq -- "$pattern" out; then
        not_ok "$name" "the reply does not match: $pattern"
    else
        ok "$name"
    fi
}
# labels are beside the net, the command line wins over its file
up --model=net/deploy.prototxt --weights=$weights --name=net10
is named grep -q '^net10 at ' at
ask one 200 '^\{"model":"net10","pictures":\[\{"file":"0.png","classes":\[\{"class":[0-9],"label":"digit \\"[0-9]\\"","probability":0' \
    '/classify' -F 'file=@0.png'
cp out one
ask top_1 200 '' '/classify?top_k=1' -F 'file=@0.png'
is top_1_alone [ "$(grep -o '"class":' out | wc -l)" = 1 ]
ask top_all 200 '' '/classify?top_k=1000' -F 'file=@0.png'
is top_all_are [ "$(grep -o '"class":' out | wc -l)" = 10 ]
cp out all
ask three 200 '"file":"0.png".*"file":"1.png".*"file":"plain.jpg"' '/classify' -F 'a=@0.png' -F 'b=@1.png' -F 'c=@plain.jpg'
ask raw_png 200 '"file":null' /classify -H 'Content-Type: image/png' --data-binary @0.png
sed 's/"file":null/"file":"0.png"/' out >raw
is raw_same cmp -s raw one
ask raw_jpeg 200 '"probability"' /classify -H 'Content-Type: image/jpeg' --data-binary @gray.jpg
ask cmyk 200 '"probability"' /classify -F 'f=@cmyk.jpg' -F 'g=@progressive.jpg'
# the same numbers by KServe: the classes have the same bits
cat >infer.py <<'END'
import json, sys
import pictures
body = {"inputs": [{"name": "data", "datatype": "FP32", "shape": [3, 1, 28, 28],
                    "data": [v * 0.00390625 for k in range(3) for v in pictures.pixels(k)]}]}
if len(sys.argv) == 1:
    print(json.dumps(body))
else:
    rows = json.load(open("inferred"))["outputs"][0]
    assert rows["shape"] == [3, 10], rows["shape"]
    best = json.load(open("all"))["pictures"]
    for k, p in enumerate(best):
        for c in p["classes"]:
            assert c["probability"] == rows["data"][10 * k + c["class"]], (k, c)
        values = [c["probability"] for c in p["classes"]]
        assert values == sorted(values, reverse=True) and abs(sum(values) - 1) < 1e-5
END
ask all_three 200 '' '/classify?top_k=10' -F 'a=@0.png' -F 'b=@1.png' -F 'c=@2.png'
cp out all
python3 infer.py >body
ask infer 200 '"name":"prob","datatype":"FP32","shape":\[3,10\]' /v2/models/net10/infer -d @body
cp out inferred
runs infer_same 0 '' python3 infer.py check
ask infer_many 422 'input data: shape\[0\] is 33, at most 32 is planned' /v2/models/net10/infer \
    -d '{"inputs":[{"name":"data","datatype":"FP32","shape":[33,1,28,28],"data":[0]}]}'
ask infer_size 400 'input data: shape\[3\] is 29, expected 28' /v2/models/net10/infer \
    -d '{"inputs":[{"name":"data","datatype":"FP32","shape":[1,1,28,29],"data":[0]}]}'
ask metadata 200 '"inputs":\[\{"name":"data","datatype":"FP32","shape":\[-1,1,28,28\]\}\],"outputs":\[\{"name":"prob","datatype":"FP32","shape":\[-1,10\]\}\]' \
    /v2/models/net10
ask no_embeddings 404 'the model net10 makes no embeddings' /v1/embeddings -d '{"model":"net10","input":"a"}'

# what is refused
ask cut 422 'file 2, cut.jpg: bad JPEG' /classify -F 'a=@0.png' -F 'b=@cut.jpg'
ask giant 422 'file 1, giant.png: 60000 x 60000 pixels: at most 50000000 in all are decoded' /classify -F 'a=@giant.png'
ask scans 422 'file 1, scans.jpg: a JPEG of [78][0-9] scans: at most 64 are expected' /classify -F 'a=@scans.jpg'
ask not_a_picture 415 'file 1, text.png: no JPEG, PNG, WebP or TIFF' /classify -F 'a=@text.png'
ask empty_file 415 'no JPEG, PNG, WebP or TIFF \(0 bytes\)' /classify -F 'a=@/dev/null;filename=none.png'
ask wrong_type 415 'Content-Type is text/plain, expected multipart/form-data, image/jpeg or image/png' \
    /classify -H 'Content-Type: text/plain' --data-binary @0.png
ask no_type 415 'Content-Type is missing' /classify -H 'Content-Type:' --data-binary @0.png
ask empty_body 400 'the body is empty' /classify -H 'Content-Type: image/png' --data-binary ''
ask no_file 400 'a part of the form is no file' /classify -F 'a=b'
ask no_boundary 400 'has no boundary' /classify -H 'Content-Type: multipart/form-data' --data-binary @0.png
ask no_part 400 'the body has no part' /classify -H 'Content-Type: multipart/form-data; boundary=xyz' --data-binary @0.png
ask no_end 400 'the last part does not end with the boundary' /classify \
    -H 'Content-Type: multipart/form-data; boundary=xyz' --data-binary "$(printf -- '--xyz\r\n\r\nabc')"
ask no_files 400 'the form has no file' /classify -H 'Content-Type: multipart/form-data; boundary=xyz' --data-binary '--xyz--'
ask top_0 400 'top_k is 0, expected 1 to 1000000' '/classify?top_k=0' -F 'file=@0.png'
ask top_text 400 'top_k is 5x, expected 1 to 1000000' '/classify?top_k=5x' -F 'file=@0.png'
ask other_argument 400 '\?top is nothing that /classify knows: top_k is' '/classify?top=5' -F 'file=@0.png'
head -c 17000000 /dev/zero >large
ask large 413 'more than 16777216 bytes' /classify -H 'Content-Type: image/png' --data-binary @large
set --
for i in 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0; do set -- "$@" -F 'f=@0.png'; done
ask many 422 'more than 20 files in a request' /classify "$@"
ask by_get 405 'is for POST' /classify
ask metrics 200 '^cortado_replies_total\{route="/classify",status="415"\} 4$' /metrics
is decoded grep -Eq '^cortado_decode_seconds_count\{\} 1[0-9]$' out

# other weights, while the server runs
cp $weights other.h5
down
up --model=net/deploy.prototxt --weights=other.h5
is named_by_file grep -q '^digits at ' at
ask before 200 '' /classify -F 'f=@0.png'
cp out before
"$CORTADO" train --solver=solver.prototxt --set=random_seed=5 >out 2>&1
cp $weights other.h5
kill -HUP $pid
i=0
while ! grep -q 'other.h5: read again, and in use' log && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
ask after 200 '' /classify -F 'f=@0.png'
is differs [ "$(cat before)" != "$(cat out)" ]
down

# a net without classes, and one of tokens, say so
runs plan_one 0 'classes of pictures' "$CORTADO" serve --check --model=net/deploy.prototxt --weights=$weights --max_batch_tokens=1 --plan=one.plan
runs plan_one_again 0 'nothing is measured' "$CORTADO" serve --check --model=net/deploy.prototxt --weights=$weights --max_batch_tokens=1 --plan=one.plan
runs plan_more 0 'has no costs of this net' "$CORTADO" serve --check --model=net/deploy.prototxt --weights=$weights --plan=one.plan
sed '1i serve { new_height: 8 new_width: 8 }' "$ROOT/models/minilm/deploy.prototxt" >words.prototxt
runs words_as_pictures 2 "words.prototxt:1:.* serve says how files become pictures, but the net's Input has tokens" \
    "$CORTADO" serve --check --model=words.prototxt --weights=$weights
runs check 0 'classes of pictures' "$CORTADO" serve --check --model=net/deploy.prototxt --weights=$weights
is check_pictures grep -Eq '^budget +32 pictures a batch' out

# replicas on two ranks: rank 0 decodes, and a picture has the same bytes from both
if $JOB 1 true >/dev/null 2>&1; then
    rm -f at sock
    $JOB 2 "$CORTADO" serve --model=net/deploy.prototxt --weights=$weights --deterministic --max_batch_tokens=1 --max_queue=100 \
        --listen=unix:sock >at 2>log </dev/null &
    pid=$!
    i=0
    while [ ! -s at ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    is ranks_start [ -s at ]
    form='-F f=@0.png -F f=@0.png -F f=@0.png -F f=@0.png -F f=@0.png -F f=@0.png'
    ask ranks_first 200 '"label":"digit' /classify $form
    cp out first
    # a batch has one picture, so rank 1 gets some as soon as others wait
    round=0 unlike=0
    while [ $round -lt 50 ] && ! curl -sS --unix-socket sock http://x/metrics | grep -q 'batches_total{replica="1"} [1-9]'; do
        round=$((round + 1)) asked=
        for i in 1 2 3 4 5 6 7 8; do
            curl -sS --unix-socket sock http://x/classify $form >"ranks.$i" 2>&1 &
            asked="$asked $!"
        done
        wait $asked
        for i in 1 2 3 4 5 6 7 8; do
            cmp -s first ranks.$i && continue
            unlike=$((unlike + 1))
            cp ranks.$i out # for the log
        done
    done
    is ranks_both [ $round -lt 50 ]
    is ranks_same [ $unlike = 0 ]
    kill -USR1 $pid
    wait $pid
    rc=$?
    is ranks_end [ $rc = 0 ]
else
    skip ranks_start "no mpirun"
fi

# what batches take
runs bench 0 '^ +8 +1 +0 +2 ' "$CORTADO" bench serve --model=net/deploy.prototxt --shapes=1,8 --repeat=2
runs bench_tokens 2 'shapes: 8x4: "net/deploy.prototxt" is a net of pictures: expected how many, such as 1,8' \
    "$CORTADO" bench serve --model=net/deploy.prototxt --shapes=1,8x4
runs bench_rows 2 'rows=LAST: "net/deploy.prototxt" is a net of pictures' "$CORTADO" bench serve --model=net/deploy.prototxt --shapes=1 --rows=LAST
# names of classes that the net's file has itself; pictures resized and cut from a size of their own
python3 -c 'import pictures
p, rows = pictures.pixels(0), [bytes([200] * 56)] * 28 # the middle of 28 x 56, each pixel as 2 x 2
rows += [bytes(v for v in p[28 * y:28 * y + 28] for _ in "ab") for y in range(28) for _ in "ab"] + rows
open("tall.png", "wb").write(pictures.png(56, 112, b"".join(b"\0" + r for r in rows)))'
{ for i in 0 1 2 3 4 5 6 7 8 9; do echo "class_name: \"own $i\""; done
  echo 'serve { transform_param { scale: 0.00390625 crop_size: 28 resize_param { resize_mode: FIT_SMALL_SIZE height: 28 width: 28 } } }'
  cat "$ROOT/models/lenet/deploy.prototxt"; } >own.prototxt
sed 1d own.prototxt >nine.prototxt
runs few_own_names 2 'has 9 class_name, expected 10, one for each class' $serve --model=nine.prototxt
up --model=own.prototxt --weights=$weights --name=own
ask own_names 200 '"label":"own [0-9]"' '/classify' -F 'file=@0.png'
cp out one
ask own_size 200 '"file":"tall.png"' '/classify' -F 'file=@tall.png'
sed 's/tall.png/0.png/' out >tall
is own_size_as_small cmp tall one
down
finish
