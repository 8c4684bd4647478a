# Weights in .safetensors and GGUF, of the packages that others write and read them with.
. "$ROOT/tests/cli/lib.sh"
golden="$ROOT/tests/golden/caffe"
cp "$golden"/adam_iter_8.caffemodel .
python=$("$ROOT/scripts/test_venv.sh" numpy safetensors gguf 2>venv.log) || {
    skip tensors "no virtual environment with safetensors and gguf: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
theirs() { # NAME VERB ARGUMENT...
    name=$1
    shift
    runs "$name" 0 '' "$python" "$ROOT/tests/golden/run_tensors.py" "$@"
}
convert() { # NAME PATTERN FROM TO OPTION...
    name=$1 pattern=$2 from=$3 to=$4
    shift 4
    runs "$name" 0 "$pattern" "$CORTADO" convert model --from="$from" --to="$to" "$@"
}
theirs made write w

# ours, in the package's hands and back
convert own 'wrote own.safetensors' adam_iter_8.caffemodel own.safetensors
convert own_npz '' adam_iter_8.caffemodel own.npz
theirs they_read_ours same own.npz own.safetensors
convert own_back '' own.safetensors back.npz
is same_values cmp own.npz back.npz

# theirs, under our names, each value as the package has it
read_theirs() { # FILE EXPECTED PATTERN
    at=$(echo "$1" | tr ./ __)
    convert "$at" "$3" "w/$1" "$at.npz"
    theirs "${at}_values" same "w/$2.expected.npz" "$at.npz"
}
read_theirs gpt2.safetensors gpt2 "names of Hugging Face's GPT-2: 28 tensors are 16 layers"
read_theirs gpt2_prefix.safetensors gpt2 ''
read_theirs gpt2_f16.safetensors gpt2_f16 ''
read_theirs gpt2_f64.safetensors gpt2 ''
read_theirs llama.safetensors llama "Hugging Face's Llama: 21 tensors are 15 layers"
read_theirs llama.safetensors.index.json llama_shards ''
read_theirs bert.safetensors bert "Hugging Face's BERT"
read_theirs bert_ids.safetensors bert ""
for kind in f32 f16 bf16 q8_0 q4_0 q4_1; do read_theirs llama_$kind.gguf llama_$kind "names of ggml's Llama"; done
read_theirs gpt2_q8_0.gguf gpt2_q8_0 "names of ggml's GPT-2"
read_theirs bert_f16.gguf bert_f16 "names of ggml's BERT"

# and back under theirs
mkdir gpt2 llama bert gguf again
convert to_gpt2 "no config.json for gpt2/model.safetensors" gpt2_safetensors.npz gpt2/model.safetensors
theirs gpt2_is_theirs like w/gpt2_prefix.safetensors gpt2/model.safetensors
convert to_llama '' llama_safetensors.npz llama/model.safetensors
theirs llama_is_theirs like w/llama.safetensors llama/model.safetensors
convert to_bert '' bert_safetensors.npz bert/model.safetensors
theirs bert_is_theirs like w/bert.safetensors bert/model.safetensors
convert to_llama_of_gguf 'wrote gguf/config.json' w/llama_f32.gguf gguf/model.safetensors
theirs llama_of_gguf_is_theirs like w/llama_f32.safetensors gguf/model.safetensors
"$python" - >facts <<'END'
import json
c = json.load(open("gguf/config.json"))
want = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 17, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "max_position_embeddings": 12,
        "tie_word_embeddings": False, "torch_dtype": "float32", "hidden_act": "silu"}
print("same" if c == want else {k: (c.get(k), want.get(k)) for k in c.keys() | want.keys() if c.get(k) != want.get(k)})
END
is config_of_gguf grep -qx same facts
# what a GGUF said goes with our own file, too
convert own_of_gguf '' w/llama_f32.gguf keeps.safetensors
convert theirs_of_own '' keeps.safetensors again/model.safetensors
is same_file cmp gguf/model.safetensors again/model.safetensors
is same_config cmp gguf/config.json again/config.json
rm gguf/model.safetensors
runs config_kept 2 'gguf/config.json exists already; --force' \
    "$CORTADO" convert model --from=w/llama_f32.gguf --to=gguf/model.safetensors
