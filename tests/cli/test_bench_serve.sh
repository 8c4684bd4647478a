#!/bin/sh
# cortado bench serve: shapes, JSON, what it refuses.
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
is fields grep -Eq '^."batch":2,"tokens":5,"cached":0,"ms":[0-9.]+,"least_ms":[0-9.]+,"repeats":4,"threads":[12],"precision":"F32","reshape_us":[0-9.]+,"norm":[0-9.e+-]+.$' s.json
if command -v python3 >/dev/null; then
    is json_parses python3 -c 'import json
rows = [json.loads(line) for line in open("s.json")]
assert [(r["batch"], r["tokens"]) for r in rows] == [(1, 10), (2, 5)], rows
assert all(0 < r["least_ms"] <= r["ms"] for r in rows), rows'
fi
runs json_to_stdout 0 '"precision":"BF16"' $serve --shapes=1x4 --repeat=3 --precision=BF16 --log=error --json
is nothing_but_json sh -c '[ $(grep -vc "^{" out) = 0 ]'
# the last token's rows alone: those of all tokens have them
runs all_rows 0 '' $serve --shapes=1x10,2x5 --repeat=1 --scores=all.txt
runs last_rows 0 '' $serve --shapes=1x10,2x5 --repeat=1 --rows=LAST --scores=last.txt
is last_are_of_all sh -c "sed -n '10p;15p;20p' all.txt | diff - last.txt"
runs bad_rows 2 'rows=FIRST.*ALL' $serve --rows=FIRST
# unlike lengths: packed, then padded to the longest; the same rows come out
runs mixed 0 '^ +3 +<=20 +0 +4 +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +28$' $serve --shapes=20+2+10 --repeat=4 --threads=1
is mixed_packed grep -Eq '^ +3 +<=20 +0 +4 .* 0$' out
runs mixed_json 0 '' $serve --shapes=1x3,20+2+10,2x4 --repeat=3 --threads=1 --json=m.json
is mixed_lines sh -c '[ $(wc -l <m.json) = 4 ]'
is mixed_fields grep -q '"norm":[0-9.e+-]*,"all_tokens":32,"padding":28}$' m.json
is mixed_same sh -c '[ "$(sed -n "2s/.*norm\":\([^,]*\),.*/\1/p" m.json)" = "$(sed -n "3s/.*norm\":\([^,]*\),.*/\1/p" m.json)" ]'
runs mix20_too_long 2 '20x100: sequences of "net.prototxt" have at most 20 tokens' $serve --shapes=mix20
runs no_model 2 'needs --model' "$CORTADO" bench serve
many=$(printf '1x1,%.0s' $(seq 62))
runs many_shapes 2 'expected up to 64 of SEQUENCESxTOKENS' $serve --shapes=${many}1x2,3+4
for shapes in 1x 1x10, 0x3 3x0 1x10x2 x 1x1@ 1x1@0 1x1@2x 3+ 3+0 3+4x2 3x4+2 mix20x mix21; do
    runs "shapes_$shapes" 2 'expected up to 64 of SEQUENCESxTOKENS' $serve --shapes=$shapes
done
sed 's/"qkv" top: "attn" attention_param {/& causal: true/' net.prototxt >causal.prototxt
runs steps 0 '^ +3 +1 +7 +[0-9]+ +[0-9.]+' "$CORTADO" bench serve --model=causal.prototxt --shapes=3x1@7,1x4@3,2x5 --repeat=12
runs steps_too_long 2 '1x21: sequences of "causal.prototxt" have at most 20 tokens' "$CORTADO" bench serve --model=causal.prototxt --shapes=1x1@20
runs not_causal 2 'without causal: true' $serve --shapes=1x1@3
runs too_long 2 '1x21: sequences of "net.prototxt" have at most 20 tokens' $serve --shapes=1x21
runs too_often 2 'expected 1 to 200' $serve --shapes=1x2 --repeat=201
runs ranks 2 'runs on one rank, not on 2' $JOB 2 $serve --shapes=1x2
cat >group.prototxt <<'EOF'
ranks: 2 global_batch: 1
stage { first: "in" last: "sum" rank: 0 rank: 1 tensor: 2
  layer { name: "in" split: REPLICATE } layer { name: "wte" split: REPLICATE }
  layer { name: "wpe" split: REPLICATE } layer { name: "qkv" split: OUTPUT }
  layer { name: "attn" split: HEADS } layer { name: "proj" split: INPUT }
  layer { name: "sum" split: REPLICATE } }
