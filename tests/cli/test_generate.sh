# Texts that a net goes on with: what it learnt, drawing, the end, streaming, threads, what is refused; and
# the five commands of docs/language-models.md on a small text.
. "$ROOT/tests/cli/lib.sh"
gen="$CORTADO generate"

# net DATA-LAYER: a small transformer over 257 ids, behind that layer; the loss only where there are labels
net() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 257 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "n" type: "RMSNorm" bottom: "x" top: "n" }
  layer { name: "qkv" type: "InnerProduct" bottom: "n" top: "qkv"
    inner_product_param { num_output: 48 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn"
    attention_param { num_heads: 2 num_kv_heads: 1 causal: $2 rope { } } }
  layer { name: "proj" type: "InnerProduct" bottom: "attn" top: "proj"
    inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "proj" top: "x" }
}
layer { name: "head" type: "InnerProduct" bottom: "x" top: "head" param { name: "wte" }
  inner_product_param { num_output: 257 axis: 2 bias_term: false } }
END
}
input='layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 16 } } }'
net "$input" true >deploy.prototxt
# learn NAME: NAME.txt, whose tokens are NAME.bin, becomes NAME.caffemodel.h5
learn() {
    { net "layer { name: \"data\" type: \"TokenData\" top: \"tokens\" top: \"next\"
        token_data_param { source: \"$1.bin\" batch_size: 2 seq_len: 160 vocabulary: 257 } }" true
    echo 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }'; } >net.prototxt
    cat >solver.prototxt <<END
net: "net.prototxt" type: "Adam" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 momentum2: 0.99
max_iter: 150 display: 50 snapshot_prefix: "$1" random_seed: 4
END
    runs "learn_$1" 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
    mv "$1_iter_150.caffemodel.h5" "$1.caffemodel.h5"
}
# text NAME WANT-CODE OPTION...: standard output alone goes to NAME.out
text() {
    name=$1 want=$2
    shift 2
    timeout -k 5 120 $gen "$@" >"$name.out" 2>out </dev/null
    rc=$?
    if [ $rc = "$want" ]; then ok "$name"; else not_ok "$name" "exit code $rc instead of $want: $*"; fi
}
printed() { [ "$(cat "$1.out" && echo .)" = "$2." ]; }

# a text that repeats itself: bytes, with characters of 1, 2, 3 and 4 of them
i=0
while [ $i -lt 300 ]; do
    printf 'aé b€ c𝄞 d.'
    i=$((i + 1))
done >bytes.txt
runs convert 0 '' "$CORTADO" convert text --from=bytes.txt --to=bytes.bin --tokenizer=bytes
learn bytes
bytes="--model=deploy.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes"
text greedy 0 $bytes --prompt='aé b€' --max_tokens=19
is goes_on printed greedy ' c𝄞 d.aé b€ c'
is said grep -q 'Generated: 19 tokens' out
text default 0 $bytes --prompt='d.a'
is default_64 [ "$(wc -c <default.out)" = 64 ]
# a chunk of several passes
text long 0 $bytes --prompt="$(head -c 153 bytes.txt)" --max_tokens=8
is long_goes_on [ "$(cat long.out)" = "$(tail -c +154 bytes.txt | head -c 8)" ]
# cut within a character: the bytes there are
text cut 0 $bytes --prompt='d.a' --max_tokens=1
is cut_byte [ "$(od -An -tx1 cut.out | tr -d ' ')" = c3 ]
for t in 1 2 3; do
    OMP_NUM_THREADS=$t timeout -k 5 120 $gen $bytes --prompt='aé b€ c𝄞' --max_tokens=40 --temperature=1.5 --seed=3 >threads_$t.out 2>out
done
is threads_2 cmp threads_1.out threads_2.out
is threads_3 cmp threads_1.out threads_3.out

# drawing
draw="$bytes --prompt=d. --max_tokens=60"
text seed_1 0 $draw --temperature=2
text seed_1_again 0 $draw --temperature=2 --seed=1
text seed_2 0 $draw --temperature=2 --seed=2
text plain 0 $draw
is same_seed cmp seed_1.out seed_1_again.out
is other_seed eval '! cmp -s seed_1.out seed_2.out'
is differs eval '! cmp -s seed_1.out plain.out'
text top_p 0 $draw --temperature=2 --top_p=0.000001
is top_p_is_greedy cmp top_p.out plain.out
text cold 0 $draw --temperature=0.01
is cold_is_greedy cmp cold.out plain.out
# of 257 probable ids about half: no draw is of the others
text narrow 0 $draw --temperature=2 --top_p=0.5
is narrow_differs eval '! cmp -s narrow.out seed_1.out'

# the end token ends the text and is not printed
i=0
while [ $i -lt 400 ]; do
    printf 'ab<|endoftext|>'
    i=$((i + 1))
done >end.txt
runs train_bpe 0 '' "$CORTADO" convert text --from=end.txt --to=unused.bin --train_bpe=257
runs convert_end 0 '' "$CORTADO" convert text --from=end.txt --to=end.bin --tokenizer=tokenizer.json --special
learn end
text ends 0 --model=deploy.prototxt --weights=end.caffemodel.h5 --tokenizer=tokenizer.json --prompt=a --max_tokens=50
is end_text printed ends b
is end_said grep -q 'Generated: 1 tokens in .*, to the end token' out
text nothing 0 --model=deploy.prototxt --weights=end.caffemodel.h5 --tokenizer=tokenizer.json --prompt=ab
is end_at_once printed nothing ''

# tokens come while the net runs
: >stream.out
$gen $bytes --prompt=d. --max_tokens=400000 >stream.out 2>stream.log &
pid=$!
i=0
while [ $i -lt 300 ] && [ "$(wc -c <stream.out)" -lt 40 ]; do
    sleep 0.1
    i=$((i + 1))
done
is streams kill $pid
wait $pid 2>wait.log
is streamed [ "$(wc -c <stream.out)" -ge 40 ]
is no_log eval '! grep -q Prompt: stream.out'
[ ! -c /dev/full ] || runs full 3 'cannot write to standard output' sh -c "$gen $bytes --prompt=d. >/dev/full"

# what is refused
for o in model weights tokenizer prompt; do
    runs "needs_$o" 2 "cortado generate needs --$o" $gen $(for p in $bytes --prompt=a; do case $p in --$o=*) ;; *) echo "$p" ;; esac; done)
