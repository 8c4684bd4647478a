# Tokenizers: ids as tokenizers, tiktoken and gguf give them; the forms of the command; what is refused.
. "$ROOT/tests/cli/lib.sh"
python=$("$ROOT/scripts/test_venv.sh" numpy tokenizers tiktoken gguf 2>venv.log) || {
    skip tokenizers "no virtual environment with tokenizers, tiktoken and gguf: $(grep -v '^ *$' venv.log | tail -n 1)"
    python=
}
if [ -n "$python" ]; then
    mkdir compare
    (cd compare && "$python" "$ROOT/tests/golden/run_tokenizers.py" "$CORTADO" "$ROOT/docs/data.md" "$ROOT/docs/gpu.md") || failed=1
fi

# MiniLM's tokens of Unicode lines of all kinds, as transformers made them; its vocabulary as far as they need it
if command -v python3 >/dev/null; then
    python3 "$ROOT/tests/golden/run_minilm_lines.py" "$CORTADO" --golden="$ROOT/tests/golden/minilm_lines.json" || failed=1
else
    skip minilm_golden "no python3"
fi

convert="$CORTADO convert"
tokens() { od -An -v -tu2 "$1" | tr -s ' \n' ' '; }

# bytes: any file comes back
head -c 5000 "$CORTADO" >any.txt
runs bytes 0 'any.bin: 5000 tokens of 16 bits for 5000 bytes of text, vocabulary of 256' $convert text --from=any.txt --to=any.bin --tokenizer=bytes
runs bytes_back 0 '5000 bytes of 5000 tokens' $convert tokens --from=any.bin --to=any.back --tokenizer=bytes
is bytes_same cmp any.txt any.back
runs not_replaced 2 'any.bin exists already' $convert text --from=any.txt --to=any.bin --tokenizer=bytes

# a trained tokenizer: byte for byte, whatever the text is, also with bytes that are no UTF-8
cat "$ROOT"/docs/data.md "$ROOT"/docs/gpu.md >corpus.txt
runs train 0 'tokenizer.json: the tokenizer' $convert text --from=corpus.txt --to=corpus.bin --train_bpe=700
cat any.txt corpus.txt >mixed.txt
runs trained 0 'vocabulary of 700' $convert text --from=mixed.txt --to=mixed.bin --tokenizer=tokenizer.json
runs trained_back 0 '' $convert tokens --from=mixed.bin --to=mixed.back --tokenizer=tokenizer.json
is trained_same cmp mixed.txt mixed.back
is trained_smaller [ "$(wc -c <corpus.bin)" -lt "$(wc -c <corpus.txt)" ]
# names of special tokens are text unless --special
printf 'a<|endoftext|>b' >name.txt
runs plain 0 '' $convert text --from=name.txt --to=plain.bin --tokenizer=tokenizer.json
runs special 0 'special.bin: 3 tokens' $convert text --from=name.txt --to=special.bin --tokenizer=tokenizer.json --special
is special_id [ "$(tokens special.bin)" = " 64 699 65 " ]
is plain_ids [ "$(wc -c <plain.bin)" -gt 10 ]
for f in plain special; do
    runs back_$f 0 '' $convert tokens --from=$f.bin --to=$f.back --tokenizer=tokenizer.json
    is same_$f cmp name.txt $f.back
done
runs few_pairs 0 'after 267 tokens no pair is left to merge' $convert text --from=name.txt --to=few.bin --train_bpe=400 --tokenizer=few.json

# characters, of a folder: one vocabulary for its parts
mkdir parts
printf 'abcé\n' >parts/my.train.txt
printf 'cabz\n' >parts/my.valid.txt
runs char 0 'valid.bin: 5 tokens of 16 bits for 5 bytes of text, vocabulary of 6' $convert text --from=parts --to=chars --tokenizer=char
is char_ids [ "$(tokens chars/train.bin)$(tokens chars/valid.bin)" = " 1 2 3 5 0  3 1 2 4 0 " ]
runs char_back 0 '' $convert tokens --from=chars/train.bin --to=char.txt --tokenizer=chars/tokenizer.json
is char_same cmp char.txt parts/my.train.txt
printf 'ab\nabq\n' >other.txt
runs unknown_char 3 'other.txt:2: chars/tokenizer.json has no token for the character U\+0071' $convert text --from=other.txt --to=other.bin --tokenizer=chars/tokenizer.json
mkdir none
runs no_text 3 'any.txt:1: byte 0x.. is no character of a text; --tokenizer=bytes' $convert text --from=any.txt --to=none/x.bin --tokenizer=char
is nothing_left [ -z "$(ls none)" ]

