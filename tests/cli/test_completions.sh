#!/bin/sh
# cortado serve: texts that go on, over HTTP: what the net learnt, as cortado generate says it; streams, stops, drawing,
# logprobs, prefixes, chats, what is refused, clients that go.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd; then
    skip completions "built without libmicrohttpd"
    finish
fi

. "$ROOT/tests/cli/learnt_net.sh"

# start NAME OPTION...: a server, its port in $port
start() {
    name=$1
    shift
    "$CORTADO" serve $all --listen=127.0.0.1:0 "$@" >"$name.out" 2>"$name.log" </dev/null &
    pid=$!
    n=0
    while [ ! -s "$name.out" ] && kill -0 $pid 2>/dev/null && [ $n -lt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    port=$(sed 's/.*://' "$name.out")
    [ -n "$port" ] && ok "start_$name" || not_ok "start_$name" "$(tail -2 "$name.log")"
}
stop() {
    kill -TERM $pid
    wait $pid
    rc=$?
    [ $rc = 0 ] && ok "stop_$1" || not_ok "stop_$1" "exit code $rc: $(tail -3 "$1.log")"
}
# asks CASE [ARGUMENT]
asks() { runs "$1" 0 '' timeout -k 5 120 python3 "$ROOT/tests/cli/completions.py" "$port" "$@"; }

"$CORTADO" generate $all --tokenizer=bytes --prompt='The quick' --max_tokens=40 --log=error >text.out || not_ok generate "failed"
runs padded 2 'batching=PADDED: deploy.prototxt makes texts go on.*say PACKED, or leave out --tokenizer' \
    "$CORTADO" serve $all --tokenizer=bytes --batching=PADDED
start plain --tokenizer=bytes
asks greedy "$(cat text.out)"
for case in stops streams draws equal_prompts logprobs prefix times refused no_chat pool; do asks $case; done
stop plain

# texts that are long enough to be caught in the middle
short="$all"
sed 's/dim: 256/dim: 20000/' deploy.prototxt >long.prototxt
all="--model=long.prototxt --weights=w_iter_150.caffemodel.h5"
start long --tokenizer=bytes
asks gone
asks swap $pid long.log
stop long
start full --tokenizer=bytes --kv_mb=1
asks cache "$(room_of full.log)"
stop full
all="$short"

# a tokenizer of bytes with the words of a chat
python3 "$ROOT/tests/cli/chat_tokenizer.py" >tokenizer.json || not_ok tokenizer "not made"
echo '{"eos_token": "<|endoftext|>", "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}"}' >tokenizer_config.json
start chat --tokenizer=tokenizer.json --kv_mb=1
is template grep -q 'Chats: CHATML' chat.log
asks chats
asks pool
stop chat
start none --tokenizer=tokenizer.json --chat_template=NONE
asks no_chat
stop none

# a tokenizer of BERT's kind
python3 - >words.json <<'END'
import json
vocab = ["[UNK]", "[CLS]", "[SEP]"] + ["w%d" % i for i in range(256)]
print(json.dumps({"version": "1.0", "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
                  "added_tokens": [{"id": i, "content": vocab[i], "special": True} for i in range(3)],
                  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                            "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(vocab)}}}))
END
"$CORTADO" generate $all --tokenizer=words.json --prompt='W1 w2' --max_tokens=5 --log=error >said.words || not_ok generate_words "failed"
start words --tokenizer=words.json
asks words "$(cat said.words)"
stop words

runs bad_template 2 'chat_template=JINJA: expected CHATML, LLAMA3, ZEPHYR or NONE' "$CORTADO" serve $all --chat_template=JINJA
finish
