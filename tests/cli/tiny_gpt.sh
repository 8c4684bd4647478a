# Sourced: tiny_gpt FOLDER makes a model of models/gpt_char's kind that learns in seconds.
tiny_gpt() {
    mkdir "$1"
    cat >"$1/train_val.prototxt" <<'NET'
name: "Tiny"
layer { name: "data" type: "TokenData" top: "tokens" top: "next" include { phase: TRAIN }
  token_data_param { source: "none" batch_size: 4 seq_len: 32 vocabulary: 128 tokenizer: "none" } }
layer { name: "data" type: "TokenData" top: "tokens" top: "next" include { phase: TEST }
  token_data_param { source: "none" batch_size: 4 seq_len: 32 vocabulary: 128 tokenizer: "none" } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte" param { name: "wte" }
  embed_param { input_dim: 128 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 0.02 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x"
  position_param { max_length: 64 weight_filler { type: "gaussian" std: 0.02 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "ln" type: "LayerNorm" bottom: "x" top: "ln" }
  layer { name: "qkv" type: "InnerProduct" bottom: "ln" top: "qkv"
    inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.02 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 2 causal: true } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "x" }
}
layer { name: "ln_f" type: "LayerNorm" bottom: "x" top: "ln_f" }
layer { name: "head" type: "InnerProduct" bottom: "ln_f" top: "head" param { name: "wte" }
  inner_product_param { num_output: 128 axis: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET
    cat >"$1/solver.prototxt" <<'SOLVER'
net: "train_val.prototxt" type: "AdamW" test_iter: 4 test_interval: 100 base_lr: 0.01 lr_policy: "fixed"
warmup { iterations: 2000 } momentum: 0.9 momentum2: 0.99 max_iter: 300 display: 50 snapshot: 5000
snapshot_prefix: "tiny" random_seed: 3 solver_mode: CPU
SOLVER
}
