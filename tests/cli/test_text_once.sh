# cortado test of a net of tokens over its whole set: each window counts once. Loss, perplexity and counts are those of
# the definition in Python, by the weights of the run, with batches that do not divide the set, on one and two ranks.
. "$ROOT/tests/cli/lib.sh"
python3 - <<'PY'
import random, struct
random.seed(4)
ids = [random.choice((1, 2, 3, 5, 8, 10)) for _ in range(23 * 6 + 4)] # 23 windows of 6, and 3 tokens that are in none
open("text.bin", "wb").write(struct.pack(f"<{len(ids)}H", *ids))
PY
net() { # NAME DATA LOSS: a net of pairs of tokens
    cat >"$1.prototxt" <<NET
layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "text.bin" batch_size: 4 seq_len: 6 vocabulary: 256 tokenizer: "bytes" $2 } }
layer { name: "table" type: "Embed" bottom: "tokens" top: "table"
  embed_param { input_dim: 256 num_output: 5 bias_term: false weight_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "head" type: "InnerProduct" bottom: "table" top: "head"
  inner_product_param { num_output: 256 axis: 2 weight_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } $3 }
NET
}
net net '' ''
echo 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 3 random_seed: 5 solver_mode: CPU' >solver.prototxt
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --run=r
weights=r/snapshots/snapshot_iter_3.caffemodel.h5
runs as_arrays 0 '' "$CORTADO" convert model --from=$weights --to=weights.npz
cat >definition.py <<'PY'
import ast, json, math, struct, sys, zipfile
z = zipfile.ZipFile("weights.npz")
def array(name):
    raw = z.read(name)
    n = struct.unpack("<H", raw[8:10])[0]
    shape = [d for d in ast.literal_eval(raw[10:10 + n].decode())["shape"] if d > 1]
    flat = struct.unpack(f"<{(len(raw) - 10 - n) // 4}f", raw[10 + n:])
    return flat if len(shape) == 1 else [flat[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
report, said, ignored = sys.argv[1], sys.argv[2], int(sys.argv[3])
b, table, w = (array(sorted(n for n in z.namelist() if n.startswith(layer))[i]) for layer, i in (("head", 1), ("table", 0), ("head", 0)))
raw = open("text.bin", "rb").read()
ids = struct.unpack(f"<{len(raw) // 2}H", raw)
loss, n = 0, 0
for i in range(23 * 6):
    if ids[i + 1] == ignored:
        continue
    x = table[ids[i]]
    score = [sum(p * q for p, q in zip(row, x)) + c for row, c in zip(w, b)]
    top = max(score)
    loss += top + math.log(sum(math.exp(s - top) for s in score)) - score[ids[i + 1]]
    n += 1
loss /= n
r = json.load(open(report))
assert abs(r["loss"] / loss - 1) < 2e-6, (r, loss)
assert abs(r["perplexity"] / math.exp(loss) - 1) < 1e-5 and r["samples"] == 23, (r, loss)
if ignored < 0:
    assert r["tokens"] == r["bytes"] == 138 and abs(r["bits_per_byte"] / (loss / math.log(2)) - 1) < 2e-6, r
line = [l for l in open(said) if l.startswith("perplexity")]
assert abs(float(line[0].split()[2]) / math.exp(loss) - 1) < 1e-5, (line, loss)
PY
net ignores '' 'loss_param { ignore_label: 5 }'
for p in 1 2; do
    for batch in 4 5 23; do
        $JOB $p "$CORTADO" test --run=r --set=batch_size=$batch --report=r.json >said 2>out </dev/null
        is "once_${batch}_on_$p" python3 definition.py r.json said -1
        [ $batch$p = 41 ] && cp said said_of_all
    done
    $JOB $p "$CORTADO" test --model=ignores.prototxt --weights=$weights --report=i.json >said 2>out </dev/null
    is "own_label_on_$p" python3 definition.py i.json said 5
done
# without --report, too
"$CORTADO" test --run=r >plain 2>out
is whole_set cmp plain said_of_all
runs some_batches 0 'Running for 2 iterations' "$CORTADO" test --run=r --iterations=2
# tokens that are hidden: as many batches as windows, and few of them, say the same
net masked 'mask_ratio: 0.3 mask_token: 255' 'loss_param { ignore_label: -1 }'
for batch in 1 5 7; do
    $JOB 2 "$CORTADO" test --model=masked.prototxt --weights=$weights --set=batch_size=$batch --report=m$batch.json >said 2>out </dev/null
done
is hidden python3 -c "
import json
a, b, c = (json.load(open(f'm{n}.json')) for n in (1, 5, 7))
assert 10 < a['tokens'] < 100 and a['tokens'] == b['tokens'] == c['tokens'] and a['samples'] == 23, (a, b, c)
assert abs(a['loss'] / b['loss'] - 1) < 1e-6 and abs(a['loss'] / c['loss'] - 1) < 1e-6, (a, b, c)
"
# what cannot be counted so is said
net full '' 'loss_param { normalization: FULL }'
runs other_mean 0 'may count windows twice: layer "loss", which reads their targets, is no mean over labels' "$CORTADO" test --model=full.prototxt --weights=$weights --report=f.json
echo 'layer { name: "more" type: "Silence" bottom: "next" }' | cat net.prototxt - >more.prototxt
runs other_reader 0 'may count windows twice: layer "more", which reads their targets, is neither' "$CORTADO" test --model=more.prototxt --weights=$weights --report=f.json
finish
