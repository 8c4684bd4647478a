#!/usr/bin/env python3
"""A net that `cortado convert net --from=FILE.onnx` made, beside what onnxruntime makes of the file.

Usage: read_onnx.py feed FILE.onnx NET.prototxt FED.prototxt BATCH [INPUT=ones|starts|ids:N]...
       read_onnx.py compare FILE.onnx FED.prototxt VALUES.h5 [TOLERANCE]
       read_onnx.py feed_all NAME...      the same for NAME.onnx, NAME.prototxt and NAME.h5 of each, as one net, all.fed,
                                          and its weights, all.h5
       read_onnx.py compare_all NAME...   with all.values; prints a line for each output

Where NAME.npz lies beside NAME.onnx, it has the inputs to give, and the outputs to compare with.

`feed` writes FED.prototxt, which is NET with its inputs read from HDF5 files of random values: normal ones, or
as asked. BATCH is their first size; "-": that of the net. `compare` gives the same values to onnxruntime and compares each output of VALUES.h5, which
`cortado extract` wrote. An output may differ by TOLERANCE of its largest value; without one by what run_onnx.py
derives: 2 u (sum over the nodes that lead to it), where u = 2^-24 and a sum of k terms counts 4 + sqrt(k).
"""
import os
import re
import sys

import h5py
import numpy
import onnx
import onnxruntime

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
INPUT = re.compile(r"layer \{\n(?:(?!\n\}).)*?type: \"Input\".*?\n\}\n", re.S)


def known_of(file):
    """Inputs and outputs that lie beside a file, of the program that wrote it; or None."""
    beside = re.sub(r"\.onnx$", ".npz", file)
    return numpy.load(beside) if os.path.exists(beside) else None


def feed(file, net, fed, batch, *kinds, before=""):
    kinds = dict(k.split("=") for k in kinds)
    text = open(net).read()
    rng = numpy.random.default_rng(1)
    known = known_of(file)
    layers = ""
    with h5py.File(fed + ".h5", "w") as every:
        for k, layer in enumerate(INPUT.findall(text)):
            top = re.search(r'top: "(.*)"', layer).group(1)
            shape = [int(d) for d in re.findall(r"dim: (\d+)", layer)]
            shape[0] = shape[0] if batch == "-" else int(batch)
            kind = kinds.get(top, "normal")
            value = rng.standard_normal(shape) if known is None else known[top]
            assert list(value.shape) == shape, f"{top} has shape {shape}, {value.shape} is given"
            if kind == "ones":
                value = numpy.ones(shape)
            elif kind == "starts":  # masks of texts: each row one shorter than the one before
                value = (numpy.arange(shape[1])[None, :] < shape[1] - numpy.arange(shape[0])[:, None]).astype("f4")
            elif kind.startswith("ids:"):
                value = rng.integers(0, int(kind[4:]), shape)
            every[top] = value.astype("f4")
            name = os.path.abspath(f"{fed}_{k}")
            with h5py.File(name + ".h5", "w") as one:  # a source for each: their batches may differ
                one[before + top] = value.astype("f4")
            with open(name + ".txt", "w") as f:
                f.write(name + ".h5\n")
            layers += (f'layer {{ name: "{before}fed{k}" type: "HDF5Data" top: "{before}{top}" '
                       f'hdf5_data_param {{ source: "{name}.txt" batch_size: {shape[0]} }} }}\n')
    with open(fed, "w") as f:
        text = INPUT.sub("", text)
        if before:
            text = re.sub(r'^  (name|bottom|top): "', rf'  \1: "{before}', text, flags=re.M)
            text = re.sub(r'^name: .*\n', "", text, flags=re.M)
        f.write(layers + text)
    print(",".join(before + o.name for o in onnx.load(file, load_external_data=False).graph.output))


def values_of(file, fed):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    with h5py.File(fed + ".h5") as f:
        given = {}
        for i in session.get_inputs():
            value = f[i.name][:]
            given[i.name] = value.astype("i8") if "int64" in i.type else value
    names = [o.name for o in session.get_outputs()]
    known = known_of(file)
    if known is not None:
        return given, {name: known[name] for name in names}
    return given, dict(zip(names, session.run(names, given)))


def tolerances(file, given):
    import run_onnx
    model = onnx.load(file)
    run_onnx.give_sizes(model, {name: value.shape for name, value in given.items()})
    error = run_onnx.errors(model.graph, run_onnx.shapes_of(model))
    return {name: 2 * run_onnx.U * e for name, e in error.items()}


def compare(file, fed, values, tolerance=None, before=""):
    given, theirs = values_of(file, fed)
    limit = tolerances(file, given) if tolerance is None else None
    good = True
    with h5py.File(values) as f:
        for name, their in theirs.items():
            ours = f[before + name][:]
            assert ours.shape == their.shape, f"{name} has shape {their.shape}, Cortado's {ours.shape}"
            assert numpy.isfinite(ours).all() and abs(their).max() > 0, f"{name} says nothing"
            off = float(abs(ours.astype("f8") - their).max() / abs(their).max())
            most = float(tolerance) if limit is None else limit[name]
            print(f"{file} {name}: {their.size} values, off by {off:.2e} of the largest, "
                  f"{off / max(most, 1e-30):.3f} of the tolerance")
            good = good and off <= most
    return good


def feed_all(*names):
    with open("all.fed", "w") as fed, h5py.File("all.h5", "w") as weights:
        for name in names:
            feed(f"{name}.onnx", f"{name}.prototxt", f"{name}.fed", "-", before=name + "_")
            fed.write(open(f"{name}.fed").read())
            if not os.path.exists(name + ".h5"):
                continue
            with h5py.File(name + ".h5") as own:
                for layer in own["data"]:
                    own.copy(f"data/{layer}", weights.require_group("data"), name=f"{name}_{layer}")


def compare_all(*names):
    return all([compare(f"{name}.onnx", f"{name}.fed", "all.values", before=name + "_") for name in names])


if __name__ == "__main__":
    verbs = {"feed": feed, "compare": compare, "feed_all": feed_all, "compare_all": compare_all}
    sys.exit(1 if verbs[sys.argv[1]](*sys.argv[2:]) is False else 0)
