"""Residual nets, and the same with squeeze and excitation."""
from .net import Net


def residual(net, name, bottom, widths, kernels, stride, project, excite=None):
    """A residual block: convolutions of these widths and kernels beside an identity or projection."""
    top = bottom
    for i, (out, kernel) in enumerate(zip(widths, kernels)):
        last = i == len(widths) - 1
        # the stride sits on the first convolution, as in He et al.'s own Caffe nets
        top = net.conv_bn(f"{name}_{'abc'[i]}", top, out, kernel, stride if i == 0 else 1, kernel // 2, relu=not last)
    if excite:
        top = excite(net, name, top, widths[-1])
    side = net.conv_bn(f"{name}_side", bottom, widths[-1], 1, stride, relu=False) if project else bottom
    return net.relu(f"relu_{name}", net.eltwise(name, side, top))


def resnet_cifar(name, n):
    net = Net(name, 'type: "msra"', lr2=False)
    top = net.conv_bn("conv1", net.cifar10(128), 16, 3, pad=1)
    for stage, width in ((2, 16), (3, 32), (4, 64)):
        for block in range(n):
            first = block == 0 and stage > 2
            top = residual(net, f"res{stage}_{block + 1}", top, (width, width), (3, 3), 2 if first else 1, first)
    net.loss("loss", net.fc("fc", net.global_pool("pool", top), 10))
    return net


def resnet20():
    """He et al., "Deep Residual Learning", CVPR 2016, section 4.2, n = 3, with projections (option B)."""
    return resnet_cifar("ResNet-20", 3)


def resnet44():
    """He et al., "Deep Residual Learning", CVPR 2016, section 4.2, n = 7, with projections (option B)."""
    return resnet_cifar("ResNet-44", 7)


def resnet(name, counts, excite=None):
    net = Net(name, 'type: "msra"', lr2=False)
    top = net.conv_bn("conv1", net.imagenet(32, 224), 64, 7, 2, 3)
    top = net.pool("pool1", top, 3, 2)
    for stage, (blocks, width) in enumerate(zip(counts, (64, 128, 256, 512)), 2):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 2 else 1
            top = residual(net, f"res{stage}_{block + 1}", top, (width, width, 4 * width), (1, 3, 1), stride,
                           block == 0, excite)
    net.loss("loss", net.fc("fc1000", net.global_pool("pool5", top), 1000), top1="accuracy", top5="accuracy_top5")
    return net


def resnet50():
    """He et al., CVPR 2016, table 1."""
    return resnet("ResNet-50", (3, 4, 6, 3))


def resnet101():
    """He et al., "Deep Residual Learning", CVPR 2016, table 1."""
    return resnet("ResNet-101", (3, 4, 23, 3))


def resnet152():
    """He et al., "Deep Residual Learning", CVPR 2016, table 1."""
    return resnet("ResNet-152", (3, 8, 36, 3))


def squeeze(net, name, blob, width):
    """Each channel times a factor from 0 to 1 that two small layers make of all channels' means."""
    top = net.fc(f"{name}_squeeze", net.global_pool(f"{name}_mean", blob), width // 16)
    top = net.fc(f"{name}_excite", net.relu(f"relu_{name}_squeeze", top), width)
    top = net.layer(f"{name}_gate", "Sigmoid", [top], [top])
    return net.layer(f"{name}_gated", "Scale", [blob, top], [f"{name}_gated"], "scale_param { axis: 0 }")


def senet50():
    """Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018: SE-ResNet-50, reduction 16."""
    return resnet("SE-ResNet-50", (3, 4, 6, 3), squeeze)
