"""Further nets from their papers, with the learned parameters that known implementations have: for tests of `check`."""
from . import classic, compact, residual
from .net import Net

MSRA = 'type: "msra"'


def finish(net, top, dropout=None, classes=1000):
    top = net.global_pool("pool", top)
    top = net.dropout("drop", top, dropout) if dropout else top
    net.loss("loss", net.fc("fc", top, classes))
    return net


def basic_resnet(counts):
    """He et al., CVPR 2016: two 3 x 3 convolutions a block."""
    net = Net("ResNet", MSRA, lr2=False)
    top = net.pool("pool1", net.conv_bn("conv1", net.imagenet(32, 224), 64, 7, 2, 3), 3, 2)
    for stage, (blocks, width) in enumerate(zip(counts, (64, 128, 256, 512)), 2):
        for block in range(blocks):
            first = block == 0 and stage > 2
            top = residual.residual(net, f"res{stage}_{block}", top, (width, width), (3, 3), 2 if first else 1, first)
    return finish(net, top)


def grouped_resnet(counts, groups, width):
    """Xie et al., "Aggregated residual transformations", CVPR 2017; with one group, Zagoruyko's wide nets, BMVC 2016."""
    net = Net("ResNeXt", MSRA, lr2=False)
    top = net.pool("pool1", net.conv_bn("conv1", net.imagenet(32, 224), 64, 7, 2, 3), 3, 2)
    for stage, blocks in enumerate(counts):
        inner, out = groups * width << stage, 256 << stage
        for block in range(blocks):
            name, stride = f"res{stage}_{block}", 2 if block == 0 and stage > 0 else 1
            side = net.conv_bn(f"{name}_side", top, out, 1, stride, relu=False) if block == 0 else top
            new = net.conv_bn(f"{name}_b", net.conv_bn(f"{name}_a", top, inner, 1), inner, 3, stride, 1, group=groups)
            new = net.conv_bn(f"{name}_c", new, out, 1, relu=False)
            top = net.relu(f"relu_{name}", net.eltwise(name, side, new))
    return finish(net, top)


def weird_alexnet():
    """Krizhevsky, "One weird trick", 2014: AlexNet for one processor, no groups."""
    net = Net("AlexNet-OWT", MSRA, bias=0)
    top = net.imagenet(128, 224)
    for i, (out, kernel, stride, pad) in enumerate(((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1),
                                                    (256, 3, 1, 1)), 1):
        top = net.relu(f"relu{i}", net.conv(f"conv{i}", top, out, kernel, stride, pad))
        top = net.pool(f"pool{i}", top, 3, 2) if i in (1, 2, 5) else top
    for i in (6, 7):
        top = net.relu(f"relu{i}", net.fc(f"fc{i}", net.dropout(f"drop{i}", top, 0.5), 4096))
    net.loss("loss", net.fc("fc8", top, 1000))
    return net


def googlenet_bn():
    """GoogLeNet with BatchNorm and 3 x 3 in place of 5 x 5 (Ioffe, Szegedy, ICML 2015, as torchvision has it)."""
    net = Net("GoogLeNet-BN", MSRA, lr2=False)
    top = net.pool("pool1", net.conv_bn("conv1", net.imagenet(32, 224), 64, 7, 2, 3), 3, 2)
    top = net.pool("pool2", net.conv_bn("conv3", net.conv_bn("conv2", top, 64, 1), 192, 3, pad=1), 3, 2)
    for name, (n1, r3, n3, r5, n5, proj) in classic.INCEPTION.items():
        if name in ("4a", "5a"):
            top = net.pool(f"pool_{name}", top, 3, 2)
        top = net.concat(name, net.conv_bn(f"{name}_1", top, n1, 1),
                         net.conv_bn(f"{name}_3", net.conv_bn(f"{name}_3r", top, r3, 1), n3, 3, pad=1),
                         net.conv_bn(f"{name}_5", net.conv_bn(f"{name}_5r", top, r5, 1), n5, 3, pad=1),
                         net.conv_bn(f"{name}_p", net.pool(f"{name}_pool", top, 3, 1, pad=1), proj, 1))
    return finish(net, top, 0.2)


def squeezenet_1_0():
    """Iandola et al., "SqueezeNet", 2016, version 1.0."""
    net = Net("SqueezeNet-1.0", MSRA, bias=0)
    top = net.pool("pool1", net.relu("relu1", net.conv("conv1", net.imagenet(32, 227), 96, 7, 2)), 3, 2)
    for i, (squeeze, expand) in enumerate(((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256),
                                           (64, 256)), 2):
        s = net.relu(f"relu_s{i}", net.conv(f"s{i}", top, squeeze, 1))
        top = net.concat(f"fire{i}", net.relu(f"relu_a{i}", net.conv(f"a{i}", s, expand, 1)),
                         net.relu(f"relu_b{i}", net.conv(f"b{i}", s, expand, 3, pad=1)))
        top = net.pool(f"pool{i}", top, 3, 2) if i in (4, 8) else top
    net.loss("loss", net.global_pool("pool", net.relu("relu10", net.conv("conv10", top, 1000, 1))))
    return net