is nothing_written test ! -e gguf/model.safetensors
convert other_model 'no GPT-2, Llama or BERT by the names' own.npz model.safetensors
theirs other_model_ours same own.npz model.safetensors

# what a net's layers say stands over what the source said
cat >net.prototxt <<'END'
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 } } }
layer { name: "wte" type: "Embed" bottom: "data" top: "x"
  embed_param { input_dim: 17 num_output: 64 bias_term: false } }
layer { name: "h0_ln1" type: "LayerNorm" bottom: "x" top: "n" layer_norm_param { eps: 0.001 } }
layer { name: "gelu" type: "GELU" bottom: "n" top: "g" gelu_param { approximate: TANH } }
END
mkdir facts_of_net
runs facts_of_net 0 'the net has no layer "h1_proj"; it is written as it is' "$CORTADO" convert model \
    --from=w/gpt2_q8_0.gguf --to=facts_of_net/model.safetensors --net=net.prototxt
for fact in '"layer_norm_epsilon": 0.001,' '"activation_function": "gelu_new",' '"n_head": 4,' \
    '"model_type": "gpt2",' '"tie_word_embeddings": true,'; do
    is "fact_$(echo "$fact" | cut -d'"' -f2)" grep -qF "$fact" facts_of_net/config.json
done
# a tied head with a bias of its own: our files have the bias alone
cat >tied.prototxt <<'END'
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 } } }
layer { name: "wte" type: "Embed" bottom: "data" top: "x" param { name: "table" }
  embed_param { input_dim: 17 num_output: 64 bias_term: false } }
layer { name: "head" type: "InnerProduct" bottom: "x" top: "head" param { name: "table" }
  inner_product_param { num_output: 17 } }
END
convert tied_head 'wrote tied.h5' bert_safetensors.npz tied.h5 --net=tied.prototxt
sed 's/num_output: 64/num_output: 65/' net.prototxt >wide.prototxt
runs other_width 2 'blob 0 of layer "wte" has shape 17 64 .1088. in the file, 17 65' "$CORTADO" convert model \
    --from=w/gpt2_q8_0.gguf --to=x.npz --net=wide.prototxt

# errors
runs other_type 3 'token_embd.weight is of type Q5_0, which weights cannot be read from' \
    "$CORTADO" convert model --from=w/q5.gguf
runs gguf_is_read 2 'the end of the name' "$CORTADO" convert model --from=own.npz --to=a.gguf
runs part_of_gguf 3 'w/part.gguf: one of 2 parts of a model' "$CORTADO" convert model --from=w/part.gguf
head -c 3000 w/llama_q4_1.gguf >cut.gguf
runs cut_gguf 3 'cut.gguf' "$CORTADO" convert model --from=cut.gguf
head -c 60000 w/llama-a.safetensors >w/cut.safetensors
runs cut_tensors 3 'of which the file has' "$CORTADO" convert model --from=w/cut.safetensors
sed 's/llama-a/none/' w/llama.safetensors.index.json >w/none.index.json
runs no_shard 3 'w/none.safetensors' "$CORTADO" convert model --from=w/none.index.json
sed 's/llama-a/..\/w\/llama-a/' w/llama.safetensors.index.json >w/out.index.json
runs shard_elsewhere 3 'no file beside it' "$CORTADO" convert model --from=w/out.index.json
mkfifo w/pipe
sed 's/llama-a.safetensors/pipe/' w/llama.safetensors.index.json >w/pipe.index.json
runs shard_is_a_pipe 3 'w/pipe: not a regular file' "$CORTADO" convert model --from=w/pipe.index.json
finish
