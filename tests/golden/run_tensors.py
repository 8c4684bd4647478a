#!/usr/bin/env python3
"""Weights of small language models as others write them, and what they should be under Cortado's names.

  run_tensors.py write DIR        models in DIR, with what is expected of NAME in NAME.expected.npz
  run_tensors.py same A.npz B     B holds the arrays of A, bit for bit (.npz or .safetensors)
  run_tensors.py like A B         B.safetensors holds the tensors of A.safetensors, whatever the order
  run_tensors.py corpus DIR       small files for the fuzzers

The files are written by the packages safetensors and gguf of PyPI, whose quantised values
gguf.quants.dequantize tells; names are those of transformers' models and of llama.cpp."""
import json
import os
import sys

import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

BLOCKS, VOCABULARY, WIDTH, POSITIONS = 2, 17, 64, 12
HEADS, KV_HEADS, INNER = 4, 2, 96
DIM = WIDTH // HEADS
rng = np.random.default_rng(25)


def values(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def linear(name, rows, columns, bias=True):
    found = {name + ".weight": values(rows, columns)}
    if bias:
        found[name + ".bias"] = values(rows)
    return found


def norm(name):
    return {name + ".weight": values(WIDTH), name + ".bias": values(WIDTH)}


def pair(theirs, name, ours, transposed=False):
    """Weight and, where there is one, bias of one layer."""
    weight = theirs[name + ".weight"]
    found = {ours + "/0": weight.T if transposed else weight}
    if name + ".bias" in theirs:
        found[ours + "/1"] = theirs[name + ".bias"]
    return found


def joined(theirs, names, ours):
    found = {ours + "/0": np.concatenate([theirs[n + ".weight"] for n in names])}
    if names[0] + ".bias" in theirs:
        found[ours + "/1"] = np.concatenate([theirs[n + ".bias"] for n in names])
    return found


def gpt2():
    t = {"wte.weight": values(VOCABULARY, WIDTH), "wpe.weight": values(POSITIONS, WIDTH), **norm("ln_f")}
    ours = {}
    for i in range(BLOCKS):
        h = f"h.{i}."
        t.update(norm(h + "ln_1") | norm(h + "ln_2"))
        for name, inputs, outputs, layer in (("attn.c_attn", WIDTH, 3 * WIDTH, "attn_qkv"),
                                             ("attn.c_proj", WIDTH, WIDTH, "attn_proj"),
                                             ("mlp.c_fc", WIDTH, INNER, "fc"), ("mlp.c_proj", INNER, WIDTH, "proj")):
            t[h + name + ".weight"] = values(inputs, outputs)  # Conv1D
            t[h + name + ".bias"] = values(outputs)
            ours |= pair(t, h + name, f"h{i}_{layer}", transposed=True)
        ours |= pair(t, h + "ln_1", f"h{i}_ln1") | pair(t, h + "ln_2", f"h{i}_ln2")
    for name in ("wte", "wpe", "ln_f"):
        ours |= pair(t, name, name)
    masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 4, 4), np.uint8)) for i in range(BLOCKS)}
    return t, ours, masks


def llama():
    t = {"model.embed_tokens.weight": values(VOCABULARY, WIDTH), "model.norm.weight": values(WIDTH),
         "lm_head.weight": values(VOCABULARY, WIDTH)}
    ours = {}
    for i in range(BLOCKS):
        h = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", WIDTH, WIDTH), ("self_attn.k_proj", KV_HEADS * DIM, WIDTH),
                                    ("self_attn.v_proj", KV_HEADS * DIM, WIDTH), ("self_attn.o_proj", WIDTH, WIDTH),
                                    ("mlp.gate_proj", INNER, WIDTH), ("mlp.up_proj", INNER, WIDTH),
                                    ("mlp.down_proj", WIDTH, INNER)):
            t |= linear(h + name, rows, columns, bias=False)
        t |= {h + n + ".weight": values(WIDTH) for n in ("input_layernorm", "post_attention_layernorm")}
        ours |= llama_block(t, h, i)
    ours |= pair(t, "model.embed_tokens", "wte") | pair(t, "model.norm", "norm_f") | pair(t, "lm_head", "head")
    return t, ours


def llama_block(t, h, i):
    return (joined(t, [h + f"self_attn.{p}_proj" for p in "qkv"], f"h{i}_qkv") |
            joined(t, [h + "mlp.gate_proj", h + "mlp.up_proj"], f"h{i}_gate_up") |
            pair(t, h + "self_attn.o_proj", f"h{i}_attn_proj") | pair(t, h + "mlp.down_proj", f"h{i}_down") |
            pair(t, h + "input_layernorm", f"h{i}_norm1") | pair(t, h + "post_attention_layernorm", f"h{i}_norm2"))


