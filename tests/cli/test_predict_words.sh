# cortado predict for nets of words: the text is that of the definition of LSTM and RNN in Python, by the weights of
# the run, on one and two ranks; and every error in one line.
. "$ROOT/tests/cli/lib.sh"
mkdir book model
python3 - <<'PY'
import random
random.seed(2)
words = "prince went home and said nothing of war . peace snow".split()
for name, n in ("train", 4000), ("valid", 600):
    lines = (n // 8) * ["The "]
    open(f"book/{name}.txt", "w").write("".join(l + " ".join(random.choice(words) for _ in range(8)) + "\n" for l in lines))
PY
data() { # PHASE
    echo "layer { name: 'data' type: 'TextData' top: 'words' top: 'cont' top: 'next' include { phase: $1 }
  text_data_param { source: 'none' batch_size: 8 steps: 10 synthetic_words: 9 } }"
}
filler="weight_filler { type: 'uniform' min: -0.5 max: 0.5 }"
cat >model/train_val.prototxt <<NET
name: "Words"
$(data TRAIN)
$(data TEST)
layer { name: "embed" type: "Embed" bottom: "words" top: "embed"
  embed_param { input_dim: 9 num_output: 6 bias_term: false $filler } }
layer { name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm" recurrent_param { num_output: 8 $filler } }
layer { name: "drop" type: "Dropout" bottom: "lstm" top: "lstm" }
layer { name: "rnn" type: "RNN" bottom: "lstm" bottom: "cont" top: "rnn" recurrent_param { num_output: 7 $filler } }
layer { name: "score" type: "InnerProduct" bottom: "rnn" top: "score"
  inner_product_param { num_output: 9 axis: 2 $filler } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss" softmax_param { axis: 2 } }
NET
cat >model/solver.prototxt <<'SOLVER'
net: "train_val.prototxt" type: "AdamW" test_iter: 4 test_interval: 100 base_lr: 0.02 lr_policy: "fixed" momentum: 0.9
momentum2: 0.99 max_iter: 200 display: 50 snapshot: 5000 snapshot_prefix: "words" random_seed: 3 solver_mode: CPU
SOLVER
runs set 0 '' "$CORTADO" convert text --from=book --to=set
runs fits 0 '' "$CORTADO" new --from=./model --data=set --to=work
runs learns 0 'Optimization Done' "$CORTADO" train --solver=work/solver.prototxt --run=run --iterations=200
weights=run/snapshots/snapshot_iter_200.caffemodel.h5
runs as_arrays 0 '' "$CORTADO" convert model --from=$weights --to=weights.npz

# ---- the texts of the definition
printf 'The war' >war.txt
printf 'peace  home\n' >peace.txt
printf '\n\nsnow and' >snow.txt
files='war.txt peace.txt snow.txt'
python3 - $files >wanted 2>reference.err <<'PY'
import ast, json, math, struct, sys, zipfile
blob, shape = {}, {}
for name in zipfile.ZipFile("weights.npz").namelist():
    raw = zipfile.ZipFile("weights.npz").read(name)
    n = struct.unpack("<H", raw[8:10])[0]
    head = ast.literal_eval(raw[10:10 + n].decode())
    assert head["descr"] == "<f4" and not head["fortran_order"], head
    flat = struct.unpack(f"<{(len(raw) - 10 - n) // 4}f", raw[10 + n:])
    dims = [d for d in head["shape"] if d > 1] or [1]
    key = name.replace(".npy", "")
    blob[key] = flat if len(dims) == 1 else [flat[i * dims[1]:(i + 1) * dims[1]] for i in range(dims[0])]
def weights(layer):
    return [blob[k] for k in sorted(blob) if k.startswith(layer + ".") or k.startswith(layer + "/")]
def product(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]
def add(*v):
    return [sum(x) for x in zip(*v)]
sigmoid = lambda x: 1 / (1 + math.exp(-x))
(embed,), lstm, rnn, (w_score, b_score) = map(weights, ("embed", "lstm", "rnn", "score"))
word = open("set/vocabulary.txt").read().split("\n")[:-1]
class Net:
    def __init__(self):
        self.h, self.c, self.r = [0] * 8, [0] * 8, [0] * 7
    def read(self, id):
        w_x, b, w_h = lstm
        gate = add(product(w_x, embed[id]), b, product(w_h, self.h))
        i, f, o = ([sigmoid(x) for x in gate[k * 8:k * 8 + 8]] for k in range(3))
        g = [math.tanh(x) for x in gate[24:]]
        self.c = [f * c + i * g for f, c, i, g in zip(f, self.c, i, g)]
        self.h = [o * math.tanh(c) for o, c in zip(o, self.c)]
        w_x, b, w_h, w_o, b_o = rnn
        self.r = [math.tanh(x) for x in add(product(w_x, self.h), b, product(w_h, self.r))]
        return add(product(w_score, [math.tanh(x) for x in add(product(w_o, self.r), b_o)]), b_score)
for name in sys.argv[1:]:
    prompt = open(name).read()
    net, text = Net(), ""
    for w in prompt.replace("\n", " <eos> ").split():
        score = net.read(word.index(w))
    last = w
    for _ in range(25):
        id = max(range(len(word)), key=score.__getitem__)
        text += "\n" if word[id] == "<eos>" else ("" if last == "<eos>" else " ") + word[id]
        last = word[id]
        score = net.read(id)
    print(json.dumps(text))
PY
is reference [ "$(wc -l <wanted)" = 3 ]
[ -s reference.err ] && cat reference.err
predict="$CORTADO predict --run=run --max_tokens=25"
for p in 1 2; do
    for f in table csv json; do
        $JOB $p $predict --format=$f $files >made.$f.$p 2>out </dev/null
        is "predicts_${f}_on_$p" [ $? = 0 ]
    done
done
for f in table csv json; do is same_$f cmp made.$f.1 made.$f.2; done
is as_defined python3 -c "
import csv, json
want = [json.loads(l) for l in open('wanted')]
said = json.load(open('made.json.1'))['continuations']
rows = list(csv.DictReader(open('made.csv.1', newline='')))
assert len(set(want)) == 3 and any('\n' in w for w in want), want
assert [c['text'] for c in said] == want, (said, want)
assert [r['text'] for r in rows] == want and [r['file'] for r in rows] == '$files'.split()
assert [c['prompt_tokens'] for c in said] == [2, 3, 4] and all(c['tokens'] == 25 and c['ended'] is False for c in said)
"
$predict --prompt='The war' >plain 2>out
is single python3 -c "
import json
assert open('plain').read() == json.loads(open('wanted').readline()) + '\n'
"
generate="$CORTADO generate --model=work/deploy.prototxt --weights=$weights --tokenizer=set/vocabulary.txt --max_tokens=25"
$generate --prompt='The war' >generated 2>out
is generated_as_predicted python3 -c "assert open('generated').read() + '\n' == open('plain').read()"
runs not_of_words 2 'set is for nets of tokens, and work/deploy.prototxt takes words' $generate --prompt=war --set=batch_size=1
if "$CORTADO" info | grep -q ' libmicrohttpd'; then
    runs not_served 2 'work/deploy.prototxt: a net with LSTM or RNN layers .*: such a net is not served; cortado generate and' \
        "$CORTADO" serve --model=work/deploy.prototxt --weights=$weights --tokenizer=set/vocabulary.txt --listen=unix:sock
fi

# ---- probabilities in place of scores, a vocabulary that is given, drawn words
echo 'layer { name: "prob" type: "Softmax" bottom: "score" top: "prob" softmax_param { axis: 2 } }' | cat work/deploy.prototxt - >prob.prototxt
for net in work/deploy.prototxt prob.prototxt; do
    "$CORTADO" predict --model=$net --weights=$weights --tokenizer=set/vocabulary.txt --prompt='The war' --temperature=1 --seed=7 >drawn.$(basename $net) 2>out
done
is drawn sh -c "[ \$(wc -w <drawn.deploy.prototxt) -gt 40 ] && ! cmp -s drawn.deploy.prototxt plain"
is probabilities cmp drawn.deploy.prototxt drawn.prob.prototxt

# ---- what is wrong
one="$CORTADO predict --model=work/deploy.prototxt --weights=$weights --prompt=war"
runs unknown_word 3 'prompt:1: "QQ" is not in .*set/valid.h5, which has no <unk>' $predict --prompt='war QQ'
runs no_vocabulary 2 'needs --tokenizer=vocabulary.txt: the net takes words, and without --run' $one
runs a_pattern 2 'pattern=gpt2: the net takes words' $one --tokenizer=set/vocabulary.txt --pattern=gpt2
runs no_such_file 3 'nowhere.txt: No such file' $one --tokenizer=nowhere.txt
printf 'war\n<eos>\n' >few.txt
runs few_words 2 'layer "embed".* it has 13 rows, and few.txt has 2 words' $one --tokenizer=few.txt
grep -v '<eos>' set/vocabulary.txt >endless.txt
runs no_end 3 'endless.txt: no <eos>, which ends every line' $one --tokenizer=endless.txt
runs a_tokenizer 3 'made.json.1:2: expected one word' $one --tokenizer=made.json.1
sed 's/"score"/"sum"/; s/type: "InnerProduct"/type: "Reduction"/; s/inner_product_param.*/reduction_param {/; s/num_output: 13//; s/axis: 2//' work/deploy.prototxt >mixes.prototxt
runs mixes 2 'it mixes words, or may do so' "$CORTADO" predict --model=mixes.prototxt --weights=$weights --prompt=war --tokenizer=set/vocabulary.txt
mv set away
runs set_is_gone 3 'set/valid.h5' $predict --prompt=war
runs set_elsewhere 0 '' $predict --prompt=war --tokenizer=away/valid.h5
finish