EOF
cp causal.prototxt whole.prototxt
cat >>whole.prototxt <<'EOF'
layer { name: "proj" type: "InnerProduct" bottom: "attn" top: "proj"
  inner_product_param { num_output: 16 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "proj" top: "sum" }
EOF
group="bench serve --model=whole.prototxt --shapes=1x10,3x5,2x1@7 --repeat=3 --threads=1"
runs alone 0 '' "$CORTADO" $group --json=alone.json
runs group 0 '' $JOB 2 "$CORTADO" $group --parallel=group.prototxt --json=group.json
norms() { sed 's/.*"norm":\([^}]*\)}/\1/' $1.json; }
norms alone >alone.norm
norms group >group.norm
# tolerance: the order of sums of 16 terms of f32, at each of a few layers
same_norms() {
    paste alone.norm group.norm | awk '{ d = ($1 - $2) / $1; n++
        if (!($1 > 0) || d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || n != 3 }'
}
is group_gives_the_same same_norms
runs group_by_time 0 '^ +1 +10 ' $JOB 2 "$CORTADO" bench serve --model=whole.prototxt --shapes=1x10 --threads=1 --parallel=group.prototxt
sed '/"sum" split/s/REPLICATE/OUTPUT/; /"proj" split/s/INPUT/OUTPUT/' group.prototxt >cut.prototxt
runs group_output 2 'layer "sum", is not whole on each rank' $JOB 2 "$CORTADO" $group --parallel=cut.prototxt
sed 's/dim: 1 dim: 20/dim: 2 dim: 20/' whole.prototxt >two.prototxt
sed 's/global_batch: 1/global_batch: 2/; s/name: "in" split: REPLICATE/name: "in" split: BATCH/' group.prototxt >samples.prototxt
runs group_samples 2 'layer "in" is dealt out by samples' $JOB 2 "$CORTADO" bench serve --model=two.prototxt --shapes=1x3 --threads=1 --parallel=samples.prototxt
runs group_no_weights 3 'none.npz' $JOB 2 "$CORTADO" $group --parallel=group.prototxt --weights=none.npz
if command -v python3 >/dev/null && python3 -c 'import numpy' 2>/dev/null; then
    python3 -c 'import numpy as n
r = n.random.default_rng(3); f = lambda *s: r.standard_normal(s).astype("f") / 4
n.savez("w.npz", **{"wte/0": f(40, 16), "wte/1": f(16), "wpe/0": f(20, 16), "qkv/0": f(48, 16), "qkv/1": f(48),
                    "proj/0": f(16, 16), "proj/1": f(16)})'
    runs alone_weights 0 '' "$CORTADO" $group --weights=w.npz --json=alone.json
    runs group_weights 0 '' $JOB 2 "$CORTADO" $group --weights=w.npz --parallel=group.prototxt --json=group.json
    norms alone >alone.norm
    norms group >group.norm
    is weights_give_the_same same_norms
fi
runs group_ranks 4 '' "$CORTADO" $group --parallel=group.prototxt
runs no_weights 3 'none.npz' $serve --weights=none.npz
runs bad_file 3 'nowhere' $serve --shapes=1x2 --json=nowhere/s.json
sed 's/ varies: true//' net.prototxt >fixed.prototxt
runs fixed 0 '' "$CORTADO" bench serve --model=fixed.prototxt --shapes=1x3 --repeat=1
runs check 0 '^qkv +InnerProduct +qkv +<= 1 20 48' "$CORTADO" check --model=net.prototxt --phase=TEST
runs help 0 'shapes=LIST' "$CORTADO" bench serve --help
finish
