# cortado serve --plan, --check and --deterministic: what batches cost is measured once, kept, and
# refined; what a server would take and give, without listening; requests that hang on nothing else.
. "$ROOT/tests/cli/lib.sh"
if ! has libmicrohttpd; then
    skip serve_plan "built without libmicrohttpd"
    finish
fi

. "$ROOT/tests/cli/tiny_net.sh"
tops='layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 64 } } }'
net "$tops" 'causal: true' "$head" >texts.prototxt
net 'layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } } }' '' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >embed.prototxt
printf 'the weights of a net that has seen next to nothing of this text, which is not the point.\n' >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
net 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 259 } }' 'causal: true' "$head
layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"head\" bottom: \"next\" top: \"loss\" softmax_param { axis: 2 } }" >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "w" random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
weights=w_iter_1.caffemodel.h5
serve="$CORTADO serve --weights=$weights"
texts="$serve --model=texts.prototxt --tokenizer=bytes --kv_mb=1"
embed="$serve --model=embed.prototxt"

# ---- --check
runs check_embed 0 '^longest text    4096 tokens$' $embed --check --name=e
for row in 'model +e: embeddings$' 'weights +0\.[0-9] MiB$' 'activations +[0-9.]+ MiB at the budget; planned are [0-9.]+ MiB, for 4096 tokens$' \
    'tokenizer +none: clients send ids$' 'budget +[0-9]+ tokens a batch, [0-9.e+-]+ ms: [0-9]+ tokens/s$' 'one token +[0-9.e+-]+ ms: [0-9]+ tokens/s$'; do
    is "row_${row%% *}" grep -Eq "^$row" out
done
runs check_texts 0 '^longest text    64 tokens, the prompt and what follows it$' $texts --check --max_batch_tokens=100 --json=c.json
is keys_and_values grep -Eq '^keys and values +[01]\.[0-9] MiB at most: [0-9]+ tokens, 0\.[0-9] KiB each$' out
is tokenizer grep -Eq '^tokenizer +bytes: 256 ids$' out
is chats grep -Eq '^chats +NONE$' out
is no_address sh -c '! grep -q "^Tiny at " out'
$texts --check --max_batch_tokens=100 --json --log=error >only.json 2>err || not_ok json_only "failed"
cat >figures.py <<'END'
import json
j, only = json.load(open("c.json")), json.load(open("only.json"))
assert set(j) == set(only)
assert j["model"] == "Tiny" and j["makes"] == "completions" and j["tokenizer"] == "bytes" and j["ranks"] == 1
# the table of ids in the arena, and again packed for the head; qkv packed alone, its bias in the arena
table, qkv = 259 * 24 * 4, 72 * 24 * 4
assert table * 2 + qkv <= j["weight_bytes"] < 2 * (table * 2 + qkv), j
assert j["kv_tokens"] % 32 == 0 and j["kv_tokens"] * 2 * 24 * 4 <= j["kv_bytes"] <= 1 << 20, j
assert j["kv_bytes"] * (1 + 32 / j["kv_tokens"]) > 1 << 20, j # no page more fits
assert j["budget_tokens"] == 100 and j["longest_tokens"] == 64 and j["planned_tokens"] == 4096
# a token has 24 numbers in x, attn, y and 72 in qkv, some of them in one place
assert 100 * 72 * 4 < j["activation_bytes"] < j["planned_bytes"], j
assert abs(j["budget_tokens_s"] * j["budget_s"] / 100 - 1) < 1e-4 and 0 < j["token_s"]
END
is figures python3 figures.py
OMP_NUM_THREADS=2 runs check_threads 0 '^attention +[0-9.]+ MiB to work in$' $texts --check --max_batch_tokens=100 --json=t.json
runs check_none 0 '"attention_bytes":0,' $embed --check --json
cat >room.py <<'END'
import json
one, two = (json.load(open(f))["attention_bytes"] for f in ("c.json", "t.json"))
# each thread has scores of rows with 64 tokens, and more; all share a number for each of 4096 sequences, and an end
each = two - one
assert each > 64 * 4 and 0 <= one - each - 8 * 4097 < 64, (one, two)
END
is room python3 room.py
runs check_bf16 0 '^longest text    64 tokens' $texts --check --max_batch_tokens=100 --json=b.json --precision=BF16
cat >halves.py <<'END'
import json
f32, bf16 = json.load(open("c.json")), json.load(open("b.json"))
# a page's tokens take half, so nearly twice as many fit; the table of ids stays in f32
assert abs(bf16["kv_tokens"] - 2 * f32["kv_tokens"]) <= 32, (f32, bf16)
assert bf16["weight_bytes"] < f32["weight_bytes"]
END
is halves python3 halves.py
runs bad_precision 2 'precision=FP8: expected one of F32.BF16' $texts --check --precision=FP8
runs json_alone 2 '\-\-json is for what --check says' $texts --json
runs check_no_file 3 'nothing.h5' "$CORTADO" serve --check --model=embed.prototxt --weights=nothing.h5