def bert():
    e = "bert.embeddings."
    t = {e + "word_embeddings.weight": values(VOCABULARY, WIDTH), e + "token_type_embeddings.weight": values(2, WIDTH),
         e + "position_embeddings.weight": values(POSITIONS, WIDTH), **norm(e + "LayerNorm"),
         "cls.predictions.bias": values(VOCABULARY), **norm("cls.predictions.transform.LayerNorm"),
         **linear("cls.predictions.transform.dense", WIDTH, WIDTH)}
    ours = {"head/1": t["cls.predictions.bias"], **pair(t, e + "word_embeddings", "wte"),
            **pair(t, e + "position_embeddings", "wpe"), **pair(t, e + "token_type_embeddings", "wtt"),
            **pair(t, e + "LayerNorm", "ln_emb"), **pair(t, "cls.predictions.transform.dense", "mlm_dense"),
            **pair(t, "cls.predictions.transform.LayerNorm", "mlm_ln")}
    for i in range(BLOCKS):
        h = f"bert.encoder.layer.{i}."
        for name, rows, columns in (("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH),
                                    ("attention.self.value", WIDTH, WIDTH), ("attention.output.dense", WIDTH, WIDTH),
                                    ("intermediate.dense", INNER, WIDTH), ("output.dense", WIDTH, INNER)):
            t |= linear(h + name, rows, columns)
        t |= norm(h + "attention.output.LayerNorm") | norm(h + "output.LayerNorm")
        ours |= joined(t, [h + f"attention.self.{p}" for p in ("query", "key", "value")], f"h{i}_qkv")
        for name, layer in (("attention.output.dense", "attn_proj"), ("attention.output.LayerNorm", "ln1"),
                            ("intermediate.dense", "fc"), ("output.dense", "proj"), ("output.LayerNorm", "ln2")):
            ours |= pair(t, h + name, f"h{i}_{layer}")
    return t, ours


def expect(at, ours):
    np.savez(at + ".expected.npz", **ours)


def to_bf16(x):
    """Rounded to even, as bytes."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def from_bf16(x):
    return (to_bf16(x).astype(np.uint32) << 16).view(np.float32)


def save_bf16(t, file):
    """NumPy has no bfloat16: its bytes are saved as uint16, and the header is told."""
    data = save({k: to_bf16(v) for k, v in t.items()})
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(b'"U16"', b'"BF16"').rstrip()
    header += b" " * (-len(header) % 8)
    with open(file, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header + data[end:])


def write_safetensors(to):
    t, ours, masks = gpt2()
    save_file(t | masks, f"{to}/gpt2.safetensors", {"format": "pt"})
    expect(f"{to}/gpt2", ours)
    save_file({"transformer." + k: v for k, v in t.items()}, f"{to}/gpt2_prefix.safetensors")
    save_file({k: v.astype(np.float16) for k, v in t.items()}, f"{to}/gpt2_f16.safetensors")
    expect(f"{to}/gpt2_f16", {k: v.astype(np.float16).astype(np.float32) for k, v in ours.items()})
    save_file({k: v.astype(np.float64) for k, v in t.items()}, f"{to}/gpt2_f64.safetensors")
    t, ours = llama()
    save_file(t, f"{to}/llama.safetensors")
    expect(f"{to}/llama", ours)
    names = sorted(t)
    parts = {"a": names[::2], "b": names[1::2]}
    for part, some in parts.items():
        save_bf16({k: t[k] for k in some}, f"{to}/llama-{part}.safetensors")
    with open(f"{to}/llama.safetensors.index.json", "w") as f:
        json.dump({"weight_map": {k: f"llama-{p}.safetensors" for p in parts for k in parts[p]}}, f)
    expect(f"{to}/llama_shards", {k: from_bf16(v) for k, v in ours.items()})
    t, ours = bert()
    save_file(t, f"{to}/bert.safetensors")
    save_file(t | {"bert.embeddings.position_ids": np.arange(POSITIONS)}, f"{to}/bert_ids.safetensors")
    expect(f"{to}/bert", ours)


# ---- GGUF

def permute(w, heads):
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def put(writer, name, x, kind):
    """Adds a tensor; returns what gguf makes of its quantised values."""
    if x.ndim == 1 or kind == Q.F32:
        writer.add_tensor(name, x)
        return x
    quantised = gguf.quants.quantize(x, kind)
    writer.add_tensor(name, quantised, raw_dtype=kind)
    return gguf.quants.dequantize(quantised, kind).reshape(x.shape)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(to, file, architecture, t, kind):
    """Tensors under Hugging Face's names; returns them as they are after quantising, by the same names."""
    arch = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "bert": gguf.MODEL_ARCH.BERT}[architecture]
    names = gguf.get_tensor_name_map(arch, BLOCKS)
    w = gguf.GGUFWriter(f"{to}/{file}.gguf", architecture)
    w.add_name("small")
    w.add_block_count(BLOCKS)
    w.add_head_count(HEADS)
    w.add_context_length(POSITIONS)
    if architecture == "llama":
        w.add_head_count_kv(KV_HEADS)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(50000.0)
    else:
        w.add_layer_norm_eps(1e-12)
    back = {}
    for name, x in t.items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2], 0)
        conv = architecture == "gpt2" and x.ndim == 2 and ".c_" in name
        x = permute(x, heads) if heads else x.T.copy() if conv else x
        y = put(w, names.get_name(name, (".weight", ".bias")), x, kind)
        back[name] = unpermute(y, heads) if heads else y.T if conv else y
    close(w)
    return back


