#!/usr/bin/env python3
"""Runs BVLC's layers in Caffe itself and here, on the same numbers, and compares all they make.

Usage: CORTADO=./cortado tests/golden/against_caffe.py path/to/caffe [--table] [NAME…]     (BVLC Caffe; no packages)

Every case is a net: Parameter layers hold the bottoms, the layer works on them, and an EuclideanLoss
holds each top against a target, which is a parameter too. One step of SGD with rate 1 from the same
.caffemodel then leaves every gradient in the weights that it writes: of the bottoms, of the layer's
own, and, in the targets', the top itself. Losses are read from the log, which has 6 digits.
--table prints a row a layer type: the largest |ours - Caffe's| / (1 + |Caffe's|), and what is allowed.
"""
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

SHARING = ("Flatten", "Reshape")  # in Caffe they replace the memory of their bottom's gradient: no parameter's
DIGITS = 2e-5  # of a loss in a log


# ---- .caffemodel: the few fields that matter here

def varint(n):
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if n == 0:
            return out


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    at = 0

    def number():
        nonlocal at
        n, shift = 0, 0
        while True:
            b = data[at]
            at += 1
            n |= (b & 127) << shift
            shift += 7
            if b < 128:
                return n
    while at < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 == 0:
            yield key >> 3, number()
        else:
            yield key >> 3, data[at:at + (4 if key & 7 == 5 else 8)]
            at += 4 if key & 7 == 5 else 8


def write_model(path, layers):
    """layers: name -> list of (shape, values)."""
    out = field(1, b"case")
    for name, blobs in layers.items():
        body = field(1, name.encode())
        for shape, values in blobs:
            body += field(7, field(7, field(1, b"".join(varint(d) for d in shape))) +
                          field(5, struct.pack("<%df" % len(values), *values)))
        out += field(100, body)
    with open(path, "wb") as f:
        f.write(out)


