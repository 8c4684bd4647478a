# train --parallel of a language model on several ranks: heads, vocabularies, tokens and stages that
# ranks share, a table in the first and the last stage. Losses and weights are those of one rank.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
awk 'BEGIN { srand(1); split("the cat sat on a mat and ran off with hat", w, " ")
    for (i = 0; i < 1500; i++) printf "%s ", w[1 + (i * i * 7 + i) % 11]; print "" }' >text.txt
runs tokens 0 '' "$CORTADO" convert text --from=text.txt --tokenizer=char --to=text.bin
cat >net.prototxt <<'NET'
name: "gpt"
layer { name: "data" type: "TokenData" top: "tokens" top: "next" include { phase: TRAIN }
  token_data_param { source: "text.bin" batch_size: 4 seq_len: 12 vocabulary: 31 } }
layer { name: "data" type: "TokenData" top: "tokens" top: "next" include { phase: TEST }
  token_data_param { source: "text.bin" batch_size: 4 seq_len: 12 vocabulary: 31 } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte" param { name: "wte" }
  embed_param { input_dim: 31 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x" position_param { max_length: 12 weight_filler { type: "gaussian" std: 0.02 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "ln1" type: "LayerNorm" bottom: "x" top: "ln1" layer_norm_param { eps: 1e-05 } }
  layer { name: "qkv" type: "InnerProduct" bottom: "ln1" top: "qkv" inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 6 causal: true dropout: 0.1 } }
  layer { name: "attn_proj" type: "InnerProduct" bottom: "attn" top: "attn_proj" inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "sum1" type: "Eltwise" bottom: "x" bottom: "attn_proj" top: "sum1" }
  layer { name: "ln2" type: "LayerNorm" bottom: "sum1" top: "ln2" layer_norm_param { eps: 1e-05 } }
  layer { name: "fc" type: "InnerProduct" bottom: "ln2" top: "fc" inner_product_param { num_output: 49 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "gelu" type: "GELU" bottom: "fc" top: "fc" gelu_param { approximate: TANH } }
  layer { name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param { dropout_ratio: 0.1 } }
  layer { name: "proj" type: "InnerProduct" bottom: "fc" top: "proj" inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "sum2" type: "Eltwise" bottom: "sum1" bottom: "proj" top: "x" }
}
layer { name: "ln_f" type: "LayerNorm" bottom: "x" top: "ln_f" layer_norm_param { eps: 1e-05 } }
layer { name: "head" type: "InnerProduct" bottom: "ln_f" top: "head" param { name: "wte" } inner_product_param { num_output: 31 axis: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET
cat >solver.prototxt <<'NET'
net: "net.prototxt" base_lr: 0.2 lr_policy: "fixed" momentum: 0.9
weight_decay: 0.001 max_iter: 4 display: 1 random_seed: 5 snapshot: 2 global_batch_size: 4
test_iter: 2 test_interval: 4
NET

# ---- plans
entry() { # SPLIT NAME...
    split=$1
    shift
    for layer; do printf ' layer { name: "%s" split: %s }\n' "$layer" "$split"; done
}
block() { # NUMBER
    entry OUTPUT "h$1_qkv" "h$1_fc"
    entry HEADS "h$1_attn"
    entry INPUT "h$1_attn_proj" "h$1_proj"
}
front() { entry REPLICATE data wpe && entry INPUT wte; }
back() { entry OUTPUT head loss; }
by_tokens() { entry SEQUENCE ln_f; for i in 0 1; do entry SEQUENCE h${i}_ln1 h${i}_ln2 h${i}_sum1 h${i}_sum2; done; }
file() { # NAME RANKS MICRO-BATCHES; the stages come in
    { echo "ranks: $2 global_batch: 4 micro_batches: $3"; cat; } >"$1.plan"
    echo "$1 $2 $3" >>plans
}
whole='stage { first: "wte" last: "loss" rank: 0 rank: 1'
{ echo "$whole tensor: 2"; front; block 0; block 1; back; echo '}'; } | file split 2 1
{ echo "$whole rank: 2 tensor: 3"; front; block 0; block 1; back; echo '}'; } | file uneven 3 1
{ echo "$whole tensor: 2"; front; block 0; block 1; by_tokens; back; echo '}'; } | file tokens 2 1
{ echo "$whole tensor: 2"; block 0; block 1; echo '}'; } | file samples 2 1
{ echo "$whole rank: 2 rank: 3 tensor: 2 share: 3 share: 1"; front; block 0; block 1; back; echo '}'; } | file replicas 4 1
lower='first: "wte" last: "h0_sum2"' upper='first: "h1_ln1" last: "loss"'
echo "stage { $lower rank: 0 } stage { $upper rank: 1 }" | file stages 2 4
two_stages() { echo "stage { $lower rank: 0 rank: 1 tensor: 2" && front && block 0 && echo "} stage { $upper rank: 2 rank: 3 tensor: 2" && block 1 && back && echo '}'; }
two_stages | file both 4 1
two_stages | file like_to_like 4 4

# Weights files as close as the order of f32 sums allows.
near() { # A B LIMIT: .caffemodel.h5 files
    for f in "$1" "$2"; do "$CORTADO" convert model --from="$f" --to="$f.npz" --force >>out 2>&1 || return 1; done
    python3 "$ROOT/tests/cli/near.py" "$1.npz" "$2.npz" "$3" 28 >>out 2>&1
}
losses() { sed -n 's/.*Iteration \([0-9]*\) .*loss = \([0-9.e+-]*\)$/\1 \2/p; s/.*Test net output #0: loss = \([0-9.e+-]*\) .*/test \1/p' out; }
same_losses() { paste "$1" my.losses | awk '{ d = $2 - $4; if (d < 0) d = -d; if (($1 != $3) || (d > 1e-5 * ($2 + 1))) exit 1; n++ } END { exit n != 6 }'; }
train="$CORTADO train --solver=solver.prototxt"
have_python=$(command -v python3 || true)
[ -n "$have_python" ] || skip weights "no python3"
for micro in 1 4; do
    mkdir -p one$micro
    runs one_rank_$micro 0 'Iteration 4, loss' $train --global_batch_size=$((4 / micro)) --set "iter_size=$micro" --set snapshot_prefix=one$micro/s
    losses >one$micro/losses
done
while read -r of ranks micro; do
    mkdir -p "$of"
    runs "$of" 0 'Iteration 4, loss' $JOB "$ranks" $train --parallel="$of.plan" --set snapshot_prefix="$of/s"
    losses >my.losses
    is "${of}_losses" same_losses one$micro/losses
    [ -z "$have_python" ] || is "${of}_weights" near "one$micro/s_iter_4.caffemodel.h5" "$of/s_iter_4.caffemodel.h5" 1e-3
done <plans
mkdir -p resumed
runs resumed 0 'Iteration 4, loss' $JOB 2 $train --parallel=tokens.plan --set snapshot_prefix=resumed/s --snapshot=both/s_iter_2.solverstate.h5
[ -z "$have_python" ] || is resumed_weights near one1/s_iter_4.caffemodel.h5 resumed/s_iter_4.caffemodel.h5 1e-3

# ---- a large table, of which a batch has few rows: these travel, as many as the largest share has
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "%c", 33 + (i * i * 31 + i * 17) % 89; print "" }' >many.txt
mkdir -p many
runs many_tokens 0 "" "$CORTADO" convert text --from=many.txt --tokenizer=char --to=many/many.bin
cat >rows.prototxt <<'NET'
name: "rows"
layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "many/many.bin" batch_size: 4 seq_len: 12 vocabulary: 4001 } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "w" }
  embed_param { input_dim: 4001 num_output: 16 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 16 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "head" type: "InnerProduct" bottom: "fc" top: "head" param { name: "w" } inner_product_param { num_output: 4001 axis: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET
sed 's/name: "w"/name: "own"/' rows.prototxt >own_rows.prototxt
sed -i 's/"head" param { name: "own" }/"head"/' own_rows.prototxt
sed 's/net: "net/net: "rows/;s/test_[a-z]*: [0-9]*//g;s/ snapshot: [0-9]*//' solver.prototxt >rows_solver.prototxt
sed 's/rows.prototxt/own_rows.prototxt/' rows_solver.prototxt >own_rows_solver.prototxt
table='first: "wte" last: "loss" rank: 0 rank: 1'
echo "ranks: 2 global_batch: 4 stage { $table share: 3 share: 1 }" >shares.plan
{ echo "ranks: 4 global_batch: 4 stage { $table rank: 2 rank: 3 tensor: 2 share: 3 share: 1"; entry REPLICATE data fc; entry INPUT wte; back; echo '}'; } >words.plan
{ echo "ranks: 4 global_batch: 4 stage { $table rank: 2 rank: 3 tensor: 2"; entry REPLICATE data; entry OUTPUT wte; entry INPUT fc; back; echo '}'; } >features.plan
rows() { # NET PLAN RANKS HOW-MANY
    runs "$1_of_$2" 0 "gradient of .*: up to $4 rows a rank travel" $JOB "$3" "$CORTADO" train --solver="$1_solver.prototxt" --parallel="$2.plan"
    losses >my.losses
    is "$1_of_$2_losses" cmp_losses "$1.losses"
}
cmp_losses() { paste "$1" my.losses | awk '{ d = $2 - $4; if (d < 0) d = -d; if (($1 != $3) || (d > 1e-5 * ($2 + 1))) exit 1; n++ } END { exit n != 4 }'; }
for net in rows own_rows; do
    runs "${net}_one" 0 'Iteration 4, loss' "$CORTADO" train --solver="${net}_solver.prototxt"
    losses >$net.losses
    rows $net shares 2 '36 of its 4001'
    rows $net words 4 '36 of its 2001'
done
rows own_rows features 4 '24 of its 4001'

# ---- fewer heads of keys than of queries
sed 's/num_heads: 6 causal: true dropout: 0.1/num_heads: 6 num_kv_heads: 3 causal: true/; s/num_output: 72 axis/num_output: 48 axis/' net.prototxt >gqa.prototxt
mkdir -p gqa
runs gqa_one 0 'Iteration 4, loss' $train --set net=gqa.prototxt --set snapshot_prefix=gqa/one
losses >gqa.losses
runs gqa 0 'Iteration 4, loss' $JOB 3 $train --set net=gqa.prototxt --set snapshot_prefix=gqa/s --parallel=uneven.plan
losses >my.losses
is gqa_losses same_losses gqa.losses
sed 's/name: "h0_attn" split: HEADS/name: "h0_attn" split: REPLICATE/' uneven.plan >wrong.plan
runs gqa_alone 2 'wrong.plan:[0-9]*: layer "h0_qkv" .InnerProduct. is split OUTPUT, with 24 queries and 12 keys' \
    $JOB 3 $train --set net=gqa.prototxt --set snapshot_prefix=gqa/s --parallel=wrong.plan

# ---- what cannot be
sed 's/split: INPUT/split: REPLICATE/;s/name: "wte" split: [A-Z]*/name: "wte" split: REPLICATE/' both.plan >wrong.plan
runs unlike_ties 2 'wrong.plan:[0-9]*: layers "wte" of stage 0 .REPLICATE, tensor 2. and "head" of stage 1 .OUTPUT, tensor 2. share a weight' \
    $JOB 4 $train --parallel=wrong.plan
grep -v '"data"' like_to_like.plan >wrong.plan
runs too_few 2 'wrong.plan:[0-9]*: replica 0 of stage 0 has 1 samples of a batch of 1, and 2 ranks: too few for layer "data"' \
    $JOB 4 $train --parallel=wrong.plan

# ---- a table of the first and the last stage, in shards of both, and in files. In shards of weights it stays whole.
tied="--set deterministic=true --set type=AdamW --set base_lr=0.01 --set average.type=EMA --set average.decay=0.9 --set test_interval=2"
mkdir files
disk="--set memory.weights=FILE --set memory.path=files --set memory.chunk_mb=0.004"
sum_of() { sed -n 's/.*weights after iteration 4: //p' out; }
tie() { # PLAN RANKS NAME SETTING…: the losses and weights of the first of a plan
    of=$1 ranks=$2 by=$3
    shift 3
    runs "tied_${of}_$by" 0 'Iteration 4, loss' $JOB "$ranks" $train --parallel="$of.plan" $tied --set snapshot_prefix="tied_${of}_$by" --metrics=tied.metrics "$@"
    { losses && sum_of; } >tied.is
    [ "$by" != whole ] || cp tied.is whole.is
    is "tied_${of}_${by}_same" cmp whole.is tied.is
    [ "$by" != whole ] || is "tied_${of}_said" test "$(wc -l <tied.is)" = 8
}
export CORTADO_POISON=1
# what runs again drops what it dropped, whichever samples the layer before has
tie samples 2 whole
tie samples 2 again --set recompute=BLOCKS
tie stages 2 whole
tie stages 2 zero_2 --set memory.zero=2 --set checksum_interval=1
tie stages 2 zero_3 --set memory.zero=3 --set memory.prefetch=1 --set snapshot_async=true
"$CORTADO" check --solver=solver.prototxt --parallel=stages.plan --json $tied --set memory.zero=3 --set memory.prefetch=1 >said 2>>out
[ -z "$have_python" ] || is tied_memory sh -c "python3 '$ROOT/tests/cli/ranks_are.py' tied.metrics said >>out 2>&1"
tie stages 2 files $disk
sum_of >stages.sum
tie both 4 whole --set clip_gradients=0.5 --set checksum_interval=1
tie both 4 zero_3 --set clip_gradients=0.5 --set memory.zero=3 $disk
# sets have whole tables
for from in whole zero_3; do
    runs "tied_after_$from" 0 'Iteration 4, loss' $JOB 2 $train --parallel=stages.plan $tied --set memory.zero=3 --set snapshot_prefix=after --snapshot="tied_stages_${from}_iter_2.solverstate.h5"
    sum_of >after.sum
    is "tied_after_${from}_same" test "$(cat after.sum)" = "$(tail -n 1 stages.sum)"
done
finish
