# cortado serve: a small net of tokens answers over HTTP what it is asked, alone and beside others, until
# a signal; what is refused at the start, and with which words.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd; then
    runs without_library 2 'was built without libmicrohttpd.*install libmicrohttpd-dev' "$CORTADO" serve
    finish
fi

# layers INPUT TOKENS HEAD: states of bytes, as BERT makes them
layers() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte"
  embed_param { input_dim: 257 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x"
  position_param { max_length: 64 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" $2 top: "attn" attention_param { num_heads: 2 } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "y" }
$3
END
}
layers 'layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } varies: true } }' 'bottom: "mask"' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >deploy.prototxt
layers 'layer { name: "in" type: "Input" top: "tokens"
  input_param { shape { dim: 1 dim: 64 } varies: true } }' '' '' >states.prototxt
# weights: one step of training
printf 'the weights of a net that has seen next to nothing of this text, which is not the point.\n' >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
layers 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 257 } }' '' '
layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" inner_product_param { num_output: 257 axis: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }' >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
weights=w_iter_1.caffemodel.h5

# what is wrong at the start: one line, and 2 or 3
serve="$CORTADO serve --listen=127.0.0.1:0"
runs no_model 2 'cortado serve needs --model' $serve
runs no_weights 2 'cortado serve needs --weights' $serve --model=deploy.prototxt
all="--model=deploy.prototxt --weights=$weights"
runs bad_listen 2 'listen=localhost:1: expected ADDRESS:PORT in numbers' "$CORTADO" serve $all --listen=localhost:1
runs bad_queue 2 'max_queue=0: expected 1 to 100000' $serve $all --max_queue=0
runs bad_budget 2 'max_batch_tokens=5000: expected AUTO, or 1 to 4096' $serve $all --max_batch_tokens=5000
runs bad_budget_text 2 'max_batch_tokens=all: expected AUTO' $serve $all --max_batch_tokens=all
runs bad_batching 2 'batching=PACK: expected one of PACKED|PADDED' $serve $all --batching=PACK
runs bad_wait 2 'max_wait_ms=-1: expected milliseconds, 0 to 1e9' $serve $all --max_wait_ms=-1
runs bad_deadline 2 'deadline_ms=0: expected milliseconds, 0.001 to 1e9' $serve $all --deadline_ms=0
runs bad_name 2 '--name=a/b: nobody could ask for a model of this name: expected UTF-8 without /' $serve $all --name=a/b
runs bad_name_bytes 2 'nobody could ask for a model of this name' $serve $all --name="$(printf 'a\377')"
runs empty_name 2 '--name: empty value' $serve $all --name=
sed 's|name: "Tiny"|name: "org/Tiny"|' deploy.prototxt >slash.prototxt
runs bad_net_name 2 'slash.prototxt:1:1: name=org/Tiny: nobody could ask' $serve --model=slash.prototxt --weights=$weights
sed 's|name: "Tiny"||' deploy.prototxt >nameless.prototxt
runs no_net_name 2 'nameless.prototxt: the net has no name: give it one, or one by --name' $serve --model=nameless.prototxt --weights=$weights
runs no_keys 3 'nothing.keys' $serve $all --api_key_file=nothing.keys
runs no_file 3 'nothing.h5' $serve --model=deploy.prototxt --weights=nothing.h5
echo '# none' >empty.keys
runs empty_keys 2 'empty.keys: has no key, expected one a line' $serve $all --api_key_file=empty.keys
# words NAME N: a tokenizer of BERT's kind with N ids
words() {
    python3 - "$2" >"$1" <<'END'
import json, sys
vocab = ["[UNK]", "[CLS]", "[SEP]"] + ["w%d" % i for i in range(int(sys.argv[1]) - 3)]
print(json.dumps({"version": "1.0", "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
                  "added_tokens": [{"id": i, "content": vocab[i], "special": True} for i in range(3)],
                  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                            "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(vocab)}}}))
END
}
words large.json 258
words words.json 257
runs few_ids 2 '--tokenizer=large.json has ids up to 257, the net 256' $serve $all --tokenizer=large.json
# … and of the net's file
bad() { # NAME EXIT-CODE PATTERN SERVE
    { echo "serve { $4 }"; cat deploy.prototxt; } >bad.prototxt
    runs "$1" "$2" "bad.prototxt:1:9: serve.$3" $serve --model=bad.prototxt --weights=$weights
}
bad net_few_ids 2 'tokenizer=large.json has ids up to 257, the net 256' 'tokenizer: "large.json"'
bad net_no_tokenizer 3 'tokenizer=none.json: No such file' 'tokenizer: "none.json"'
bad net_labels 2 'labels=large.json: the net takes tokens, and no pictures that have classes' 'labels: "large.json"'
bad net_served_name 2 'name=a/b: nobody could ask for a model of this name' 'name: "a/b"'
bad net_empty_name 2 'name: empty value' 'name: ""'

# up NAME OPTION...: a server in the background; $pid, $at
up() {
    name=$1 log=$1.log
    shift
    "$CORTADO" serve "$@" >"$name.at" 2>"$log" </dev/null &
    pid=$!
    i=0
    while [ ! -s "$name.at" ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    at=$(sed -n 's/.* at //p' "$name.at")
    is "$name" [ -n "$at" ]
}
# log_has PATTERN: waits until the log of the one that `up` started has it
log_has() {
    i=0
    while ! grep -q "$1" "$log" && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
    grep -q "$1" "$log"
}
# down NAME: SIGTERM ends it with 0, within a minute
down() {
    kill -TERM $pid
    i=0
    while kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    [ $i -lt 600 ] || kill -KILL $pid
    wait $pid
    rc=$?
    is "$1" [ $rc = 0 ]
}
echo 'a-key' >keys
up starts $all --listen=127.0.0.1:0 --tokenizer=bytes --name=tiny --api_key_file=keys
is printed grep -Eq '^tiny at 127\.0\.0\.1:[0-9]+$' starts.at
cat >ask.py <<'END'
import base64, json, struct, sys, threading, urllib.error, urllib.request
at = "http://" + sys.argv[1]

def ask(path, body=None, key="a-key"):
    r = urllib.request.Request(at + path, None if body is None else json.dumps(body).encode())
    r.add_header("Authorization", "Bearer " + key)
    try:
        with urllib.request.urlopen(r, timeout=60) as f:
            return f.status, json.load(f)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)

def embed(texts, **more):
    code, j = ask("/v1/embeddings", dict(model="tiny", input=texts, **more))
    assert code == 200, j
    return [d["embedding"] for d in j["data"]]

def check(name, good):
    print(("ok " if good else "not ok ") + name)

texts = ["a", "some words", "fifty letters, more or less, are in this one text."]
alone = [embed(t)[0] for t in texts]
check("length_1", all(abs(sum(v * v for v in e) - 1) < 1e-6 for e in alone))
check("size", all(len(e) == 24 for e in alone))
check("differ", alone[0] != alone[1] != alone[2])
check("same_beside_others", embed(texts) == alone)
check("base64", [list(struct.unpack("<24f", base64.b64decode(e))) for e in embed(texts, encoding_format="base64")]
      == [[struct.unpack("f", struct.pack("f", v))[0] for v in e] for e in alone])
check("ids", embed([list(t.encode()) for t in texts]) == alone)
wrong = []
def client(k):
    for i in range(20):
        t = (k + i) % 3
        if embed([texts[t]])[0] != alone[t]:
            wrong.append(t)
threads = [threading.Thread(target=client, args=(k,)) for k in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
check("same_at_once", not wrong)
code, j = ask("/v2/models/tiny")
check("metadata", code == 200 and j["inputs"][0] == {"name": "tokens", "datatype": "INT32", "shape": [-1, -1]}
      and j["outputs"][0] == {"name": "pool", "datatype": "FP32", "shape": [-1, 24]})
ids = list(b"some words")
code, j = ask("/v2/models/tiny/infer", {"inputs": [{"name": "tokens", "shape": [2, 10], "datatype": "INT32",
                                                    "data": ids + ids[::-1]}]})
rows = j["outputs"][0]["data"]
norm = sum(v * v for v in rows[:24]) ** 0.5
check("infer", code == 200 and j["outputs"][0]["shape"] == [2, 24]
      and all(abs(v / norm - e) < 1e-6 for v, e in zip(rows, alone[1])))
check("long_text", ask("/v1/embeddings", {"model": "tiny", "input": "x" * 65})[0] == 422)
check("id_beyond", ask("/v1/embeddings", {"model": "tiny", "input": [257]})[0] == 422)
check("other_model", ask("/v1/embeddings", {"model": "gpt", "input": "a"})[0] == 404)
check("wrong_key", ask("/v1/models", key="b")[0] == 401)
check("many_texts", ask("/v1/embeddings", {"model": "tiny", "input": ["a"] * 257})[0] == 422)
END
python3 ask.py "$at" >asked 2>asked.err || not_ok asked "$(tail -n 5 asked.err)"
cat asked
if grep -q '^not ok' asked; then failed=1; fi
down ends

# padded batches: the same bytes
up padded_starts $all --listen=127.0.0.1:0 --tokenizer=bytes --name=tiny --api_key_file=keys --batching=PADDED
python3 ask.py "$at" >asked 2>asked.err || not_ok padded "$(tail -n 5 asked.err)"
sed 's/ / padded_/' asked
if grep -q '^not ok' asked; then failed=1; fi
down padded_ends

# other weights, while the server runs; and a file that is none, which changes nothing
cp $weights other.h5
up swap_start --model=deploy.prototxt --weights=other.h5 --listen=127.0.0.1:0 --name=tiny
embedding() {
    python3 -c "import json, sys, urllib.request
r = urllib.request.Request('http://$at/v1/embeddings', b'{\"model\":\"tiny\",\"input\":[70,71,72]}')
print(json.load(urllib.request.urlopen(r, timeout=60))['data'][0]['embedding'])"
}
embedding >first
is swap_first [ -s first ]
echo nonsense >other.h5
kill -HUP $pid
is swap_refused log_has 'other.h5: not taken; the weights are those from before'
embedding >still
is swap_kept cmp -s first still
sed -i 's/max_iter: 1/max_iter: 3/' solver.prototxt
"$CORTADO" train --solver=solver.prototxt >out 2>&1
cp w_iter_3.caffemodel.h5 other.h5
kill -HUP $pid
is swap_taken log_has 'other.h5: read again, and in use'
embedding >second
is swap_differs [ "$(cat first)" != "$(cat second)" ]
down swap_end

# whoever reads the log may end first: the server answers, and logs on to nobody
mkfifo unread.log
head -n 1 unread.log >unread.first &
reader=$!
"$CORTADO" serve --model=deploy.prototxt --weights=other.h5 --listen=127.0.0.1:0 --name=tiny >unread.at 2>unread.log &
pid=$!
wait $reader
i=0
while [ ! -s unread.at ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
at=$(sed -n 's/.* at //p' unread.at)
cp $weights other.h5
kill -HUP $pid
i=0
while kill -0 $pid 2>/dev/null && [ $i -lt 300 ] && ! { embedding >unread && cmp -s unread first; } 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
is unread_taken cmp unread first
down unread_ends

# without --name the net's name and those of its blobs stay when the net that they came from has gone, though
# what is freed is overwritten
cp deploy.prototxt own.prototxt
cp $weights own.h5
MALLOC_PERTURB_=85
export MALLOC_PERTURB_
up own_start --model=own.prototxt --weights=own.h5 --listen=127.0.0.1:0
unset MALLOC_PERTURB_
cat >own.py <<'END'
import json, sys, urllib.request
def ask(path, body=None):
    r = urllib.request.Request("http://" + sys.argv[1] + path, None if body is None else json.dumps(body).encode())
    return json.load(urllib.request.urlopen(r, timeout=60))
j = ask("/v2/models/Tiny")
print(j["name"], j["inputs"][0]["name"], j["outputs"][0]["name"])
j = ask("/v2/models/Tiny/infer", {"inputs": [{"name": "tokens", "shape": [1, 3], "datatype": "INT32", "data": [1, 2, 3]}]})
print(j["outputs"][0]["shape"], j["outputs"][0]["data"])
print(ask("/v1/embeddings", {"model": "Tiny", "input": [1, 2, 3]})["model"])
END
python3 own.py "$at" >own.first 2>&1
is own_names grep -qx 'Tiny tokens pool' own.first
kill -HUP $pid
is own_taken log_has 'own.h5: read again, and in use'
runs own_after 0 '' python3 own.py "$at"
is own_same cmp out own.first
# other blobs than clients know of
sed 's/top: "pool"/top: "rows"/' deploy.prototxt >own.prototxt
kill -HUP $pid
is own_refused log_has 'output is "rows", and "pool" in the one that was opened first'
sed 's/"tokens"/"words"/' deploy.prototxt >own.prototxt
kill -HUP $pid
is own_refused_input log_has 'input is "words", and "tokens" in the one that was opened first'
runs own_still 0 '' python3 own.py "$at"
is own_still_same cmp out own.first
down own_end

# a text of BERT's kind stands between [CLS] and [SEP]
up words_start $all --listen=127.0.0.1:0 --tokenizer=words.json --name=tiny
cat >words.py <<'END'
import json, sys, urllib.request
def embed(what):
    r = urllib.request.Request("http://" + sys.argv[1] + "/v1/embeddings", json.dumps({"model": "tiny", "input": what}).encode())
    return json.load(urllib.request.urlopen(r, timeout=60))
a, b = embed("W0 w7"), embed([1, 3, 10, 2])
assert a["data"] == b["data"] and a["usage"]["prompt_tokens"] == 4, (a, b)
END
runs words_between 0 '' python3 words.py "$at"
down words_end

# a socket in the file system, states of each token, no tokenizer, another program's view by curl where it is there
up unix --model=states.prototxt --weights=$weights --listen=unix:sock
is unix_name [ "$at" = unix:sock ]
if command -v curl >/dev/null; then
    curl -sS --unix-socket sock http://x/v2/models/Tiny >out 2>&1
    is unix_states grep -q '"outputs":\[{"name":"y","datatype":"FP32","shape":\[-1,-1,24\]}\]' out
    curl -sS --unix-socket sock http://x/v1/embeddings -d '{"model":"Tiny","input":[1]}' >out 2>&1
    is no_embeddings grep -q 'the model Tiny makes no embeddings' out
else
    skip unix_states "no curl"
fi
runs unix_taken 3 'another server listens there' "$CORTADO" serve --model=states.prototxt --weights=$weights --listen=unix:sock
down unix_ends
is unix_gone [ ! -e sock ]

# a signal that comes while the server starts ends it at once, as it does any program; but SIGHUP, which would read
# the files again, lets it go on. Here it waits for a file of keys that never opens
can_preload && starts="TERM INT" || starts=
[ -n "$starts" ] && make_hold || skip early "a sanitizer must come first"
for sig in $starts; do
    [ $sig = TERM ] && code=143 || code=130
    OPENBLAS_NUM_THREADS=1 ./hold "$CORTADO" serve --model=states.prototxt --weights=$weights --api_key_file=slow/late.keys \
        --listen=127.0.0.1:0 >early.at 2>early.log </dev/null &
    pid=$!
    i=0 # until the thread is there that looks at signals
    while ! grep -q '^Threads:.*[2-9]' /proc/$pid/status 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
    kill -HUP $pid
    sleep 0.2
    is early_hup_$sig kill -0 $pid
    kill -$sig $pid
    wait $pid
    rc=$?
    is early_$sig [ $rc = $code ]
    is early_silent_$sig [ ! -s early.at ]
done

# open to other machines: a warning; SIGINT ends it, too
up open --model=states.prototxt --weights=$weights --listen=0.0.0.0:0
kill -INT $pid
wait $pid
is open_ends [ $? = 0 ]
is open_warns grep -q 'can be reached from other machines, and no --api_key_file says who may ask' open.log
finish