done
runs no_tokens 2 'max_tokens=0: expected 1 to 1000000' $gen $bytes --prompt=a --max_tokens=0
runs empty 2 'prompt: empty value' $gen $bytes --prompt=
for bad in temperature=-1 temperature=warm top_p=0 top_p=1.5; do
    runs "bad_$bad" 2 "^E.*--$bad: a number from" $gen $bytes --prompt=a "--$bad"
done
runs ranks 2 'runs on one rank, not on 2' $JOB 2 $gen $bytes --prompt=a
runs absent_weights 3 'absent.h5' $gen --model=deploy.prototxt --weights=absent.h5 --tokenizer=bytes --prompt=a
sed 's/count: 2/count: 3/' deploy.prototxt >deeper.prototxt
runs part_of_weights 3 'bytes.caffemodel.h5: no weight 0 of layer "h2_n"' \
    $gen --model=deeper.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=a
sed 's/name: "/&other_/; s/prefix: "/&other_/' deploy.prototxt >other.prototxt
runs other_weights 3 'none of its layers has the name of a layer of the net' \
    $gen --model=other.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=a
runs absent_tokenizer 3 'absent.json' $gen --model=deploy.prototxt --weights=bytes.caffemodel.h5 --tokenizer=absent.json --prompt=a
head -c 60000 "$ROOT/docs/data.md" >more.txt
runs more 0 '' "$CORTADO" convert text --from=more.txt --to=more.bin --train_bpe=300 --tokenizer=more.json
runs too_large 2 'deploy.prototxt:2: layer "wte" .Embed.: more.json has 300 ids, but embed_param.input_dim is 257' \
    $gen --model=deploy.prototxt --weights=bytes.caffemodel.h5 --tokenizer=more.json --prompt=a
sed 's/ param { name: "wte" }//; s/input_dim: 257/input_dim: 300/' deploy.prototxt >untied.prototxt
runs few_scores 2 'untied.prototxt:[0-9]*: layer "head" .InnerProduct.: more.json has 300 ids, but the net scores 257 tokens' \
    $gen --model=untied.prototxt --weights=bytes.caffemodel.h5 --tokenizer=more.json --prompt=a
net "$input" false >seeing.prototxt
runs not_causal 2 'seeing.prototxt:[0-9]*, copy 0: layer "h0_attn" .Attention.: without causal: true' \
    $gen --model=seeing.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=a
{ cat deploy.prototxt; echo 'layer { name: "prob" type: "Softmax" bottom: "head" top: "prob" softmax_param { axis: 1 } }'; } >mixes.prototxt
runs mixes 2 'mixes.prototxt:[0-9]*: layer "prob" .Softmax.: it mixes tokens, or may do so' \
    $gen --model=mixes.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=a
sed 's/"x" param { name: "wte" }/"w" param { name: "wte" }/' deploy.prototxt |
    sed 's/^repeat/layer { name: "wpe" type: "Position" bottom: "w" top: "x" position_param { max_length: 20 } }\n&/' >table.prototxt
runs beyond 2 'table.prototxt:[0-9]*: layer "wpe" .Position.: a sequence of 21 tokens, but position_param.max_length is 20' \
    $gen --model=table.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=ab --max_tokens=20
runs within 3 'no weight 0 of layer "wpe"' $gen --model=table.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=ab --max_tokens=19
runs train_net 2 'net.prototxt:[0-9]*: layer "data" .TokenData.: .*use the deploy net' \
    $gen --model=net.prototxt --weights=bytes.caffemodel.h5 --tokenizer=bytes --prompt=a

# docs/language-models.md, "From a text to a text": the same commands, with less to do
mkdir -p book models
cp -r "$ROOT/models/gpt_char" models/
head -c 12000 "$ROOT/docs/training.md" | tr -cd '\11\12\40-\176' >book/book.train.txt
tail -c 3000 "$ROOT/docs/data.md" | tr -cd '\12\40-\176' >book/book.valid.txt
sed -n '/^## From a text to a text/,/^## Gen/p' "$ROOT/docs/language-models.md" |
    sed -e :a -e '/\\$/N; s/\\\n *//; ta' | sed -n 's/^    cortado //p' >commands
is five_commands [ "$(wc -l <commands)" = 5 ]
n=0
while IFS= read -r line; do
    n=$((n + 1))
    case $line in
    train*) line="$line --iterations=6 --set=warmup.iterations=2 --set=test_iter=1 --set=batch_size=2 --set=layer[data].token_data_param.seq_len=32" ;;
    test*) line="$line --iterations=2 --set=batch_size=2" ;;
    esac
    line=$(echo "$line" | sed 's/iter_2000/iter_6/')
    # the shell takes quotes and patterns of the page as a user's does
    runs "command_$n" 0 '' sh -c "$CORTADO $line"
    [ "$n" != 4 ] || is bits grep -q '^bits_per_byte = ' out
done <commands
finish
