#!/usr/bin/env python3
"""Small GPT-2, Llama and BERT nets of scripts/nets/language.py beside transformers' models of the same weights:
logits, loss, all gradients, embeddings.

  run_transformers.py CORTADO DIR WORK    checks the cases that make_transformers_golden.py wrote to DIR

Each case holds transformers' values in double, and how far its own f32 values are from them. Ours may be as far
times SLACK: both round in every operation, in another order."""
import json
import os
import subprocess
import sys

import h5py
import numpy as np
from safetensors.numpy import load_file

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from nets import language  # noqa: E402
from nets.net import for_training, for_use  # noqa: E402

SLACK = 8
RATE = 1024  # of one step of plain descent: the gradient is what the weights lose over it


def sizes(scale):
    """Of the nets: small for the files that are kept, larger where transformers runs beside."""
    return dict(tokens=37 * scale, seq_len=11 * scale, width=16 * scale, blocks=2, heads=4, batch=3)


def build(name, scale):
    s = sizes(scale)
    if name == "gpt2":
        return language.gpt(language.Shape(name, "x", s["tokens"], s["seq_len"], s["width"], s["blocks"], s["heads"], s["batch"],
                                           s["batch"]))
    if name == "llama":
        return language.llama(name, "x", s["tokens"], s["seq_len"], s["width"], 3 * s["width"], s["blocks"], s["heads"], 2,
                              100000, 0.1, s["batch"])
    return language.bert(name, s["width"], s["blocks"], s["heads"], s["batch"], "embedding", s["tokens"], s["seq_len"], 0)


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def stored(tops, batch):
    """A data layer in place of the net's own: its blobs from x.h5."""
    named = " ".join(f'top: "{t}"' for t in tops)
    return f'layer {{ name: "data" type: "HDF5Data" {named} hdf5_data_param {{ source: "x.txt" batch_size: {batch} }} }}'


def put(work, arrays):
    with h5py.File(f"{work}/x.h5", "w") as f:
        for name, values in arrays.items():
            f[name] = values.astype(np.float32)
    write(f"{work}/x.txt", "x.h5\n")


def cortado(program, work, *arguments):
    done = subprocess.run([program, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout.decode()}")


def trained(program, work, net, case, weights):
    """Loss of one step, and what it took off the weights, under transformers' names."""
    tops = ["tokens", "next"]
    put(work, {top: case[top] for top in tops})
    layers = [x for x in net.layers if x[0] != "TokenData"]
    write(f"{work}/net.prototxt", "\n".join([stored(tops, len(case["tokens"])), *for_training(layers)]) + "\n")
    write(f"{work}/solver.prototxt", f'net: "net.prototxt" base_lr: {RATE} lr_policy: "fixed" momentum: 0 max_iter: 1 display: 1 '
          'snapshot_prefix: "s" snapshot_format: HDF5 random_seed: 1 test_initialization: false\n')
    cortado(program, work, "train", "--solver=solver.prototxt", f"--weights={weights}", "--metrics=m.jsonl", "--overwrite")
    events = [json.loads(line) for line in open(f"{work}/m.jsonl", encoding="utf-8")]
    loss = next(e["loss"] for e in events if e.get("event") == "train")
    os.makedirs(f"{work}/after", exist_ok=True)
    cortado(program, work, "convert", "model", "--from=s_iter_1.caffemodel.h5", "--net=net.prototxt",
            "--to=after/model.safetensors", "--force")
    before, after = load_file(weights), load_file(f"{work}/after/model.safetensors")
    return loss, {k: (before[k].astype(np.float64) - after[k]) / RATE for k in before if k in after}


def extracted(program, work, net, weights, batch, inputs, blob):
    """A blob of the net's deploy form."""
    put(work, inputs)
    write(f"{work}/deploy.prototxt", "\n".join([stored(list(inputs), batch), *for_use(net.layers)]) + "\n")
    cortado(program, work, "extract", "--model=deploy.prototxt", f"--weights={weights}", f"--blobs={blob}", "--to=out.h5",
            "--iterations=1")
    with h5py.File(f"{work}/out.h5", "r") as f:
        return f[blob][:]


def fault(ours, case, key):
    """What is wrong with it; empty: nothing."""
    theirs, limit = case[key], SLACK * float(case["error_" + key])
    if ours is None or ours.shape != theirs.shape:
        return f" {key} has shape {getattr(ours, 'shape', 'none')}, transformers' {theirs.shape};"
    error = np.max(np.abs(ours - theirs))
    return "" if error <= limit else f" {key} is {error:.3g} off, {limit:.3g} allowed;"


def say(name, faults):
    print(f"{'not ok' if faults else 'ok'} {name}{':' if faults else ''}{faults}")


def check(program, golden, name, work):
    case, weights = np.load(f"{golden}/{name}.npz"), os.path.abspath(f"{golden}/{name}.safetensors")
    net = build(name, int(case["scale"]))
    loss, gradients = trained(program, work, net, case, weights)
    say(f"{name}_loss", fault(np.array(loss), case, "loss"))
    wanted = sorted(k for k in case.files if k.startswith("gradient."))
    say(f"{name}_{len(wanted)}_gradients",
        "".join(fault(gradients.get(k.removeprefix("gradient.")), case, k) for k in wanted))
    batch, inputs = len(case["tokens"]), {top: case[top] for top in case["inputs"]}
    blob, key = ("embedding", "embedding") if name == "bert" else ("head", "logits")
    found = extracted(program, work, net, weights, batch, inputs, blob)
    say(f"{name}_{key}", fault(found.reshape(case[key].shape) if found.size == case[key].size else found, case, key))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    for name in ("gpt2", "llama", "bert"):
        work = f"{sys.argv[3]}/{name}"
        os.makedirs(work)
        check(os.path.abspath(sys.argv[1]), sys.argv[2], name, work)


if __name__ == "__main__":
    main()
