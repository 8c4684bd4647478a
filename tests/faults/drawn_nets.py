"""Nets drawn by chance for forward.py: of pictures, of tokens, and of steps, with odd shapes, layers in place or apart, and values read several times."""
import math
import re

FUNCTIONS = ["Sigmoid", "TanH", "ELU", "Swish", "GELU", "Mish", "HardSwish", "ReLU6", "AbsVal", "BNLL", "Clip", "Power", "ReLU", "ReLU", "PReLU"]
REF = 'ct_kernel { forward: "%s" backward_data: "%s" backward_weight: "%s" }'
ENGINES = {"Convolution": "ref", "DepthwiseConvolution": "ref", "Deconvolution": "ref", "InnerProduct": "ref", "Pooling": "ref", "LRN": "ref",
           "ReLU": "ref", "MatMul": "ref", "LSTM": "ref", "RNN": "ref", "Attention": "reference"}


class Layer:
    def __init__(self, kind, bottoms, tops, fields, place=False, train=False):
        self.kind, self.bottoms, self.tops, self.fields, self.place, self.train = kind, bottoms, tops, fields, place, train
        self.name = ""


class Net:
    """Layers, and the shapes of blobs that nobody has read for good."""

    def __init__(self, draw):
        self.draw, self.layers, self.shape, self.read, self.gone = draw, [], {}, set(), set()
        self.inputs = []  # (name, shape, kind of numbers)
        self.divided = False  # ranks are to have parts of it
        self.terms, self.winograd, self.blobs = 16, False, 0
        self.few = False  # a fully connected layer has up to 16 rows

    def give(self, name, shape, numbers):
        self.inputs.append((name, shape, numbers))
        self.shape[name] = shape

    def blob(self, shape):
        self.blobs += 1
        name = f"b{self.blobs}"
        self.shape[name] = tuple(shape)
        return name

    def add(self, kind, bottoms, shapes, fields="", place=False, train=False):
        assert not self.gone.intersection(bottoms)
        tops = [self.blob(s) for s in shapes]
        place = place and bottoms[0] not in [n for n, _, _ in self.inputs]
        if kind in ("Convolution", "Deconvolution", "InnerProduct", "Scale", "PReLU", "LayerNorm", "Embed") and "param {" not in fields \
                and "affine" not in fields and self.draw.random() < 0.08:
            fields += " param { lr_mult: 0 }" + (" param { lr_mult: 0 }" if "bias_filler" in fields and self.draw.random() < 0.5 else "")
        layer = Layer(kind, list(bottoms), tops, fields, place, train)
        layer.name = f"l{len(self.layers)}_{kind.lower()}"
        self.layers.append(layer)
        self.read.update(bottoms)
        if place:
            self.gone.add(bottoms[0])
        return tops[0] if len(tops) == 1 else tops

    def leaves(self):
        return [t for l in self.layers for t in l.tops if t not in self.read]

    def alive(self, test):
        names = [n for n, _, kind in self.inputs if kind == "real"] + [t for l in self.layers for t in l.tops]
        return [n for n in names if n not in self.gone and test(self.shape[n])]

    def text(self, ref=False, fuse=None, apart=False, varies=False, inputs=None, more="", source=None, rounds=None):
        """rounds: a Random; each layer's values are off by two units of the last place, as those of another library may be."""
        now, lines = {}, [more]
        if fuse is not None:
            lines.append(f"fuse: {str(fuse).lower()}")
        if source:
            lines.append('layer { name: "in" type: "HDF5Data" ' + " ".join(f'top: "{name}"' for name, _, _ in self.inputs)
                         + f' hdf5_data_param {{ source: "{source}" batch_size: {self.inputs[0][1][0]} }} }}')
        for name, shape, _ in self.inputs if not source else ():
            shape = (inputs or {}).get(name, shape)
            phase = ' include { phase: TRAIN }' if name == "label" else ""
            lines.append(f'layer {{ name: "{name}" type: "Input" top: "{name}"{phase} input_param {{ shape {{ '
                         + " ".join(f"dim: {d}" for d in shape) + f' }}{" varies: true" if varies else ""} }} }}')
        for l in self.layers:
            bottoms = [now.get(b, b) for b in l.bottoms]
            for t in l.tops:
                now[t] = bottoms[0] if l.place and not apart else t
            words = [f'name: "{l.name}" type: "{l.kind}"', *(f'bottom: "{b}"' for b in bottoms), *(f'top: "{now[t]}"' for t in l.tops)]
            if l.train:
                words.append("include { phase: TRAIN }")
            if ref and l.kind in ENGINES and len(self.shape[l.bottoms[0]]) < 5:  # three axes of space have one engine
                e = ENGINES[l.kind]
                words.append(REF % (e, e, e))
            lines.append("layer { " + " ".join(words + [l.fields]) + " }")
            if rounds and not l.train and len(l.tops) == 1 and l.kind != "ArgMax":
                t = now[l.tops[0]]
                lines.append(f'layer {{ name: "{l.name}_rounds" type: "Power" bottom: "{t}" top: "{t}" '
                             f'power_param {{ scale: {1 + rounds.choice((-1, 1)) * 2.0 ** -22!r} }} }}')
        return "\n".join(x for x in lines if x) + "\n"

    def names(self):
        """What a blob is called where layers are in place."""
        now = {}
        for l in self.layers:
            for t in l.tops:
                now[t] = now.get(l.bottoms[0], l.bottoms[0]) if l.place else t
        return now


