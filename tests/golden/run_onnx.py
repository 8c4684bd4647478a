#!/usr/bin/env python3
"""Runs an ONNX file with PyTorch and prints its outputs, one number a line: an implementation of ONNX
apart from ours, for tests of `convert model --to=X.onnx`.

Usage: tests/golden/run_onnx.py FILE VALUE     every element of every input is VALUE (needs PyTorch)

PyTorch's own copy of ONNX's checker looks at the file first, where PyTorch has it.
"""
import struct
import sys
import torch
import torch.nn.functional as F


def number(b, at):
    v = shift = 0
    while True:
        v |= (b[at] & 127) << shift
        at += 1
        shift += 7
        if b[at - 1] < 128:
            return v, at


def fields(b):
    """{field: [values]} of a message: numbers, or bytes."""
    out, at = {}, 0
    while at < len(b):
        tag, at = number(b, at)
        if tag & 7 == 0:
            v, at = number(b, at)
            v -= (v >> 63) << 64
        elif tag & 7 == 2:
            n, at = number(b, at)
            v, at = b[at:at + n], at + n
            assert len(v) == n
        elif tag & 7 == 5:
            v, at = struct.unpack("<f", b[at:at + 4])[0], at + 4
        else:
            raise ValueError("wire type %d" % (tag & 7))
        out.setdefault(tag >> 3, []).append(v)
    return out


def text(f, k):
    return f[k][0].decode()


def attributes(node):
    out = {}
    for a in map(fields, node.get(5, [])):
        out[text(a, 1)] = {1: lambda: a[2][0], 2: lambda: a[3][0], 3: lambda: a[4][0].decode(), 7: lambda: a[8]}[a[20][0]]()
    return out


def padded(v, pads, value):
    return F.pad(v, (pads[1], pads[3], pads[0], pads[2]), value=value)


