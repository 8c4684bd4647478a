"""The text of a net, layer by layer, and the deploy form of it."""
import contextlib
import re

INPUTS = ("Data", "AnnotatedData", "TextData", "TokenData", "HDF5Data")
MEASURES = ("SoftmaxWithLoss", "Accuracy", "MultiBoxLoss", "DetectionEvaluate")


def pair(name, value):
    """kernel_size: 3, or kernel_h: 1 kernel_w: 7 of (1, 7)."""
    short = name.replace("_size", "")
    return f"{short}_h: {value[0]} {short}_w: {value[1]}" if isinstance(value, tuple) else f"{name}: {value}"


class Net:
    """Collects the layers of a net; every method returns the name of its top."""

    def __init__(self, name, weight_filler, bias=None, lr2=True, eps=None):
        self.name = name
        self.layers = []  # (type, head, body, where)
        self.weight = weight_filler
        self.bias = bias  # value of the bias filler, None: no bias by default
        self.lr2 = lr2    # biases learn at twice the rate and do not decay, as Caffe's nets do
        self.eps = eps    # of BatchNorm, None: the default
        self.where = ""   # of layers to come: "train" or "deploy", where only that form of the net has them
        self.input = []   # (top, shape) of the deploy net
        self.varies = False  # whether these are the most
        self.scores = None

    def layer(self, name, kind, bottoms, tops, *body):
        b = " ".join(f'bottom: "{x}"' for x in bottoms)
        t = " ".join(f'top: "{x}"' for x in tops)
        head = f'layer {{ name: "{name}" type: "{kind}" {b}{" " if b else ""}{t}'.rstrip()
        self.layers.append((kind, head, body, self.where))
        return tops[0] if tops else None

    @contextlib.contextmanager
    def repeat(self, count, prefix, bottom, top):
        """Layers added within stand there `count` times: docs/configuration.md, "Layers that repeat"."""
        outer, self.layers = self.layers, []
        yield
        outer.append(("repeat", f'repeat {{\n  count: {count} prefix: "{prefix}" bottom: "{bottom}" top: "{top}"',
                      self.layers, self.where))
        self.layers = outer

    def text(self):
        return [f'name: "{self.name}"', *for_training(self.layers)]

    def deploy(self):
        """For inference: an Input for the data, no measures, nothing that only training needs."""
        tops = " ".join(f'top: "{top}"' for top, _ in self.input)
        shapes = " ".join("shape { " + " ".join(f"dim: {d}" for d in shape) + " }" for _, shape in self.input)
        shapes += " varies: true" if self.varies else ""
        out = [f'name: "{self.name}"', f'layer {{ name: "input" type: "Input" {tops}\n  input_param {{ {shapes} }}\n}}']
        out += for_use(self.layers)
        if self.scores:
            out.append(f'layer {{ name: "prob" type: "Softmax" bottom: "{self.scores[0]}" top: "prob"{self.scores[1]} }}')
        return out

    def data(self, train, test, shape, train_batch, test_batch, transform, training="mirror: true "):
        for phase, source, batch in (("TRAIN", train, train_batch), ("TEST", test, test_batch)):
            random = training if phase == "TRAIN" else ""
            self.layer("data", "Data", [], ["data", "label"], f"include {{ phase: {phase} }}",
                       f"transform_param {{ {random}{transform} }}",
                       f'data_param {{ source: "{source}" backend: LMDB batch_size: {batch}'
                       f" synthetic_shape {{ dim: {shape[0]} dim: {shape[1]} dim: {shape[2]} }} }}")
        crop = re.search(r"crop_size: (\d+)", transform)
        size = (int(crop.group(1)),) * 2 if crop else shape[1:]
        self.input = [("data", (1, shape[0], *size))]
        return "data"

    def imagenet(self, batch, crop, test_batch=50):
        return self.data("data/imagenet/train_lmdb", "data/imagenet/val_lmdb", (3, 256, 256), batch, test_batch,
                         f"crop_size: {crop} mean_value: 104 mean_value: 117 mean_value: 123")

    def cifar10(self, batch):
        return self.data("data/cifar10/train_lmdb", "data/cifar10/test_lmdb", (3, 32, 32), batch, 100,
                         "mean_value: 125 mean_value: 123 mean_value: 114 scale: 0.0157",
                         "mirror: true crop_size: 32 pad: 4 ")

    def params(self, bias):
        if not self.lr2:
            return []
        return ["param { lr_mult: 1 decay_mult: 1 }" + (" param { lr_mult: 2 decay_mult: 0 }" if bias else "")]

    def fillers(self, weight, bias, value):
        text = f"weight_filler {{ {weight or self.weight} }}"
        return text + (f' bias_filler {{ type: "constant" value: {value} }}' if bias else "")

    def conv(self, name, bottom, out, kernel, stride=1, pad=0, bias=None, weight=None, group=1, value=None,
             dilation=1, top=None):
        bias = (self.bias is not None) if bias is None else bias
        shape = f"num_output: {out} {pair('kernel_size', kernel)}"
        shape += f" {pair('pad', pad)}" if pad else ""
        shape += f" stride: {stride}" if stride > 1 else ""
        shape += f" group: {group}" if group > 1 else ""
        shape += f" dilation: {dilation}" if dilation > 1 else ""
        shape += "" if bias else " bias_term: false"
        value = (self.bias or 0) if value is None else value
        return self.layer(name, "Convolution", [bottom], [top or name], *self.params(bias),
                          f"convolution_param {{ {shape} {self.fillers(weight, bias, value)} }}")

    def fc(self, name, bottom, out, weight=None, bias=0):
        return self.layer(name, "InnerProduct", [bottom], [name], *self.params(True),
                          f"inner_product_param {{ num_output: {out} {self.fillers(weight, True, bias)} }}")

    def relu(self, name, blob):
        return self.layer(name, "ReLU", [blob], [blob])

    def pool(self, name, bottom, kernel, stride, pad=0, kind="MAX"):
        p = f" pad: {pad}" if pad else ""
        return self.layer(name, "Pooling", [bottom], [name],
                          f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride}{p} }}")

    def global_pool(self, name, bottom):
        return self.layer(name, "Pooling", [bottom], [name], "pooling_param { pool: AVE global_pooling: true }")

    def lrn(self, name, bottom):
        return self.layer(name, "LRN", [bottom], [name], "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")

    def dropout(self, name, blob, ratio):
        return self.layer(name, "Dropout", [blob], [blob], f"dropout_param {{ dropout_ratio: {ratio} }}")

    def batch_norm(self, name, blob, top=None):
        """BatchNorm and Scale, in place but where top is given. Their parameters do not decay."""
        top = top or blob
        stat = "param { lr_mult: 0 decay_mult: 0 } " * 3
        eps = [f"batch_norm_param {{ eps: {self.eps} }}"] if self.eps else []
        self.layer(f"bn_{name}", "BatchNorm", [blob], [top], stat.strip(), *eps)
        return self.layer(f"scale_{name}", "Scale", [top], [top],
                          "param { decay_mult: 0 } param { decay_mult: 0 }", "scale_param { bias_term: true }")

    def conv_bn(self, name, bottom, out, kernel, stride=1, pad=0, relu=True, group=1):
        top = self.batch_norm(name, self.conv(name, bottom, out, kernel, stride, pad, bias=False, group=group))
        return self.relu(f"relu_{name}", top) if relu else top

    def eltwise(self, name, *bottoms):
        return self.layer(name, "Eltwise", bottoms, [name])

    def concat(self, name, *bottoms):
        return self.layer(name, "Concat", bottoms, [name])

    def loss(self, name, bottom, weight=None, top1="accuracy", top5=None, top=None, keep=True):
        body = [f"loss_weight: {weight}"] if weight else []
        self.layer(name, "SoftmaxWithLoss", [bottom, "label"], [top or name], *body)
        if top1:
            self.layer(top1, "Accuracy", [bottom, "label"], [top1], "include { phase: TEST }")
        if top5:
            self.layer(top5, "Accuracy", [bottom, "label"], [top5], "include { phase: TEST }",
                       "accuracy_param { top_k: 5 }")
        if keep:
            self.scores = (bottom, "")


def for_training(layers):
    for kind, head, body, where in layers:
        if where != "deploy":
            yield block(head, for_training(body)) if kind == "repeat" else render(head, body)


def for_use(layers):
    for kind, head, body, where in layers:
        if kind in INPUTS + MEASURES or where == "train":
            continue
        if kind == "repeat":
            yield block(head, for_use(body))
        else:
            yield render(head, [plain for plain in map(without_training, body) if plain])


def block(head, layers):
    lines = "\n".join(layers).split("\n")
    return head + "".join("\n  " + line for line in lines) + "\n}"


def render(head, body):
    return head + " }" if not body else head + "".join("\n  " + line for line in body) + "\n}"


def without_training(line):
    """A line of a layer without what only training reads; None where nothing is left."""
    if line.startswith("param {"):
        return line if "name:" in line else None
    if line == "include { phase: TEST }":
        return None
    line = re.sub(r" (weight|bias)_filler \{[^}]*\}", "", line)
    return None if re.fullmatch(r"\w+ \{ *\}", line) else line
