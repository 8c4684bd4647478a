# cortado new, test, predict and report for nets of texts: the commands of docs/language-models.md on a small text
# and a small net, on one and two ranks; real models fitted; every error in one line, after which nothing is left.
. "$ROOT/tests/cli/lib.sh"
. "$ROOT/tests/cli/tiny_gpt.sh"
unset CORTADO_OVERWRITE
mkdir book one two
python3 - <<'PY'
import random
random.seed(2)
words = "prince went home and said nothing of war . peace snow".split()
for name, n in ("train", 4000), ("valid", 600):
    lines = (n // 8) * ["The "]
    open(f"book/{name}.txt", "w").write("".join(l + " ".join(random.choice(words) for _ in range(8)) + "\n" for l in lines))
PY
tiny_gpt small

# ---- the guide's commands, in their order, with a smaller net
sed -n '/^## A net for a text/,/^## From a text/p' "$ROOT/docs/language-models.md" | sed -n 's/^    cortado //p' |
    sed 's#--from=gpt_char#--from=./small#; s#max_tokens=200#max_tokens=20#' >commands
is six_commands [ "$(wc -l <commands)" = 6 ]
guide() { # NAME PREFIX...
    name=$1
    shift
    n=0
    while read -r line; do
        n=$((n + 1))
        runs "${name}_$n" 0 '' sh -c "$* $CORTADO $line"
        case $line in
        train*) is "${name}_bits" grep -q '"bits_per_byte":' run/metrics.jsonl ;;
        predict*) cp out said ;;
        esac
    done <../commands
}
ln -s ../book ../small one && ln -s ../book ../small two
cd one && guide one && cd ..
cd two && guide two $JOB 2 && cd ..
cd one
ids=$(python3 -c "import json; print(len(json.load(open('set/tokenizer.json'))['model']['vocab']))")
windows=$((($(wc -c <set/valid.bin) / 2 - 1) / 32))
is some_ids [ "$ids" -gt 15 ]
is vocabulary grep -Pzq "input_dim: $ids\n(.|\n)*num_output: $ids\n" work/train_val.prototxt
is rows grep -q "vocabulary: $ids" work/train_val.prototxt
is whole_test_set grep -q "test_iter: $(((windows + 3) / 4))\$" work/solver.prototxt
is warm_up grep -Pzq 'iterations: 30\n' work/solver.prototxt
is slurm bash -n work/train.sbatch
is one_net cmp work/deploy.prototxt ../two/work/deploy.prototxt
is run_has_net sh -c 'sed 1d work/deploy.prototxt | cmp - run/deploy.prototxt'
is scores python3 -c "
import json, math
r = json.load(open('run/report.json'))
assert r['samples'] == $windows and r['tokens'] == $windows * 32 and r['bytes'] == r['tokens'], r
assert abs(r['perplexity'] / math.exp(r['loss']) - 1) < 1e-6
assert abs(r['bits_per_byte'] - r['loss'] / math.log(2)) < 1e-6 and r['bits_per_byte'] < 2.5, r
"
is page env PYTHONPATH="$ROOT/tests/cli" python3 -c "
from page_of import Page
p = Page('page.html')
p.alone()
assert p.rows('texts')[0][0] == 'run' and p.rows('texts')[0][4] == '$windows', p.rows('texts')
assert 'bits_per_byte' in p.charts, p.charts
assert p.rows('text')[0][1:4] == ['$ids', '32', '4'] and p.rows('text')[0][4].endswith('set/tokenizer.json'), p.rows('text')
"
# names of other people, in a run that lacks files: nothing of them is markup
mkdir '<script>run'
cp -r run/. '<script>run'
rm '<script>run/solver.prototxt' '<script>run/run.json'
sed -i '0,/source: /s#source: .*#source: "<script>s"#; s#tokenizer: .*#tokenizer: "<script>t"#' '<script>run/net.prototxt'
echo '{"event":"train","iter":301,"<script>f":3}' >>'<script>run/metrics.jsonl'
runs odd_names 0 'a page of 1 run' "$CORTADO" report '<script>run' --to=odd.html
is odd_names_are_text sh -c '! grep -q "<script" odd.html'
for part in run t s f; do is odd_name_$part grep -q "&#60;script&#62;$part" odd.html; done
head -c 300 run/net.prototxt >'<script>run/net.prototxt'
runs cut_net 2 'run/net.prototxt:[0-9]*:[0-9]*: ' "$CORTADO" report '<script>run' --to=x.html
runs with_batch_tokens 0 'Optimization Done' "$CORTADO" train --solver=work/solver.prototxt --run=run2 --iterations=3 --set=batch_tokens=256