def run(op, a, v):
    if op == "Conv":
        return F.conv2d(padded(v[0], a["pads"], 0.0), v[1], v[2] if len(v) > 2 else None, a["strides"], 0,
                        a["dilations"], a["group"])
    if op == "MaxPool":
        return F.max_pool2d(padded(v[0], a["pads"], -torch.inf), a["kernel_shape"], a["strides"])
    if op == "AveragePool":
        ones = padded(torch.ones_like(v[0]), a["pads"], float(a["count_include_pad"]))
        return (F.avg_pool2d(padded(v[0], a["pads"], 0.0), a["kernel_shape"], a["strides"]) /
                F.avg_pool2d(ones, a["kernel_shape"], a["strides"]))
    if op == "LRN":  # as ONNX defines it: alpha is divided by size
        n = a["size"]
        square = F.pad((v[0] ** 2).transpose(1, 3), ((n - 1) // 2, n // 2))
        total = square.unfold(3, n, 1).sum(-1).transpose(1, 3)
        return v[0] / (a["bias"] + a["alpha"] / n * total) ** a["beta"]
    if op == "ConvTranspose":
        assert a["pads"][:2] == a["pads"][2:]
        return F.conv_transpose2d(v[0], v[1], v[2] if len(v) > 2 else None, a["strides"], a["pads"][:2], 0, a["group"],
                                  a["dilations"])
    if op == "Resize" and a["mode"] == "nearest":
        assert (a["coordinate_transformation_mode"], a["nearest_mode"]) == ("asymmetric", "floor")
        out = v[0]
        for axis, factor in enumerate(v[2].tolist()):
            n = out.shape[axis]
            out = out.index_select(axis, torch.tensor([int(k / factor) for k in range(round(n * factor))]))
        return out
    if op == "Resize":
        assert (a["coordinate_transformation_mode"], a["mode"]) == ("align_corners", "linear")
        return F.interpolate(v[0], v[3].tolist()[2:], mode="bilinear", align_corners=True)
    if op == "Slice":
        out = v[0]
        for start, end, axis in zip(*(w.tolist() for w in v[1:4])):
            out = out.narrow(axis, start, end - start)
        return out
    if op == "ReduceSum":
        return v[0].sum(v[1].tolist(), keepdim=bool(a["keepdims"]))
    if op.startswith("Reduce"):
        inner = {"ReduceMean": v[0], "ReduceL1": v[0].abs(), "ReduceSumSquare": v[0] ** 2}[op]
        total = inner.sum(a["axes"], keepdim=bool(a["keepdims"]))
        return total * total.numel() / v[0].numel() if op == "ReduceMean" else total
    if op == "ArgMax":  # the last of the largest
        assert a["select_last_index"] == 1
        n = v[0].shape[a["axis"]]
        return n - 1 - v[0].flip(a["axis"]).argmax(a["axis"], keepdim=bool(a["keepdims"]))
    return {
        "Abs": lambda: v[0].abs(), "Softplus": lambda: F.softplus(v[0]), "Elu": lambda: F.elu(v[0], a["alpha"]),
        "Exp": lambda: v[0].exp(), "Log": lambda: v[0].log(), "Pow": lambda: v[0] ** v[1], "Sqrt": lambda: v[0].sqrt(),
        "Erf": lambda: v[0].erf(), "Clip": lambda: v[0].clamp(float(v[1]), float(v[2])), "Sub": lambda: v[0] - v[1],
        "Div": lambda: v[0] / v[1], "PRelu": lambda: torch.where(v[0] < 0, v[0] * v[1], v[0]),
        "Reshape": lambda: v[0].reshape(v[1].tolist()), "Transpose": lambda: v[0].permute(a["perm"]),
        "Split": lambda: v[0].split(v[1].tolist(), a["axis"]), "Tile": lambda: v[0].repeat(v[1].tolist()),
        "Cast": lambda: v[0].to({1: torch.float32, 7: torch.int64}[a["to"]]), "Greater": lambda: v[0] > v[1],
        "Gather": lambda: v[0][v[1]], "GlobalAveragePool": lambda: v[0].mean((2, 3), True),
        "GlobalMaxPool": lambda: v[0].amax((2, 3), True),
        "BatchNormalization": lambda: F.batch_norm(v[0], v[3], v[4], v[1], v[2], False, 0.0, a["epsilon"]),
        "Mul": lambda: v[0] * v[1], "Add": lambda: v[0] + v[1], "Sum": lambda: sum(v[1:], v[0]),
        "Max": lambda: torch.stack(v).max(0).values, "Relu": lambda: v[0].relu(), "Tanh": lambda: v[0].tanh(),
        "LeakyRelu": lambda: F.leaky_relu(v[0], a["alpha"]), "Sigmoid": lambda: v[0].sigmoid(),
        "Concat": lambda: torch.cat(v, a["axis"]), "Flatten": lambda: v[0].flatten(a["axis"]),
        "Gemm": lambda: v[0] @ (v[1].T if a["transB"] else v[1]) + (v[2] if len(v) > 2 else 0),
        "Softmax": lambda: v[0].softmax(a["axis"]),
    }[op]()


def main():
    data = open(sys.argv[1], "rb").read()
    if hasattr(torch._C, "_check_onnx_proto"):
        torch._C._check_onnx_proto(data)
        print("checked by ONNX's checker", file=sys.stderr)
    graph = fields(fields(data)[7][0])
    value = {}
    for t in map(fields, graph.get(5, [])):
        kind = {1: torch.float32, 7: torch.int64}[t[2][0]]
        value[text(t, 8)] = torch.frombuffer(bytearray(t[9][0]), dtype=kind).reshape(t.get(1, []))
    for i in map(fields, graph.get(11, [])):
        tensor = fields(fields(i[2][0])[1][0])
        dims = [fields(d)[1][0] for d in fields(tensor[2][0])[1]]
        value[text(i, 1)] = torch.full(dims, float(sys.argv[2]))
    for n in map(fields, graph[1]):
        made = run(text(n, 4), attributes(n), [value[k.decode()] if k else None for k in n[1]])
        for name, v in zip(n[2], made if isinstance(made, tuple) else (made,)):
            value[name.decode()] = v
    for o in map(fields, graph[12]):
        for v in value[text(o, 1)].flatten().tolist():
            print("%.6g" % v)


main()
