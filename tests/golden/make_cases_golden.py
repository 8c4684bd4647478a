#!/usr/bin/env python3
"""Writes cases_golden.h: a table of layers with inputs, results and gradients, computed by PyTorch
in double from definitions written here, independently of the layers.

Usage: tests/golden/make_cases_golden.py > tests/golden/cases_golden.h     (needs PyTorch)
"""
import math
import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
names = []
arrays = []


def rand(*shape):
    return torch.randn(shape).float().double()  # exact in f32


def distinct(*shape):
    """Values far enough apart that rounding does not change which is larger."""
    n = math.prod(shape)
    return ((torch.randperm(n) - n // 2).double() / 32).reshape(shape)


def emit(tensor):
    text = ", ".join("%.9g" % v for v in tensor.detach().double().flatten().tolist())
    arrays.append("static const double a%d[] = { %s };" % (len(arrays), text))
    return "a%d" % (len(arrays) - 1)


def shape_of(tensor):
    return "{ %d, { %s } }" % (tensor.dim(), ", ".join(map(str, tensor.shape)) or "0")


def case(kind, text, bottoms, fn, weights=(), constant=(), roundings=64, phase="CT_TRAIN", skip=()):
    """fn(bottoms, weights) -> top or list of tops. constant: bottoms without a gradient; None: all.
    skip: weights whose gradient is not compared."""
    bottoms = [b.clone().requires_grad_(constant is not None and i not in constant)
               for i, b in enumerate(bottoms)]
    weights = [w.clone().requires_grad_(i not in skip) for i, w in enumerate(weights)]
    tops = fn(bottoms, weights)
    tops = tops if isinstance(tops, (list, tuple)) else [tops]
    dy = [rand(*t.shape) for t in tops]
    loss = sum((t * d).sum() for t, d in zip(tops, dy))
    if loss.requires_grad:
        loss.backward()

    def grad(t):
        if not t.requires_grad:
            return "NULL"
        return emit(t.grad if t.grad is not None else torch.zeros_like(t))

    def row(items):
        return "{ %s }" % (", ".join(items) or "0")

    names.append('    { "%s", "%s", %s, %d, %d, %d, %d,\n      %s, %s, %s,\n      %s, %s, %s, %s, %s },'
                 % (kind, text.replace('"', '\\"'), phase, len(bottoms), len(tops), len(weights), roundings,
                    row(shape_of(b) for b in bottoms).replace("{ 0 }", "{ { 0 } }"), row(emit(b) for b in bottoms),
                    row(grad(b) for b in bottoms), row(shape_of(t) for t in tops),
                    row(emit(t) for t in tops), row(emit(d) for d in dy),
                    row(emit(w) for w in weights), row(grad(w) for w in weights)))


# ---- layers that move values

def structure():
    case("Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 4 }", [rand(2, 3, 5, 2)],
         lambda b, w: [b[0][:, :, :1], b[0][:, :, 1:4], b[0][:, :, 4:]])
    case("Slice", "", [rand(3, 4, 2)], lambda b, w: list(torch.chunk(b[0], 2, 1)))
    case("Slice", "slice_param { slice_dim: 0 }", [rand(4, 3)], lambda b, w: list(torch.chunk(b[0], 4, 0)))
    case("Crop", "crop_param { offset: 1 }", [rand(2, 3, 5, 6), rand(2, 3, 3, 4)],
         lambda b, w: b[0][:, :, 1:4, 1:5], constant=(1,))
    case("Crop", "crop_param { axis: 1 offset: 2 offset: 0 offset: 3 }", [rand(2, 5, 4, 6), rand(1, 2, 3, 3)],
         lambda b, w: b[0][:, 2:4, 0:3, 3:6], constant=(1,))
    case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", [rand(2, 3, 4, 5)],
         lambda b, w: b[0].permute(0, 2, 3, 1))
    case("Permute", "permute_param { order: 2 }", [rand(3, 2, 4, 1, 3)], lambda b, w: b[0].permute(2, 0, 1, 3, 4))
    case("ShuffleChannel", "shuffle_channel_param { group: 3 }", [rand(2, 6, 3, 2)],
         lambda b, w: b[0].reshape(2, 3, 2, 3, 2).transpose(1, 2).reshape(2, 6, 3, 2))
    case("Tile", "tile_param { axis: 1 tiles: 3 }", [rand(2, 3, 4)], lambda b, w: b[0].repeat(1, 3, 1))
    case("Tile", "tile_param { axis: -1 tiles: 2 }", [rand(2, 3, 5)], lambda b, w: b[0].repeat(1, 1, 2))
    case("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } axis: 1 num_axes: 2 }", [rand(2, 3, 4, 5)],
         lambda b, w: b[0].reshape(2, 3, 2, 2, 5))
    case("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", [rand(2, 3)],
         lambda b, w: b[0].reshape(2, 3, 1))


# ---- layers that reduce

def reduce():
    x = distinct(3, 5, 2, 2)
    case("ArgMax", "", [x], lambda b, w: b[0].reshape(3, -1).argmax(1).reshape(3, 1, 1, 1).double(), constant=None)
    case("ArgMax", "argmax_param { out_max_val: true top_k: 2 }", [x],
         lambda b, w: torch.stack([v.double() for v in reversed(b[0].reshape(3, -1).topk(2, 1))], 1).reshape(3, 2, 2, 1),
         constant=None)
    case("ArgMax", "argmax_param { axis: 1 top_k: 3 }", [x], lambda b, w: b[0].topk(3, 1)[1].double(), constant=None)
    case("ArgMax", "argmax_param { axis: -2 out_max_val: true }", [x], lambda b, w: b[0].topk(1, 2)[0], constant=None)
    x = rand(4, 3, 5)
    for op, f in (("SUM", lambda v: v), ("ASUM", abs), ("SUMSQ", lambda v: v * v), ("MEAN", lambda v: v)):
        for axis in (0, 1, -1):
            dims = tuple(range(axis % 3, 3))
            scale = 0.5 / (math.prod(x.shape[axis % 3:]) if op == "MEAN" else 1)
            case("Reduction", "reduction_param { operation: %s axis: %d coeff: 0.5 }" % (op, axis), [x],
                 lambda b, w: scale * f(b[0]).sum(dims))


# ---- convolutions

def unfold(x, kernel, stride, pad, dilation):
    """N C *in -> N C*kernel *out, by indices."""
    n = len(kernel)
    x = F.pad(x, [p for q in reversed(pad) for p in (q, q)])
    out = [(x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    parts = []
    for tap in range(math.prod(kernel)):
        v = x
        for i in range(n - 1, -1, -1):
            t, tap = tap % kernel[i] * dilation[i], tap // kernel[i]
            v = v.narrow(2 + i, t, stride[i] * (out[i] - 1) + 1)
            v = v[tuple([slice(None)] * (2 + i) + [slice(None, None, stride[i])])]
        parts.append(v)
    return torch.stack(parts, 2).flatten(1, 2)


def convolutions():
    text = "convolution_param { num_output: %d %s }"
    case("Convolution", text % (4, "kernel_size: 3 pad: 1 stride: 2"), [rand(2, 3, 4, 5, 3)],
         lambda b, w: F.conv3d(b[0], w[0], w[1], 2, 1), [rand(4, 3, 3, 3, 3), rand(4)], roundings=512)
    case("Convolution", text % (4, "kernel_size: 2 kernel_size: 1 kernel_size: 3 group: 2 dilation: 1 dilation: 1 "
                                "dilation: 2 pad: 1 pad: 0 pad: 2 bias_term: false"), [rand(2, 4, 3, 2, 6)],
         lambda b, w: F.conv3d(b[0], w[0], None, 1, (1, 0, 2), (1, 1, 2), 2), [rand(4, 2, 2, 1, 3)], roundings=512)
    case("Convolution", text % (3, "kernel_size: 2 stride: 1 stride: 1 stride: 2 stride: 1"), [rand(1, 2, 2, 3, 4, 3)],
         lambda b, w: torch.einsum("mk,nkuvxy->nmuvxy", w[0].flatten(1), unfold(b[0], (2,) * 4, (1, 1, 2, 1), (0,) * 4, (1,) * 4))
         + w[1].reshape(3, 1, 1, 1, 1), [rand(3, 2, 2, 2, 2, 2), rand(3)], roundings=512)
    case("Convolution", text % (3, "kernel_size: 3 pad: 1"), [rand(2, 4, 7)],
         lambda b, w: F.conv1d(b[0], w[0], w[1], 1, 1), [rand(3, 4, 3), rand(3)], roundings=256)
    case("Convolution", text % (3, ""), [rand(5, 4)],
         lambda b, w: b[0] @ w[0].T + w[1], [rand(3, 4), rand(3)], roundings=256)
    case("Convolution", text % (3, "axis: 2 kernel_size: 3"), [rand(2, 3, 4, 5, 6)],
         lambda b, w: F.conv2d(b[0].flatten(0, 1), w[0], w[1]).reshape(2, 3, 3, 3, 4), [rand(3, 4, 3, 3), rand(3)],
         roundings=256)
    case("DepthwiseConvolution", text % (6, "kernel_size: 3 pad: 1 stride: 2 group: 3"), [rand(2, 3, 5, 6)],
         lambda b, w: F.conv2d(b[0], w[0], w[1], 2, 1, 1, 3), [rand(6, 1, 3, 3), rand(6)], roundings=256)
    case("DepthwiseConvolution", text % (4, "kernel_size: 3 bias_term: false"), [rand(2, 4, 5, 3)],
         lambda b, w: F.conv2d(b[0], w[0], None, 1, 0, 1, 4), [rand(4, 1, 3, 3)], roundings=256)
    case("Deconvolution", text % (3, "kernel_size: 4 stride: 2 pad: 1"), [rand(2, 4, 3, 5)],
         lambda b, w: F.conv_transpose2d(b[0], w[0], w[1], 2, 1), [rand(4, 3, 4, 4), rand(3)], roundings=512)
    case("Deconvolution", text % (4, "kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 1 dilation: 2 group: 2 bias_term: false"),
         [rand(2, 6, 3, 4)], lambda b, w: F.conv_transpose2d(b[0], w[0], None, (3, 1), 0, 0, 2, 2), [rand(6, 2, 3, 2)],
         roundings=512)
    case("Deconvolution", text % (2, "kernel_size: 3 stride: 2 pad: 1"), [rand(1, 3, 2, 3, 2)],
         lambda b, w: F.conv_transpose3d(b[0], w[0], w[1], 2, 1), [rand(3, 2, 3, 3, 3), rand(2)], roundings=512)
    case("Deconvolution", text % (3, "kernel_size: 1"), [rand(2, 4, 3, 3), rand(2, 4, 3, 3)],
         lambda b, w: [F.conv_transpose2d(x, w[0], w[1]) for x in b], [rand(4, 3, 1, 1), rand(3)], roundings=512)
    case("Im2col", "convolution_param { kernel_size: 3 stride: 2 pad: 1 }", [rand(2, 3, 5, 4)],
         lambda b, w: unfold(b[0], (3, 3), (2, 2), (1, 1), (1, 1)))
    case("Im2col", "convolution_param { kernel_size: 2 kernel_size: 1 kernel_size: 3 dilation: 1 dilation: 1 dilation: 2 "
         "pad: 1 pad: 0 pad: 2 }", [rand(1, 2, 3, 2, 4)],
         lambda b, w: unfold(b[0], (2, 1, 3), (1, 1, 1), (1, 0, 2), (1, 1, 2)))


# ---- samples, gates, normalisation, sizes

def others():
    index = torch.tensor([2., 0, 2, 1, 1])
    case("BatchReindex", "", [rand(3, 2, 4), index], lambda b, w: b[0][index.long()], constant=(1,))
    case("Parameter", "parameter_param { shape { dim: 2 dim: 3 } }", [], lambda b, w: w[0] * 1, [rand(2, 3)])
    cont = torch.tensor([[1., 0, 1]])

    def unit(b, w):
        i, f, o, g = b[1].chunk(4, 2)
        c = cont.unsqueeze(2) * f.sigmoid() * b[0] + i.sigmoid() * g.tanh()
        return [c, o.sigmoid() * c.tanh()]
    case("LSTMUnit", "", [rand(1, 3, 5), rand(1, 3, 20), cont], unit, constant=(2,))
    case("Axpy", "", [rand(2, 3, 1, 1), rand(2, 3, 4, 5), rand(2, 3, 4, 5)], lambda b, w: b[0] * b[1] + b[2])
    case("Axpy", "", [rand(3, 2), rand(3, 2, 4), rand(3, 2, 4)], lambda b, w: b[0].unsqueeze(2) * b[1] + b[2])


def bn():
    scale, shift, mean, var = rand(1, 4), rand(1, 4), rand(1, 4), rand(1, 4).abs() + 0.5
    x = rand(3, 4, 2, 5)
    flat = lambda v: v.flatten()
    by_batch = lambda eps: (lambda b, w: F.batch_norm(b[0], None, None, flat(w[0]), flat(w[1]), True, 0, eps))
    by_running = lambda eps: (lambda b, w: F.batch_norm(b[0], flat(w[2]), flat(w[3]), flat(w[0]), flat(w[1]), False, 0, eps))
    ws = [scale, shift, mean, var]
    wide = [w.reshape(1, 4, 1, 1) for w in ws]
    case("BN", "bn_param { eps: 1e-3 momentum: 0.9 }", [x], by_batch(1e-3), ws, skip=(2, 3), roundings=256)
    case("BN", "bn_param { eps: 1e-3 momentum: 0.9 }", [x], by_running(1e-3), ws, skip=(2, 3), roundings=256, phase="CT_TEST")
    case("BN", "bn_param { frozen: true }", [x], by_running(1e-5), ws, skip=(0, 1, 2, 3), roundings=256)
    case("BN", "bn_param { scale_filler { } var_eps: 1e-3 decay: 0.1 }", [x], by_batch(1e-3), wide, skip=(2, 3), roundings=256)
    case("BN", "bn_param { scale_filler { } var_eps: 1e-3 decay: 0.1 }", [x], by_running(1e-3), wide, skip=(2, 3),
         roundings=256, phase="CT_TEST")
    case("BN", "bn_param { moving_average: false var_eps: 1e-3 }", [x], by_batch(1e-3), wide, skip=(2, 3),
         roundings=256, phase="CT_TEST")
    case("BN", "bn_param { scale_filler { } shift_filler { } }", [x], by_batch(1e-9), wide[:2], roundings=256, phase="CT_TEST")
    case("BN", "bn_param { bn_mode: INFERENCE }", [x], lambda b, w: w[0] * b[0] + w[1], wide[:2], roundings=256)
    case("BN", "", [rand(6, 4)], by_batch(1e-5), ws, skip=(2, 3), roundings=512)


def sizes():
    x = distinct(2, 3, 4, 6)
    y, place = F.max_pool2d(x, 2, return_indices=True)
    unpool = lambda size: (lambda b, w: F.max_unpool2d(b[0], place, 2, output_size=size))
    case("Upsample", "upsample_param { scale: 2 }", [y, place.double()], unpool((4, 6)), constant=(1,))
    case("Upsample", "upsample_param { upsample_h: 4 upsample_w: 6 }", [y, place.double()], unpool((4, 6)), constant=(1,))
    x = distinct(1, 2, 5, 4)
    y, place = F.max_pool2d(x, 2, return_indices=True, ceil_mode=True)
    case("Upsample", "upsample_param { scale: 2 pad_out_h: true }", [y, place.double()],
         lambda b, w: torch.zeros(1, 2, 20).scatter(2, place.flatten(2), b[0].flatten(2)).reshape(1, 2, 5, 4), constant=(1,))
    case("Upsample", "upsample_param { scale_h: 3 scale_w: 2 }", [rand(2, 3, 2, 4)],
         lambda b, w: F.interpolate(b[0], scale_factor=(3, 2), mode="nearest"))

    def interp(size, beg=0, end=0):
        def f(b, w):
            v = b[0]
            v = v[:, :, beg:v.shape[2] - end, beg:v.shape[3] - end]
            return F.interpolate(v, size, mode="bilinear", align_corners=True)
        return f
    x = rand(2, 2, 5, 7)
    case("Interp", "interp_param { height: 8 width: 10 }", [x], interp((8, 10)), roundings=128)
    case("Interp", "interp_param { zoom_factor: 3 }", [x], interp((13, 19)), roundings=128)
    case("Interp", "interp_param { shrink_factor: 2 pad_beg: -1 pad_end: -1 }", [x], interp((2, 3), 1, 1), roundings=128)
    case("Interp", "interp_param { shrink_factor: 2 zoom_factor: 2 }", [x], interp((5, 7)), roundings=128)
    case("Interp", "", [x, rand(1, 1, 3, 1)], interp((3, 1)), roundings=128, constant=(1,))


for part in (structure, reduce, convolutions, others, bn, sizes):
    part()
print("/* Made by make_cases_golden.py with PyTorch %s; not edited. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
print("\n".join(arrays))
print("static const golden_case golden[] = {")
print("\n".join(names))
print("};")
