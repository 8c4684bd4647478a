# cortado serve: the page at /, as curl gets it: it knows what the model makes, needs no key, names no model, and may load
# nothing from elsewhere. tests/long/page.sh tries it in a browser.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd || ! command -v curl >/dev/null; then
    skip serve_page "no curl, or built without libmicrohttpd"
    finish
fi
# net DATA-LAYER LOSS
net() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" embed_param { input_dim: 259 num_output: 8 bias_term: false
  weight_filler { type: "gaussian" std: 1 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 1 causal: true } }
layer { name: "head" type: "InnerProduct" bottom: "attn" top: "head" inner_product_param { num_output: 259 axis: 2 } }
$2
END
}
net 'layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 64 } } }' '' >deploy.prototxt
printf 'the weights of a net that has seen next to nothing of this text, which is not the point.\n' >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
net 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 259 } }' '
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }' >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
python3 "$ROOT/tests/cli/chat_tokenizer.py" >tokenizer.json
echo 'a-key' >keys

# page NAME MAKES IDS KEY OPTION...
page() {
    name=$1 server="const server = {\"makes\":\"$2\",\"ids\":$3,\"key\":$4};"
    shift 4
    rm -f at
    "$CORTADO" serve --model=deploy.prototxt --weights=w_iter_1.caffemodel.h5 --listen=127.0.0.1:0 --kv_mb=1 --name=secret-name \
        --plan=p.plan "$@" >at 2>log </dev/null &
    pid=$!
    i=0
    while [ ! -s at ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    curl -s -m 60 -D headers "http://$(sed -n 's/.* at //p' at)/" >page.html
    is "$name" grep -qxF "$server" page.html
    kill -TERM $pid
    wait $pid
}
page plain none true false
page text text false false --tokenizer=bytes
is status grep -q '^HTTP/1.1 200' headers
is type grep -qi '^Content-Type: text/html; charset=utf-8' headers
# all but its first mark is the file as it stands in the sources
sed 's|^const server = .*|const server = /*SERVER*/null;|' page.html >marked.html
is whole cmp -s marked.html "$ROOT/serve/api/page.html"
page chat chat false true --tokenizer=tokenizer.json --chat_template=CHATML --api_key_file=keys
is key_not_needed grep -q '^HTTP/1.1 200' headers
is no_name sh -c '! grep -q secret-name page.html'
is policy grep -q "Content-Security-Policy\" content=\"default-src 'none'; .*connect-src 'self'" page.html
is nothing_outside sh -c '! grep -Eq "(src|href) *= *[\"'"'"']|https?://" page.html'
finish