FILL = 'weight_filler { type: "xavier" }'
BIAS = 'bias_filler { type: "gaussian" std: 0.2 }'


def function(net, x, kind=None):
    draw = net.draw
    kind = kind or draw.choice(FUNCTIONS)
    fields = {"ELU": f"elu_param {{ alpha: {draw.choice((1, 0.5))} }}", "Swish": f"swish_param {{ beta: {draw.choice((1, 1.5))} }}",
              "GELU": draw.choice(("", "gelu_param { approximate: TANH }")), "Clip": "clip_param { min: -0.5 max: 0.75 }",
              "Power": draw.choice(("power_param { scale: 0.5 shift: 0.25 }", "power_param { power: 2 scale: 0.5 }")),
              "ReLU": draw.choice(("", "", "relu_param { negative_slope: 0.1 }")), "PReLU": draw.choice(("", "prelu_param { channel_shared: true }")),
              "ReLU6": draw.choice(("", "relu6_param { negative_slope: 0.1 }"))}.get(kind, "")
    return net.add(kind, [x], [net.shape[x]], fields, draw.random() < 0.5)


def channels(draw):
    return draw.choice((1, 2, 3, 5, 6, 7, 8, 12, 16, 16, 17, 24, 32, 32, 48))


def convolution(net, x, out=None, one=False, same=False):
    draw = net.draw
    n, c, h, w = net.shape[x]
    kind, group = "Convolution", 1
    out = out or channels(draw)
    kh = kw = 1 if one else draw.choice((1, 2, 3, 3, 3, 4, 5, 5, 7))
    if not one and not same and draw.random() < 0.2:
        kw = draw.choice((1, 2, 3, 5))
    if same:
        kh = kw = draw.choice((1, 3, 3, 5))
    dil = draw.choice((1, 1, 1, 2, 3)) if not one else 1
    sh, sw = (1, 1) if one or same else draw.choice(((1, 1), (1, 1), (1, 1), (2, 2), (3, 3), (2, 1), (1, 3), (4, 4)))
    ph, pw = (dil * (kh - 1) // 2, dil * (kw - 1) // 2) if one or same or draw.random() < 0.6 else (draw.randrange(3), draw.randrange(3))
    if not one:
        r = draw.random()
        if r < 0.12:
            kind, out = "DepthwiseConvolution", c * (1 if same else draw.choice((1, 1, 2)))
            group = c
        elif r < 0.35:
            groups = [g for g in (2, 3, 4, 8, c) if c % g == 0 and out % g == 0]
            group = draw.choice(groups or [1])
    if same and out != net.shape[x][1] and kind != "Convolution":
        kind, group = "Convolution", 1
    oh, ow = (h + 2 * ph - dil * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dil * (kw - 1) - 1) // sw + 1
    if oh < 1 or ow < 1 or h + 2 * ph < dil * (kh - 1) + 1 or w + 2 * pw < dil * (kw - 1) + 1:
        return None
    net.terms = max(net.terms, c // group * kh * kw, n * oh * ow)
    if (sh, sw, dil) == (1, 1, 1) and kh == kw and kh in (3, 5) and min(c, out) // group >= 16:
        net.winograd = True
    size = f"kernel_size: {kh}" if kh == kw else f"kernel_h: {kh} kernel_w: {kw}"
    stride = f" stride_h: {sh} stride_w: {sw}" if sh != sw else (f" stride: {sh}" if sh > 1 else "")
    pad = f" pad_h: {ph} pad_w: {pw}" if ph != pw else (f" pad: {ph}" if ph else "")
    bias = draw.random() < 0.7
    return net.add(kind, [x], [(n, out, oh, ow)], f"convolution_param {{ num_output: {out} {size}{stride}{pad}" + (f" dilation: {dil}" if dil > 1 else "")
                   + (f" group: {group}" if group > 1 and kind == "Convolution" else "") + f" {FILL} " + (BIAS if bias else "bias_term: false") + " }")


def deconvolution(net, x):
    draw = net.draw
    n, c, h, w = net.shape[x]
    out, k, s = draw.choice((1, 2, 4, 6, 8, 16)), draw.choice((1, 2, 3, 4, 5)), draw.choice((1, 2, 2, 3))
    p, dil = draw.choice((0, 0, 1)), draw.choice((1, 1, 2))
    group = draw.choice([g for g in (1, 1, 2, c) if c % g == 0 and out % g == 0])
    oh, ow = s * (h - 1) + dil * (k - 1) + 1 - 2 * p, s * (w - 1) + dil * (k - 1) + 1 - 2 * p
    if oh < 1 or ow < 1 or oh * ow > 1000:
        return None
    net.terms = max(net.terms, c // group * k * k, n * h * w * 4)
    if min(c, out) // group >= 16 and s == 1:
        net.winograd = True
    return net.add("Deconvolution", [x], [(n, out, oh, ow)], f"convolution_param {{ num_output: {out} kernel_size: {k} stride: {s} pad: {p} dilation: {dil}"
                   f" group: {group} {FILL} {draw.choice((BIAS, 'bias_term: false'))} }}")


def pooling(net, x):
    draw = net.draw
    n, c, h, w = net.shape[x]
    pool = draw.choice(("MAX", "MAX", "AVE"))
    if draw.random() < 0.15:
        net.terms = max(net.terms, h * w)
        return net.add("Pooling", [x], [(n, c, 1, 1)], f"pooling_param {{ pool: {pool} global_pooling: true }}")
    kh = draw.choice((1, 2, 2, 3, 3, 5))
    kw = kh if draw.random() < 0.8 else draw.choice((1, 2, 3))
    s = draw.choice((1, 2, 2, 3))
    p = draw.choice((0, 0, 1)) if min(kh, kw) > 1 else 0
    floor = draw.random() < 0.4 or s > min(kh, kw)
    sizes = []
    for size, k in ((h, kh), (w, kw)):
        if size + 2 * p < k:
            return None
        o = (size + 2 * p - k) / s
        o = (math.floor(o) if floor else math.ceil(o)) + 1
        if p and (o - 1) * s >= size + p:
            o -= 1
        sizes.append(o)
    more = " avg_include_pad: false" if pool == "AVE" and p and draw.random() < 0.4 else ""
    size = f"kernel_size: {kh}" if kh == kw else f"kernel_h: {kh} kernel_w: {kw}"
    more += " round_mode: FLOOR" if floor else ""
    return net.add("Pooling", [x], [(n, c, *sizes)], f"pooling_param {{ pool: {pool} {size} stride: {s} pad: {p}{more} }}")


def norm(net, x):
    """BatchNorm, as a rule with what runs as one with it."""
    draw = net.draw
    shape = net.shape[x]
    net.terms = max(net.terms, math.prod(shape) // shape[1])
    if net.divided:
        y = net.add("SyncBN", [x], [shape], 'bn_param { slope_filler { type: "uniform" min: 0.5 max: 1.5 } eps: 0.001 }')
    else:
        y = net.add("BatchNorm", [x], [shape], "batch_norm_param { moving_average_fraction: 0.7 eps: 0.001 }", draw.random() < 0.5)
    if not net.divided and draw.random() < 0.8:
        y = net.add("Scale", [y], [shape], 'scale_param { bias_term: true filler { type: "uniform" min: 0.5 max: 1.5 } ' + BIAS + " }", draw.random() < 0.5)
    if draw.random() < 0.4:
        others = [b for b in net.alive(lambda s: s == shape) if b != y and b not in net.gone]
        if others:
            y = net.add("Eltwise", draw.sample([y, draw.choice(others)], 2), [shape], draw.choice(("", "", "eltwise_param { coeff: 1 coeff: -0.5 }")))
    return function(net, y, "ReLU") if draw.random() < 0.7 else y


def joined(net, x):
    draw = net.draw
    shape = net.shape[x]
    others = [b for b in net.alive(lambda s: s == shape) if b != x]
    if others and draw.random() < 0.7:
        pick = [x, *draw.sample(others, min(len(others), draw.choice((1, 1, 2))))]
    else:
        y = x if draw.random() < 0.3 else function(net, x, "TanH")
        pick = [y if x in net.gone else x, y]
    draw.shuffle(pick)
    op = draw.choice(("SUM", "SUM", "SUM", "PROD", "MAX"))
    coeff = " ".join(f"coeff: {draw.choice((1, -1, 0.5))}" for _ in pick) if op == "SUM" and draw.random() < 0.3 else ""
    return net.add("Eltwise", pick, [shape], f"eltwise_param {{ operation: {op} {coeff} }}")


def concat(net, x, axis=1):
    draw = net.draw
    shape = net.shape[x]
    others = net.alive(lambda s: len(s) == len(shape) and all(a == b for i, (a, b) in enumerate(zip(s, shape)) if i != axis))
    pick = [x, draw.choice(others)] + ([draw.choice(others)] if draw.random() < 0.2 else [])
    total = sum(net.shape[b][axis] for b in pick)
    if total > 96:
        return None
    return net.add("Concat", pick, [(*shape[:axis], total, *shape[axis + 1:])], f"concat_param {{ axis: {axis} }}")


def cut(net, x, axis=1):
    draw = net.draw
    shape = net.shape[x]
    if shape[axis] < 2:
        return None
    at = draw.randrange(1, shape[axis])
    tops = net.add("Slice", [x], [(*shape[:axis], k, *shape[axis + 1:]) for k in (at, shape[axis] - at)], f"slice_param {{ axis: {axis} slice_point: {at} }}")
    return draw.choice(tops)


def squeeze(net, x):
    """One factor a channel."""
    n, c, h, w = net.shape[x]
    if h * w == 1:
        return None
    y = net.add("Pooling", [x], [(n, c, 1, 1)], "pooling_param { pool: AVE global_pooling: true }")
    net.terms = max(net.terms, h * w)
    y = convolution(net, y, out=max(1, c // 2), one=True)
    y = function(net, y, "ReLU")
    y = convolution(net, y, out=c, one=True)
    y = function(net, y, "Sigmoid")
    others = net.alive(lambda s: s == (n, c, h, w))
    return net.add("Axpy", [y, x, net.draw.choice(others)], [(n, c, h, w)])


def moved(net, x):
    draw = net.draw
    n, c, h, w = net.shape[x]
    r = draw.randrange(6)
    if r == 0:
        order = draw.sample((1, 2, 3), 3)
        return net.add("Permute", [x], [(n, *((n, c, h, w)[o] for o in order))], "permute_param { order: 0 " + " ".join(f"order: {o}" for o in order) + " }")
    if r == 1:
        return net.add("Reshape", [x], [(n, h, c, w)], f"reshape_param {{ shape {{ dim: 0 dim: {h} dim: {c} dim: -1 }} }}")
    if r == 2 and c % 2 == 0:
        return net.add("ShuffleChannel", [x], [(n, c, h, w)], "shuffle_channel_param { group: 2 }")
    if r == 3 and h * w < 200:
        return net.add("Upsample", [x], [(n, c, 2 * h, 2 * w)], "upsample_param { scale: 2 }")
    if r == 4 and h * w < 200:
        return net.add("Interp", [x], [(n, c, h + 2, w + 3)], f"interp_param {{ height: {h + 2} width: {w + 3} }}")
    if r == 5 and c < 24:
        return net.add("Tile", [x], [(n, 2 * c, h, w)], "tile_param { tiles: 2 }")
    return None


def shared(net, x):
    """The same weights twice."""
    draw = net.draw
    n, c, h, w = net.shape[x]
    k = draw.choice((1, 3))
    net.terms = max(net.terms, c * k * k, 2 * n * h * w)
    net.winograd |= k == 3 and c >= 16
    name = f"shared{len(net.layers)}"
    fields = f'convolution_param {{ num_output: {c} kernel_size: {k} pad: {k // 2} {FILL} {BIAS} }} param {{ name: "{name}w" }} param {{ name: "{name}b" }}'
    y = net.add("Convolution", [x], [(n, c, h, w)], fields)
    y = function(net, y) if draw.random() < 0.5 else y
    return net.add("Convolution", [y], [(n, c, h, w)], fields)


def rare(net, x):
    draw = net.draw
    n, c, h, w = net.shape[x]
    r = draw.randrange(9)
    if r == 0 and h > 2 and w > 2:  # SPP
        if h > 3 and w > 3:
            return net.add("SPP", [x], [(n, c * 5)], f"spp_param {{ pyramid_height: 2 pool: {draw.choice(('MAX', 'AVE'))} }}")
    if r == 1 and h > 1 and w > 1:
        y = net.add("Slice", [x], [(n, c, 1, w), (n, c, h - 1, w)], "slice_param { axis: 2 slice_point: 1 }")
        return net.add("Concat", [y[1], y[0]], [(n, c, h, w)], "concat_param { axis: 2 }")
    if r == 2 and h % 2 == 0 and w % 2 == 0 and h * w < 400:
        p = net.add("Pooling", [x], [(n, c, h // 2, w // 2), (n, c, h // 2, w // 2)], "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
        y = function(net, p[0]) if draw.random() < 0.5 else p[0]
        return net.add("Upsample", [y, p[1]], [(n, c, h, w)], "upsample_param { scale: 2 }")
    if r == 3 and h > 4 and w > 4:
        return net.add("Pooling", [x], [(n, c, h - 4, w - 4)], f"pooling_param {{ pool: {draw.choice(('MAX', 'AVE'))} kernel_size: 3 dilation: 2 }}")
    if r == 4:  # a spatial axis of its own
        y = net.add("Reshape", [x], [(n, c, h * w)], "reshape_param { shape { dim: 0 dim: 0 dim: -1 } }")
        out, k = draw.choice((1, 3, 8)), min(3, h * w)
        net.terms = max(net.terms, c * k, n * h * w)
        return net.add("Convolution", [y], [(n, out, h * w - k + 1)], f"convolution_param {{ num_output: {out} kernel_size: {k} {FILL} {BIAS} }}")
    if r == 5 and h * w > 1:  # three
        y = net.add("Reshape", [x], [(n, 1, c, h, w)], f"reshape_param {{ shape {{ dim: 0 dim: 1 dim: {c} dim: {h} dim: {w} }} }}")
        net.terms = max(net.terms, 9, n * c * h * w)
        y = net.add("Convolution", [y], [(n, 2, c, h, w)], "convolution_param { num_output: 2 kernel_size: 1 kernel_size: 3 kernel_size: 3 "
                    f"pad: 0 pad: 1 pad: 1 {FILL} {BIAS} }}")
        return net.add("Reshape", [y], [(n, 2 * c, h, w)], f"reshape_param {{ shape {{ dim: 0 dim: {2 * c} dim: {h} dim: {w} }} }}")
    if r == 6:
        net.terms = max(net.terms, w)
        y = net.add("Reduction", [x], [(n, c, h)], f"reduction_param {{ operation: {draw.choice(('SUM', 'MEAN', 'ASUM', 'SUMSQ'))} axis: 3 coeff: 0.5 }}")
        return net.add("Reshape", [y], [(n, c, h, 1)], "reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 1 } }")
    if r == 7:
        return net.add("Flatten", [x], [(n, c * h * w)], "") if c * h * w < 3000 else None
    if r == 8 and h > 2 and w > 2:
        k = draw.choice(net.alive(lambda s: len(s) == 4 and s[2] <= h and s[3] <= w))
        kh, kw = net.shape[k][2:]
        top, left = draw.randrange(h - kh + 1), draw.randrange(w - kw + 1)
        return net.add("Crop", [x, k], [(n, c, kh, kw)], f"crop_param {{ axis: 2 offset: {top} offset: {left} }}")
    return None


def scaled(net, x):
    draw = net.draw
    shape = net.shape[x]
    r = draw.randrange(6)
    if r == 0:
        net.terms = max(net.terms, math.prod(shape) // shape[1])
        return net.add("Scale", [x], [shape], 'scale_param { bias_term: %s filler { type: "uniform" min: 0.5 max: 1.5 } %s }'
                       % draw.choice((("true", BIAS), ("false", ""))), draw.random() < 0.4)
    if r == 1:
        net.terms = max(net.terms, math.prod(shape) // shape[1])
        return net.add("Bias", [x], [shape], 'bias_param { filler { type: "gaussian" std: 0.2 } }', draw.random() < 0.4)
    if r == 2 and len(shape) == 4:
        return net.add("LRN", [x], [shape], draw.choice(("lrn_param { local_size: 3 alpha: 0.5 }", "lrn_param { local_size: 5 alpha: 0.1 beta: 0.75 k: 2 }",
                                                        "lrn_param { local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL }")))
    if r == 3:
        return net.add("Dropout", [x], [shape], "dropout_param { dropout_ratio: 0.3 }", draw.random() < 0.5)
    if r == 4:
        return net.add("Softmax", [x], [shape], f"softmax_param {{ axis: {len(shape) - 1 if draw.random() < 0.5 else 1} }}", draw.random() < 0.3)
    if len(shape) == 4 and shape[2] * shape[3] > 3:
        net.terms = max(net.terms, math.prod(shape[1:]))
        return net.add(*draw.choice((("MVN", [x], [shape], "mvn_param { eps: 0.001 }"),
                                     ("Normalize", [x], [shape], 'norm_param { across_spatial: false channel_shared: false eps: 0.01 }'))))
    return None


def product(net, x, out=None):
    draw = net.draw
    shape = net.shape[x]
    axis = 1 if len(shape) != 3 else 2
    inner, out = math.prod(shape[axis:]), out or draw.choice((1, 3, 7, 8, 16, 20, 33))
    net.few |= math.prod(shape[:axis]) <= 16
    net.terms = max(net.terms, inner, math.prod(shape[:axis]), out)
    return net.add("InnerProduct", [x], [(*shape[:axis], out)], f"inner_product_param {{ num_output: {out} axis: {axis} {FILL} "
                   + draw.choice((BIAS, BIAS, "bias_term: false")) + draw.choice(("", "", "", " transpose: true")) + " }")


def pictures(net):
    draw = net.draw
    n = draw.choice((4, 5, 7, 9) if net.divided else (1, 2, 3, 4, 5, 7, 17))
    h, w = draw.choice(((1, 1), (1, 9), (9, 1), (5, 5), (7, 7), (8, 8), (11, 6), (13, 13), (16, 16), (17, 19), (28, 28)))
    net.give("data", (n, draw.choice((1, 1, 3, 3, 4, 5, 16, 32)), h, w), "real")
    x, made = "data", 0
    steps = draw.randrange(4, 14)
    while made < steps:
        made += 1
        flat = len(net.shape[x]) != 4
        if draw.random() < 0.15:
            x = draw.choice(net.alive(lambda s: len(s) >= 2 and s[0] == n))
            flat = len(net.shape[x]) != 4
        if flat:
            y = draw.choice((product, function, function, scaled, lambda a, b: joined(a, b), norm, cut, concat))(net, x)
        else:
            y = draw.choice((convolution, convolution, convolution, convolution, lambda a, b: convolution(a, b, same=True), deconvolution, pooling, pooling,
                             norm, norm, norm, function, function, function, joined, joined, concat, cut, squeeze, moved, scaled, scaled, shared, rare, rare,
                             lambda a, b: product(a, b) if draw.random() < 0.4 else None))(net, x)
        if y is not None:
            x = y
    return n


def tokens(net):
    draw = net.draw
    n, t = draw.choice((4, 5, 6) if net.divided else (1, 2, 3, 5)), draw.choice((4, 6, 12, 24) if net.divided else (1, 2, 7, 16, 33, 70))
    heads = draw.choice((1, 2, 4, 6))
    size = draw.choice((2, 4, 8, 16, 24))
    c, words = heads * size, draw.choice((5, 31, 64))
    net.give("tokens", (n, t), f"whole {words}")
    x = net.add("Embed", ["tokens"], [(n, t, c)], f'embed_param {{ input_dim: {words} num_output: {c} weight_filler {{ type: "gaussian" std: 0.5 }} '
                + draw.choice(("bias_term: false", BIAS)) + " }")
    segments = draw.random() < 0.25
    if draw.random() < 0.6:
        x = net.add("Position", [x], [(n, t, c)], draw.choice((f'position_param {{ max_length: {t + 3} weight_filler {{ type: "gaussian" std: 0.2 }} }}',
                                                             "position_param { type: SINUSOIDAL }")), draw.random() < 0.3)
    net.terms = max(net.terms, c * 3, n * t, words)
    for _ in range(draw.choice((1, 1, 2, 3))):
        fields = draw.choice((("LayerNorm", ""), ("RMSNorm", ""), ("LayerNorm", "layer_norm_param { affine: false }")))
        y = net.add(fields[0], [x], [(n, t, c)], fields[1]) if draw.random() < 0.8 else x
        groups = draw.choice([g for g in (heads, heads, 1, 2) if heads % g == 0])
        causal = draw.random() < 0.6
        what = [f"num_heads: {heads}", f"num_kv_heads: {groups}" if groups != heads else "", "causal: true" if causal else "",
                f"window: {draw.choice((1, 3, 8))}" if causal and draw.random() < 0.3 else "",
                "scale: 0.3" if draw.random() < 0.2 else "", "dropout: 0.1" if draw.random() < 0.2 else ""]
        if draw.random() < 0.4:
            dim = draw.choice(("", f"dim: {size // 2 // 2 * 2}" if size >= 4 else ""))
            what.append("rope { " + dim + draw.choice(("", " interleaved: true", " base: 500")) + " }")
        if segments and "segment" not in net.shape:
            net.give("segment", (n, t), "steps")
        extra = ["segment"] if segments and draw.random() < 0.8 or segments and "segment" not in net.read else []
        if draw.random() < 0.6:
            qkv = product(net, y, c + 2 * groups * size)
            bottoms = [qkv]
        else:
            bottoms = [product(net, y, c), product(net, y, groups * size), product(net, y, groups * size)]
        a = net.add("Attention", bottoms + extra, [(n, t, c)], "attention_param { " + " ".join(w for w in what if w) + " }")
        a = product(net, a, c)
        x = net.add("Eltwise", [x, a], [(n, t, c)])
        if draw.random() < 0.7:
            y = net.add(*draw.choice((("LayerNorm", [x], [(n, t, c)]), ("RMSNorm", [x], [(n, t, c)]))))
            wide = draw.choice((c, 2 * c, 3 * c + 1))
            if draw.random() < 0.4:
                y = product(net, y, 2 * wide)
                y = net.add("SwiGLU", [y], [(n, t, wide)])
            else:
                y = product(net, y, wide)
                y = function(net, y, draw.choice(("GELU", "GELU", "Swish", "ReLU", "Mish", "HardSwish")))
            y = product(net, y, c)
            if draw.random() < 0.3:
                y = net.add("Dropout", [y], [(n, t, c)], "dropout_param { dropout_ratio: 0.2 }", True)
            x = net.add("Eltwise", [x, y], [(n, t, c)])
    if draw.random() < 0.7:
        x = net.add("LayerNorm", [x], [(n, t, c)])
    if draw.random() < 0.3:
        q = function(net, x, "TanH")
        x = net.add("MatMul", [q, q if x in net.gone else x], [(n, t, t)], "matmul_param { transpose_b: true alpha: 0.3 }")
    if draw.random() < 0.3 and net.shape[x][-1] == c:
        net.layers[0].fields = re.sub(r" param \{.*?\}", "", net.layers[0].fields) + ' param { name: "wte" }'
        net.add("InnerProduct", [x], [(n, t, words)], f'inner_product_param {{ num_output: {words} axis: 2 bias_term: false }} param {{ name: "wte" }}')
    else:
        product(net, x, draw.choice((3, words)))
    return n


def steps(net):
    draw = net.draw
    t, n, d = draw.choice((1, 2, 5, 9)), draw.choice((1, 2, 3, 7, 17)), draw.choice((1, 3, 8, 17))
    net.give("data", (t, n, d), "real")
    net.give("cont", (t, n), "cont")
    x = "data"
    for _ in range(draw.choice((1, 2))):
        h = draw.choice((1, 3, 8, 16, 21))
        net.terms = max(net.terms, 4 * h, math.prod(net.shape[x][2:]), t * n)
        kind = draw.choice(("LSTM", "LSTM", "RNN"))
        x = net.add(kind, [x, "cont"], [(t, n, h)], f"recurrent_param {{ num_output: {h} {FILL} {BIAS} }}")
        if draw.random() < 0.5:
            x = function(net, x, draw.choice(("TanH", "ReLU")))
    product(net, x, 5)
    return None


def losses(net, draw):
    """A loss of each leaf, in TRAIN."""
    for leaf in net.leaves():
        shape = net.shape[leaf]
        count = math.prod(shape)
        if draw.random() < 0.6 and shape[1] > 1 and not [l for l in net.layers if l.kind == "SoftmaxWithLoss"]:
            axis = len(shape) - 1 if len(shape) == 3 else 1
            if shape[axis] < 2:
                axis = 1
            net.give("label", (*shape[:axis], *shape[axis + 1:]), f"whole {shape[axis]}")
            net.add("SoftmaxWithLoss", [leaf, "label"], [()], f"softmax_param {{ axis: {axis} }}", train=True)
        else:
            net.add("Reduction", [leaf], [()], f"reduction_param {{ operation: SUMSQ coeff: {4.0 / count:.6g} }} loss_weight: 0.5", train=True)


KINDS = {"pictures": pictures, "tokens": tokens, "steps": steps}
