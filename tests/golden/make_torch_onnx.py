#!/usr/bin/env python3
"""Small nets as PyTorch exports them, and what PyTorch makes of them: tests/golden/torch.

Usage: tests/golden/make_torch_onnx.py FOLDER     (needs torch, onnx and onnxscript; made with torch 2.15)

Writes NAME.onnx and NAME.npz for each net. The latter has the inputs by their names, and the outputs.
Weights and statistics are by chance, from seeds. Batches are open but for LSTMs. Names that begin with "old_" are of the exporter that
traces (dynamo=False, opset 13 to 17), "new_" of the one that torch.onnx.export() takes by itself.
"""
import io
import os
import sys
import warnings

import numpy
import onnx
import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")


class Residual(nn.Module):
    """Convolutions with groups, strides and dilation, norms, sums, all kinds of pooling, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.left = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=2, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.1),
                                  nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12))
        self.right = nn.Conv2d(8, 12, 1, bias=False)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(self.left(x) + self.right(x))
        x = F.avg_pool2d(x, 2, ceil_mode=False)
        return F.log_softmax(self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)), 1)


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, HardSwish, ReLU6, SiLU, Mish, PReLU."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.SiLU(), nn.Conv2d(2, 8, 1), nn.Hardsigmoid())
        self.last = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Mish(), nn.PReLU(8))

    def forward(self, x):
        x = self.deep(self.stem(x))
        return self.last(x * self.squeeze(x))


class Pictures(nn.Module):
    """A small U: down, up again by a transposed convolution and by two kinds of resizing."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, 2, 1)
        self.deeper = nn.Conv2d(6, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 6, 4, 2, 1)
        self.join = nn.Conv2d(12, 6, 3, padding=1)
        self.out = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        a = F.elu(self.down(x))
        b = torch.tanh(self.deeper(a))
        c = torch.cat([a, self.up(b)], 1)
        c = F.interpolate(F.softplus(self.join(c)), scale_factor=2, mode="nearest")
        return torch.softmax(self.out(F.interpolate(c, size=(12, 10), mode="bilinear", align_corners=True)), 1)


class Attends(nn.Module):
    """Attention by its definition, or as torch has it; causal or not; of one product or three."""

    def __init__(self, width, heads, whole, causal, together, kv_heads=0):
        super().__init__()
        self.heads, self.kv, self.whole, self.causal, self.dim = heads, kv_heads or heads, whole, causal, width // heads
        sizes = [width, self.kv * self.dim, self.kv * self.dim]
        self.sizes = sizes
        self.inputs = nn.ModuleList([nn.Linear(width, sum(sizes))] if together else [nn.Linear(width, s) for s in sizes])
        self.output = nn.Linear(width, width)

    def forward(self, x):
        n, t, width = x.shape
        parts = self.inputs[0](x).split(self.sizes, 2) if len(self.inputs) == 1 else [f(x) for f in self.inputs]
        q, k, v = [p.view(n, t, -1, self.dim).transpose(1, 2) for p in parts]
        if self.whole:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) / self.dim ** 0.5
            if self.causal:
                scores = scores + torch.full((t, t), float("-inf")).triu(1)
            y = torch.softmax(scores, -1) @ v
        return self.output(y.transpose(1, 2).reshape(n, t, width))


class Text(nn.Module):
    """A transformer's block as GPT-2 and BERT have it, between a table and a head that shares it."""

    def __init__(self, whole, causal, together, first):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(9, 8)
        self.attends = Attends(8, 2, whole, causal, together)
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.GELU("tanh" if causal else "none"), nn.Linear(12, 8))
        self.first = first

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        if self.first:
            x = x + self.attends(self.norms[0](x))
            x = x + self.mlp(self.norms[1](x))
        else:
            x = self.norms[0](x + self.attends(x))
            x = self.norms[1](x + self.mlp(x))
        return x @ self.words.weight.t()