def read_model(path):
    with open(path, "rb") as f:
        data = f.read()
    layers = {}
    for number, body in fields(data):
        if number != 100:
            continue
        name, blobs = None, []
        for n, v in fields(body):
            if n == 1:
                name = v.decode()
            elif n == 7:
                values = []
                for k, d in fields(v):
                    if k == 5:
                        values += struct.unpack("<%df" % (len(d) // 4), d)
                blobs.append(values)
        layers[name] = blobs
    return layers


# ---- numbers

def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def numbers(kind, shape, rng):
    n = math.prod(shape)
    if isinstance(kind, (list, tuple)) and kind and kind[0] == "label":
        return [float(rng.randrange(kind[1])) for _ in range(n)]
    if isinstance(kind, list):
        return [f32(v) for v in kind]
    if kind == "positive":
        return [f32(0.1 + 3 * rng.random()) for _ in range(n)]
    if kind == "distinct":  # no ties, far enough apart
        v = list(range(n))
        rng.shuffle(v)
        return [f32((i - n // 2) / 32) for i in v]
    if kind == "share":  # probabilities, near enough
        return [f32(0.05 + 0.9 * rng.random()) for _ in range(n)]
    return [f32(rng.gauss(0, 1)) for _ in range(n)]


# ---- cases

cases = []


def case(kind, text, bottoms, tops=1, fixed=(), loss=False, weights=None, roundings=64, no_top=(), lr=None):
    """bottoms: (shape, kind) each. fixed: bottoms without gradient; None: all of them. weights: kinds
    of the layer's own, by index. lr: rates of those. no_top: tops not compared."""
    cases.append(dict(kind=kind, text=text, bottoms=bottoms, tops=tops, loss=loss, weights=weights or {},
                      fixed=range(len(bottoms)) if fixed is None else fixed, roundings=roundings, no_top=no_top, lr=lr))


def neurons():
    shapes = [(3, 5, 1, 7), (1, 1, 1, 1)]
    for x in shapes:
        r, p, d = [(x, "rand")], [(x, "positive")], [(x, "distinct")]
        case("AbsVal", "", d)
        case("BNLL", "", r)
        case("Clip", "clip_param { min: -0.7 max: 1.5 }", d)
        case("ELU", "elu_param { alpha: 0.7 }", r)
        case("Exp", "", r, roundings=1024)
        case("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.25 }", r)
        case("Log", "", p)
        case("Log", "log_param { base: 10 scale: 3 shift: 0.5 }", p)
        case("Power", "power_param { scale: 1.5 shift: -0.25 }", r)
        case("Power", "power_param { power: 2 scale: 0.5 shift: 0.25 }", r)
        case("Power", "power_param { power: 0.5 scale: 2 shift: 0.5 }", p)
        case("Power", "power_param { power: -1.7 scale: 2 shift: 0.5 }", p)
        case("Power", "power_param { power: 0 shift: 2 }", r)
        case("ReLU", "", d)
        case("ReLU", "relu_param { negative_slope: 0.1 }", d)
        case("PReLU", "", d)
        case("PReLU", "prelu_param { channel_shared: true filler { value: 0.1 } }", d)
        case("Sigmoid", "", r)
        case("Swish", "", r)
        case("Swish", "swish_param { beta: 1.5 }", r)
        case("TanH", "", r)
        case("Threshold", "threshold_param { threshold: 0.25 }", r, fixed=None)


def structure():
    x = (2, 5, 3, 4)
    case("ArgMax", "", [(x, "distinct")], fixed=None)
    case("ArgMax", "argmax_param { out_max_val: true top_k: 3 }", [(x, "distinct")], fixed=None)
    case("ArgMax", "argmax_param { axis: 1 top_k: 2 }", [(x, "distinct")], fixed=None)
    case("ArgMax", "argmax_param { axis: -1 out_max_val: true }", [(x, "distinct")], fixed=None)
    case("BatchReindex", "", [((3, 2, 5), "rand"), ((5,), [2.0, 0, 2, 1, 1])], fixed=(1,))
    case("Concat", "", [((2, 3, 5), "rand"), ((2, 1, 5), "rand"), ((2, 2, 5), "rand")])
    case("Concat", "concat_param { axis: -1 }", [((2, 3, 1), "rand"), ((2, 3, 7), "rand")])
    case("Concat", "concat_param { concat_dim: 0 }", [((1, 3, 2, 1), "rand"), ((4, 3, 2, 1), "rand")])
    case("Crop", "crop_param { offset: 1 }", [((2, 3, 5, 6), "rand"), ((2, 3, 3, 4), "rand")], fixed=(1,))
    case("Crop", "crop_param { axis: 1 offset: 2 offset: 0 offset: 3 }", [((2, 5, 4, 6), "rand"), ((1, 2, 3, 3), "rand")],
         fixed=(1,))
    case("Dropout", "dropout_param { dropout_ratio: 0.5 } phase: TEST", [(x, "rand")])
    for op in ("SUM", "PROD", "MAX"):
        case("Eltwise", "eltwise_param { operation: %s }" % op, [(x, "distinct")] + [(x, "rand")] * 2)
    case("Eltwise", "eltwise_param { coeff: -0.5 coeff: 2 }", [(x, "rand")] * 2)
    case("Eltwise", "eltwise_param { operation: PROD stable_prod_grad: false }", [(x, "positive")] * 2)
    case("Embed", "embed_param { num_output: 5 input_dim: 7 }", [((3, 2), ("label", 7))], fixed=None)
    case("Embed", "embed_param { num_output: 1 input_dim: 3 bias_term: false }", [((11,), ("label", 3))], fixed=None)
    case("Flatten", "", [(x, "rand")])
    case("Flatten", "flatten_param { axis: -3 end_axis: -2 }", [(x, "rand")])
    case("Im2col", "convolution_param { kernel_size: 3 stride: 2 pad: 1 }", [((2, 3, 5, 4), "rand")])
    case("Im2col", "convolution_param { kernel_h: 1 kernel_w: 3 dilation: 2 pad_h: 0 pad_w: 1 }", [((1, 2, 3, 5), "rand")])
    for op in ("SUM", "ASUM", "SUMSQ", "MEAN"):
        for axis in (0, 1, -1):  # of axis 0 there is but a scalar, which no other loss takes
            case("Reduction", "reduction_param { operation: %s axis: %d coeff: 0.5 } %s" % (op, axis, "" if axis else "loss_weight: 0.75"),
                 [((4, 3, 5), "distinct")], roundings=1024, loss=axis == 0)
    case("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } axis: 1 num_axes: 2 }", [((2, 3, 4), "rand")])
    case("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", [((2, 3), "rand")])
    case("Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 4 }", [((2, 3, 5, 2), "rand")], tops=3)
    case("Slice", "", [((3, 4, 2), "rand")], tops=2)
    case("Slice", "slice_param { slice_dim: 0 }", [((4, 3), "rand")], tops=4)
    case("Split", "", [((3, 1, 5), "rand")], tops=3)
    case("Tile", "tile_param { axis: 1 tiles: 3 }", [((2, 3, 4), "rand")])
    case("Tile", "tile_param { axis: -1 tiles: 2 }", [((2, 3, 5), "rand")])
    case("Parameter", "parameter_param { shape { dim: 3 dim: 1 dim: 5 } }", [])


def sums():
    x = (3, 5, 2, 7)
    for bias in ("", "bias_term: true"):
        case("Scale", "scale_param { %s }" % bias, [(x, "rand")], roundings=512)
        case("Scale", "scale_param { axis: 0 num_axes: -1 %s }" % bias, [(x, "rand")], roundings=512)
        case("Scale", "scale_param { num_axes: 0 %s }" % bias, [(x, "rand")], roundings=1024)
        case("Scale", "scale_param { axis: 1 %s }" % bias, [(x, "rand"), ((5, 2), "rand")], roundings=512)
    case("Bias", "", [(x, "rand")], roundings=512)
    case("Bias", "bias_param { axis: 2 num_axes: 2 }", [(x, "rand")], roundings=512)
    case("Bias", "bias_param { axis: -1 }", [(x, "rand"), ((7,), "rand")], roundings=512)
    case("BatchNorm", "batch_norm_param { eps: 1e-3 moving_average_fraction: 0.9 }", [(x, "rand")],
         weights={0: "rand", 1: "positive", 2: [2.0]}, roundings=1024)
    case("BatchNorm", "batch_norm_param { use_global_stats: true }", [(x, "rand")],
         weights={0: "rand", 1: "positive", 2: [2.0]}, roundings=1024)
    case("BatchNorm", "", [((13, 4), "rand")], weights={2: [1.0]}, roundings=1024)
    case("MVN", "", [(x, "rand")], roundings=1024)
    case("MVN", "mvn_param { across_channels: true }", [(x, "rand")], roundings=1024)
    case("MVN", "mvn_param { normalize_variance: false }", [((1, 3, 5, 1), "rand")], roundings=1024)
    case("LRN", "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 }", [((2, 7, 1, 3), "rand")], roundings=256)
    case("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.6 k: 2 }", [((1, 4, 3, 2), "rand")], roundings=256)
    case("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.75 norm_region: WITHIN_CHANNEL }", [((2, 2, 4, 5), "rand")],
         roundings=256)
    case("Softmax", "", [((3, 7, 1, 3), "rand")])
    case("Softmax", "softmax_param { axis: -1 }", [((2, 3, 11), "rand")])


def products():
    conv = "convolution_param { num_output: %d %s } param { lr_mult: 1 } %s"
    two = "param { lr_mult: 1 }"
    for text, x in (("kernel_size: 3", (2, 2, 5, 4)),
                    ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 0", (3, 1, 4, 7)),
                    ("kernel_size: 3 dilation: 2 pad: 2 stride: 2", (1, 2, 7, 5)),
                    ("kernel_size: 3 pad: 1 group: 2 stride: 2", (1, 4, 7, 6)),
                    ("kernel_size: 1", (2, 3, 1, 13)),
                    ("kernel_size: 3 kernel_size: 1 kernel_size: 2 pad: 1 pad: 0 pad: 1", (2, 2, 3, 2, 4)),
                    ("kernel_size: 3 pad: 1 stride: 2", (2, 3, 7)),
                    ("axis: 2 kernel_size: 3", (2, 3, 4, 5, 4))):
        case("Convolution", conv % (4, text, two), [(x, "rand")], roundings=4096)
    case("Convolution", conv % (3, "kernel_size: 3 bias_term: false", ""), [((1, 2, 5, 5), "rand")], roundings=4096)
    case("Convolution", conv % (3, "kernel_size: 2", two), [((1, 2, 3, 5), "rand")] * 2, tops=2, roundings=4096)
    for text, x in (("kernel_size: 4 stride: 2 pad: 1", (2, 4, 3, 5)),
                    ("kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 1 dilation: 2 group: 2", (2, 6, 3, 4)),
                    ("kernel_size: 1", (1, 3, 1, 7)),
                    ("kernel_size: 3 stride: 2 pad: 1", (1, 3, 2, 3, 2))):
        case("Deconvolution", conv % (4, text, two), [(x, "rand")], roundings=4096)
    case("InnerProduct", "inner_product_param { num_output: 4 }", [((3, 2, 1, 5), "rand")], roundings=1024)
    case("InnerProduct", "inner_product_param { num_output: 3 axis: 2 transpose: true bias_term: false }", [((2, 3, 5), "rand")],
         roundings=1024)
    case("InnerProduct", "inner_product_param { num_output: 1 axis: -1 }", [((1, 7), "rand")], roundings=1024)


def pools():
    for pool in ("MAX", "AVE"):
        for text, x in (("kernel_size: 3 stride: 2", (2, 2, 6, 7)), ("kernel_size: 3 stride: 2 pad: 1", (1, 2, 6, 7)),
                        ("kernel_size: 2 stride: 2 pad: 1", (1, 2, 5, 4)), ("global_pooling: true", (2, 3, 3, 5)),
                        ("kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2", (1, 1, 5, 8)),
                        ("kernel_size: 3 stride: 2 round_mode: FLOOR", (2, 2, 6, 7)), ("kernel_size: 1", (1, 1, 1, 1))):
            case("Pooling", "pooling_param { pool: %s %s }" % (pool, text), [(x, "distinct")], roundings=128)
    case("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", [((2, 2, 6, 7), "distinct")], tops=2)
    case("SPP", "spp_param { pyramid_height: 3 pool: MAX }", [((2, 3, 7, 6), "distinct")])
    case("SPP", "spp_param { pyramid_height: 2 pool: AVE }", [((2, 1, 5, 3), "rand")], roundings=128)


def losses():
    for x in ((5, 4), (3, 7, 1, 2), (1, 2)):
        label = ((x[0],) + x[2:], ("label", x[1]))
        flat = ((x[0],), ("label", math.prod(x[1:])))
        case("SoftmaxWithLoss", "", [(x, "rand"), label], loss=True, fixed=(1,))
        for norm in ("FULL", "VALID", "BATCH_SIZE", "NONE"):
            case("SoftmaxWithLoss", "loss_param { ignore_label: 1 normalization: %s } loss_weight: 0.75" % norm,
                 [(x, "rand"), label], loss=True, fixed=(1,))
        case("SoftmaxWithLoss", "loss_param { normalize: false }", [(x, "rand"), label], loss=True, fixed=(1,))
        case("HingeLoss", "", [(x, "distinct"), flat], loss=True, fixed=(1,))
        case("HingeLoss", "hinge_loss_param { norm: L2 }", [(x, "distinct"), flat], loss=True, fixed=(1,))
        case("MultinomialLogisticLoss", "", [(x, "share"), flat], loss=True, fixed=(1,), roundings=1024)
        case("EuclideanLoss", "loss_weight: 0.5", [(x, "rand"), (x, "rand")], loss=True)
        case("SigmoidCrossEntropyLoss", "", [(x, "rand"), (x, "share")], loss=True, fixed=(1,))
        case("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 1 normalization: VALID }", [(x, "rand"), (x, ("label", 3))],
             loss=True, fixed=(1,))
        case("InfogainLoss", "", [(x, "rand"), label, ((1, 1, x[1], x[1]), "rand")], loss=True, fixed=(1, 2))
        case("Accuracy", "", [(x, "distinct"), label], tops=2, fixed=None, loss=True)
        case("Accuracy", "accuracy_param { top_k: 2 ignore_label: 0 }", [(x, "distinct"), label], fixed=None, loss=True)
    pair = [((6, 3), "rand"), ((6, 3), "rand"), ((6,), [1.0, 0, 0, 1, 0, 0])]
    case("ContrastiveLoss", "contrastive_loss_param { margin: 2.5 }", pair, loss=True, fixed=(2,))
    case("ContrastiveLoss", "contrastive_loss_param { margin: 7 legacy_version: true }", pair, loss=True, fixed=(2,))


def sequences():
    cont = ((3, 2), [0.0, 0, 1, 1, 0, 1])
    fill = "num_output: 3 weight_filler { type: 'gaussian' } bias_filler { type: 'gaussian' }"
    for kind in ("LSTM", "RNN"):
        case(kind, "recurrent_param { %s }" % fill, [((3, 2, 5), "rand"), cont], fixed=(1,), roundings=4096)
        case(kind, "recurrent_param { %s }" % fill, [((3, 2, 5), "rand"), cont, ((2, 2), "rand")], fixed=(1,), roundings=4096)
    case("LSTM", "recurrent_param { %s expose_hidden: true }" % fill,
         [((3, 2, 1), "rand"), cont, ((1, 2, 3), "rand"), ((1, 2, 3), "rand")], tops=3, fixed=(1, 2, 3),
         no_top=(1, 2), roundings=4096)  # Caffe passes no gradient through exposed states
    case("LSTMUnit", "", [((1, 2, 3), "rand"), ((1, 2, 12), "rand"), ((1, 2), [1.0, 0])], tops=2, fixed=(2,), roundings=256)


# ---- running

def parameter(name, shape, rate):
    return ('layer { name: "%s" type: "Parameter" top: "%s" param { lr_mult: %g } parameter_param { shape { %s } } }\n'
            % (name, name, rate, " ".join("dim: %d" % d for d in shape)))


def net_of(c, top_shapes):
    text = ""
    for i, (shape, _) in enumerate(c["bottoms"]):
        text += parameter("b%d" % i, shape, 0 if i in c["fixed"] else 1)
        if c["kind"] in SHARING:
            text += 'layer { name: "p%d" type: "Power" bottom: "b%d" top: "p%d" }\n' % (i, i, i)
    own = c["text"]
    text += 'layer { name: "it" type: "%s" %s %s %s }\n' % (
        c["kind"], " ".join('bottom: "%s%d"' % ("p" if c["kind"] in SHARING else "b", i) for i in range(len(c["bottoms"]))),
        " ".join('top: "t%d"' % i for i in range(c["tops"])), own)
    if top_shapes is None:
        return text
    if c["kind"] == "Accuracy":  # nothing to learn: something that trains must stand there
        text += parameter("w", (1, 1), 1) + parameter("v", (1, 1), 1)
        text += 'layer { name: "some" type: "EuclideanLoss" bottom: "w" bottom: "v" top: "some" }\n'
    if not c["loss"]:
        for i, shape in enumerate(top_shapes):
            if i in c["no_top"]:
                text += 'layer { name: "s%d" type: "Silence" bottom: "t%d" }\n' % (i, i)
                continue
            top = "t%d" % i
            if len(shape) > 4:  # Caffe's losses ask for the old four dimensions
                text += 'layer { name: "f%d" type: "Flatten" bottom: "t%d" top: "f%d" }\n' % (i, i, i)
                top, shape = "f%d" % i, (shape[0], math.prod(shape[1:]))
            text += parameter("target%d" % i, shape, 1)
            text += 'layer { name: "l%d" type: "EuclideanLoss" bottom: "%s" bottom: "target%d" top: "l%d" }\n' % (i, top, i, i)
    return text


def run(command, folder):
    r = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                       env=dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "2")))
    return r.returncode, r.stdout


def outputs(log):
    """Values of the net's outputs at iteration 0, by name, in order."""
    found = {}
    for name, value in re.findall(r"Train net output #\d+: (\S+) = (\S+)", log):
        found.setdefault(name, []).append(float(value))
    return found


def play(c, caffe, ours, folder, rng):
    def put(name, text):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    put("net.prototxt", net_of(c, None))
    rc, out = run([ours, "check", "--model=net.prototxt", "--phase=TRAIN", "--json"], folder)
    if rc != 0:
        return "check: " + out.strip(), None
    layers = {l["name"]: l for l in json.loads(out[out.index("{"):])["layers"]}
    put("net.prototxt", net_of(c, [t["shape"] for t in layers["it"]["tops"]]))
    rc, out = run([ours, "check", "--model=net.prototxt", "--phase=TRAIN", "--json"], folder)
    if rc != 0:
        return "check: " + out.strip(), None
    start = {}
    for l in json.loads(out[out.index("{"):])["layers"]:
        blobs = []
        for k, w in enumerate(l["weights"]):
            kind = "rand"
            if re.fullmatch(r"b\d+", l["name"]):
                kind = c["bottoms"][int(l["name"][1:])][1]
            elif l["name"] == "it":
                kind = c["weights"].get(k, "rand")
            blobs.append((w["shape"], numbers(kind, w["shape"], rng)))
        if blobs:
            start[l["name"]] = blobs
    write_model(os.path.join(folder, "start.caffemodel"), start)
    after, logs = [], []
    for who, program in (("caffe", caffe), ("ours", ours)):
        put("solver.prototxt", 'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 1 display: 1 solver_mode: CPU '
            'snapshot: 1 snapshot_format: BINARYPROTO snapshot_prefix: "%s"' % who)
        rc, out = run([program, "train", "--solver=solver.prototxt", "--weights=start.caffemodel"], folder)
        path = os.path.join(folder, who + "_iter_1.caffemodel")
        if rc != 0 or not os.path.exists(path):
            return "%s: exit code %d: %s" % (who, rc, out.strip()[-600:]), None
        after.append(read_model(path))
        logs.append(outputs(out))
    return None, (start, after, logs)


def far(a, b):
    return abs(a - b) / (1 + abs(b)) if math.isfinite(a) else math.inf


def judge(c, start, after, logs):
    """Largest error of the tops and of the gradients, and complaints."""
    theirs, mine = after
    bound, worst, bad = c["roundings"] * 2.0 ** -24, {"forward": 0.0, "backward": 0.0}, []
    for name, blobs in start.items():
        for k, (shape, before) in enumerate(blobs):
            if name not in theirs or name not in mine:
                bad.append("%s is not in both files" % name)
                continue
            a, b = mine[name][k], theirs[name][k]
            if len(a) != len(before) or len(b) != len(before):
                bad.append("%s[%d] has %d, %d, %d numbers" % (name, k, len(a), len(b), len(before)))
                continue
            e = max(far(p, q) for p, q in zip(a, b))
            side = "forward" if name.startswith("target") else "backward"
            worst[side] = max(worst[side], e)
            if e > bound:
                i = max(range(len(a)), key=lambda i: far(a[i], b[i]))
                bad.append("%s[%d] %d of %s: ours %.9g, Caffe's %.9g, before %.9g" % (name, k, i, shape, a[i], b[i], before[i]))
            if name == "it" or re.fullmatch(r"b\d+", name):
                c["moved"] = c.get("moved", False) or list(b) != list(before)
    for name, values in logs[0].items():
        got = logs[1].get(name, [])
        if len(got) != len(values) or any(far(p, q) > DIGITS for p, q in zip(got, values)):
            bad.append("%s: ours %s, Caffe's %s" % (name, got[:8], values[:8]))
        elif c["loss"]:
            worst["forward"] = max([worst["forward"]] + [far(p, q) for p, q in zip(got, values)])
    return worst, bad


def main():
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    caffe, ours, only = os.path.abspath(words[0]), os.path.abspath(os.environ.get("CORTADO", "./cortado")), words[1:]
    failed, table = 0, {}
    for part in (neurons, structure, sums, products, pools, losses, sequences):
        part()
    for i, c in enumerate(cases):
        if only and c["kind"] not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            error, result = play(c, caffe, ours, folder, random.Random(1000 + i))
        worst, bad = judge(c, *result) if error is None else (None, [error])
        if bad:
            failed += 1
            print("not ok %s { %s }" % (c["kind"], c["text"]))
            for line in bad[:4]:
                print("    " + line)
            continue
        row = table.setdefault(c["kind"], dict(n=0, forward=0.0, backward=0.0, bound=0.0, loss=c["loss"], moved=False))
        row["n"] += 1
        for side in ("forward", "backward"):
            row[side] = max(row[side], worst[side])
        row["bound"] = max(row["bound"], c["roundings"] * 2.0 ** -24)
        row["moved"] = row["moved"] or c.get("moved", False)
    for kind, r in sorted(table.items(), key=lambda v: v[0].lower()):
        if "--table" in sys.argv:
            print("| %s | %d | %.1e | %s | %.1e |" % (kind, r["n"], r["forward"], "%.1e" % r["backward"] if r["moved"] else "",
                                                     r["bound"]))
    print("%d cases, %d of them not as in Caffe" % (sum(r["n"] for r in table.values()) + failed, failed))
    return 1 if failed else 0


sys.exit(main())
