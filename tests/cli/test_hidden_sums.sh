#!/bin/sh
# The four kinds of blocks on several ranks in inference: scores, sums a block and their bytes, what runs beside a sum.
. "$ROOT/tests/cli/lib.sh"
command -v python3 >/dev/null || {
    skip kinds "no python3"
    finish
}
make_book
export CORTADO_POISON=1 # whoever reads what is dead reads NaN
write() { # RANKS
    "$ROOT/scripts/nets/kraken.py" --kind=$kind --ways=4 --ranks=$1 --to=$kind --blocks=3 --width=96 --heads=4 --seq_len=24 --batch=2
}
# sent SIZE: every sum of the first pass, of 24 tokens, is of so many bytes a number
sent() {
    python3 - $kind $1 <<'EOP'
import json, re, sys
width = int(re.search(r'embed_param \{[^}]*num_output: (\d+)', open(sys.argv[1] + "/deploy.prototxt").read()).group(1))
found = {e["args"].get("bytes") for e in json.load(open("trace.json"))["traceEvents"]
         if e["ph"] == "X" and e["args"]["kind"] in ("begin sum", "wait for sum") and e["args"]["iteration"] == 0}
print("width", width, "bytes", found)
sys.exit(found != {24 * width * int(sys.argv[2])})
EOP
}
# weights after a step with a large rate: no row of scores is like another
for kind in standard parallel ladder kraken; do
    write 2
    runs ${kind}_weights 0 '' "$CORTADO" train --solver=$kind/solver.prototxt --set=random_seed=7 --set=base_lr=0.02 \
        --set=warmup.iterations=0 --set=max_iter=3 --set=snapshot=3 --set=test_iter=1 --set=test_interval=100 --set=snapshot_prefix=$kind
    serve="bench serve --model=$kind/deploy.prototxt --weights=${kind}_iter_3.caffemodel.h5 --shapes=1x24,3x7,2x1@9 --repeat=1 --threads=1"
    runs ${kind}_one 0 '' "$CORTADO" $serve --scores=one.txt
    tokens=$(wc -w <one.txt)
    runs ${kind}_one_bf16 0 '' "$CORTADO" $serve --scores=one_bf16.txt --precision=BF16
    for ranks in 2 $([ $kind != kraken ] || echo 3) 4; do
        write $ranks
        runs ${kind}_on_$ranks 0 '' $JOB $ranks "$CORTADO" $serve --parallel=$kind/deploy_parallel.prototxt --scores=all.txt \
            --trace=trace.json --json=serve.json
        is ${kind}_${ranks}_bytes sent 4
        is ${kind}_${ranks}_scores python3 "$ROOT/tests/cli/close.py" one.txt all.txt 1e-4 "$tokens"
        is ${kind}_${ranks}_trace sh -c "python3 $ROOT/tests/cli/sums_of.py trace.json >${kind}_$ranks.txt"
        case $kind in standard | ladder) sums=6 ;; *) sums=3 ;; esac
        is ${kind}_${ranks}_sums sh -c "[ \$(wc -l <${kind}_$ranks.txt) = $sums ]"
        runs ${kind}_on_${ranks}_bf16 0 '' $JOB $ranks "$CORTADO" $serve --parallel=$kind/deploy_parallel.prototxt --scores=bf16.txt \
            --trace=trace.json --precision=BF16
        is ${kind}_${ranks}_bf16_scores python3 "$ROOT/tests/cli/roundings.py" one.txt one_bf16.txt bf16.txt $ranks "$tokens"
        is ${kind}_${ranks}_bf16_bytes sent 2
        is ${kind}_${ranks}_told sh -c "[ \$(grep -c '\"sums\":$sums,\"hidden\":[01]\\.[0-9]*}' serve.json) = 3 ]"
    done
done
# beside: NAME LINE...: what runs while each sum travels, in the order of waits
beside() {
    name=$1
    shift
    printf '%s\n' "$@" >wanted.txt
    sed 's,/sum[0-9]*,,' $name.txt | is ${name}_order diff -u wanted.txt -
}
beside standard_2 h0_attn_proj h0_proj h1_attn_proj h1_proj h2_attn_proj h2_proj
beside parallel_2 h0_sum/terms h1_sum/terms h2_sum/terms
# of the last block the attention is the last layer that looks at other tokens: what is under way ends behind it
beside ladder_2 "h0_attn_proj h0_fc h0_proj" "h0_proj h1_attn_qkv h1_attn h1_attn_proj" "h1_attn_proj h1_fc h1_proj" \
    "h1_proj h2_attn_qkv h2_attn" "h2_attn_proj h2_fc h2_proj" "h2_proj"
beside kraken_4 "h0_w0_y h1_w0_attn_qkv h1_w0_attn h1_w0_attn_proj" "h1_w0_y h2_w0_attn_qkv h2_w0_attn" "h2_w0_y"
runs bad_scores 3 'nowhere' "$CORTADO" bench serve --model=ladder/deploy.prototxt --shapes=1x2 --scores=nowhere/s.txt
runs bad_window 2 'without --trace=FILE' "$CORTADO" bench serve --model=ladder/deploy.prototxt --shapes=1x2 --trace_iterations=1-2
runs one_rank_trace 0 '' "$CORTADO" bench serve --model=ladder/deploy.prototxt --shapes=1x2 --repeat=4 --trace=t.json --trace_iterations=1-2
is runs_in_trace sh -c '[ $(grep -c "\"name\":\"iteration\"" t.json) = 2 ]'
finish