# ---- going on with texts: as generate does, in all formats, on one and two ranks
weights=run/snapshots/snapshot_iter_300.caffemodel.h5
predict="$CORTADO predict --run=run --max_tokens=20"
"$CORTADO" generate --model=run/deploy.prototxt --weights=$weights --tokenizer=set/tokenizer.json --prompt='The war' --max_tokens=20 >as_generate 2>out
is generated [ "$(wc -c <as_generate)" = 20 ]
$predict --prompt='The war' >plain 2>out
is as_generate [ "$(cat plain)" = "$(cat as_generate)" ]
printf 'The war' >war.txt
printf 'peace "home"\n' | tr -d '"\n' >peace.txt
printf 'snow' >snow.txt
files='war.txt peace.txt snow.txt'
for p in 1 2; do
    for f in table csv json; do
        $JOB $p $predict --format=$f $files >made.$f.$p 2>out </dev/null
        is "predicts_${f}_on_$p" [ $? = 0 ]
    done
done
for f in table csv json; do is same_$f cmp made.$f.1 made.$f.2; done
is headings [ "$(grep '^==>' made.table.1 | tr '\n' ' ')" = '==> war.txt <== ==> peace.txt <== ==> snow.txt <== ' ]
is formats python3 -c "
import csv, json
rows = list(csv.DictReader(open('made.csv.1', newline='')))
said = json.load(open('made.json.1'))['continuations']
assert [r['file'] for r in rows] == [c['file'] for c in said] == '$files'.split()
for r, c in zip(rows, said):
    assert r['text'] == c['text'] and c['tokens'] == 20 and c['ended'] is False
    assert c['prompt'] == open(c['file']).read() and c['prompt_tokens'] == len(c['prompt'])
assert said[0]['text'] == open('as_generate').read()
"
# texts of which one begins with more than a page of the cache that another left: each as alone
head -c 400 book/train.txt | tr -cd '\40-\176' | head -c 40 >alike.1
{ cat alike.1; printf a; } >alike.2
for i in 1 2; do $predict --format=csv alike.$i >alone.$i 2>out; done
$predict --format=csv alike.1 alike.2 >alike.csv 2>out
{ cat alone.1; tail -n +2 alone.2; } >alone.csv
is alike [ "$(grep -c . alike.csv)" -ge 3 ]
is alike_as_alone cmp alone.csv alike.csv
$predict --prompt='The war' --format=json --temperature=1 --top_p=0.9 --seed=7 >drawn 2>out
is drawn python3 -c "
import json
c, = json.load(open('drawn'))['continuations']
assert c['file'] is None and c['text'] != open('as_generate').read()
"
runs by_files 0 '' "$CORTADO" predict --model=work/deploy.prototxt --weights=$weights --tokenizer=set/tokenizer.json --prompt=peace --max_tokens=4

# ---- other sets and models
runs words 0 '' "$CORTADO" convert text --from=book --to=words
mkdir raw
runs tokens 0 '' "$CORTADO" convert text --from=book/train.txt --to=raw/train.bin --tokenizer=bytes
for m in gpt_char gpt2 llama_135m; do
    runs fits_$m 0 '' "$CORTADO" new --from=$m --data=set --to=$m
    runs checks_$m 0 '' "$CORTADO" check --solver=$m/solver.prototxt
done
runs fits_lstm 0 '' "$CORTADO" new --from=lstm --data=words --to=lstm
n_words=$(wc -l <words/vocabulary.txt)
is lstm_rows grep -Pzq "input_dim: $n_words\n(.|\n)*num_output: $n_words\n" lstm/train_val.prototxt
is lstm_deploy grep -Pzq 'top: "words"\n +top: "cont"' lstm/deploy.prototxt
runs lstm_learns 0 'perplexity' "$CORTADO" train --solver=lstm/solver.prototxt --run=words_run --iterations=3
runs lstm_test 0 '^perplexity' "$CORTADO" test --run=words_run --report=words_run/report.json
is lstm_report grep -q '"perplexity":' words_run/report.json
runs lstm_page 0 '' "$CORTADO" report words_run --to=words.html
is lstm_words grep -q '<th>words</th>' words.html
is lstm_no_bits sh -c '! grep -q bits_per_byte words_run/report.json'
runs bytes 0 '' "$CORTADO" new --from=./small --data=raw --to=bytes --tokenizer=bytes
is bytes_rows grep -q 'vocabulary: 256' bytes/train_val.prototxt
is no_tests sh -c '! grep -qE "test_iter|test_interval" bytes/solver.prototxt; [ ! -e bytes/deploy.prototxt ]'
# weights: of the same vocabulary they go on, of another one the table and the scores start anew
runs same_table 0 '' "$CORTADO" new --from=./small --data=set --to=same --weights=$weights
is kept_names sh -c '! grep -q _new same/train_val.prototxt'
runs goes_on 0 'Optimization Done' "$CORTADO" train --solver=same/solver.prototxt --run=run3 --iterations=1
runs other_table 0 "has a table of $ids rows, and the set 256 tokens" "$CORTADO" new --from=./small --data=raw --to=other --tokenizer=bytes --weights=$weights
is new_names [ "$(grep -c 'name: "wte_new"\|name: "head_new"' other/train_val.prototxt)" = 4 ]
runs starts_anew 0 'Optimization Done' "$CORTADO" train --solver=other/solver.prototxt --run=run4 --iterations=1
# a net that goes on with bytes of value 0
mkdir zeros
python3 -c "print(4000 * 'a\0\0\0', end='')" | tee zeros/valid.bin >zeros/train.bin # a and 0 by turns, of 16 bits
runs zeros 0 '' "$CORTADO" new --from=./small --data=zeros --to=nul --tokenizer=bytes
runs zeros_learns 0 'Optimization Done' "$CORTADO" train --solver=nul/solver.prototxt --run=nul_run
for f in table csv json; do
    "$CORTADO" predict --run=nul_run --tokenizer=bytes --max_tokens=3 --prompt=a --format=$f >nul.$f 2>out
