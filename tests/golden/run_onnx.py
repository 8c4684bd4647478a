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
        out[text(a, 1)] = {1: lambda: a[2][0], 2: lambda: a[3][0], 7: lambda: a[8]}[a[20][0]]()
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
    return {
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
        assert t[2] == [1]
        value[text(t, 8)] = torch.frombuffer(bytearray(t[9][0]), dtype=torch.float32).reshape(t.get(1, []))
    for i in map(fields, graph.get(11, [])):
        tensor = fields(fields(i[2][0])[1][0])
        dims = [fields(d)[1][0] for d in fields(tensor[2][0])[1]]
        value[text(i, 1)] = torch.full(dims, float(sys.argv[2]))
    for n in map(fields, graph[1]):
        value[text(n, 2)] = run(text(n, 4), attributes(n), [value[k.decode()] for k in n[1]])
    for o in map(fields, graph[12]):
        for v in value[text(o, 1)].flatten().tolist():
            print("%.6g" % v)


main()
