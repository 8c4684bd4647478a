# Sourced behind serve_job.sh: servers of which several ranks run one net.
ask="$ROOT/tests/cli/serve_groups.py"

# up NAME N OPTION...
up() {
    up=$1 ranks=$2
    shift 2
    start "$up" "$ranks" "$CORTADO" serve --listen=127.0.0.1:0 --name=m "$@"
    is "$up" [ -n "$at" ]
}
down() {
    kill -TERM "$(rank 0)"
    ended "$1_end" = 0
}

# load NAME: asks in the background until nobody listens; returns once it has an answer
load() {
    rm -f asks
    python3 "$ask" "$at" load >load.$1 2>&1 &
    loading=$!
    i=0
    while [ ! -e asks ] && kill -0 $loading 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
}

write() { # RANKS [WAYS]
    "$ROOT/scripts/nets/kraken.py" --kind=$kind --ways=${2:-4} --ranks=$1 --to=$kind --blocks=2 --width=64 --heads=4 --seq_len=96 --batch=4
}
# ${kind}_iter_30 and ${kind}_iter_60.caffemodel.h5
make_weights() {
    runs ${kind}_weights 0 '' "$CORTADO" train --solver=$kind/solver.prototxt --set=random_seed=7 --set=base_lr=0.01 \
        --set=warmup.iterations=0 --set=max_iter=60 --set=snapshot=30 --set=test_iter=1 --set=test_interval=100 --set=snapshot_prefix=$kind
}

bert() { # INPUT HEAD: a net that sees both sides
    cat <<END
name: "Bert" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x"
  embed_param { input_dim: 257 num_output: 32 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 96 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 4 } }
layer { name: "proj" type: "InnerProduct" bottom: "attn" top: "proj"
  inner_product_param { num_output: 32 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "y" type: "Eltwise" bottom: "x" bottom: "proj" top: "y" }
$2
END
}
# bert.prototxt, a deploy net, and bert_iter_1.caffemodel.h5
make_bert() {
    bert 'layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } varies: true } }' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >bert.prototxt
    bert 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 257 } }' '
layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" inner_product_param { num_output: 257 axis: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }' >net.prototxt
    echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "bert" random_seed: 4' >solver.prototxt
    runs bert_text 0 '' "$CORTADO" convert text --from=book/valid.txt --to=t.bin --tokenizer=bytes
    runs bert_weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
}
