# Text: convert, a tiny LSTM, resuming, ranks, what is refused.
. "$ROOT/tests/cli/lib.sh"
mkdir text
# every word tells its successor: w_i is followed by w_(3i+1 mod 29), with a few exceptions
make_text() { # LINES SEED
    awk -v n="$1" -v s="$2" 'BEGIN { srand(s); for (i = 0; i < n; i++) { w = int(rand() * 29); for (k = 0; k < 9; k++) {
        printf "w%d%s", w, (k < 8) ? " " : "\n"; w = (rand() < 0.05) ? int(rand() * 29) : (3 * w + 1) % 29 } } }'
}
make_text 600 1 >text/my.train.txt
make_text 80 2 >text/my.valid.txt
echo "w1 w2 neverseen" >text/my.test.txt
cat >net.prototxt <<'EOF'
name: "TinyWords"
layer { name: "text" type: "TextData" top: "words" top: "cont" top: "next" include { phase: TRAIN }
  text_data_param { source: "data/train.h5" batch_size: 6 steps: 7 } }
layer { name: "text" type: "TextData" top: "words" top: "cont" top: "next" include { phase: TEST }
  text_data_param { source: "data/valid.h5" batch_size: 6 steps: 7 } }
layer { name: "embed" type: "Embed" bottom: "words" top: "embed"
  embed_param { input_dim: 30 num_output: 12 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "drop" type: "Dropout" bottom: "embed" top: "embed" dropout_param { dropout_ratio: 0.1 } }
layer { name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "rnn" type: "RNN" bottom: "lstm" bottom: "cont" top: "rnn"
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "score" type: "InnerProduct" bottom: "rnn" top: "score"
  inner_product_param { num_output: 30 axis: 2 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss" softmax_param { axis: 2 } }
layer { name: "right" type: "Accuracy" bottom: "score" bottom: "next" top: "right" accuracy_param { axis: 2 } include { phase: TEST } }
EOF
cat >solver.prototxt <<'EOF'
net: "net.prototxt"
test_iter: 5
test_interval: 50
base_lr: 0.3
momentum: 0.9
lr_policy: "fixed"
max_iter: 400
display: 1
snapshot: 0
snapshot_prefix: "s"
random_seed: 5
clip_gradients: 0.3
EOF

runs no_unknown 3 'my.test.txt:1: "neverseen" is not in the vocabulary, which has no <unk>' \
    "$CORTADO" convert text --from=text --to=data
echo "w1 w2" >text/my.test.txt
runs convert 0 'data/valid.h5: 800 words, 0 of them unknown, vocabulary of 30' "$CORTADO" convert text --from=text --to=data --force
is vocabulary [ "$(sort data/vocabulary.txt | head -1) $(wc -l <data/vocabulary.txt)" = "<eos> 30" ]
runs twice 2 'data/train.h5' "$CORTADO" convert text --from=text --to=data
runs fewer_words 0 'vocabulary of 9' "$CORTADO" convert text --from=text/my.train.txt --to=few.h5 --words=9
runs reuse 0 'one.h5: 10 words, 10 of them|one.h5: 3 words, 0 of them unknown, vocabulary of 30' \
    "$CORTADO" convert text --from=text/my.test.txt --to=one.h5 --vocabulary=data/train.h5
printf 'the sea\nend' >other.txt
runs unknown 0 'other.h5: 5 words, 3 of them unknown, vocabulary of 9' \
    "$CORTADO" convert text --from=other.txt --to=other.h5 --vocabulary=few.h5
printf 'a\nb b\n' >bad.txt
runs bad_vocabulary 3 'bad.txt:2: a space in' "$CORTADO" convert text --from=other.txt --to=x.h5 --vocabulary=bad.txt
printf 'a\n<eos>\na\n' >bad.txt
runs double_word 3 'bad.txt:3: "a" is there twice' "$CORTADO" convert text --from=other.txt --to=x.h5 --vocabulary=bad.txt
printf 'a\nb\n' >bad.txt
runs no_end 3 'bad.txt: no <eos>' "$CORTADO" convert text --from=other.txt --to=x.h5 --vocabulary=bad.txt
runs both 2 'vocabulary is given, or made' "$CORTADO" convert text --from=other.txt --to=x.h5 --vocabulary=bad.txt --words=3
runs no_text 3 'no text \*train\*.txt' "$CORTADO" convert text --from=data --to=x
printf 'a\0b\n' >bad.txt
runs no_bytes 3 'bad.txt is not a text' "$CORTADO" convert text --from=bad.txt --to=x.h5
is nothing_left [ ! -e x.h5 ]

train="$CORTADO train --solver=solver.prototxt"
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
runs train 0 'Test net perplexity: ' $train --metrics=whole.jsonl
cp out out_train
# 5 % are surprises; a model of word frequencies alone would be right 1 time in 10
is learns awk -v p="$(sed -n 's/.*"right":\([0-9.]*\).*/\1/p' whole.jsonl | tail -1)" 'BEGIN { exit !(p > 0.6) }'
is perplexity awk -v l="$(sed -n 's/.*"loss":\([0-9.]*\),"right".*"perplexity":\([0-9.]*\).*/\1 \2/p' whole.jsonl | tail -1)" \
    'BEGIN { split(l, v, " "); exit !(v[2] / exp(v[1]) > 0.999999 && v[2] / exp(v[1]) < 1.000001) }'
runs tests 0 'perplexity = ' "$CORTADO" test --model=net.prototxt --weights="$(ls *_iter_*.caffemodel.h5 | tail -1)" --iterations=5
is perplexity_of_test awk '/ loss = .* loss\)/ { l = $(NF - 1) } / perplexity = / { p = $(NF - 1) } END { exit !(l > 0 && p / exp(l) > 0.9999 && p / exp(l) < 1.0001) }' out

# 6 columns of 7 words are 42 tokens; the solver says how many tokens make a step
is tokens_told grep -Eq 'Iteration 5, tokens/s = [0-9.]+' out_train
is tokens_of_a_step grep -q 'a step has 42 tokens: iter_size 1, 6 samples of 7' out_train
is tokens_in_metrics awk '/"event":"train"/ { match($0, /"images_per_s":[^,]*/); i = substr($0, RSTART + 15, RLENGTH - 15); match($0, /"tokens_per_s":[^,]*/); t = substr($0, RSTART + 15, RLENGTH - 15); n++; if (!(t / i > 6.9999 && t / i < 7.0001)) bad = 1 } END { exit bad || n < 400 }' whole.jsonl
is tokens_in_run grep -q '"event":"run".*"step_tokens":42' whole.jsonl
few="--iterations=6 --metrics=few.jsonl --overwrite --set=test_interval=100"
runs batches 0 'a step has 84 tokens: iter_size 2, 6 samples of 7' $train $few --set=iter_size=2 --set=clip_gradients=0.6 --set=snapshot_prefix=by
by=$(grep 'weights after iteration 6' out | sed 's/.*checksum//')
runs tokens 0 'a step has 84 tokens: iter_size 2, 6 samples of 7' $train $few --set=batch_tokens=84 --set=snapshot_prefix=bt
is tokens_are_batches [ -n "$by" ] && is tokens_same [ "$(grep 'weights after iteration 6' out | sed 's/.*checksum//')" = "$by" ]
runs tokens_on_2 0 'a step has 168 tokens: iter_size 2, 12 samples of 7' $JOB 2 $train $few --set=batch_tokens=168 --set=snapshot_prefix=b2
sed 's/max_iter: 400/max_iter: 6\nbatch_tokens: 100/' solver.prototxt >uneven.prototxt
runs tokens_uneven 2 'uneven.prototxt:8:1: batch_tokens is 100, but a batch of 6 samples on all ranks has 42 tokens: take a multiple of that, such as 84' \
    "$CORTADO" train --solver=uneven.prototxt --set=snapshot_prefix=un
runs tokens_uneven_checked 2 'uneven.prototxt:8:1: batch_tokens is 100' "$CORTADO" check --solver=uneven.prototxt
runs tokens_checked 0 'tokens +84 a step, iter_size 2' "$CORTADO" check --solver=solver.prototxt --set=batch_tokens=84
runs tokens_twice 2 'both say how many batches make a step' $train $few --set=batch_tokens=84 --set=iter_size=2
runs tokens_timed 0 '[0-9.]+ images/s \(batch 6\), [0-9.]+ tokens/s' "$CORTADO" time --solver=solver.prototxt --iterations=3 --limits=false --set=batch_tokens=84 --json=time.json
is tokens_timed_json awk 'BEGIN { RS = "," } /"images_per_s":/ { sub(/.*:/, ""); i = $0 } /"tokens_per_s":/ { sub(/.*:/, ""); t = $0 } END { exit !(t / i > 6.9999 && t / i < 7.0001) }' time.json

# a test does not disturb the state of training, nor does another number of tests
losses whole.jsonl >whole
runs other_tests 0 'Optimization Done' $train --metrics=tests.jsonl --set=test_interval=17 --iterations=120
is same_losses sh -c 'head -120 whole >a; sed -n "s/.*\"event\":\"train\",\"iter\":\([0-9]*\),\"loss\":\([^,]*\),.*/\1 \2/p" tests.jsonl | head -120 | cmp a -'

# resumed exactly, in the middle of an epoch (142 steps) and of a second one
for at in 60 200; do
    runs stop_$at 0 'Optimization Done' $train --iterations=$at --set=snapshot_prefix=p$at
    runs resume_$at 0 'Optimization Done' $train --snapshot=p${at}_iter_$at.solverstate.h5 --metrics=r$at.jsonl --set=snapshot_prefix=q$at
    losses r$at.jsonl >part
    tail -n +$((at + 1)) whole | cmp -s - part && ok exact_$at || not_ok exact_$at "$(tail -n +$((at + 1)) whole | diff - part | head -3)"
done

# a net that carries one array alone
sed '/name: "lstm"/,/recurrent_param/d; s/bottom: "lstm"/bottom: "embed"/' net.prototxt >one.prototxt
one="$train --set=net=one.prototxt --iterations=20"
runs one_whole 0 'Optimization Done' $one --metrics=one.jsonl --set=snapshot_prefix=one --set=snapshot=10
runs one_resume 0 'Optimization Done' $one --metrics=one_part.jsonl --set=snapshot_prefix=one_part --snapshot=one_iter_10.solverstate.h5
losses one.jsonl | tail -10 >one_whole
losses one_part.jsonl >part
cmp -s one_whole part && ok exact_one || not_ok exact_one "$(diff one_whole part | head -3)"

# ranks take columns: equal losses up to rounding, also where a job goes on with another number
close() { paste -d' ' "$1" "$2" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4 * $2) bad = 1; n++ } END { exit bad || n < 20 }'; }
head -60 whole >first
for n in 2 4; do
    runs ranks_$n 0 'Optimization Done' $JOB $n $train --global_batch_size=6 --iterations=60 --metrics=m$n.jsonl --set=snapshot_prefix=k$n
    losses m$n.jsonl | head -60 >l
    close first l && ok losses_of_$n || not_ok losses_of_$n "$(paste -d' ' first l | tail -3)"
done
head -100 whole | tail -40 >then
runs from_4_to_3 0 'written by 4 ranks' $JOB 3 $train --global_batch_size=6 --iterations=100 --snapshot=k4_iter_60.solverstate.h5 --metrics=m3.jsonl
losses m3.jsonl | head -40 >l
close then l && ok losses_4_to_3 || not_ok losses_4_to_3 "$(paste -d' ' then l | tail -3)"
runs other_columns 0 'is of 6 columns, there are 8 now' $train --iterations=62 --set=batch_size=8 --snapshot=k4_iter_60.solverstate.h5

runs too_few_words 2 'too few for 6 columns of 900 steps' $train '--set=layer[text].text_data_param.steps=900'
runs not_words 3 'no 32-bit `words` and `vocabulary`' $train '--set=layer[text].text_data_param.source=p60_iter_60.caffemodel.h5'
runs small_input_dim 3 'is [0-9]*, not a whole number in 0..19' $train '--set=layer[embed].embed_param.input_dim=20'
finish
