#!/usr/bin/env python3
"""Writes the large regular nets of models/: resnet20, vgg16, googlenet, resnet50.

Each net is a function that emits layers in order; a layer is a line or a few. Run from anywhere:
    scripts/make_models.py            writes models/*/{train_val,solver}.prototxt
    scripts/make_models.py --check    fails where the files differ from what it would write
"""
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")


class Net:
    """Collects the text of a net; every method returns the name of its top."""

    def __init__(self, name, weight_filler, bias=None, lr2=True):
        self.text = [f'name: "{name}"']
        self.weight = weight_filler
        self.bias = bias  # value of the bias filler, None: no bias by default
        self.lr2 = lr2    # biases learn at twice the rate and do not decay, as Caffe's nets do

    def layer(self, name, kind, bottoms, tops, *body):
        b = " ".join(f'bottom: "{x}"' for x in bottoms)
        t = " ".join(f'top: "{x}"' for x in tops)
        head = f'layer {{ name: "{name}" type: "{kind}" {b}{" " if b else ""}{t}'
        if not body:
            self.text.append(head + " }")
        else:
            self.text.append(head + "".join("\n  " + line for line in body) + "\n}")
        return tops[0]

    def data(self, train, test, shape, train_batch, test_batch, transform):
        for phase, source, batch in (("TRAIN", train, train_batch), ("TEST", test, test_batch)):
            mirror = "mirror: true " if phase == "TRAIN" else ""
            self.layer("data", "Data", [], ["data", "label"], f"include {{ phase: {phase} }}",
                       f"transform_param {{ {mirror}{transform} }}",
                       f'data_param {{ source: "{source}" backend: LMDB batch_size: {batch}'
                       f" synthetic_shape {{ dim: {shape[0]} dim: {shape[1]} dim: {shape[2]} }} }}")
        return "data"

    def params(self, bias):
        if not self.lr2:
            return []
        return ["param { lr_mult: 1 decay_mult: 1 }" + (" param { lr_mult: 2 decay_mult: 0 }" if bias else "")]

    def fillers(self, weight, bias, value):
        text = f"weight_filler {{ {weight or self.weight} }}"
        return text + (f' bias_filler {{ type: "constant" value: {value} }}' if bias else "")

    def conv(self, name, bottom, out, kernel, stride=1, pad=0, bias=None, weight=None):
        bias = (self.bias is not None) if bias is None else bias
        shape = f"num_output: {out} kernel_size: {kernel}"
        shape += f" pad: {pad}" if pad else ""
        shape += f" stride: {stride}" if stride > 1 else ""
        shape += "" if bias else " bias_term: false"
        return self.layer(name, "Convolution", [bottom], [name], *self.params(bias),
                          f"convolution_param {{ {shape} {self.fillers(weight, bias, self.bias or 0)} }}")

    def fc(self, name, bottom, out, weight=None, bias=0):
        return self.layer(name, "InnerProduct", [bottom], [name], *self.params(True),
                          f"inner_product_param {{ num_output: {out} {self.fillers(weight, True, bias)} }}")

    def relu(self, name, blob):
        return self.layer(name, "ReLU", [blob], [blob])

    def pool(self, name, bottom, kernel, stride, pad=0, kind="MAX"):
        p = f" pad: {pad}" if pad else ""
        return self.layer(name, "Pooling", [bottom], [name],
                          f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride}{p} }}")

    def lrn(self, name, bottom):
        return self.layer(name, "LRN", [bottom], [name], "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")

    def dropout(self, name, blob, ratio):
        return self.layer(name, "Dropout", [blob], [blob], f"dropout_param {{ dropout_ratio: {ratio} }}")

    def batch_norm(self, name, blob):
        """BatchNorm and Scale in place. Their parameters do not decay."""
        stat = "param { lr_mult: 0 decay_mult: 0 } " * 3
        self.layer(f"bn_{name}", "BatchNorm", [blob], [blob], stat.strip())
        return self.layer(f"scale_{name}", "Scale", [blob], [blob],
                          "param { decay_mult: 0 } param { decay_mult: 0 }", "scale_param { bias_term: true }")

    def conv_bn(self, name, bottom, out, kernel, stride=1, pad=0, relu=True):
        top = self.batch_norm(name, self.conv(name, bottom, out, kernel, stride, pad, bias=False))
        return self.relu(f"relu_{name}", top) if relu else top

    def loss(self, name, bottom, weight=None, top1="accuracy", top5=None, top=None):
        body = [f"loss_weight: {weight}"] if weight else []
        self.layer(name, "SoftmaxWithLoss", [bottom, "label"], [top or name], *body)
        if top1:
            self.layer(top1, "Accuracy", [bottom, "label"], [top1], "include { phase: TEST }")
        if top5:
            self.layer(top5, "Accuracy", [bottom, "label"], [top5], "include { phase: TEST }",
                       "accuracy_param { top_k: 5 }")


