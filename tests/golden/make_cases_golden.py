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
known = {}


def rand(*shape):
    return torch.randn(shape).float().double()  # exact in f32


def distinct(*shape):
    """Values far enough apart that rounding does not change which is larger."""
    n = math.prod(shape)
    return ((torch.randperm(n) - n // 2).double() / 32).reshape(shape)


def emit(tensor):
    text = ", ".join("%.9g" % v for v in tensor.detach().double().flatten().tolist())
    if text not in known:
        known[text] = "a%d" % len(known)
        arrays.append("static const double %s[] = { %s };" % (known[text], text))
    return known[text]


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


# ---- detection

def regions():
    x = distinct(2, 8, 7, 9)
    roi = torch.tensor([[0, 3., 5, 40, 30], [1, 20, 8, 62, 50], [1, 60, 40, 100, 90], [0, 33, 21, 33, 21], [0, 90, 70, 99, 80]])

    def grid(b, h, w, scale, mean, dim):
        out = []
        for n, x1, y1, x2, y2 in roi.tolist():
            if mean:
                x1, y1, x2, y2 = x1 * scale, y1 * scale, (x2 + 1) * scale, (y2 + 1) * scale
                rw, rh = max(x2 - x1, 0.1), max(y2 - y1, 0.1)
            else:
                x1, y1, x2, y2 = (math.floor(v * scale + 0.5) for v in (x1, y1, x2, y2))
                rw, rh = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
            rows = []
            for i in range(h):
                for j in range(w):
                    t, d = math.floor(i * rh / h + y1), math.ceil((i + 1) * rh / h + y1)
                    l, r = math.floor(j * rw / w + x1), math.ceil((j + 1) * rw / w + x1)
                    t, d = (min(max(v, 0), b.shape[2]) for v in (t, d))
                    l, r = (min(max(v, 0), b.shape[3]) for v in (l, r))
                    v = b[int(n), :, t:d, l:r].flatten(1)
                    if mean:
                        v = v.reshape(dim, h * w, -1)[:, i * w + j]
                    if v.shape[-1] == 0:
                        rows.append(torch.zeros(v.shape[0]))
                    else:
                        rows.append(v.mean(-1) if mean else v.max(-1)[0])
            out.append(torch.stack(rows, 1).reshape(-1, h, w))
        return torch.stack(out)
    case("ROIPooling", "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.1 }", [x, roi],
         lambda b, w: grid(b[0], 3, 2, 0.1, False, 0), constant=(1,))
    case("PSROIPooling", "psroi_pooling_param { spatial_scale: 0.09375 output_dim: 2 group_size: 2 }", [x, roi],
         lambda b, w: grid(b[0], 2, 2, 0.09375, True, 2), constant=(1,))


def prior_boxes():
    def boxes(h, w, ih, iw, mins, maxs, ratios, steps, offset, clip, variance):
        out = []
        for y in range(h):
            for x in range(w):
                cx, cy = (x + offset) * steps[1], (y + offset) * steps[0]
                for k, m in enumerate(mins):
                    sizes = [(m, m)] + ([(math.sqrt(m * maxs[k]),) * 2] if maxs else [])
                    sizes += [(m * math.sqrt(r), m / math.sqrt(r)) for r in ratios]
                    for bw, bh in sizes:
                        out += [(cx - bw / 2) / iw, (cy - bh / 2) / ih, (cx + bw / 2) / iw, (cy + bh / 2) / ih]
        out = torch.tensor(out)
        if clip:
            out = out.clamp(0, 1)
        return torch.stack([out, torch.tensor(variance).repeat(len(out) // len(variance))]).unsqueeze(0)
    feat, image = rand(1, 2, 3, 4), rand(1, 1, 24, 40)
    case("PriorBox", "prior_box_param { min_size: 8 max_size: 14 aspect_ratio: 2 aspect_ratio: 3 clip: true "
         "variance: [0.1, 0.1, 0.2, 0.2] }", [feat, image],
         lambda b, w: boxes(3, 4, 24, 40, [8], [14], [2, 1 / 2, 3, 1 / 3], (8, 10), 0.5, True, [0.1, 0.1, 0.2, 0.2]), constant=None)
    case("PriorBox", "prior_box_param { min_size: [5, 9] flip: false aspect_ratio: 2 img_size: 50 step: 12 offset: 0.25 }",
         [feat, image], lambda b, w: boxes(3, 4, 50, 50, [5, 9], [], [2], (12, 12), 0.25, False, [0.1]), constant=None)


def iou(a, b):
    w = (torch.min(a[:, None, 2], b[None, :, 2]) - torch.max(a[:, None, 0], b[None, :, 0])).clamp(min=0)
    h = (torch.min(a[:, None, 3], b[None, :, 3]) - torch.max(a[:, None, 1], b[None, :, 1])).clamp(min=0)
    area = lambda v: (v[:, 2] - v[:, 0]) * (v[:, 3] - v[:, 1])
    return w * h / (area(a)[:, None] + area(b)[None] - w * h)


def encode(code, box, prior, variance):
    pw, bw = prior[:, 2:] - prior[:, :2], box[:, 2:] - box[:, :2]
    if code == "CORNER":
        return (box - prior) / variance
    if code == "CORNER_SIZE":
        return (box - prior) / torch.cat([pw, pw], 1) / variance
    mid = lambda v: (v[:, :2] + v[:, 2:]) / 2
    return torch.cat([(mid(box) - mid(prior)) / pw, torch.log(bw / pw)], 1) / variance


def decode(code, x, prior, variance):
    pw, x = prior[:, 2:] - prior[:, :2], x * variance
    if code == "CORNER":
        return prior + x
    if code == "CORNER_SIZE":
        return prior + x * torch.cat([pw, pw], 1)
    mid, size = (prior[:, :2] + prior[:, 2:]) / 2 + x[:, :2] * pw, torch.exp(x[:, 2:]) * pw
    return torch.cat([mid - size / 2, mid + size / 2], 1)


def some_boxes(n, low=0.0, high=1.0):
    mid, size = low + (high - low) * torch.rand(n, 2), 0.1 + 0.4 * torch.rand(n, 2)
    return torch.cat([mid - size / 2, mid + size / 2], 1).float().double()


def match(overlap, threshold):
    """For each row the column it stands for, or -1."""
    found, left = [-1] * overlap.shape[0], overlap.clone()
    while left.numel() and left.max() > 1e-6:
        i, j = divmod(int(left.argmax()), left.shape[1])
        found[i] = j
        left[i, :] = 0
        left[:, j] = 0
    for i in range(overlap.shape[0]):
        if found[i] < 0 and overlap.shape[1] and overlap[i].max() >= threshold:
            found[i] = int(overlap[i].argmax())
    return found


def multibox():
    P, C, N = 24, 4, 3
    prior = some_boxes(P)
    variance = torch.tensor([0.1, 0.1, 0.2, 0.2]).repeat(P, 1).float().double()
    priors = torch.stack([prior.flatten(), variance.flatten()]).unsqueeze(0)
    truth = torch.cat([torch.tensor([[0., 1, 0], [0, 3, 1], [2, 2, 0], [0, 1, 2], [-1, 0, 0], [2, 3, 1]]),
                       some_boxes(6, 0.2, 0.8), torch.tensor([[0.], [0], [0], [1], [0], [0]])], 1).reshape(1, 1, 6, 8)

    def loss(code="CORNER", threshold=0.3, mining="MAX_NEGATIVE", ratio=2.0, sample=5, smooth=True, logistic=False, weight=1.0,
             difficult=True, mode="VALID", share=True, limit=0.5, plain=False, cross=False):
        def f(b, w):
            loc, conf = b[0].reshape(N, P, -1, 4), b[1].reshape(N, P, C)
            unit = torch.ones_like(variance) if plain else variance
            total, positives = 0, 0
            for n in range(N):
                rows = [r for r in b[3].reshape(6, 8) if int(r[0]) == n and (difficult or r[7] == 0)]
                boxes = torch.stack([r[3:7] for r in rows]) if rows else torch.zeros(0, 4)
                labels = [int(r[1]) for r in rows]
                overlap = iou(prior, boxes)
                out = ((prior < 0) | (prior > 1)).any(1)
                if cross:
                    overlap = torch.where(out[:, None], torch.zeros_like(overlap), overlap)
                m = match(overlap.detach(), threshold)
                target = [labels[j] if j >= 0 else 0 for j in m]
                onehot = F.one_hot(torch.tensor(target), C).double()
                if logistic:
                    cl = F.binary_cross_entropy_with_logits(conf[n], onehot, reduction="none").sum(1)
                else:
                    cl = F.cross_entropy(conf[n], torch.tensor(target), reduction="none")
                ll = torch.zeros(P)
                for k in range(P):
                    if m[k] < 0:
                        continue
                    goal = encode(code, boxes[m[k]][None], prior[k][None], unit[k][None])[0]
                    d = loc[n, k, 0 if share else labels[m[k]]] - goal
                    if plain:
                        d = d / variance[k]
                    e = torch.where(d.abs() < 1, d * d / 2, d.abs() - 0.5) if smooth else d * d / 2
                    ll = ll + F.one_hot(torch.tensor(k), P) * e.sum()
                used, kept = set(), [k for k in range(P) if m[k] >= 0]
                if mining == "NONE":
                    used = set(range(P))
                elif rows and mining == "MAX_NEGATIVE":
                    hard = [k for k in range(P) if m[k] < 0 and not (cross and out[k]) and overlap[k].max() < limit]
                    hard.sort(key=lambda k: -float(cl[k]))
                    used = set(kept) | set(hard[:int(len(kept) * ratio)])
                elif rows:
                    hard = sorted(range(P), key=lambda k: -float(cl[k] + ll[k]))[:sample]
                    used, kept = set(hard), [k for k in kept if k in hard]
                positives += len(kept)
                total = total + weight * sum(ll[k] for k in kept) + sum(cl[k] for k in used)
            return total / max(1, {"VALID": positives, "BATCH_SIZE": N, "FULL": N * P, "NONE": 1}[mode])
        return f
    base = "multibox_loss_param { num_classes: 4 overlap_threshold: 0.3 %s }"
    loc, conf = rand(N, P * 4), rand(N, P * C)
    for text, more, args in (
            ("neg_pos_ratio: 2", "", {}),
            ("code_type: CENTER_SIZE neg_pos_ratio: 2 loc_weight: 0.5 use_difficult_gt: false", "loss_param { normalization: FULL }",
             dict(code="CENTER_SIZE", weight=0.5, difficult=False, mode="FULL")),
            ("code_type: CORNER_SIZE neg_pos_ratio: 3 neg_overlap: 0.2 loc_loss_type: L2", "loss_param { normalize: false }",
             dict(code="CORNER_SIZE", ratio=3.0, limit=0.2, smooth=False, mode="BATCH_SIZE")),
            ("mining_type: NONE conf_loss_type: LOGISTIC", "", dict(mining="NONE", logistic=True)),
            ("mining_type: HARD_EXAMPLE sample_size: 5", "", dict(mining="HARD_EXAMPLE")),
            ("encode_variance_in_target: true neg_pos_ratio: 2 match_type: BIPARTITE", "", dict(plain=True, threshold=9)),
            ("ignore_cross_boundary_bbox: true neg_pos_ratio: 2", "", dict(cross=True))):
        case("MultiBoxLoss", base % text + " " + more, [loc, conf, priors, truth], loss(**args), constant=(2, 3), roundings=512)
    by_sample = torch.full((N, 3, 8), -1.0)
    for n in range(N):
        for k, r in enumerate([r for r in truth.reshape(6, 8) if int(r[0]) == n]):
            by_sample[n, k] = r
            by_sample[n, k, 0] = 7
    case("MultiBoxLoss", base % "neg_pos_ratio: 2", [loc, conf, priors, by_sample],
         lambda b, w: loss()([b[0], b[1], b[2], truth], w), constant=(2, 3), roundings=512)
    case("MultiBoxLoss", base % "share_location: false mining_type: NONE", [rand(N, P * 4 * C), conf, priors, truth],
         loss(mining="NONE", share=False), constant=(2, 3), roundings=512)


def detections():
    P, C, N = 20, 3, 2
    prior = some_boxes(P)
    variance = torch.tensor([0.1, 0.1, 0.2, 0.2]).repeat(P, 1).float().double()
    priors = torch.stack([prior.flatten(), variance.flatten()]).unsqueeze(0)

    def find(code, above, threshold, eta, top_k, keep, share, rows):
        def f(b, w):
            loc, conf, out = b[0].reshape(N, P, -1, 4), b[1].reshape(N, P, C), []
            for n in range(N):
                mine = []
                for c in range(1, C):
                    box = decode(code, loc[n, :, 0 if share else c], prior, variance)
                    o = iou(box, box)
                    order = [k for k in sorted(range(P), key=lambda k: -float(conf[n, k, c])) if conf[n, k, c] > above][:top_k]
                    limit, kept = threshold, []
                    for k in order:
                        if all(o[k, j] <= limit for j in kept):
                            kept.append(k)
                            if limit > 0.5:
                                limit *= eta
                    mine += [(c, k, box[k]) for k in kept]
                best = sorted(mine, key=lambda v: -float(conf[n, v[1], v[0]]))[:keep]
                out += [torch.tensor([n, c, float(conf[n, k, c])] + v.tolist()) for c, k, v in mine
                        if any(c == q[0] and k == q[1] for q in best)]
            out += [torch.full((7,), -1.0)] * (rows - len(out))
            return torch.stack(out).reshape(1, 1, rows, 7)
        return f
    conf = torch.softmax(rand(N, P, C), 2).float().double().flatten(1)
    case("DetectionOutput", "detection_output_param { num_classes: 3 code_type: CENTER_SIZE keep_top_k: 6 confidence_threshold: 0.3 "
         "nms_param { nms_threshold: 0.45 top_k: 8 } }", [rand(N, P * 4), conf, priors],
         find("CENTER_SIZE", 0.3, 0.45, 1, 8, 6, True, 12), constant=None, roundings=512)
    case("DetectionOutput", "detection_output_param { num_classes: 3 share_location: false nms_param { nms_threshold: 0.7 eta: 0.8 top_k: 5 } }",
         [rand(N, P * 4 * C), conf, priors], find("CORNER", -9, 0.7, 0.8, 5, 99, False, 20), constant=None, roundings=512)


# ---- layers that add, multiply and pass on

def plain():
    x = (2, 3, 4, 5)
    case("Concat", "", [rand(2, 3, 1), rand(2, 1, 1), rand(2, 2, 1)], lambda b, w: torch.cat(b, 1))
    case("Concat", "concat_param { axis: -2 }", [rand(2, 3, 1, 5), rand(2, 3, 7, 5)], lambda b, w: torch.cat(b, 2))
    case("Concat", "concat_param { concat_dim: 0 }", [rand(1, 3), rand(4, 3)], lambda b, w: torch.cat(b, 0))
    three = [distinct(*x), distinct(*x) + 0.01, rand(*x)]
    case("Eltwise", "", three, lambda b, w: b[0] + b[1] + b[2])
    case("Eltwise", "eltwise_param { coeff: -0.5 coeff: 2 }", three[:2], lambda b, w: 2 * b[1] - b[0] / 2)
    case("Eltwise", "eltwise_param { operation: MAX }", three, lambda b, w: torch.max(torch.max(b[0], b[1]), b[2]), roundings=1)
    factors = [rand(*x) for _ in range(3)]
    case("Eltwise", "eltwise_param { operation: PROD }", factors, lambda b, w: b[0] * b[1] * b[2])
    away = [(v.abs() + 0.5).float().double() for v in factors]
    case("Eltwise", "eltwise_param { operation: PROD stable_prod_grad: false }", away, lambda b, w: b[0] * b[1] * b[2])
    index = torch.tensor([[2., 0, 2], [6, 1, 1]])
    case("Embed", "embed_param { num_output: 5 input_dim: 7 }", [index], lambda b, w: F.embedding(b[0].long(), w[0]) + w[1],
         [rand(7, 5), rand(5)], constant=None)
    case("Embed", "embed_param { num_output: 1 input_dim: 7 bias_term: false }", [index],
         lambda b, w: F.embedding(b[0].long(), w[0]), [rand(7, 1)], constant=None)
    case("Bias", "", [rand(*x)], lambda b, w: b[0] + w[0].reshape(1, 3, 1, 1), [rand(3)])
    case("Bias", "bias_param { axis: -2 }", [rand(*x), rand(4, 5)], lambda b, w: b[0] + b[1])
    case("Scale", "scale_param { bias_term: true }", [rand(*x)],
         lambda b, w: b[0] * w[0].reshape(1, 3, 1, 1) + w[1].reshape(1, 3, 1, 1), [rand(3), rand(3)])
    case("Scale", "scale_param { axis: 0 num_axes: -1 }", [rand(3, 1, 7)], lambda b, w: b[0] * w[0], [rand(3, 1, 7)])
    case("Scale", "scale_param { axis: 1 bias_term: true }", [rand(*x), rand(3, 4)],
         lambda b, w: b[0] * b[1].reshape(1, 3, 4, 1) + w[0].reshape(1, 3, 4, 1), [rand(3, 4)], roundings=128)
    case("Scale", "scale_param { num_axes: 0 bias_term: true }", [rand(2, 5)], lambda b, w: b[0] * w[0] + w[1], [rand(), rand()])
    case("Flatten", "", [rand(*x)], lambda b, w: b[0].flatten(1), roundings=1)
    case("Flatten", "flatten_param { axis: -3 end_axis: -2 }", [rand(*x)], lambda b, w: b[0].flatten(1, 2), roundings=1)
    case("Split", "", [rand(3, 1, 5)], lambda b, w: [b[0] * 1, b[0] * 1, b[0] * 1])
    case("Dropout", "dropout_param { dropout_ratio: 0.3 }", [rand(3, 7)], lambda b, w: b[0] * 1, phase="CT_TEST", roundings=1)
    score, label = distinct(4, 5, 2, 1), torch.tensor([[[0.], [3]], [[4], [1]], [[1], [2]], [[3], [3]]])

    def accuracy(k, ignore=None, each=False):
        def f(b, w):
            right = (b[0].topk(k, 1)[1] == label.long().unsqueeze(1)).any(1).double()
            keep = (label != ignore).double() if ignore is not None else torch.ones_like(label)
            classes = [(right * (label == c)).sum() / max(1, (label == c).sum()) for c in range(5)]
            return [(right * keep).sum() / keep.sum()] + ([torch.stack(classes)] if each else [])
        return f
    case("Accuracy", "", [score, label], accuracy(1, each=True), constant=None, roundings=1)
    case("Accuracy", "accuracy_param { top_k: 3 ignore_label: 3 }", [score, label], accuracy(3, 3), constant=None, roundings=1)
    case("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }", [(rand(2, 3, 4, 6).abs() + 0.1).float().double()],
         lambda b, w: F.avg_pool2d(b[0] * b[0], 2) / F.avg_pool2d(b[0], 2), phase="CT_TEST")
    ws = [rand(1, 4), rand(1, 4), rand(1, 4), rand(1, 4).abs() + 0.5]
    case("SyncBN", "bn_param { eps: 1e-3 }", [rand(3, 4, 2, 5)],
         lambda b, w: F.batch_norm(b[0], None, None, w[0].flatten(), w[1].flatten(), True, 0, 1e-3), ws, skip=(2, 3), roundings=256)


# ---- layers of language models

def rms_norm(x, w, eps=1e-5):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def sines(t, c):
    """Vaswani et al. 2017, 3.5."""
    table = torch.zeros(t, c)
    for p in range(t):
        for i in range(0, c, 2):
            angle = p / 10000 ** (i / c)
            table[p, i] = math.sin(angle)
            if i + 1 < c:
                table[p, i + 1] = math.cos(angle)
    return table


def language():
    case("LayerNorm", "", [rand(3, 4, 257) * 2 + 5], lambda b, w: F.layer_norm(b[0], (257,), w[0], w[1], 1e-5),
         [rand(257), rand(257)], roundings=128)
    case("RMSNorm", "", [rand(3, 4, 65)], lambda b, w: rms_norm(b[0], w[0]), [rand(65)], roundings=128)
    case("RMSNorm", "rms_norm_param { eps: 0.25 axis: 2 }", [rand(2, 3, 7)], lambda b, w: rms_norm(b[0], w[0], 0.25), [rand(7)])
    case("RMSNorm", "rms_norm_param { axis: 1 }", [rand(2, 3, 5)],
         lambda b, w: rms_norm(b[0].flatten(1), w[0].flatten()).reshape(2, 3, 5), [rand(3, 5)])
    case("SwiGLU", "", [3 * rand(2, 5, 7), rand(2, 5, 7)], lambda b, w: F.silu(b[0]) * b[1])
    case("SwiGLU", "", [3 * rand(2, 3, 14)], lambda b, w: F.silu(b[0][..., :7]) * b[0][..., 7:])
    case("Position", "position_param { max_length: 6 }", [rand(3, 4, 5)], lambda b, w: b[0] + w[0][:4], [rand(6, 5)])
    index = torch.tensor([[0., 1, 2, 0], [5, 0, 1, 1], [3, 3, 3, 3]])
    case("Position", "position_param { max_length: 6 }", [rand(3, 4, 5), index], lambda b, w: b[0] + F.embedding(b[1].long(), w[0]),
         [rand(6, 5)], constant=(1,))
    case("Position", "position_param { type: SINUSOIDAL }", [rand(2, 9, 7)], lambda b, w: b[0] + sines(9, 7))
    case("Position", "position_param { type: SINUSOIDAL max_length: 6 }", [rand(3, 4, 8), index],
         lambda b, w: b[0] + sines(6, 8)[b[1].long()], constant=(1,))
    case("MatMul", "", [rand(5, 7), rand(7, 3)], lambda b, w: b[0] @ b[1])
    case("MatMul", "matmul_param { transpose_b: true alpha: 0.125 }", [rand(2, 3, 5, 8), rand(2, 3, 6, 8)],
         lambda b, w: b[0] @ b[1].transpose(-1, -2) / 8)
    case("MatMul", "matmul_param { transpose_a: true }", [rand(3, 8, 5), rand(3, 8, 6)], lambda b, w: b[0].transpose(-1, -2) @ b[1])
    case("MatMul", "matmul_param { transpose_a: true transpose_b: true alpha: -2 }", [rand(3, 8, 5), rand(3, 6, 8)],
         lambda b, w: -2 * b[0].transpose(-1, -2) @ b[1].transpose(-1, -2))


# ---- attention

def turned(x, base, dim, pairs, shift=0):
    """x: N x T x heads x D. Pairs of dimensions as complex numbers, turned by their positions."""
    if not dim:
        return x
    n = dim // 2
    speed = base ** (-torch.arange(n) * 2.0 / dim)
    # angles as the layer has them: cosines and sines in f32
    angle = (torch.arange(x.shape[1]) + shift)[:, None] * speed
    turn = torch.complex(angle.cos().float().double(), angle.sin().float().double())[None, :, None]
    first, second = (x[..., 0:dim:2], x[..., 1:dim:2]) if pairs else (x[..., :n], x[..., n:dim])
    z = torch.complex(first, second) * turn
    both = torch.stack((z.real, z.imag), -1).flatten(-2) if pairs else torch.cat((z.real, z.imag), -1)
    return torch.cat((both, x[..., dim:]), -1)


def attend(q, k, v, heads, kv, causal, window=0, scale=None, rope=(1e4, 0, False), segment=None):
    n, tq, tk = q.shape[0], q.shape[1], k.shape[1]
    shift = tk - tq if causal else 0
    q = turned(q.reshape(n, tq, heads, -1), *rope, shift)
    k = turned(k.reshape(n, tk, kv, -1), *rope)
    i, j = torch.arange(tq)[:, None] + shift, torch.arange(tk)[None]
    mask = torch.ones(n, 1, tq, tk, dtype=torch.bool)
    if causal:
        mask = mask & (j <= i)
    if window:
        mask = mask & (j > i - window)
    if segment is not None:
        mask = mask & (segment[:, None, shift:, None] == segment[:, None, None, :])
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.reshape(n, tk, kv, -1).transpose(1, 2),
                                       attn_mask=mask, scale=scale, enable_gqa=True)
    return y.transpose(1, 2).reshape(n, tq, -1)


def attention():
    torch.manual_seed(14)

    def packed(heads, kv, **more):
        def f(b, w):
            dim = b[0].shape[2] // (heads + 2 * kv)
            q, k, v = b[0].split((heads * dim, kv * dim, kv * dim), 2)
            return attend(q, k, v, heads, kv, segment=b[1] if len(b) > 1 else None, **more)
        return f
    case("Attention", "attention_param { num_heads: 3 causal: true }", [rand(2, 7, 36)], packed(3, 3, causal=True),
         roundings=128)
    case("Attention", "attention_param { num_heads: 4 num_kv_heads: 2 causal: true window: 4 rope { base: 100 } }",
         [rand(1, 5, 24), rand(1, 9, 12), rand(1, 9, 12)],
         lambda b, w: attend(*b, 4, 2, True, window=4, rope=(100, 6, False)), roundings=128)
    case("Attention", "attention_param { num_heads: 2 scale: 0.25 rope { dim: 4 interleaved: true } }",
         [rand(2, 3, 12), rand(2, 8, 12), rand(2, 8, 12)],
         lambda b, w: attend(*b, 2, 2, False, scale=0.25, rope=(1e4, 4, True)), roundings=128)
    segment = torch.tensor([[3., 3, 3, 1, 1, 7, 7, 7, 7, 2], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]])
    case("Attention", "attention_param { num_heads: 2 num_kv_heads: 1 causal: true rope { } }", [rand(2, 10, 16), segment],
         packed(2, 1, causal=True, rope=(1e4, 4, False)), constant=(1,), roundings=128)
    case("Attention", "attention_param { num_heads: 1 }", [rand(2, 10, 9), segment], packed(1, 1, causal=False),
         constant=(1,), roundings=128)


for part in (structure, reduce, convolutions, others, bn, sizes, regions, prior_boxes, multibox, detections, plain, language,
             attention):
    part()
print("/* Made by make_cases_golden.py with PyTorch %s; not edited. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
print("\n".join(arrays))
print("static const golden_case golden[] = {")
print("\n".join(names))
print("};")
