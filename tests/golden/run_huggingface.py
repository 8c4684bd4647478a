#!/usr/bin/env python3
"""Small random models of transformers through Cortado's own file and back: the loaders miss nothing, find
nothing that they do not know, and logits and hidden states are the same bits.

  run_huggingface.py CORTADO DIR"""
import os
import subprocess
import sys

import torch
from transformers import (BertConfig, BertForMaskedLM, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM)

BERT = dict(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=16)
LLAMA = dict(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)


def models():
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=4,
                                             bos_token_id=0, eos_token_id=1))
    yield "llama", LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False))
    yield "llama_tied", LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True))
    yield "bert", BertForMaskedLM(BertConfig(**BERT))
    yield "bert_base", BertModel(BertConfig(**BERT))


def convert(cortado, source, to):
    subprocess.run([cortado, "convert", "model", f"--from={source}", f"--to={to}", "--force", "--log=error"], check=True)


def check(cortado, at, name, model, shard):
    theirs, back, own = f"{at}/{name}", f"{at}/{name}_back", f"{at}/{name}.safetensors"
    os.makedirs(back)
    model.eval()
    for p in model.parameters():
        p.data = torch.randn_like(p) * 0.3
    model.save_pretrained(theirs, max_shard_size=shard or "5GB")
    index = f"{theirs}/model.safetensors.index.json"
    if os.path.exists(index) == (shard is None):
        sys.exit(f"{name}: transformers wrote other files than asked for")
    convert(cortado, f"{theirs}/model.safetensors" if shard is None else index, own)
    convert(cortado, own, f"{back}/model.safetensors")
    loaded, info = type(model).from_pretrained(back, output_loading_info=True)
    tokens = torch.tensor([[1, 2, 3, 49, 5]])
    with torch.no_grad():
        same = torch.equal(model(tokens)[0], loaded.eval()(tokens)[0])
    odd = {k: v for k, v in info.items() if v}
    print(f"{'ok' if same and not odd else 'not ok'} {name}{'' if same else ': other values'}{odd or ''}")


def main():
    torch.manual_seed(25)
    for name, model in models():
        check(sys.argv[1], sys.argv[2], name, model, None)
        check(sys.argv[1], sys.argv[2], f"{name}_in_shards", model, "20KB")


if __name__ == "__main__":
    main()