# ---- --plan
runs plan_first 0 'budget' $embed --check --plan=p.plan
is plan_quiet sh -c '! grep -q "plan p.plan" out'
cp p.plan first.plan
rows=$(grep -c '^batch net [0-9a-f]* most 4096 f32 ranks 1 rows all tokens [0-9]* | pass [0-9.e-]*$' p.plan)
is plan_rows [ "$rows" -ge 8 ]
is plan_end grep -q "^end $rows\$" p.plan
runs plan_second 0 "costs of batches of $rows sizes, from 1 to 4096 tokens: nothing is measured" $embed --check --plan=p.plan
is plan_same cmp p.plan first.plan
# a table that a busy machine cut short; and such a file cut short
{ sed -n 1,2p first.plan; grep -E 'tokens (1|8|16|32|64) ' first.plan; echo 'end 5'; } >short.plan
runs plan_short 0 'short.plan: costs of batches end at 64 tokens, and there is time for more: they are measured again' \
    $embed --check --plan=short.plan
runs plan_whole_again 0 "costs of batches of $rows sizes, from 1 to 4096 tokens: nothing is measured" $embed --check --plan=short.plan
sed '$d' first.plan >cut.plan
runs plan_cut 3 'cut.plan:[0-9]+: damaged plan' $embed --check --plan=cut.plan
# times that nothing has: they are those of the file
sed 's/\(tokens [0-9]*\) | pass .*/\1 | pass 7500/' first.plan >slow.plan
runs plan_read 0 '"token_s":7.5,' $embed --check --plan=slow.plan --json
# another net's rows come beside them, another machine's, too
runs plan_net 0 'has no costs of this net.s batches as they run here: they are measured' $texts --check --plan=p.plan
is plan_both sh -c "grep -q 'rows last tokens 64 ' p.plan && [ \$(grep -c 'rows all' p.plan) = $rows ]"
runs plan_again 0 'nothing is measured' $embed --check --plan=p.plan
sed 's/^machine "[^"]*"/machine "Elsewhere"/' first.plan >far.plan
runs plan_far 0 'far.plan is of another machine: "Elsewhere"' $embed --check --plan=far.plan
is plan_far_told grep -q 'has no costs of this net' out
is plan_two_machines [ "$(grep -c '^machine' far.plan)" = 2 ]
OMP_NUM_THREADS=2 runs plan_threads 0 'is of another machine: .* 2 threads' $embed --check --plan=first.plan
sed 's/pass [0-9.e-]*$/pass -/' slow.plan >none.plan
runs plan_unknown 0 'has no costs of this net' $embed --check --plan=none.plan
sed 's/^end .*/end 3/' slow.plan >damaged.plan
runs plan_damaged 3 'damaged.plan:[0-9]+: damaged plan' $embed --check --plan=damaged.plan
runs plan_folder 3 'nowhere' $embed --check --plan=nowhere/p.plan

