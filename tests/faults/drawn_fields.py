"""The schema as fields.py reads it, texts as trees of fields, values at the edges of types, and the files in which fields are set."""
import math
import re
import struct

# ---- the schema

WHOLE = {"int32": (-2**31, 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-2**63, 2**63 - 1)}
SCALAR = {*WHOLE, "float", "double", "bool", "string", "bytes"}
WORD = re.compile(r'//[^\n]*|"[^"]*"|[\w.]+|[{}=;\[\]]')


class Field:
    def __init__(self, message, label, kind, name, number, default):
        self.message, self.label, self.kind, self.name, self.number, self.default = message, label, kind, name, number, default

    def told(self):
        return f"{self.message}.{self.name}"


class Schema:
    """messages: name: {field: Field}; enums: name: {value: number}. Types that stand in messages have the names of those in front."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.words = [w for w in WORD.findall(f.read()) if not w.startswith("//")]
        self.messages, self.enums = {}, {}
        self.at = 0
        while self.at < len(self.words):
            self.item("")
        for fields in self.messages.values():
            for f in fields.values():
                f.kind = self.resolve(f)

    def next(self):
        self.at += 1
        return self.words[self.at - 1]

    def item(self, scope):
        word = self.next()
        if word in ("message", "enum"):
            name = scope + self.next()
            assert self.next() == "{"
            if word == "enum":
                self.enums[name] = {}
            else:
                self.messages[name] = {}
            while self.words[self.at] != "}":
                if word == "message":
                    self.item(name + ".")
                else:
                    value, _, number, _ = (self.next() for _ in range(4))
                    self.enums[name][value] = int(number)
            self.at += 1
        elif word in ("optional", "required", "repeated"):
            kind, name, _, number = (self.next() for _ in range(4))
            rest = ""
            while self.words[self.at] != ";":
                rest += " " + self.next()
            self.at += 1
            found = re.search(r"default = (\S+)", rest)
            message = scope[:-1]
            self.messages[message][name] = Field(message, word, kind, name, int(number), found.group(1) if found else None)
        else:  # syntax and package
            while self.next() != ";":
                pass

    def resolve(self, f):
        if f.kind in SCALAR:
            return f.kind
        scope = f.message.split(".")
        while True:
            name = ".".join([*scope, f.kind])
            if name in self.messages or name in self.enums:
                return name
            scope.pop()

    def fields(self, message):
        return [f for f in self.messages[message].values() if not 29000 <= f.number <= 29999]


# ---- texts

TEXT = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}]|[^\s:{}]+|:')


def tree(text):
    """A list of [name, value]; a value is a word as it stands, or a list. A third member marks what was drawn."""
    words = [w for w in TEXT.findall(text) if w != ":" and not w.startswith("#")]
    stack = [[]]
    at = 0
    while at < len(words):
        if words[at] == "}":
            stack.pop()
            at += 1
        elif words[at + 1] == "{":
            stack[-1].append([words[at], []])
            stack.append(stack[-1][-1][1])
            at += 2
        else:
            stack[-1].append([words[at], words[at + 1]])
            at += 2
    return stack[0]


def copy(node):
    return [[e[0], copy(e[1]) if isinstance(e[1], list) else e[1], *e[2:]] for e in node]


class Written:
    """The text of a tree, a field on each line; drawn: first and last lines of what is marked, around: of the messages that hold it."""

    def __init__(self, node):
        self.lines, self.drawn, self.around = [], [], []
        self.put(node, "")
        self.text = "\n".join(self.lines) + "\n"

    def put(self, node, before):
        found = False
        for entry in node:
            first, inside = len(self.lines) + 1, False
            if isinstance(entry[1], list):
                self.lines.append(f"{before}{entry[0]} {{")
                inside = self.put(entry[1], before + "  ")
                self.lines.append(before + "}")
            else:
                self.lines.append(f"{before}{entry[0]}: {entry[1]}")
            if len(entry) > 2:
                self.drawn.append((first, len(self.lines)))
            elif inside:
                self.around.append((first, len(self.lines)))
            found = found or inside or len(entry) > 2
        return found


def message_at(node, path):
    """The message of a path such as "layer[x].convolution_param", made where it is not there."""
    for step in [s for s in path.split(".") if s]:
        name, which = re.fullmatch(r"(\w+)(?:\[(\w+)\])?", step).groups()
        fitting = [e for e in node if e[0] == name and (which is None or ["name", f'"{which}"'] in [x[:2] for x in e[1]])]
        if not fitting:
            fitting = [[name, []]]
            node.append(fitting[0])
        node = fitting[-1][1]
    return node


# ---- values

NUMBERS = {
    "whole": ["0", "1", "-1", "2", "3", "5", "7", "100", "2147483647", "-2147483648", "2147483648", "4294967295", "4294967296",
              "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "0.25", "-0", "1e3", "nan", "65536"],
    "real": ["0", "-0", "1", "-1", "0.5", "1.5", "2", "0.999", "1.0001", "-0.25", "1e-7", "1e-30", "1e-45", "1e-400", "1e7", "1e38", "-1e38",
             "3.5e38", "1e400", "nan", "inf", "-inf", "0.1", "100"],
}
STRINGS = ['""', '" "', '"a b"', '"a\\nb"', '"\\377\\376"', '"../x"', '"/proc/x/y"', '"%s%n"', '"' + "x" * 5000 + '"', '"a\\000b"', '"none"', '"auto"']


def values(schema, f):
    """Words at the edges of a field's type."""
    if f.kind in schema.messages:
        return ["{}"]
    if f.kind in schema.enums:
        names = list(schema.enums[f.kind])
        return names * 3 + [str(n) for n in schema.enums[f.kind].values()] + ["99", "-1", names[0].lower(), '"' + names[-1] + '"', "4294967296"]
    if f.kind == "bool":
        return ["true", "false", "true", "false", "1", "0", "2", "-1", "True", "yes", '"true"']
    if f.kind in WHOLE:
        return NUMBERS["whole"] if f.kind == "int64" else NUMBERS["whole"] + NUMBERS["whole"][:8]
    if f.kind in ("float", "double"):
        return NUMBERS["real"]
    return STRINGS