def shufflenet_v2(widths):
    """Ma et al., "ShuffleNet V2", ECCV 2018."""
    net = Net("ShuffleNet-v2", MSRA, lr2=False)
    top = net.pool("pool1", net.conv_bn("conv1", net.imagenet(32, 224), 24, 3, 2, 1), 3, 2, pad=1)

    def branch(name, bottom, out, stride, width):
        new = net.conv_bn(f"{name}_a", bottom, out, 1)
        new = net.conv_bn(f"{name}_b", new, out, 3, stride, 1, relu=False, group=out)
        return net.conv_bn(f"{name}_c", new, out, 1)

    width = 24
    for stage, (out, count) in enumerate(zip(widths, (4, 8, 4)), 2):
        for unit in range(count):
            name = f"s{stage}_{unit}"
            if unit == 0:
                side = net.conv_bn(f"{name}_d", top, width, 3, 2, 1, relu=False, group=width)
                parts = net.conv_bn(f"{name}_e", side, out // 2, 1), branch(name, top, out // 2, 2, width)
            else:
                net.layer(f"{name}_slice", "Slice", [top], [f"{name}_l", f"{name}_r"], "slice_param { axis: 1 }")
                parts = f"{name}_l", branch(name, f"{name}_r", out // 2, 1, out // 2)
            top = net.concat(f"{name}_cat", *parts)
            top = net.layer(f"{name}_mix", "ShuffleChannel", [top], [f"{name}_mix"], "shuffle_channel_param { group: 2 }")
        width = out
    return finish(net, net.conv_bn("conv5", top, widths[3], 1))


def inverted(net, name, top, width, out, kernel, stride, expand, act, gate=None):
    """Expand, filter each channel, project."""
    inner = width * expand
    new = act(f"{name}_e", net.conv_bn(f"{name}_expand", top, inner, 1, relu=False)) if expand > 1 else top
    new = act(f"{name}_d", net.conv_bn(f"{name}_dw", new, inner, kernel, stride, kernel // 2, relu=False, group=inner))
    if gate:
        new = gate(name, new, inner, width)
    new = net.conv_bn(f"{name}_project", new, out, 1, relu=False)
    return net.eltwise(name, top, new) if stride == 1 and width == out else new


def mnasnet():
    """Tan et al., "MnasNet", CVPR 2019: B1, width 1."""
    net = Net("MnasNet-B1", MSRA, lr2=False)

    def act(name, blob):
        return net.relu(f"relu_{name}", blob)

    top = net.conv_bn("conv1", net.imagenet(32, 224), 32, 3, 2, 1)
    top = net.conv_bn("sep_b", net.conv_bn("sep_a", top, 32, 3, 1, 1, group=32), 16, 1, relu=False)
    width = 16
    for stage, (out, kernel, stride, expand, count) in enumerate(((24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3),
                                                                  (96, 3, 1, 6, 2), (192, 5, 2, 6, 4), (320, 3, 1, 6, 1))):
        for i in range(count):
            top = inverted(net, f"b{stage}_{i}", top, width, out, kernel, stride if i == 0 else 1, expand, act)
            width = out
    return finish(net, net.conv_bn("conv_last", top, 1280, 1), 0.2)


def efficientnet_b0():
    """Tan, Le, "EfficientNet", ICML 2019: B0, padded alike on both sides."""
    net = Net("EfficientNet-B0", MSRA, lr2=False, eps=0.001)

    def act(name, blob):
        return net.layer(f"swish_{name}", "Swish", [blob], [blob])

    def gate(name, blob, inner, width):
        top = act(f"{name}_s", net.fc(f"{name}_squeeze", net.global_pool(f"{name}_mean", blob), width // 4))
        top = net.fc(f"{name}_excite", top, inner)
        top = net.layer(f"{name}_gate", "Sigmoid", [top], [top])
        return net.layer(f"{name}_gated", "Scale", [blob, top], [f"{name}_gated"], "scale_param { axis: 0 }")

    top = act("1", net.conv_bn("conv1", net.imagenet(32, 224), 32, 3, 2, 1, relu=False))
    width = 32
    for stage, (out, kernel, stride, expand, count) in enumerate((
            (16, 3, 1, 1, 1), (24, 3, 2, 6, 2), (40, 5, 2, 6, 2), (80, 3, 2, 6, 3), (112, 5, 1, 6, 3), (192, 5, 2, 6, 4),
            (320, 3, 1, 6, 1))):
        for i in range(count):
            top = inverted(net, f"b{stage}_{i}", top, width, out, kernel, stride if i == 0 else 1, expand, act, gate)
            width = out
    return finish(net, act("last", net.conv_bn("conv_last", top, 1280, 1, relu=False)), 0.2)


def xception():
    """Chollet, "Xception", CVPR 2017, 299 x 299."""
    net = Net("Xception", MSRA, lr2=False, eps=0.001)
    width = 64

    def separable(name, bottom, out):
        new = net.conv(f"{name}_dw", bottom, width, 3, pad=1, bias=False, group=width)
        return net.batch_norm(name, net.conv(name, new, out, 1, bias=False))

    def relu_apart(name, bottom):
        return net.layer(f"relu_{name}", "ReLU", [bottom], [f"{name}_relu"])

    top = net.data("data/imagenet/train_lmdb", "data/imagenet/val_lmdb", (3, 320, 320), 32, 50, "crop_size: 299")
    top = net.conv_bn("conv2", net.conv_bn("conv1", top, 32, 3, 2), 64, 3)
    for block, outs in enumerate(((128, 128), (256, 256), (728, 728)) + ((728,) * 3,) * 8 + ((728, 1024),)):
        shrinks = len(outs) == 2
        new = side = top
        for i, out in enumerate(outs):
            name = f"b{block}_{i}"
            new = separable(name, new if (block, i) == (0, 0) else relu_apart(name, new), out)
            width = out
        if shrinks:
            new = net.layer(f"b{block}_pool", "Pooling", [new], [f"b{block}_pool"],
                            "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR }")
            side = net.conv_bn(f"b{block}_side", side, outs[-1], 1, 2, relu=False)
        top = net.eltwise(f"b{block}", side, new)
    for name, out in (("exit1", 1536), ("exit2", 2048)):
        top = net.relu(f"relu_{name}", separable(name, top, out))
        width = out
    return finish(net, top)


# name: (net, learned parameters). Of CIFAR's residual nets the count is that of zero padding (option A) and 2 752 for
# the two projections that we have in its place.
NETS = {
    "alexnet_owt": (weird_alexnet, 61100840),
    "densenet161": (lambda: compact.densenet("DenseNet-161", 48, 96, (6, 12, 36, 24)), 28681000),
    "densenet169": (lambda: compact.densenet("DenseNet-169", 32, 64, (6, 12, 32, 32)), 14149480),
    "densenet201": (lambda: compact.densenet("DenseNet-201", 32, 64, (6, 12, 48, 32)), 20013928),
    "efficientnet_b0": (efficientnet_b0, 5288548),
    "googlenet_bn": (googlenet_bn, 6624904),
    "mnasnet": (mnasnet, 4383312),
    "mobilenet_025": (lambda: compact.mobilenet("MobileNet-0.25", 0.25), 470072),
    "mobilenet_050": (lambda: compact.mobilenet("MobileNet-0.5", 0.5), 1331592),
    "mobilenet_075": (lambda: compact.mobilenet("MobileNet-0.75", 0.75), 2585560),
    "resnet18": (lambda: basic_resnet((2, 2, 2, 2)), 11689512),
    "resnet34": (lambda: basic_resnet((3, 4, 6, 3)), 21797672),
    "resnet32_cifar": (lambda: residual.resnet_cifar("ResNet-32", 5), 464154 + 2752),
    "resnet56_cifar": (lambda: residual.resnet_cifar("ResNet-56", 9), 853018 + 2752),
    "resnet110_cifar": (lambda: residual.resnet_cifar("ResNet-110", 18), 1727962 + 2752),
    "resnext50_32x4": (lambda: grouped_resnet((3, 4, 6, 3), 32, 4), 25028904),
    "resnext101_32x8": (lambda: grouped_resnet((3, 4, 23, 3), 32, 8), 88791336),
    "seresnet101": (lambda: residual.resnet("SE-ResNet-101", (3, 4, 23, 3), residual.squeeze), 49326872),
    "seresnet152": (lambda: residual.resnet("SE-ResNet-152", (3, 8, 36, 3), residual.squeeze), 66821848),
    "shufflenet_v2_05": (lambda: shufflenet_v2((48, 96, 192, 1024)), 1366792),
    "shufflenet_v2_10": (lambda: shufflenet_v2((116, 232, 464, 1024)), 2278604),
    "shufflenet_v2_15": (lambda: shufflenet_v2((176, 352, 704, 1024)), 3503624),
    "shufflenet_v2_20": (lambda: shufflenet_v2((244, 488, 976, 2048)), 7393996),
    "squeezenet_10": (squeezenet_1_0, 1248424),
    "vgg11": (lambda: classic.vgg("VGG-11", (1, 1, 2, 2, 2)), 132863336),
    "vgg13": (lambda: classic.vgg("VGG-13", (2, 2, 2, 2, 2)), 133047848),
    "wide_resnet50": (lambda: grouped_resnet((3, 4, 6, 3), 1, 128), 68883240),
    "wide_resnet101": (lambda: grouped_resnet((3, 4, 23, 3), 1, 128), 126886696),
    "xception": (xception, 22855952),
}
