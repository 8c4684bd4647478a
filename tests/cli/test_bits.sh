# Bits per byte: of a net that guesses, known by its classes; of the targets' text; ranks; what is refused.
. "$ROOT/tests/cli/lib.sh"
cat "$ROOT/docs/glossary.md" "$ROOT/docs/data.md" >corpus.txt
runs convert 0 'vocabulary of 300' "$CORTADO" convert text --from=corpus.txt --to=text.bin --train_bpe=300
runs convert_bytes 0 '' "$CORTADO" convert text --from=corpus.txt --to=bytes.bin --tokenizer=bytes
# weights of 0: each of 512 classes has the same probability, 9 bits a token
net() { # FILE SOURCE MORE: 6 windows of 50 tokens a batch
    cat >"$1" <<END
layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "$2" batch_size: 6 seq_len: 50 vocabulary: 512 $3 } }
layer { name: "embed" type: "Embed" bottom: "tokens" top: "embed" embed_param { input_dim: 512 num_output: 4 } }
layer { name: "score" type: "InnerProduct" bottom: "embed" top: "score" inner_product_param { num_output: 512 axis: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss" softmax_param { axis: 2 } $4 }
END
}
solver() { # NET
    cat >solver.prototxt <<END
net: "$1" test_iter: 8 test_interval: 1 base_lr: 0 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "s" display: 1
END
}
net bpe.prototxt text.bin 'tokenizer: "tokenizer.json"' ''
solver bpe.prototxt
runs train 0 'Test net bits_per_byte: ' "$CORTADO" train --solver=solver.prototxt --metrics=train.jsonl
weights=s_iter_1.caffemodel.h5
# 8 batches: 48 windows of 50; the targets are tokens 1 to 2400
tail -c +3 text.bin | head -c 4800 >targets.bin
runs targets 0 ' of 2400 tokens' "$CORTADO" convert tokens --from=targets.bin --to=targets.txt --tokenizer=tokenizer.json
bytes=$(wc -c <targets.txt)
# the figure has 6 digits
near() { # VALUE: 9 bits a token
    awk -v a="$1" -v b="$bytes" 'BEGIN { d = a / (9 * 2400 / b) - 1; exit !(a != "" && d < 1e-5 && d > -1e-5) }'
}
metric() { sed -n 's/.*"event":"test".*"bits_per_byte":\([0-9.]*\).*/\1/p' "$1" | tail -n 1; }
is longer_tokens [ "$bytes" -gt 2900 ]
is train_bits near "$(metric train.jsonl)"
runs test 0 'perplexity = 512 ' "$CORTADO" test --model=bpe.prototxt --weights=$weights --iterations=8 --metrics=test.jsonl
is test_bits near "$(sed -n 's/^bits_per_byte = //p' out | head -n 1)"
is test_metric near "$(metric test.jsonl)"
# the same batches on two ranks
runs ranks 0 '' $JOB 2 "$CORTADO" test --model=bpe.prototxt --weights=$weights --iterations=8 --set=batch_size=3
is ranks_bits near "$(sed -n 's/^bits_per_byte = //p' out | head -n 1)"
# a byte a token
net bytes.prototxt bytes.bin 'tokenizer: "bytes"' ''
runs bytes 0 '^bits_per_byte = 9$' "$CORTADO" test --model=bytes.prototxt --weights=$weights --iterations=2
# hidden tokens alone are asked for
net masks.prototxt bytes.bin 'tokenizer: "bytes" mask_ratio: 0.2 mask_token: 300' 'loss_param { ignore_label: -1 }'
runs masks 0 '^bits_per_byte = 9$' "$CORTADO" test --model=masks.prototxt --weights=$weights --iterations=2
net plain.prototxt text.bin '' ''
runs plain 0 'perplexity = 512 ' "$CORTADO" test --model=plain.prototxt --weights=$weights --iterations=8
is no_bits eval '! grep -q bits_per_byte out'

# a file of ranks: the bytes, in base64, in their order
awk 'BEGIN { d = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for (i = 0; i < 256; i++) print substr(d, int(i / 4) + 1, 1) substr(d, i % 4 * 16 + 1, 1) "== " i }' >ranks
net ranks.prototxt bytes.bin 'tokenizer: "ranks" pattern: "gpt2"' ''
runs ranks_file 0 '^bits_per_byte = 9$' "$CORTADO" test --model=ranks.prototxt --weights=$weights --iterations=2
net no_pattern.prototxt bytes.bin 'tokenizer: "ranks"' ''
runs no_pattern 2 'pattern' "$CORTADO" test --model=no_pattern.prototxt --weights=$weights --iterations=2
net alone.prototxt bytes.bin 'pattern: "gpt2"' ''
runs pattern_alone 2 'alone.prototxt:1: layer "data" .TokenData.: pattern is that of a tokenizer, which is not set' \
    "$CORTADO" test --model=alone.prototxt --weights=$weights --iterations=2
net absent.prototxt text.bin 'tokenizer: "absent.json"' ''
runs absent 3 'absent.json' "$CORTADO" test --model=absent.prototxt --weights=$weights --iterations=2
runs checks 0 '' "$CORTADO" check --model=absent.prototxt
runs bigger 0 '' "$CORTADO" convert text --from=corpus.txt --to=big.bin --train_bpe=600 --tokenizer=big.json
net big.prototxt text.bin 'tokenizer: "big.json"' ''
runs too_large 2 'tokenizer big.json has 600 ids, vocabulary is 512' "$CORTADO" test --model=big.prototxt --weights=$weights --iterations=2
# a token that the tokenizer does not have
net foreign.prototxt text.bin 'tokenizer: "bytes"' ''
runs foreign 3 'which bytes does not have' "$CORTADO" test --model=foreign.prototxt --weights=$weights --iterations=8
finish
