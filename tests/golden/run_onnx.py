#!/usr/bin/env python3
"""What onnxruntime makes of an ONNX file that `convert model` wrote, beside what Cortado made of the net.

Usage: tests/golden/run_onnx.py FILE.onnx BLOBS.h5 [--logits=BLOB] [--inputs=A,B] [--outputs=A,B] [--also=C,D]

onnx's checker, with shapes inferred, and onnxruntime both take the file, and node names differ. BLOBS.h5 is
of `cortado extract`: the inputs by their names, and each output by its name. With --logits the one output is
the softmax over axis 1 of that blob. --inputs, --outputs: those that the graph must have, no others, but for
--also: outputs that no blob has.

The two add in different orders, in floats of u = 2^-24. A sum of k terms is off by about sqrt(k) u of its
largest values each time, a function by some u, and what follows passes that on. So an output may differ by
2 u (sum of these over the nodes that lead to it) of its largest value: "worst" says what part of it was.
"""
import sys

import h5py
import numpy
import onnx
import onnxruntime

U = 2.0 ** -24
MOVES = {"Reshape", "Flatten", "Transpose", "Split", "Slice", "Tile", "Concat", "Identity", "Gather", "Cast",
         "Relu", "MaxPool", "GlobalMaxPool", "Max", "Clip", "Greater", "ArgMax", "MaxRoiPool"}
SUMS = {"Conv", "ConvTranspose", "Gemm", "AveragePool", "GlobalAveragePool", "ReduceSum", "ReduceMean", "ReduceL1",
        "ReduceSumSquare", "LRN", "Softmax", "MatMul"}


def terms(node, shapes):
    """How many numbers one output of a sum is made of."""
    if node.op_type in ("Conv", "Gemm", "ConvTranspose"):
        return numpy.prod(shapes[node.input[1]]) / min(shapes[node.input[1]][:2])
    if node.op_type == "MatMul":
        return shapes[node.input[0]][-1]
    return numpy.prod(shapes[node.input[0]][1:])


def node_error(node, shapes):
    if node.op_type in MOVES:
        return 0.0
    if node.op_type == "LSTM":  # each step passes on what the one before was off by
        steps, _, inputs = shapes[node.input[0]]
        return steps * (4.0 + numpy.sqrt(inputs + shapes[node.input[2]][2]))
    return 4.0 + (numpy.sqrt(terms(node, shapes)) if node.op_type in SUMS else 0.0)


def errors(graph, shapes):
    """{value: what it may be off by, in u of its largest}: sums over the nodes that lead to it."""
    made_by = {name: k for k, node in enumerate(graph.node) for name in node.output}
    leads = []  # of each node: those before it, and itself
    for k, node in enumerate(graph.node):
        leads.append({k}.union(*(leads[made_by[i]] for i in node.input if i in made_by)))
    each = [node_error(node, shapes) for node in graph.node]
    return {name: sum(each[i] for i in leads[k]) for name, k in made_by.items()}


def shapes_of(model):
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shapes = {t.name: list(t.dims) for t in graph.initializer}
    for v in list(graph.input) + list(graph.value_info) + list(graph.output):
        shapes[v.name] = [d.dim_value for d in v.type.tensor_type.shape.dim]
    return shapes


def give_sizes(model, sizes):
    """The inputs' sizes, for those that are open; what follows from them is inferred anew."""
    for v in model.graph.input:
        for d, size in zip(v.type.tensor_type.shape.dim, sizes.get(v.name, [])):
            d.dim_value = size
    for v in model.graph.output:
        v.type.tensor_type.ClearField("shape")


def softmax(z):
    e = numpy.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def compare(name, theirs, ours, logits, error):
    """The largest difference as a part of the tolerance."""
    theirs = theirs.astype(numpy.float64)
    if logits:  # dp is at most p times 2 dz
        bound = 2 * U * error * 2 * abs(ours).max() * softmax(ours)
        ours = softmax(ours)
    else:
        bound = 2 * U * error * abs(ours).max()
    assert theirs.shape == ours.shape, f"{name} has shape {theirs.shape}, Cortado's {ours.shape}"
    assert numpy.isfinite(theirs).all() and abs(theirs).max() > 0, f"{name} says nothing"
    return float((abs(theirs - ours) / numpy.maximum(bound, 1e-30)).max())


def main():
    options = dict(a[2:].split("=", 1) for a in sys.argv[3:])
    also = options.get("also", "").split(",")
    model = onnx.load(sys.argv[1])
    onnx.checker.check_model(model, full_check=True)
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names) and "" not in names, "two nodes have the same name"
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"])
    for kind, there in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        there = [v.name for v in there if v.name not in also]
        assert there == options.get(kind, ",".join(there)).split(","), f"{kind} of the graph: {there}"
    blobs = h5py.File(sys.argv[2])
    results = session.run(None, {i.name: blobs[i.name][:] for i in session.get_inputs()})
    give_sizes(model, {i.name: blobs[i.name].shape for i in session.get_inputs()})
    error = errors(model.graph, shapes_of(model))
    bad = False
    for output, result in zip(session.get_outputs(), results):
        if output.name in also:
            continue
        logits = "logits" in options
        ours = blobs[options["logits"] if logits else output.name][:].astype(numpy.float64)
        worst = compare(output.name, result, ours, logits, error[output.name])
        print(f"{output.name}: {result.size} values, worst {worst:.3f} of the tolerance")
        bad = bad or not worst <= 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