def number(word):
    try:
        return float(word)
    except ValueError:
        return None


def f32(x):
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def is_none(schema, f, word):
    """True where a word is no value of the field's type, by the text format: nobody may take it."""
    if f.kind in WHOLE:
        if not re.fullmatch(r"-?\d+", word):
            return True
        return not WHOLE[f.kind][0] <= int(word) <= WHOLE[f.kind][1]
    if f.kind in schema.enums:
        if re.fullmatch(r"-?\d+", word):
            return int(word) not in schema.enums[f.kind].values()
        return word not in schema.enums[f.kind]
    if f.kind == "bool":
        return word not in ("true", "false", "1", "0", "True", "t", "f", "False")
    return False


def same(schema, f, a, b):
    """True where two words are one value of the field."""
    if a is None or b is None:
        return a == b
    if f.kind in schema.enums:
        return schema.enums[f.kind].get(a, a) == schema.enums[f.kind].get(b, b) or a == str(schema.enums[f.kind].get(b, b))
    if f.kind == "bool":
        return (a in ("true", "1", "True")) == (b in ("true", "1", "True"))
    if f.kind in WHOLE or f.kind in ("float", "double"):
        x, y = number(a), number(b)
        if f.kind == "float":
            x, y = f32(x), f32(y)
        return x == y or (x != x and y != y)
    return a == b


# ---- files in which fields are set