# serve NAME OPTION...: asks for 40 embeddings, then ends it by SIGTERM; $rc
serve_some() {
    name=$1
    shift
    $embed --listen=127.0.0.1:0 "$@" >"$name.at" 2>"$name.log" </dev/null &
    pid=$!
    i=0
    while [ ! -s "$name.at" ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    at=$(sed -n 's/.* at //p' "$name.at")
    is "$name" python3 - "$at" <<'END'
import json, sys, urllib.request
for i in range(40):
    urllib.request.urlopen("http://%s/v1/embeddings" % sys.argv[1], json.dumps({"model": "Tiny", "input": list(range(1, 24 + i))}).encode(), timeout=60).read()
END
    [ -z "$break" ] || eval "$break"
    kill -TERM $pid
    wait $pid
    rc=$?
}
cp slow.plan refined.plan
break=
serve_some refines --plan=refined.plan
is refines [ $rc = 0 ]
is refines_told grep -q 'plan refined.plan: costs of batches as 40 batches have refined them' refines.log
is refines_faster sh -c "awk '/tokens 32 / { exit !(\$NF < 7500) }' refined.plan"
runs refines_read 0 'nothing is measured' $embed --check --plan=refined.plan
# where it cannot be written any more the end says so, and all was answered
cp slow.plan lost.plan
break='rm lost.plan; mkdir lost.plan'
serve_some loses --plan=lost.plan
is loses [ $rc = 0 ]
is loses_told grep -q 'plan lost.plan: what 40 batches refined is not kept' loses.log

# ---- --deterministic
# drawn NAME OPTION...: texts that are drawn, without a seed, alone and beside others; in $NAME.text whether they are equal
drawn() {
    name=$1
    shift
    $texts --listen=127.0.0.1:0 --log=warn "$@" >"$name.at" 2>"$name.log" </dev/null &
    pid=$!
    i=0
    while [ ! -s "$name.at" ] && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    python3 - "$(sed -n 's/.* at //p' "$name.at")" >"$name.text" <<'END'
import json, sys, urllib.request
def ask(prompt):
    body = {"model": "Tiny", "prompt": prompt, "max_tokens": 40, "temperature": 2, "logprobs": 3}
    with urllib.request.urlopen("http://%s/v1/completions" % sys.argv[1], json.dumps(body).encode(), timeout=60) as f:
        return [(c["text"], c["logprobs"]) for c in json.load(f)["choices"]]
# of several, since the net says one byte again and again, and two texts may be equal by chance
first = ask("The quick")
print("equal" if all(ask("The quick") == first for _ in range(8)) else "unlike")
beside = ["The quick", "brown fox", "The quack"]
print("equal" if all(ask(beside)[0] == first[0] for _ in range(8)) else "unlike")
END
    kill -TERM $pid
    wait $pid
}
drawn fixed --deterministic
is deterministic [ "$(tr '\n' ' ' <fixed.text)" = 'equal equal ' ]
drawn free
is not_deterministic [ "$(tr '\n' ' ' <free.text)" = 'unlike unlike ' ]
sed 's/layer { name: "qkv"/& ct_kernel { forward: "blas" }/' texts.prototxt >blas.prototxt
runs blas 2 'layer "qkv" \(InnerProduct\): engine "blas": its sums hang on how many rows run together' $serve --model=blas.prototxt --deterministic
sed 's/layer { name: "pool"/& ct_kernel { forward: "blas" }/' embed.prototxt >blas_pool.prototxt
runs blas_pool 2 'layer "pool" \(MatMul\): engine "blas": its sums hang' $embed --model=blas_pool.prototxt --deterministic
runs blas_is_taken 0 'budget' $serve --model=blas.prototxt --check

# ---- in a job
if [ "$(timeout -k 5 60 $JOB 2 sh -c 'echo rank' 2>/dev/null | grep -c rank)" = 2 ] &&
    timeout -k 5 120 $JOB 2 $embed --check --plan=two.plan >out 2>&1 && grep -q '^ranks' out; then
    is job_ranks grep -q '^ranks           2, each with all of that$' out
    is job_table [ "$(grep -c '^budget' out)" = 1 ]
    is job_rows grep -q 'ranks 2 rows all tokens 8 ' two.plan
    runs job_again 0 'nothing is measured' $JOB 2 $embed --check --plan=two.plan
else
    skip job "no job of 2 ranks starts, or its ranks do not know their numbers"
fi
finish