def renamed(before, after, ours):
    """Expected arrays are made of tensors alone: the same again of other values."""
    found = {}
    for name, array in ours.items():
        flat = {v.tobytes(): k for k, v in before.items()}
        key = flat.get(array.tobytes()) or flat.get(array.T.copy().tobytes())
        if key is not None:
            same = before[key].shape == array.shape and np.array_equal(before[key], array)
            found[name] = after[key] if same else after[key].T
            continue
        parts, at = [], 0
        while at < len(array):  # rows of one tensor after the other
            key = next(k for k, v in before.items() if v.ndim == array.ndim and v.shape[1:] == array.shape[1:] and
                       np.array_equal(v, array[at:at + len(v)]))
            parts.append(after[key])
            at += len(before[key])
        found[name] = np.concatenate(parts)
    return found


def write_ggufs(to):
    t, ours = llama()
    save_file(t, f"{to}/llama_f32.safetensors")
    for kind in (Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1):
        file = "llama_" + kind.name.lower()
        expect(f"{to}/{file}", renamed(t, write_gguf(to, file, "llama", t, kind), ours))
    t, ours, _ = gpt2()
    expect(f"{to}/gpt2_q8_0", renamed(t, write_gguf(to, "gpt2_q8_0", "gpt2", t, Q.Q8_0), ours))
    t, ours = bert()
    t = {k.removeprefix("bert."): v for k, v in t.items() if not k.startswith("cls.")}
    ours = {k: v for k, v in ours.items() if not k.startswith(("mlm", "head"))}
    expect(f"{to}/bert_f16", renamed(t, write_gguf(to, "bert_f16", "bert", t, Q.F16), ours))
    w = gguf.GGUFWriter(f"{to}/part.gguf", "llama")
    w.add_uint16("split.count", 2)
    put(w, "token_embd.weight", values(VOCABULARY, WIDTH), Q.F32)
    close(w)
    w = gguf.GGUFWriter(f"{to}/q5.gguf", "llama")
    put(w, "token_embd.weight", values(VOCABULARY, WIDTH), Q.Q5_0)
    close(w)


def load(file):
    return load_file(file) if file.endswith(".safetensors") else dict(np.load(file))


def same(a, b):
    x, y = load(a), load(b)
    if set(x) != set(y):
        return f"only in {a}: {sorted(set(x) - set(y))}; only in {b}: {sorted(set(y) - set(x))}"
    for name in x:
        if x[name].shape != y[name].shape or x[name].tobytes() != np.asarray(y[name], x[name].dtype).tobytes():
            return f"{name} differs"
    print(f"{len(x)} arrays are the same")
    return None


def like(a, b):
    with safe_open(b, "np") as f:  # transformers asks for this
        if f.metadata() != {"format": "pt"}:
            return f"{b}: metadata {f.metadata()}"
    return same(a, b)


def corpus(to):
    global BLOCKS, VOCABULARY, WIDTH, POSITIONS, INNER, DIM
    BLOCKS, VOCABULARY, WIDTH, POSITIONS, INNER, DIM = 1, 2, 32, 2, 32, 8
    t, _ = llama()
    save_bf16({k: v for k, v in t.items() if v.size <= 1024}, f"{to}/model_llama.safetensors")
    save_file({"ip/0": values(2, 3), "ip/1": values(2)}, f"{to}/model_own.safetensors")
    write_gguf(to, "model_llama", "llama", t, Q.Q4_1)
    write_gguf(to, "model_llama_q8", "llama", {k: v for k, v in t.items() if ".0." not in k}, Q.Q8_0)


def main():
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "write":
        os.makedirs(rest[0], exist_ok=True)
        write_safetensors(rest[0])
        write_ggufs(rest[0])
        return None
    return {"same": same, "like": like, "corpus": corpus}[verb](*rest)


if __name__ == "__main__":
    sys.exit(main())
