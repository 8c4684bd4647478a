# Sourced: a small net that has learnt a text by heart: deploy.prototxt, its weights, and $all, the options of both.
# net DATA-LAYER: a small transformer over 259 ids
net() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 259 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "n" type: "RMSNorm" bottom: "x" top: "n" }
  layer { name: "qkv" type: "InnerProduct" bottom: "n" top: "qkv"
    inner_product_param { num_output: 48 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn"
    attention_param { num_heads: 2 num_kv_heads: 1 causal: true rope { } } }
  layer { name: "proj" type: "InnerProduct" bottom: "attn" top: "proj"
    inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "proj" top: "x" }
}
layer { name: "head" type: "InnerProduct" bottom: "x" top: "head" param { name: "wte" }
  inner_product_param { num_output: 259 axis: 2 bias_term: false } }
END
}
net 'layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 256 } } }' >deploy.prototxt
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do printf 'The quick brown föx jumps over the lazy dog €. 日本! '; done >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
{ net 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
    token_data_param { source: "t.bin" batch_size: 2 seq_len: 160 vocabulary: 259 } }'
echo 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }'; } >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 momentum2: 0.99 max_iter: 150
snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
all="--model=deploy.prototxt --weights=w_iter_150.caffemodel.h5"

# room_of LOG: the tokens that a replica's cache holds, as its server says; kernels of other widths take other bytes a token
room_of() { sed -n 's/.*the cache has room for \([0-9]*\) .*/\1/p' "$1"; }