# llm.c's head
printf '\210\330\064\001\001\000\000\000\003\000\000\000' >llm.bin # 20240520, version 1, 3 tokens
head -c 1012 /dev/zero >>llm.bin
printf '\110\000\151\000\012\000' >>llm.bin
runs llm_c 0 'llm.txt: 3 bytes of 3 tokens' $convert tokens --from=llm.bin --to=llm.txt --tokenizer=bytes
is llm_c_text [ "$(cat llm.txt)" = "Hi" ]

# what is refused, in one line
refused() { # NAME EXIT-CODE PATTERN COMMAND...
    runs "$@"
    is "$1_line" [ "$(grep -c '^E' out)" = 1 ]
}
refused without_ranks 2 'does not say how texts are split: give --pattern=' sh -c "printf 'IQ== 0\n' >r; exec $convert text --from=other.txt --to=x.bin --tokenizer=r"
refused bad_pattern 2 '--pattern=o20k: expected gpt2, cl100k, o200k or llama3; did you mean "o200k"' $convert text --from=other.txt --to=x.bin --tokenizer=r --pattern=o20k
refused vain_pattern 2 'tokenizer.json says itself how texts are split' $convert text --from=other.txt --to=x.bin --tokenizer=tokenizer.json --pattern=gpt2
refused missing_byte 3 'r: byte 0x00 has no rank' $convert text --from=other.txt --to=x.bin --tokenizer=r --pattern=gpt2
refused no_ranks 3 'r:1: no token in base64, blank and rank; expected a tokenizer.json, a GGUF, or a file of ranks$' sh -c "echo layer >r; exec $convert text --from=other.txt --to=x.bin --tokenizer=r --pattern=gpt2"
refused rank_line 3 'r:2: no token in base64, blank and rank' sh -c "printf 'IQ== 0\nI 1\n' >r; exec $convert text --from=other.txt --to=x.bin --tokenizer=r --pattern=gpt2"
refused rank_twice 3 'r:2: rank 0 is there twice' sh -c "printf 'IQ== 0\nIg== 0\n' >r; exec $convert text --from=other.txt --to=x.bin --tokenizer=r --pattern=gpt2"
refused json_line 3 'j.json:3: ' sh -c "printf '{\n \"a\": 1,\n oops }' >j.json; exec $convert text --from=other.txt --to=x.bin --tokenizer=j.json"
refused regex 3 'j.json: pre_tokenizer splits by "\\w\+", which is none of the known patterns' sh -c "sed 's/\"pre_tokenizer\":.*/\"pre_tokenizer\": { \"type\": \"Split\", \"pattern\": { \"Regex\": \"\\\\\\\\w+\" }, \"behavior\": \"Isolated\" },/' tokenizer.json >j.json; exec $convert text --from=other.txt --to=x.bin --tokenizer=j.json"
refused unigram 3 'j.json: model Unigram is not known' sh -c "sed 's/\"BPE\"/\"Unigram\"/' tokenizer.json >j.json; exec $convert text --from=other.txt --to=x.bin --tokenizer=j.json"
refused merge 3 'j.json: model.merges\[0\] joins "q" and "q": what comes out is not in model.vocab' sh -c "sed '/\"merges\"/{n;s/\".*\"/\"q q\"/}' tokenizer.json >j.json; exec $convert text --from=other.txt --to=x.bin --tokenizer=j.json"
refused end_of_file 3 'cut.bin has 3 bytes: no whole number of tokens' sh -c "printf abc >cut.bin; exec $convert tokens --from=cut.bin --to=x.txt --tokenizer=bytes"
refused large_id 3 'special.bin: token 1 is 699; bytes has ids below 256' $convert tokens --from=special.bin --to=x.txt --tokenizer=bytes
refused both 2 'words is for words' $convert text --from=other.txt --to=x.bin --tokenizer=bytes --words=5
refused alone 2 'special goes with --tokenizer' $convert text --from=other.txt --to=x.bin --special
refused small 2 'a byte-level vocabulary of 100: expected 257' $convert text --from=other.txt --to=x.bin --train_bpe=100 --tokenizer=small.json
refused char_alone 2 'tokenizer.json that convert text wrote; name that' $convert tokens --from=special.bin --to=x.txt --tokenizer=char
refused no_file 3 'none.json' $convert text --from=other.txt --to=x.bin --tokenizer=none.json
is nothing_written [ -z "$(ls x.* 2>/dev/null)" ]
finish
