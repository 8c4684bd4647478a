#!/bin/sh
# cortado serve, asked by the programs that users have: OpenAI's client, and Triton's for KServe's /v2.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd; then
    skip clients "built without libmicrohttpd"
    finish
fi
python=$("$ROOT/scripts/test_venv.sh" numpy openai 'tritonclient[http]' 2>venv.log) || {
    not_ok venv "$(tail -n 3 venv.log)"
    finish
}

# layers DATA ATTENTION HEAD: a small net over 259 ids
layers() {
    cat <<END
name: "tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte"
  embed_param { input_dim: 259 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x"
  position_param { max_length: 96 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" $2 top: "attn" attention_param { num_heads: 2 causal: true } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "y" }
$3
END
}
head='layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" inner_product_param { num_output: 259 axis: 2
  weight_filler { type: "gaussian" std: 0.5 } } }'
input='layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 64 } } }'
layers "$input" '' "$head" >text.prototxt
layers 'layer { name: "in" type: "Input" top: "tokens" top: "mask" input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } } }' '' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >embed.prototxt
printf 'the weights of a net that has seen next to nothing of this text, which is not the point.\n' >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
layers 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 259 } }' '' "$head
layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"head\" bottom: \"next\" top: \"loss\" softmax_param { axis: 2 } }" >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
# a tokenizer of bytes with the words of a chat
"$python" "$ROOT/tests/cli/chat_tokenizer.py" >tokenizer.json
echo 'a-key' >keys

# asks NET CASE...: each case of clients.py against a server of that net
asks() {
    net=$1
    shift
    rm -f at
    "$CORTADO" serve --model=$net.prototxt --weights=w_iter_1.caffemodel.h5 --tokenizer=tokenizer.json --chat_template=CHATML \
        --listen=127.0.0.1:0 --api_key_file=keys >at 2>$net.log </dev/null &
    pid=$!
    n=0
    while [ ! -s at ] && kill -0 $pid 2>/dev/null && [ $n -lt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    [ -s at ] || not_ok "start_$net" "$(tail -2 $net.log)"
    for case in "$@"; do
        timeout -k 5 120 "$python" "$ROOT/tests/cli/clients.py" $case "$(sed 's/.* at //' at)" >asked 2>asked.err ||
            not_ok "$case" "$(tail -n 5 asked.err)"
        cat asked
        if grep -q '^not ok' asked; then failed=1; fi
    done
    kill -TERM $pid
    wait $pid
    is "end_$net" [ $? = 0 ]
}
asks text openai
asks embed embeddings triton
finish