def imagenet(net, batch, crop):
    return net.data("data/imagenet/train_lmdb", "data/imagenet/val_lmdb", (3, 256, 256), batch, 50,
                    f"crop_size: {crop} mean_value: 104 mean_value: 117 mean_value: 123")


def residual(net, name, bottom, widths, kernels, stride, project):
    """A residual block: convolutions of these widths and kernels beside an identity or projection."""
    top = bottom
    for i, (out, kernel) in enumerate(zip(widths, kernels)):
        last = i == len(widths) - 1
        # the stride sits on the first convolution, as in He et al.'s own Caffe nets
        top = net.conv_bn(f"{name}_{'abc'[i]}", top, out, kernel, stride if i == 0 else 1, kernel // 2, relu=not last)
    side = net.conv_bn(f"{name}_side", bottom, widths[-1], 1, stride, relu=False) if project else bottom
    top = net.layer(name, "Eltwise", [side, top], [name])
    return net.relu(f"relu_{name}", top)


def resnet20():
    """He et al., "Deep Residual Learning", CVPR 2016, section 4.2, n = 3, with projections (option B)."""
    net = Net("ResNet-20", 'type: "msra"', lr2=False)
    top = net.data("data/cifar10/train_lmdb", "data/cifar10/test_lmdb", (3, 32, 32), 128, 100,
                   "mean_value: 125 mean_value: 123 mean_value: 114 scale: 0.0157")
    top = net.conv_bn("conv1", top, 16, 3, pad=1)
    for stage, width in ((2, 16), (3, 32), (4, 64)):
        for block in range(3):
            first = block == 0 and stage > 2
            top = residual(net, f"res{stage}_{block + 1}", top, (width, width), (3, 3), 2 if first else 1, first)
    top = net.layer("pool", "Pooling", [top], ["pool"], "pooling_param { pool: AVE global_pooling: true }")
    net.loss("loss", net.fc("fc", top, 10))
    return net


def resnet50():
    """He et al., CVPR 2016, table 1."""
    net = Net("ResNet-50", 'type: "msra"', lr2=False)
    top = imagenet(net, 32, 224)
    top = net.conv_bn("conv1", top, 64, 7, 2, 3)
    top = net.pool("pool1", top, 3, 2)
    for stage, blocks, width in ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512)):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 2 else 1
            top = residual(net, f"res{stage}_{block + 1}", top, (width, width, 4 * width), (1, 3, 1), stride, block == 0)
    top = net.layer("pool5", "Pooling", [top], ["pool5"], "pooling_param { pool: AVE global_pooling: true }")
    net.loss("loss", net.fc("fc1000", top, 1000), top1="accuracy", top5="accuracy_top5")
    return net


def vgg16():
    """Simonyan, Zisserman, "Very deep convolutional networks", ICLR 2015, configuration D."""
    net = Net("VGG-16", 'type: "msra"', bias=0)
    top = imagenet(net, 32, 224)
    for stage, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for i in range(1, count + 1):
            top = net.relu(f"relu{stage}_{i}", net.conv(f"conv{stage}_{i}", top, width, 3, pad=1))
        top = net.pool(f"pool{stage}", top, 2, 2)
    for name in ("fc6", "fc7"):
        top = net.fc(name, top, 4096, weight='type: "gaussian" std: 0.005', bias=0.1)
        top = net.dropout(f"drop{name[-1]}", net.relu(f"relu{name[-1]}", top), 0.5)
    net.loss("loss", net.fc("fc8", top, 1000, weight='type: "gaussian" std: 0.01'), top5="accuracy_top5")
    return net