# type, bottoms (r: learned, d: drawn, p: above 0.3, l: 0 or 1, i: regions, b: priors, t: true boxes, x: one half; then the shape), tops, its message
LAYERS = [
    ("Accuracy", "r4,3 l4", 1, "accuracy_param { top_k: 1 }"), ("ArgMax", "r4,3,2", 1, "argmax_param { top_k: 1 }"),
    ("Attention", "r2,5,24", 1, "attention_param { num_heads: 4 causal: true rope { base: 100 } }"),
    ("BatchNorm", "r4,3,5,5", 1, "batch_norm_param { eps: 0.001 }"), ("Bias", "r4,3,5", 1, "bias_param { filler { type: \"gaussian\" } }"),
    ("BN", "r4,3,5,5", 1, "bn_param { eps: 0.001 }"),
    ("CenterLoss", "r4,3 l4", 1, "center_loss_param { num_output: 2 center_filler { type: \"gaussian\" } }"),
    ("Clip", "r4,3", 1, "clip_param { min: -0.5 max: 0.7 }"), ("Concat", "r4,3,2 r4,3,2", 1, "concat_param { axis: 1 }"),
    ("ContrastiveLoss", "r4,3 r4,3 l4", 1, "contrastive_loss_param { margin: 2 }"),
    ("Convolution", "r2,4,7,7", 1, "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: \"gaussian\" std: 0.2 } }"),
    ("Deconvolution", "r2,4,5,5", 1, "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: \"gaussian\" std: 0.2 } }"),
    ("DepthwiseConvolution", "r2,4,5,5", 1, "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: \"gaussian\" std: 0.2 } }"),
    ("Im2col", "r2,2,5,5", 1, "convolution_param { kernel_size: 3 }"),
    ("Crop", "r2,3,6,6 d2,3,4,4", 1, "crop_param { axis: 2 offset: 1 }"), ("Dropout", "r4,9", 1, "dropout_param { dropout_ratio: 0.4 }"),
    ("Eltwise", "r4,3 r4,3", 1, "eltwise_param { operation: SUM coeff: 1 coeff: 2 }"), ("Eltwise", "r4,3 r4,3", 1, "eltwise_param { operation: PROD }"),
    ("ELU", "r4,3", 1, "elu_param { alpha: 0.5 }"), ("Embed", "l4,3", 1, "embed_param { num_output: 5 input_dim: 7 weight_filler { type: \"gaussian\" } }"),
    ("Exp", "r4,3", 1, "exp_param { scale: 0.5 }"), ("Flatten", "r4,3,2,2", 1, "flatten_param { axis: 1 }"),
    ("FocalLoss", "r4,3,2 l4,2", 1, "focal_loss_param { gamma: 1.5 } loss_param { ignore_label: 5 }"), ("GELU", "r4,3", 1, "gelu_param { approximate: NONE }"),
    ("HingeLoss", "r4,3 l4", 1, "hinge_loss_param { norm: L1 }"), ("InfogainLoss", "r4,3 l4 d3,3", 1, "infogain_loss_param { axis: 1 }"),
    ("InnerProduct", "r4,3,2", 1, "inner_product_param { num_output: 4 weight_filler { type: \"gaussian\" } bias_filler { type: \"gaussian\" } }"),
    ("Interp", "r2,2,5,5", 1, "interp_param { height: 7 width: 3 }"), ("Interp", "r2,2,5,5", 1, "interp_param { zoom_factor: 2 }"),
    ("LayerNorm", "r4,3,6", 1, "layer_norm_param { eps: 0.001 }"), ("Log", "p4,3", 1, "log_param { shift: 1 }"),
    ("LRN", "r2,6,4,4", 1, "lrn_param { local_size: 3 alpha: 0.1 }"), ("LRN", "r2,3,4,4", 1, "lrn_param { local_size: 3 alpha: 0.1 norm_region: WITHIN_CHANNEL }"),
    ("LSTM", "r3,2,5 l3,2", 1, "recurrent_param { num_output: 4 weight_filler { type: \"gaussian\" } }"),
    ("RNN", "r3,2,5 l3,2", 1, "recurrent_param { num_output: 4 weight_filler { type: \"gaussian\" } }"),
    ("MatMul", "r2,3,3 r2,3,3", 1, "matmul_param { alpha: 0.5 }"),
    ("MultiHeadAttention", "r2,5,8", 1, "multi_head_attention_param { num_output: 8 weight_filler { type: \"gaussian\" std: 0.3 } } attention_param { num_heads: 2 }"),
    ("MVN", "r2,3,4,4", 1, "mvn_param { eps: 0.1 }"), ("Normalize", "r2,3,4,4", 1, "norm_param { eps: 0.001 }"),
    ("Parameter", "", 1, "parameter_param { shape { dim: 3 dim: 4 } }"), ("Permute", "r2,3,4,5", 1, "permute_param { order: 0 order: 2 order: 1 }"),
    ("Pooling", "r2,3,6,6", 1, "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"),
    ("Pooling", "r2,3,6,6", 1, "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    ("Position", "r2,5,6", 1, "position_param { max_length: 8 weight_filler { type: \"gaussian\" } }"),
    ("Power", "p4,3", 1, "power_param { power: 2 scale: 0.5 shift: 1 }"), ("PReLU", "r4,3", 1, "prelu_param { filler { type: \"constant\" value: 0.1 } }"),
    ("PriorBox", "r1,2,3,3 d1,3,12,12", 1, "prior_box_param { min_size: 4 max_size: 6 aspect_ratio: 2 }"),
    ("PSROIPooling", "r1,12,5,5 i3,5", 1, "psroi_pooling_param { spatial_scale: 0.5 output_dim: 3 group_size: 2 }"),
    ("ROIPooling", "r1,3,5,5 i3,5", 1, "roi_pooling_param { pooled_h: 2 pooled_w: 2 }"),
    ("Reduction", "r4,3,2", 1, "reduction_param { operation: MEAN axis: 1 coeff: 0.5 }"), ("ReLU", "r4,3", 1, "relu_param { negative_slope: 0.1 }"),
    ("ReLU6", "r4,3", 1, "relu6_param { negative_slope: 0.1 }"), ("Reshape", "r4,3,2", 1, "reshape_param { shape { dim: 0 dim: -1 } }"),
    ("RMSNorm", "r4,3,6", 1, "rms_norm_param { eps: 0.001 }"), ("Scale", "r4,3,2", 1, "scale_param { filler { type: \"gaussian\" } }"),
    ("ShuffleChannel", "r2,6,2,2", 1, "shuffle_channel_param { group: 2 }"), ("Sigmoid", "r4,3", 1, "sigmoid_param { engine: DEFAULT }"),
    ("Slice", "r4,6", 2, "slice_param { axis: 1 slice_point: 2 }"), ("SmoothL1Loss", "r4,3 d4,3", 1, "smooth_l1_loss_param { sigma: 2 }"),
    ("Softmax", "r4,3,2", 1, "softmax_param { axis: 1 }"), ("SoftmaxWithLoss", "r4,3,2 l4,2", 1, "softmax_param { axis: 1 } loss_param { ignore_label: 5 }"),
    ("SigmoidCrossEntropyLoss", "r4,3 l4,3", 1, "loss_param { normalize: true }"), ("SPP", "r2,3,6,6", 1, "spp_param { pyramid_height: 2 pool: AVE }"),
    ("Swish", "r4,3", 1, "swish_param { beta: 1.5 }"), ("TanH", "r4,3", 1, "tanh_param { engine: DEFAULT }"),
    ("Threshold", "r4,3", 1, "threshold_param { threshold: 0.2 }"), ("Tile", "r4,3,2", 1, "tile_param { axis: 1 tiles: 2 }"),
    ("Upsample", "r2,2,3,3", 1, "upsample_param { scale: 2 }"),
    ("MultiBoxLoss", "r1,36 r1,27 b1 t1,1,3,8", 1, "multibox_loss_param { num_classes: 3 }"),
    ("DetectionOutput", "d1,36 x1,27 b1", 1, "detection_output_param { num_classes: 3 nms_param { top_k: 5 } }"),
]
FILL = 'data_filler { type: "%s" %s }'
MADE = {"r": ("gaussian", ""), "d": ("gaussian", ""), "p": ("uniform", "min: 0.3 max: 2"), "l": ("uniform", ""), "x": ("constant", "value: 0.5"),
        "i": ("constant", "value: 0")}
BOXES = [("0", 0, 1), ("1", 1, 1), ("0", 0, 1), ("near", 0.1, 2), ("far", 0.6, 2), ("0", 0, 1)]  # columns of true boxes: name, value, how many
IP = 'inner_product_param { num_output: 2 weight_filler { type: "gaussian" std: 0.3 } bias_filler { type: "constant" value: 0.1 } }'


def layer_net(kind, bottoms, tops, message):
    """A net of that layer behind made-up data, with a loss of all that it makes."""
    lines, names = [], []
    for i, b in enumerate(bottoms.split()):
        shape = " ".join(f"dim: {d}" for d in b[1:].split(","))
        if b[0] == "b":
            for n, dims in (("map", "dim: 1 dim: 2 dim: 3 dim: 3"), ("image", "dim: 1 dim: 3 dim: 12 dim: 12")):
                lines.append(f'layer {{ name: "{n}" type: "DummyData" top: "{n}" dummy_data_param {{ shape {{ {dims} }} {FILL % MADE["d"]} }} }}')
            lines.append(f'layer {{ name: "in{i}" type: "PriorBox" bottom: "map" bottom: "image" top: "in{i}" prior_box_param {{ min_size: 5 }} }}')
            names.append(f"in{i}")
            continue
        if b[0] == "t":
            columns = {n: (v, k) for n, v, k in BOXES}
            for n, (v, k) in columns.items():
                lines.append(f'layer {{ name: "t{n}" type: "DummyData" top: "t{n}" dummy_data_param {{ shape {{ dim: 1 dim: 1 dim: {b.split(",")[2]} dim: {k} }} '
                             f'{FILL % ("constant", f"value: {v}")} }} }}')
            lines.append(f'layer {{ name: "in{i}" type: "Concat" ' + " ".join(f'bottom: "t{n}"' for n, _, _ in BOXES) + f' top: "in{i}" concat_param {{ axis: 3 }} }}')
            names.append(f"in{i}")
            continue
        lines.append(f'layer {{ name: "in{i}" type: "DummyData" top: "in{i}" dummy_data_param {{ shape {{ {shape} }} {FILL % MADE[b[0]]} }} }}')
        names.append(f"in{i}")
        if b[0] == "l":
            lines.append(f'layer {{ name: "class{i}" type: "Threshold" bottom: "in{i}" top: "class{i}" threshold_param {{ threshold: 0.5 }} }}')
        elif b[0] in "rp":
            lines.append(f'layer {{ name: "class{i}" type: "Scale" bottom: "in{i}" top: "class{i}" scale_param {{ bias_term: {str(b[0] == "r").lower()} }} }}')
        if b[0] in "lrp":
            names[-1] = f"class{i}"
    all_tops = [f"y{i}" for i in range(tops)]
    words = " ".join([*(f'bottom: "{n}"' for n in names), *(f'top: "{t}"' for t in all_tops)])
    lines.append(f'layer {{ name: "x" type: "{kind}" {words} {message} }}')
    if not kind.endswith("Loss") and kind != "Accuracy":
        for t in all_tops:
            product = IP.replace("{", "{ axis: 0", 1) if kind == "Reduction" else IP
            lines.append(f'layer {{ name: "of_{t}" type: "InnerProduct" bottom: "{t}" top: "of_{t}" {product} }}')
            lines.append(f'layer {{ name: "loss_{t}" type: "Reduction" bottom: "of_{t}" top: "loss_{t}" loss_weight: 0.02 reduction_param {{ operation: SUMSQ }} }}')
    if kind == "Accuracy":
        lines.append('layer { name: "loss" type: "SoftmaxWithLoss" bottom: "class0" bottom: "class1" top: "loss" }')
    return "\n".join(lines)


CONV = """
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.00390625 }
  data_param { source: "../data/train_lmdb" backend: LMDB batch_size: 6 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.00390625 }
  data_param { source: "../data/test_lmdb" backend: LMDB batch_size: 6 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
WORDS = """
layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "../text.bin" batch_size: 6 seq_len: 8 vocabulary: 31 } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 31 num_output: 12 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "ln" type: "LayerNorm" bottom: "x" top: "ln" }
  layer { name: "qkv" type: "InnerProduct" bottom: "ln" top: "qkv" inner_product_param { num_output: 36 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 2 causal: true } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "x" } }