done
is zeros_are_kept python3 -c "
import json
assert b'\0' in open('nul.table', 'rb').read()
made = open('nul.csv', 'rb').read().split(b'\n', 1)[1]
assert made == b',\0a\0\n', made
c, = json.load(open('nul.json'))['continuations']
assert c['text'] == '\0a\0' and c['tokens'] == 3, c
"

# ---- what is wrong
new="$CORTADO new --data=set --to=bad"
runs tokens_for_words 2 'data=set: a set of tokens, and the net reads words' $new --from=lstm
runs tokens_for_pictures 2 'data=set: a set of tokens, and the net reads pictures' $new --from=resnet50
runs words_for_tokens 2 'data=words: a set of words, and the net reads tokens' "$CORTADO" new --from=gpt_char --data=words --to=bad
runs near_model 2 'from=gpt_chr: no such model; did you mean "gpt_char"' $new --from=gpt_chr
cp -r small/ mixed && sed -i 's/token_data_param {.*} }$/text_data_param { } }/' mixed/train_val.prototxt
runs other_fields 2 'layer "data": no token_data_param' $new --from=./mixed
runs hidden 2 'hides tokens \(mask_ratio\)' $new --from=bert_mini
runs no_set 3 'data=book: no train.bin in it; expected a folder that cortado convert text --tokenizer=FILE made' "$CORTADO" new --from=gpt_char --data=book --to=bad
runs no_tokenizer 2 'data=raw: no tokenizer.json in it; give what made the tokens by --tokenizer' "$CORTADO" new --from=gpt_char --data=raw --to=bad
runs absent_tokenizer 3 'tokenizer=nowhere: No such file' $new --from=gpt_char --tokenizer=nowhere
head -c 200 set/train.bin >short.bin && mkdir short && mv short.bin short/train.bin && cp set/tokenizer.json short
runs too_short 2 'gpt_char does not fit the text of short' "$CORTADO" new --from=gpt_char --data=short --to=bad
is how_short grep -q 'has 100 tokens: too few for a window of 256' out
is nothing_left test ! -e bad
runs neither 2 'give --prompt=TEXT, or files of text behind the options, and there is neither' $predict
runs both 2 'not both' $predict --prompt=a war.txt
runs no_file 3 'nowhere.txt: No such file' $predict nowhere.txt
runs a_folder 2 'book: a folder; the net goes on with texts: give files of text' $predict book
printf 'a\0b' >nul.txt
runs a_nul 3 'nul.txt: has bytes of value 0' $predict nul.txt
: >empty.txt
runs no_text 2 'empty.txt has no token' $predict empty.txt
runs unknown 3 'no token for' $predict --prompt='QQ'
runs too_long 2 'max_length' $predict --prompt='The war' --max_tokens=100
runs bad_top_p 2 'top_p=2: a number from' $predict --prompt=a --top_p=2
runs no_run_tokenizer 2 'needs --tokenizer: the net takes tokens, and without --run' "$CORTADO" predict --model=work/deploy.prototxt --weights=$weights --prompt=a
sed 's/tokenizer: .*//' run/net.prototxt >net && mv net run/net.prototxt
runs names_none 2 'needs --tokenizer: the net takes tokens, and its TokenData in net.prototxt names no tokenizer' $predict --prompt=a
runs not_iterations 2 'leave out --iterations' "$CORTADO" test --run=run --report=x.json --iterations=3
finish
