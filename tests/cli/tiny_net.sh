# Sourced: net INPUT ATTENTION TAIL prints a small transformer over 259 ids; $head has its scores.
net() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 259 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 2 $2 } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "y" }
$3
END
}
head='layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" param { name: "wte" }
  inner_product_param { num_output: 259 axis: 2 bias_term: false } }'
