#!/bin/sh
# cortado bench serve: shapes, JSON, what it refuses.
# alone: it times
. "$ROOT/tests/cli/lib.sh"
cat >net.prototxt <<'EOF'
name: "Tiny"
layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 20 } varies: true } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x"
  embed_param { input_dim: 40 num_output: 16 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "wpe" type: "Position" bottom: "x" top: "x" position_param { max_length: 20 } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 48 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 2 } }
EOF
serve="$CORTADO bench serve --model=net.prototxt"
runs table 0 '^ +3 +20 +[0-9]+ +[0-9.]+' $serve --shapes=1x1,3x20 --repeat=3 --threads=1
runs json 0 '' $serve --shapes=1x10,2x5 --repeat=4 --threads=2 --json=s.json
is lines sh -c '[ $(wc -l <s.json) = 2 ]'
is fields grep -Eq '^."batch":2,"tokens":5,"cached":0,"ms":[0-9.]+,"least_ms":[0-9.]+,"repeats":4,"threads":[12],"precision":"F32","reshape_us":[0-9.]+.$' s.json
if command -v python3 >/dev/null; then
    is json_parses python3 -c 'import json
rows = [json.loads(line) for line in open("s.json")]
assert [(r["batch"], r["tokens"]) for r in rows] == [(1, 10), (2, 5)], rows
assert all(0 < r["least_ms"] <= r["ms"] for r in rows), rows'
fi
runs json_to_stdout 0 '"precision":"BF16"' $serve --shapes=1x4 --repeat=3 --precision=BF16 --log=error --json
is nothing_but_json sh -c '[ $(grep -vc "^{" out) = 0 ]'
runs no_model 2 'needs --model' "$CORTADO" bench serve
for shapes in 1x 1x10, 0x3 3x0 1x10x2 x 1x1@ 1x1@0 1x1@2x; do
    runs "shapes_$shapes" 2 'expected up to 64 of SEQUENCESxTOKENS' $serve --shapes=$shapes
done
sed 's/"qkv" top: "attn" attention_param {/& causal: true/' net.prototxt >causal.prototxt
runs steps 0 '^ +3 +1 +7 +[0-9]+ +[0-9.]+' "$CORTADO" bench serve --model=causal.prototxt --shapes=3x1@7,1x4@3,2x5 --repeat=12
runs steps_too_long 2 '1x21: sequences of "causal.prototxt" have at most 20 tokens' "$CORTADO" bench serve --model=causal.prototxt --shapes=1x1@20
runs not_causal 2 'without causal: true' $serve --shapes=1x1@3
runs too_long 2 '1x21: sequences of "net.prototxt" have at most 20 tokens' $serve --shapes=1x21
runs too_often 2 'expected 1 to 200' $serve --shapes=1x2 --repeat=201
runs ranks 2 'runs on one rank, not on 2' $JOB 2 $serve --shapes=1x2
runs no_weights 3 'none.npz' $serve --weights=none.npz
runs bad_file 3 'nowhere' $serve --shapes=1x2 --json=nowhere/s.json
sed 's/ varies: true//' net.prototxt >fixed.prototxt
runs fixed 0 '' "$CORTADO" bench serve --model=fixed.prototxt --shapes=1x3 --repeat=1
runs check 0 '^qkv +InnerProduct +qkv +<= 1 20 48' "$CORTADO" check --model=net.prototxt --phase=TEST
runs help 0 'shapes=LIST' "$CORTADO" bench serve --help
finish
