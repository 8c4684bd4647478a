#!/usr/bin/env python3
"""A shipped net as an ONNX file and back: what onnxruntime, and the net read again, make of its values.

Usage: run_models_onnx.py CORTADO DEPLOY.prototxt NAME      in a folder of its own; for tests/long/onnx_models.sh

Weights are by chance, from a seed: of variance 2 / inputs, norms about 1, variances of statistics about 4. With 1
sums of blocks grow so much that gates (SENet's) turn rounding into differences of 1e-2. The file
is for any batch; batches of 1 and 8 are compared, of texts of at most MOST_TOKENS, by the largest difference as a part of the largest value. Prints
"ok NAME, parameters, ours at 1, ours at 8, read again at 1, at 8", or "not ok NAME: why". TOLERANCE is for each.
"""
import json
import os
import re
import subprocess
import sys

import h5py
import numpy
import onnx
import onnxruntime

TOLERANCE = 1e-4
MOST_TOKENS = 128  # 8 texts of 2048 have 3 GB of scores for 49152 words
cortado, deploy, model = sys.argv[1:]
rng = numpy.random.default_rng(3)


def run(*arguments):
    made = subprocess.run([cortado, *arguments], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError((made.stderr.strip().splitlines() or ["exit code %d" % made.returncode])[-1])
    return made.stdout


def weights(file):
    """By the shapes that `check` knows; returns how many numbers."""
    total = 0
    with h5py.File(file, "w") as f:
        for layer in json.loads(run("check", f"--model={deploy}", "--phase=TEST", "--json"))["layers"]:
            for index, w in enumerate(layer["weights"]):
                if w["shared"]:
                    continue
                shape = w["shape"]
                if layer["type"] == "BatchNorm":
                    value = [rng.normal(0, 0.1, shape), rng.uniform(2, 6, shape), numpy.ones(shape)][index]
                elif len(shape) > 1:
                    value = rng.standard_normal(shape, dtype="f4") * (2 / numpy.prod(shape[1:])) ** 0.5
                else:
                    value = rng.uniform(0.7, 1.3, shape) if index == 0 else rng.normal(0, 0.1, shape)
                f[f"data/{layer['name']}/{index}"] = numpy.asarray(value, "f4")
                total += int(numpy.prod(shape))
    return total


def values(graph, batch, rows):
    """Of each input: numbers of words where an Embed reads it, else normal ones; states are zeros at first."""
    draw = numpy.random.default_rng(1)
    made = {}
    for v in graph.input:
        shape = [batch if d.dim_param == "batch" else d.dim_value for d in v.type.tensor_type.shape.dim]
        if v.name in rows:
            value = draw.integers(0, rows[v.name], shape)
        elif v.name == "cont":
            value = draw.integers(0, 2, shape)
        elif v.name.endswith(("/h", "/c")):
            value = numpy.zeros(shape)
        else:
            value = draw.standard_normal(shape)
        made[v.name] = value.astype("f4")
    return made


def fed(net, to, given):
    """The net with HDF5 files in place of its Inputs."""
    text = open(net).read()
    layers = ""
    for block in re.findall(r"^layer \{\n.*?^\}\n", text, re.S | re.M):
        if not re.search(r'^  type: "Input"', block, re.M):
            continue
        text = text.replace(block, "")
        for top in re.findall(r'^  top: "(.*)"', block, re.M):
            file = os.path.abspath(f"{to}_{len(layers)}")
            with h5py.File(file + ".h5", "w") as f:
                f[top] = given[top]
            with open(file + ".txt", "w") as f:
                f.write(file + ".h5\n")
            layers += (f'layer {{ name: "fed_{top}" type: "HDF5Data" top: "{top}" '
                       f'hdf5_data_param {{ source: "{file}.txt" batch_size: {given[top].shape[0]} }} }}\n')
    with open(to, "w") as f:
        f.write(layers + text)


def without_softmax(text):
    """Without those at the end: probabilities near 0 and 1 would hide what the scores are off by."""
    for block in re.findall(r"^layer \{\n.*?^\}\n", text, re.S | re.M):
        if re.search(r'^  type: "Softmax"', block, re.M):
            top = re.search(r'^  top: "(.*)"', block, re.M).group(1)
            if not re.search(rf'^  bottom: "{re.escape(top)}"', text, re.M):
                text = text.replace(block, "")
    return text


def with_short_texts(text):
    """Inputs of two axes, texts x tokens, with MOST_TOKENS at most."""
    for block in re.findall(r"^layer \{\n.*?^\}\n", text, re.S | re.M):
        if re.search(r'^  type: "Input"', block, re.M):
            short = re.sub(r"(shape \{\s*dim: \d+\s*dim: )(\d+)(\s*\})", lambda m: m[1] + str(min(int(m[2]), MOST_TOKENS)) + m[3], block)
            text = text.replace(block, short)
    return text


def off(net, weights_file, given, theirs, before):
    fed(net, before + ".fed", given)
    run("extract", f"--model={before}.fed", f"--weights={weights_file}", "--blobs=" + ",".join(theirs), "--iterations=1",
        f"--to={before}.values")
    worst = 0.0
    with h5py.File(before + ".values") as f:
        for name, their in theirs.items():
            ours = f[name][:]
            if ours.shape != their.shape:
                raise RuntimeError(f"{name} has shape {their.shape} in onnxruntime, {ours.shape} here")
            if not numpy.isfinite(their).all() or not abs(their).max() > 0:
                raise RuntimeError(f"{name} says nothing")
            worst = max(worst, float(abs(ours.astype("f8") - their).max() / abs(their).max()))
    return worst


def main():
    count = weights("w.h5")
    run("convert", "net", f"--from={deploy}", "--to=net.prototxt")
    text = with_short_texts(without_softmax(open("net.prototxt").read()))
    with open("net.prototxt", "w") as f:
        f.write(text)
    run("convert", "model", "--from=w.h5", "--net=net.prototxt", "--to=m.onnx")
    rows = {}
    for block in re.findall(r"^layer \{\n.*?^\}\n", text, re.S | re.M):
        if re.search(r'^  type: "Embed"', block, re.M):
            rows[re.search(r'^  bottom: "(.*)"', block, re.M).group(1)] = int(re.search(r"input_dim: (\d+)", block).group(1))
    graph = onnx.load("m.onnx", load_external_data=False).graph
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 2
    session = onnxruntime.InferenceSession("m.onnx", settings, providers=["CPUExecutionProvider"])
    ours, again = [], []
    for batch in (1, 8):
        given = values(graph, batch, rows)
        names = [o.name for o in session.get_outputs() if not o.name.endswith(("/h_last", "/c_last"))]
        theirs = dict(zip(names, session.run(names, given)))
        ours.append(off("net.prototxt", "w.h5", given, theirs, f"ours{batch}"))
        run("convert", "net", "--from=m.onnx", f"--to=back{batch}.prototxt", "--weights_to=back.h5", f"--sizes=batch:{batch}", "--force")
        again.append(off(f"back{batch}.prototxt", "back.h5", given, theirs, f"again{batch}"))
    worst = max(ours + again)
    cells = [f"{v:.1e}" for v in ours + again]
    print(f"{'ok' if worst <= TOLERANCE else 'not ok'} {model}, {count / 1e6:.1f} M: " + ", ".join(cells))
    return worst <= TOLERANCE


try:
    sys.exit(0 if main() else 1)
except (RuntimeError, KeyError) as e:
    print(f"not ok {model}: {e}")
    sys.exit(1)