layer { name: "head" type: "InnerProduct" bottom: "x" top: "head" inner_product_param { num_output: 31 axis: 2 bias_term: false
  weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
"""
V1 = """
layers { name: "in" type: DUMMY_DATA top: "data" dummy_data_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } data_filler { type: "gaussian" } } }
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
  convolution_param { num_output: 6 kernel_size: 5 weight_filler { type: "xavier" } } }
layers { name: "ip" type: INNER_PRODUCT bottom: "conv" top: "ip" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layers { name: "label" type: DUMMY_DATA top: "label" dummy_data_param { shape { dim: 4 dim: 2 } data_filler { type: "gaussian" } } }
layers { name: "loss" type: EUCLIDEAN_LOSS bottom: "ip" bottom: "label" top: "loss" loss_weight: 1 }
"""
SOLVER = """net: "net.prototxt" base_lr: 0.02 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001 max_iter: 4 display: 1 snapshot: 2 snapshot_prefix: "s"
solver_mode: CPU random_seed: 7 deterministic: true watchdog_seconds: 60 """
TEST = "test_iter: 2 test_interval: 2 "


class Base:
    """Files in which fields are set. focus: (file, path of a message, its type), of which fields are drawn."""

    def __init__(self, kind, name, solver, net, focus, ranks=1, **files):
        self.kind, self.name, self.ranks, self.focus = kind, name, ranks, focus
        self.files = {"net": tree(net), "solver": tree(solver), **{k: tree(v) for k, v in files.items()}}


def solver_bases():
    plain = ("solver", "", "SolverParameter")

    def of(name, words, *focus, net=CONV, ranks=1, drop=()):
        solver = re.sub("|".join(fr"\b{d}: \S+" for d in drop), "", SOLVER) if drop else SOLVER
        parts = [("solver", p, m) for p, m in focus] or [plain]
        return Base("solver", name, solver + words, net, parts, ranks)
    bases = [of("plain", TEST), of("plain", TEST), of("words", "", net=WORDS), of("2 ranks", TEST, ranks=2),
             of("Adam", 'type: "Adam"', drop=["momentum"]), of("RMSProp", 'type: "RMSProp"', drop=["momentum"]), of("LARS", 'type: "LARS"'),
             of("AdaDelta", 'type: "AdaDelta"'), of("accumulate", "iter_size: 2 clip_gradients: 0.5")]
    policies = {"step": "gamma: 0.5 stepsize: 2", "exp": "gamma: 0.5", "inv": "gamma: 0.5 power: 0.5", "multistep": "gamma: 0.5 stepvalue: 1 stepvalue: 3",
                "poly": "power: 1.5", "sigmoid": "gamma: 0.5 stepsize: 2", "cosine": "min_lr: 0.001", "plateau": "gamma: 0.5 plateau_winsize: 1",
                "multifixed": "stagelr: 0.02 stagelr: 0.01 stageiter: 2 stageiter: 4"}
    for policy, words in policies.items():
        bases.append(of(policy, f'lr_policy: "{policy}" {words}', drop=["lr_policy"]))
    bases += [
        of("warmup", "warmup { iterations: 3 start_factor: 0.2 }", ("warmup", "WarmupParameter")),
        of("Intel's warmup", "warmup_iter: 3 warmup_start_lr: 0.001"), of("rampup", "rampup_interval: 3 rampup_lr: 0.001"),
        of("comm", "", ("comm", "CommParameter"), ranks=2), of("comm", "", ("comm", "CommParameter"), ranks=2),
        of("average", TEST + "average { type: EMA decay: 0.5 }", ("average", "WeightAverageParameter")),
        of("average", TEST + "average { type: SWA interval: 2 }", ("average", "WeightAverageParameter")),
        of("best", TEST + 'best { metric: "accuracy" keep: 1 }', ("best", "BestParameter"), ("", "SolverParameter")),
        of("outer", "outer { local_iter: 2 groups: 2 }", ("outer", "OuterParameter"), ranks=2),
        of("outer, nested", "outer { local_iter: 2 groups: 2 compression { type: TOPK min_bytes: 0 density: 0.1 } }",
           ("outer.compression", "CompressionParameter"), ranks=2),
        of("optex", 'type: "OptEx" optex { parallel: 2 history: 3 predictor: KERNEL guard: false }', ("optex", "OptExParameter")),
        of("optex", 'type: "OptEx" optex { parallel: 2 history: 3 }', ("optex", "OptExParameter"), ranks=2),
        of("memory", 'memory { state: FILE weights: FILE path: "." chunk_mb: 0.004 }', ("memory", "MemoryParameter")),
        of("memory", "memory { zero: 2 }", ("memory", "MemoryParameter"), ranks=2),
        of("states", TEST, ("train_state", "NetState"), ("test_state", "NetState")),
    ]
    for kind in ("TOPK", "REDSYNC", "POWERSGD", "ONEBIT", "INT8", "AUTO", "BF16"):
        more = " density: 0.1" if kind in ("TOPK", "REDSYNC") else ""  # on one node integers are not rounded
        bases.append(of("compression", f'comm {{ topology: "2x1" }} compression {{ type: {kind} min_bytes: 0{more} }}', ("compression", "CompressionParameter"), ranks=2))
    return bases


def net_bases(schema):
    bases = []
    for kind, bottoms, tops, message in LAYERS:
        net = layer_net(kind, bottoms, tops, message)
        params = [e for e in message_at(tree(net), "layer[x]") if isinstance(e[1], list)]
        focus = []
        for name, inside in params:
            typed = schema.messages["LayerParameter"][name].kind
            focus += [("net", f"layer[x].{name}", typed)] * 4
            focus += [("net", f"layer[x].{name}.{n}", schema.messages[typed][n].kind) for n, v in inside if isinstance(v, list)]
        focus += [("net", "layer[x]", "LayerParameter")]
        bases.append(Base("layer", kind, SOLVER + "test_iter: 1 test_interval: 2", net, focus))
    bases.append(Base("net", "conv", SOLVER + TEST, CONV, [("net", "", "NetParameter"), ("net", "state", "NetState"), ("net", "layer[conv]", "LayerParameter"),
                 ("net", "layer[conv].param", "ParamSpec"), ("net", "layer[ip].param", "ParamSpec"), ("net", "layer[conv].include", "NetStateRule"),
                 ("net", "layer[relu].exclude", "NetStateRule"), ("net", "layer[conv].ct_kernel", "KernelParameter"), ("net", "layer[ip].ct_kernel", "KernelParameter"),
                 ("net", "layer[ip].inner_product_param.weight_filler", "FillerParameter"), ("net", "layer[loss].loss_param", "LossParameter")]))
    near = CONV.replace("param { lr_mult: 2 }", "param { lr_mult: 2 compress { type: BF16 min_bytes: 0 } }")
    bases.append(Base("net", "conv", SOLVER + 'comm { topology: "2x1" }', near, [("net", "layer[conv].param.compress", "CompressionParameter")], 2))
    bases.append(Base("net", "words", SOLVER, WORDS, [("net", "", "NetParameter"), ("net", "repeat", "RepeatParameter")]))
    bases.append(Base("net", "V1", SOLVER, V1, [("net", "layers[conv]", "V1LayerParameter"), ("net", "layers[ip]", "V1LayerParameter")]))
    for filler in ("gaussian", "uniform", "constant", "xavier", "msra", "positive_unitball"):
        net = layer_net("InnerProduct", "r4,3,2", 1, f'inner_product_param {{ num_output: 4 weight_filler {{ type: "{filler}" value: 0.5 }} }}')
        bases.append(Base("net", filler, SOLVER, net, [("net", "layer[x].inner_product_param.weight_filler", "FillerParameter")]))
    return bases


END = """layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 0.001 reduction_param { operation: SUMSQ } }"""
READERS = [  # type, tops, messages
    ("Data", "data label", 'data_param { source: "../data/train_lmdb" backend: LMDB batch_size: 4 } transform_param { scale: 0.01 }'),
    ("ImageData", "data label", 'image_data_param { source: "../list.txt" batch_size: 4 } transform_param { scale: 0.01 }'),
    ("HDF5Data", "data label", 'hdf5_data_param { source: "../h5.txt" batch_size: 4 }'),
    ("MemoryData", "data label", 'memory_data_param { source: "../set.h5" batch_size: 4 channels: 3 height: 4 width: 5 }'),
    ("WindowData", "data label", 'window_data_param { source: "../windows.txt" batch_size: 4 crop_size: 6 root_folder: "../" } transform_param { scale: 0.01 }'),
    ("AnnotatedData", "data boxes", 'annotated_data_param { max_boxes: 6 } data_param { source: "../set" backend: LMDB batch_size: 4 } '
     "transform_param { scale: 0.01 resize_param { height: 8 width: 9 } }"),
    ("DummyData", "data", 'dummy_data_param { shape { dim: 4 dim: 3 } data_filler { type: "gaussian" } }'),
]
TRANSFORMS = {  # contexts of transform_param, and what is drawn of in them
    "crop_size: 8 mirror: true pad: 1 mean_value: 7": [""], "mean_value: 3 random_resized_crop { size: 7 }": ["random_resized_crop"],
    "color_jitter { brightness: 0.3 contrast: 0.2 saturation: 0.3 hue: 0.1 }": ["color_jitter"], "lighting { std: 0.2 }": ["lighting"],
    "rotate { degrees: 20 }": ["rotate"], "affine { degrees: 10 translate: 0.1 scale_min: 0.8 scale_max: 1.2 shear: 5 }": ["affine"],
    "erase { probability: 1 }": ["erase"], "rand_augment { ops: 2 magnitude: 9 }": ["rand_augment"],
    "mixup { alpha: 0.4 } classes: 10": ["mixup", ""], "cutmix { alpha: 1 } classes: 10": ["cutmix"],
    "crop_size: 8 random_resize_param { min_size: 9 max_size: 14 }": ["random_resize_param"], "crop_size: 8 random_aspect_ratio_param { }": ["random_aspect_ratio_param"],
    "crop_size: 8 img_rand_resize_lower: 9 img_rand_resize_upper: 14": [""], "crop_size: 8 rand_resize_ratio_lower: 1 rand_resize_ratio_upper: 2": [""],
}
SSD_TRANSFORMS = {
    "resize_param { height: 8 width: 9 }": ["resize_param"], "resize_param { height: 8 width: 9 } noise_param { hist_eq: true }": ["noise_param"],
    "resize_param { height: 8 width: 9 } noise_param { saltpepper: true saltpepper_param { fraction: 0.2 value: 3 } }": ["noise_param.saltpepper_param"],
    "resize_param { height: 8 width: 9 } emit_constraint { emit_type: CENTER }": ["emit_constraint"],
    "resize_param { height: 8 width: 9 } distort_param { brightness_prob: 1 brightness_delta: 20 contrast_prob: 1 contrast_lower: 0.5 contrast_upper: 1.5 "
    "saturation_prob: 1 saturation_lower: 0.5 saturation_upper: 1.5 hue_prob: 1 hue_delta: 9 random_order_prob: 1 }": ["distort_param"],
    "resize_param { height: 8 width: 9 } expand_param { prob: 1 max_expand_ratio: 2 }": ["expand_param"],
}


def data_bases(schema):
    bases = []
    for kind, tops, words in READERS:
        net = f'layer {{ name: "x" type: "{kind}" ' + " ".join(f'top: "{t}"' for t in tops.split()) + f" {words} }}\n" + END
        if "label" in tops or "boxes" in tops:
            net += f'layer {{ name: "silence" type: "Silence" bottom: "{tops.split()[1]}" }}'
        focus = [("net", f"layer[x].{n}", schema.messages["LayerParameter"][n].kind) for n in re.findall(r"(?<!\S)(\w+_param) {", words) if n != "resize_param"]
        bases.append(Base("data", kind, SOLVER + "test_iter: 1 test_interval: 2", net, focus))
    for kind, tops, table in (("ImageData", "label", TRANSFORMS), ("AnnotatedData", "boxes", SSD_TRANSFORMS)):
        for words, places in table.items():
            source = 'image_data_param { source: "../list.txt" batch_size: 4 }' if kind == "ImageData" else 'data_param { source: "../set" backend: LMDB batch_size: 4 }'
            net = f'layer {{ name: "x" type: "{kind}" top: "data" top: "{tops}" {source} transform_param {{ scale: 0.01 {words} }} }}\n' + END + \
                f'layer {{ name: "silence" type: "Silence" bottom: "{tops}" }}'
            focus = []
            for place in places:
                message = "TransformationParameter"
                for step in [s for s in place.split(".") if s]:
                    message = schema.messages[message][step].kind
                focus.append(("net", "layer[x].transform_param" + ("." + place if place else ""), message))
            bases.append(Base("transform", places[-1] or words.split()[0], SOLVER + "test_iter: 1 test_interval: 2", net, focus))
    sampler = "annotated_data_param { max_boxes: 6 batch_sampler { max_sample: 1 max_trials: 20 sampler { min_scale: 0.5 max_scale: 0.9 min_aspect_ratio: 0.8 " \
        "max_aspect_ratio: 1.2 } sample_constraint { min_jaccard_overlap: 0.02 } } }"
    net = f'layer {{ name: "x" type: "AnnotatedData" top: "data" top: "boxes" data_param {{ source: "../set" backend: LMDB batch_size: 4 }} {sampler} ' \
        f'transform_param {{ scale: 0.01 resize_param {{ height: 8 width: 9 }} }} }}\n{END} layer {{ name: "silence" type: "Silence" bottom: "boxes" }}'
    at = "layer[x].annotated_data_param.batch_sampler"
    bases.append(Base("data", "sampler", SOLVER, net, [("net", at, "BatchSampler"), ("net", at + ".sampler", "Sampler"), ("net", at + ".sample_constraint", "SampleConstraint")]))
    words = Base("data", "TokenData", SOLVER, WORDS, [("net", "layer[data].token_data_param", "TokenDataParameter")])
    text = WORDS.replace("TokenData", "TextData").replace(' top: "next"', ' top: "cont" top: "next"') \
        .replace('token_data_param { source: "../text.bin" batch_size: 6 seq_len: 8 vocabulary: 31 }', 'text_data_param { source: "../text.h5" batch_size: 4 steps: 5 }')
    text += 'layer { name: "silence" type: "Silence" bottom: "cont" }'
    return bases + [words, Base("data", "TextData", SOLVER, text, [("net", "layer[data].text_data_param", "TextDataParameter")])]


MACHINE = """name: "m" sum_gbs: 10 level { name: "node" latency_us: 0.7 bandwidth_gbs: 8 bus_gbs: 60 } level { name: "switch" size: 4 latency_us: 1.3 bandwidth_gbs: 12 }
level { name: "machine" size: 3 latency_us: 1.9 bandwidth_gbs: 12 oversubscription: 2 }
"""
PLAN = """ranks: 2 global_batch: 6 micro_batches: 1
stage { first: "conv" last: "drop" rank: 0 } stage { first: "ip" last: "accuracy" rank: 1 }"""
TENSOR = """ranks: 2 global_batch: 6 stage { first: "conv" last: "accuracy" rank: 0 rank: 1 tensor: 2 layer { name: "ip" split: INPUT } }"""
SHARES = """ranks: 2 global_batch: 6 stage { first: "conv" last: "accuracy" rank: 0 rank: 1 share: 4 share: 2 again { first: "conv" last: "drop" } }"""
SWEEP = """solver: "solver.prototxt" metric: "accuracy" vary { field: "base_lr" value: "0.01" value: "0.02" } vary { field: "momentum" from: 0.5 to: 0.9 steps: 2 }
search: GRID set: "max_iter=2" """


def other_bases():
    bases = []
    for words, focus in (("", [("", "MachineParameter"), ("level", "MachineLevelParameter"), ("level[node]", "MachineLevelParameter")]),
                         ('node_class { name: "a" nodes: "0-5" speed: 2 } node_class { name: "b" nodes: "6-11" }', [("node_class", "NodeClassParameter")]),
                         ("in_network { bandwidth_gbs: 20 latency_us: 2 }", [("in_network", "InNetworkParameter")]),
                         ("coding { memory_gbs: 10 update_ns: 1 select_ns: 1 pack_ns: 1 add_ns: 1 merge_ns: 1 }", [("coding", "CodingParameter")]),
                         ("shared { latency_us: 1 gbs: 5 cached_gbs: 9 cached_mb: 2 }", [("shared", "SharedMemoryParameter")]),
                         ("shared { latency_us: 1 gbs: 5 time { bytes: 1024 us: 2 } }", [("shared.time", "MessageTimeParameter")])):
        bases.append(Base("machine", "machine", SOLVER, CONV, [("machine", p, m) for p, m in focus], machine=MACHINE + words))
    named = MACHINE.replace(" size: 4", "").replace(" size: 3", "") + 'switch { name: "s1" nodes: "n[1-4]" } switch { name: "s2" nodes: "n[5-8]" }'
    bases.append(Base("machine", "named", SOLVER, CONV, [("machine", "switch", "MachineSwitchParameter"), ("machine", "", "MachineParameter")], machine=named))
    torus = 'level { name: "node" latency_us: 0.7 bandwidth_gbs: 8 } level { name: "machine" torus: 3 torus: 4 latency_us: 1 hop_us: 0.1 bandwidth_gbs: 12.5 }'
    bases.append(Base("machine", "torus", SOLVER, CONV, [("machine", "level[machine]", "MachineLevelParameter")], machine=torus))
    for plan, places in ((PLAN, [("", "ParallelParameter"), ("stage", "ParallelStageParameter")]),
                         (TENSOR, [("stage", "ParallelStageParameter"), ("stage.layer", "ParallelLayerParameter")]),
                         (SHARES, [("stage", "ParallelStageParameter"), ("stage.again", "ParallelAgainParameter")])):
        bases.append(Base("plan", "plan", SOLVER + TEST, CONV, [("plan", p, m) for p, m in places], 2, plan=plan))
    bases.append(Base("sweep", "grid", SOLVER + TEST, CONV, [("sweep", "", "SweepParameter"), ("sweep", "vary", "SweepFieldParameter")], sweep=SWEEP))
    halving = SWEEP.replace("search: GRID", "search: HALVING runs: 3 reduce: 2 first_iter: 2").replace("max_iter=2", "max_iter=4")
    bases.append(Base("sweep", "halving", SOLVER + TEST, CONV, [("sweep", "", "SweepParameter"), ("sweep", "vary", "SweepFieldParameter")], sweep=halving))
    return bases


def all_bases(schema):
    return {"solver": solver_bases(), "layer": [b for b in net_bases(schema) if b.kind == "layer"], "net": [b for b in net_bases(schema) if b.kind == "net"],
            "data": [b for b in data_bases(schema) if b.kind == "data"], "transform": [b for b in data_bases(schema) if b.kind == "transform"],
            **{k: [b for b in other_bases() if b.kind == k] for k in ("machine", "plan", "sweep")}}