class Masked(nn.Module):
    """Attention that keys can be hidden from, as transformers' BERT has it."""

    def __init__(self, whole):
        super().__init__()
        self.whole, self.qkv, self.out = whole, nn.ModuleList([nn.Linear(12, 12) for _ in range(3)]), nn.Linear(12, 12)

    def forward(self, x, mask):
        n, t, _ = x.shape
        q, k, v = [f(x).view(n, t, 3, 4).transpose(1, 2) for f in self.qkv]
        hidden = (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
        if self.whole:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / 2.0 + hidden, -1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, 12))


class Recurrent(nn.Module):
    def __init__(self, layers, both_ways, batch_first):
        super().__init__()
        self.lstm = nn.LSTM(5, 4, layers, batch_first=batch_first, bidirectional=both_ways)
        self.head = nn.Linear(8 if both_ways else 4, 3)

    def forward(self, x):
        y, (h, _) = self.lstm(x)
        return self.head(y), h


def spread(net):
    """Statistics as of a trained net: not all 0 and 1."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            for value, low, high in ((m.running_mean, -0.2, 0.2), (m.running_var, 0.5, 1.5), (m.weight, 0.7, 1.3), (m.bias, -0.2, 0.2)):
                value.data.uniform_(low, high)
    return net.eval()


def write(name, net, *inputs, opset=17, names=("x",), outputs=("y",)):
    spread(net)
    path = os.path.join(sys.argv[1], name)
    axes = {} if outputs != ("y",) else {n: {0: "n"} for n in names + outputs}
    with torch.no_grad():
        made = net(*inputs)
        if name.startswith("old_"):
            torch.onnx.export(net, inputs, path + ".onnx", opset_version=opset, dynamo=False, input_names=list(names),
                              output_names=list(outputs), dynamic_axes=axes)
        else:
            torch.onnx.export(net, inputs, path + ".onnx", dynamo=True, input_names=list(names), output_names=list(outputs),
                              external_data=False, verbose=False,
                              dynamic_shapes=[{0: torch.export.Dim("n")} for _ in inputs] if axes else None)
    model = onnx.load(path + ".onnx")
    for node in model.graph.node:  # where in the sources a node comes from
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for info in list(model.graph.input) + list(model.graph.output) + list(model.graph.initializer):
        del info.metadata_props[:]
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    del model.functions[:]
    onnx.save(model, path + ".onnx")
    made = made if isinstance(made, tuple) else (made,)
    values = {n: v.numpy() for n, v in zip(names + outputs, inputs + made)}
    numpy.savez_compressed(path + ".npz", **values)
    print(name, os.path.getsize(path + ".onnx"), os.path.getsize(path + ".npz"), sorted({n.op_type for n in model.graph.node}))


def main():
    def normal(*shape):
        return torch.randn(shape).half().float()  # which compress well

    def ids(*shape):
        return torch.randint(0, 11, shape)

    seed = 0
    for way in ("old_", "new_"):
        cases = [
            ("residual", Residual, (), (normal(2, 3, 19, 18),), {}),
            ("mobile", Mobile, (), (normal(2, 3, 10, 8),), {"opset": 14}),
            ("pictures", Pictures, (), (normal(2, 3, 12, 8),), {"opset": 13}),
            ("bert", Text, (False, False, False, False), (ids(2, 7),), {}),
            ("gpt", Text, (True, True, True, True), (ids(2, 9),), {}),
            ("gpt_by_hand", Text, (False, True, True, True), (ids(2, 8),), {}),
            ("masked", Masked, (False,), (normal(2, 6, 12), (torch.arange(6)[None] < torch.tensor([[4], [1]])).float()), {"names": ("x", "mask")}),
            ("masked_whole", Masked, (True,), (normal(2, 6, 12), (torch.arange(6)[None] < torch.tensor([[4], [1]])).float()), {"names": ("x", "mask")}),
            ("lstm", Recurrent, (2, False, False), (normal(7, 3, 5),), {"outputs": ("y", "h")}),
            ("lstm_both_ways", Recurrent, (2, True, False), (normal(6, 3, 5),), {"outputs": ("y", "h")}),
            ("lstm_batch_first", Recurrent, (1, True, True), (normal(3, 6, 5),), {"outputs": ("y", "h")}),
        ]
        for name, kind, arguments, inputs, options in cases:
            torch.manual_seed(seed)
            seed += 1
            write(way + name, kind(*arguments), *inputs, **options)


main()