INCEPTION = {  # 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet():
    """Szegedy et al., "Going deeper with convolutions", CVPR 2015; names as in Caffe's bvlc_googlenet."""
    net = Net("GoogleNet", 'type: "xavier"', bias=0.2)

    def conv_relu(prefix, name, *args, **more):
        return net.relu(f"{prefix}/relu_{name}", net.conv(f"{prefix}/{name}", *args, **more))

    def inception(name, bottom):
        p = f"inception_{name}"
        n1, r3, n3, r5, n5, np = INCEPTION[name]
        one = conv_relu(p, "1x1", bottom, n1, 1)
        three = conv_relu(p, "3x3", conv_relu(p, "3x3_reduce", bottom, r3, 1), n3, 3, pad=1)
        five = conv_relu(p, "5x5", conv_relu(p, "5x5_reduce", bottom, r5, 1), n5, 5, pad=2)
        proj = conv_relu(p, "pool_proj", net.pool(f"{p}/pool", bottom, 3, 1, pad=1), np, 1)
        return net.layer(f"{p}/output", "Concat", [one, three, five, proj], [f"{p}/output"])

    def auxiliary(p, bottom):
        top = conv_relu(p, "conv", net.pool(f"{p}/ave_pool", bottom, 5, 3, kind="AVE"), 128, 1)
        top = net.relu(f"{p}/relu_fc", net.fc(f"{p}/fc", top, 1024, bias=0.2))
        top = net.fc(f"{p}/classifier", net.dropout(f"{p}/drop_fc", top, 0.7), 1000)
        net.loss(f"{p}/loss", top, 0.3, f"{p}/top-1", f"{p}/top-5", top=f"{p}/{p}")

    top = imagenet(net, 32, 224)
    top = net.relu("conv1/relu_7x7", net.conv("conv1/7x7_s2", top, 64, 7, 2, 3))
    top = net.lrn("pool1/norm1", net.pool("pool1/3x3_s2", top, 3, 2))
    top = conv_relu("conv2", "3x3", conv_relu("conv2", "3x3_reduce", top, 64, 1), 192, 3, pad=1)
    top = net.pool("pool2/3x3_s2", net.lrn("conv2/norm2", top), 3, 2)
    top = inception("3b", inception("3a", top))
    top = inception("4a", net.pool("pool3/3x3_s2", top, 3, 2))
    auxiliary("loss1", top)
    top = inception("4d", inception("4c", inception("4b", top)))
    auxiliary("loss2", top)
    top = net.pool("pool4/3x3_s2", inception("4e", top), 3, 2)
    top = net.pool("pool5/7x7_s1", inception("5b", inception("5a", top)), 7, 1, kind="AVE")
    top = net.fc("loss3/classifier", net.dropout("pool5/drop_7x7_s1", top, 0.4), 1000)
    net.loss("loss3/loss3", top, 1, "loss3/top-1", "loss3/top-5")
    return net


SOLVERS = {
    "resnet20": ("test_iter: 100\ntest_interval: 500\nbase_lr: 0.1\nmomentum: 0.9\nweight_decay: 0.0001\n"
                 'lr_policy: "multistep"\ngamma: 0.1\nstepvalue: 32000\nstepvalue: 48000\nmax_iter: 64000\n'
                 "display: 100\nsnapshot: 8000\n"),
    "vgg16": ("test_iter: 1000\ntest_interval: 5000\nbase_lr: 0.01\nmomentum: 0.9\nweight_decay: 0.0005\n"
              'lr_policy: "step"\ngamma: 0.1\nstepsize: 100000\nmax_iter: 370000\n'
              "display: 20\nsnapshot: 10000\n"),
    "googlenet": ("test_iter: 1000\ntest_interval: 4000\ntest_initialization: false\nbase_lr: 0.01\n"
                  'momentum: 0.9\nweight_decay: 0.0002\nlr_policy: "step"\ngamma: 0.96\nstepsize: 320000\n'
                  "max_iter: 10000000\ndisplay: 40\naverage_loss: 40\nsnapshot: 40000\n"),
    "resnet50": ("test_iter: 1000\ntest_interval: 5000\nbase_lr: 0.1\nmomentum: 0.9\nweight_decay: 0.0001\n"
                 'lr_policy: "multistep"\ngamma: 0.1\nstepvalue: 150000\nstepvalue: 300000\nmax_iter: 450000\n'
                 "display: 20\naverage_loss: 20\nsnapshot: 10000\n"),
}


def files():
    note = "# Made by scripts/make_models.py; change it there."
    for make in (resnet20, vgg16, googlenet, resnet50):
        name = make.__name__
        yield os.path.join(ROOT, name, "train_val.prototxt"), "\n".join(
            [note, f"# {make.__doc__}"] + make().text) + "\n"
        yield os.path.join(ROOT, name, "solver.prototxt"), (
            f'{note}\nnet: "train_val.prototxt"\n{SOLVERS[name]}snapshot_prefix: "{name}"\nsolver_mode: CPU\n')


def main():
    bad = 0
    for path, text in files():
        if "--check" in sys.argv[1:]:
            with open(path, encoding="ascii") as f:
                if f.read() != text:
                    print(f"{os.path.relpath(path)} is not what make_models.py writes", file=sys.stderr)
                    bad = 1
        else:
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
    return bad


if __name__ == "__main__":
    sys.exit(main())
