#!/usr/bin/env python3
"""Writes what run_transformers.py checks: weights of small models of transformers, and their loss, gradients, logits
and embeddings in double, each with the largest error of the same in f32.

  make_transformers_golden.py DIR [SCALE [SEED]]     SCALE 1: the files of tests/golden/transformers"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

sys.dont_write_bytecode = True
from run_transformers import sizes  # noqa: E402


def models(s):
    shared = dict(vocab_size=s["tokens"], hidden_size=s["width"], num_hidden_layers=s["blocks"],
                  num_attention_heads=s["heads"], max_position_embeddings=s["seq_len"])
    none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=s["tokens"], n_positions=s["seq_len"], n_embd=s["width"],
                                             n_layer=s["blocks"], n_head=s["heads"], bos_token_id=0, eos_token_id=1))
    yield "llama", LlamaForCausalLM(LlamaConfig(**shared, intermediate_size=3 * s["width"], num_key_value_heads=2,
                                                rms_norm_eps=1e-5, tie_word_embeddings=True,
                                                rope_parameters={"rope_type": "default", "rope_theta": 100000.0}))
    yield "bert", BertForMaskedLM(BertConfig(**shared, **none, intermediate_size=4 * s["width"], layer_norm_eps=1e-12,
                                             pad_token_id=None))


def draw(model, generator):
    """f32 values; scales of norms about 1."""
    for name, p in model.named_parameters():
        value = torch.randn(p.shape, generator=generator) * 0.3
        p.data = value + 1 if "norm" in name.lower().replace("ln_", "norm") and name.endswith("weight") else value


def masked(tokens, generator):
    """Labels of a few tokens; -1: not asked for."""
    asked = torch.rand(tokens.shape, generator=generator) < 0.3
    asked[0, 0] = True
    return torch.where(asked, tokens, -1)


def values(name, model, tokens, following, mask, types):
    """Everything that is compared, in the model's precision."""
    model.zero_grad()
    logits = model(tokens).logits
    loss = F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=-1)
    loss.backward()
    found = {"loss": loss}
    found |= {"gradient." + k: p.grad for k, p in model.named_parameters() if p.grad is not None}
    if name != "bert":
        return found | {"logits": logits}
    hidden = model.bert(tokens, attention_mask=mask, token_type_ids=types).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return found | {"embedding": F.normalize(mean, dim=1)}


def main():
    to, scale = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    generator = torch.Generator().manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 25)
    s = sizes(scale)
    for name, model in models(s):
        model.eval()
        draw(model, generator)
        stream = torch.randint(0, s["tokens"], (s["batch"], s["seq_len"] + 1), generator=generator)
        tokens, following = stream[:, :-1], stream[:, 1:]
        lengths = torch.arange(s["batch"]) * 2 + 3
        mask = (torch.arange(s["seq_len"])[None] < lengths[:, None]).long()
        types = (torch.arange(s["seq_len"])[None] > 1).long().expand(s["batch"], -1)
        if name == "bert":
            following = masked(tokens, generator)
        state = {k: v.detach().clone().contiguous() for k, v in model.named_parameters()}
        save_file(state, f"{to}/{name}.safetensors", metadata={"format": "pt"})
        rough = {k: v.detach().double() for k, v in values(name, model, tokens, following, mask, types).items()}
        exact = {k: v.detach() for k, v in values(name, model.double(), tokens, following, mask, types).items()}
        case = {"tokens": tokens, "next": following, "mask": mask, "types": types}
        arrays = {k: v.numpy().astype(np.int32) for k, v in case.items()}
        arrays["scale"] = np.array(scale)
        arrays["inputs"] = np.array(["tokens", "types", "mask"] if name == "bert" else ["tokens"])
        for k, v in exact.items():
            arrays[k] = v.numpy()
            size = float(v.abs().max())
            arrays["error_" + k] = np.array(max(float((rough[k] - v).abs().max()), size * 2.0 ** -23))
        np.savez_compressed(f"{to}/{name}.npz", **arrays)


if __name__ == "__main__":
    main()
