"""Nets with few parameters: SqueezeNet, MobileNet, DenseNet."""
from .net import Net


def squeezenet():
    """Iandola et al., "SqueezeNet", 2016, version 1.1 of its authors."""
    net = Net("SqueezeNet-1.1", 'type: "xavier"', bias=0)

    def fire(name, bottom, squeeze, expand):
        s = net.relu(f"{name}/relu_squeeze", net.conv(f"{name}/squeeze1x1", bottom, squeeze, 1))
        one = net.relu(f"{name}/relu_1x1", net.conv(f"{name}/expand1x1", s, expand, 1))
        three = net.relu(f"{name}/relu_3x3", net.conv(f"{name}/expand3x3", s, expand, 3, pad=1))
        return net.concat(f"{name}/concat", one, three)

    top = net.relu("relu_conv1", net.conv("conv1", net.imagenet(32, 227), 64, 3, 2))
    top = fire("fire3", fire("fire2", net.pool("pool1", top, 3, 2), 16, 64), 16, 64)
    top = fire("fire5", fire("fire4", net.pool("pool3", top, 3, 2), 32, 128), 32, 128)
    top = net.pool("pool5", top, 3, 2)
    for name, squeezed, expanded in (("fire6", 48, 192), ("fire7", 48, 192), ("fire8", 64, 256), ("fire9", 64, 256)):
        top = fire(name, top, squeezed, expanded)
    top = net.conv("conv10", net.dropout("drop9", top, 0.5), 1000, 1, weight='type: "gaussian" std: 0.01')
    top = net.global_pool("pool10", net.relu("relu_conv10", top))
    net.loss("loss", top, top5="accuracy_top5")
    return net


def mobilenet(name, part):
    net = Net(name, 'type: "msra"', lr2=False)
    width = int(32 * part)
    top = net.conv_bn("conv1", net.imagenet(32, 224), width, 3, 2, 1)
    for i, (out, stride) in enumerate(((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)) + ((512, 1),) * 5
                                      + ((1024, 2), (1024, 1)), 2):
        top = net.conv_bn(f"conv{i}_dw", top, width, 3, stride, 1, group=width)
        width = int(out * part)
        top = net.conv_bn(f"conv{i}_sep", top, width, 1)
    net.loss("loss", net.fc("fc", net.global_pool("pool", top), 1000), top5="accuracy_top5")
    return net


def mobilenet_v1():
    """Howard et al., "MobileNets", 2017, width 1, 224 x 224."""
    return mobilenet("MobileNet-v1", 1)


def mobilenet_v2():
    """Sandler et al., "MobileNetV2", CVPR 2018, width 1, 224 x 224."""
    net = Net("MobileNet-v2", 'type: "msra"', lr2=False)
    top = net.conv_bn("conv1", net.imagenet(32, 224), 32, 3, 2, 1)
    width, block = 32, 0
    for expand, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                       (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            block += 1
            name, inner, bottom = f"block{block}", width * expand, top
            if expand > 1:
                top = net.conv_bn(f"{name}_expand", top, inner, 1)
            top = net.conv_bn(f"{name}_dw", top, inner, 3, stride if i == 0 else 1, 1, group=inner)
            top = net.conv_bn(f"{name}_project", top, out, 1, relu=False)
            if i > 0:
                top = net.eltwise(name, bottom, top)
            width = out
    top = net.global_pool("pool", net.conv_bn("conv_last", top, 1280, 1))
    net.loss("loss", net.fc("fc", net.dropout("drop", top, 0.2), 1000), top5="accuracy_top5")
    return net


def densenet(name, growth, width, counts):
    net = Net(name, 'type: "msra"', lr2=False)

    def bn_relu(name, bottom):
        return net.relu(f"relu_{name}", net.batch_norm(name, bottom, top=f"{name}_bn"))

    top = net.pool("pool1", net.conv_bn("conv1", net.imagenet(32, 224), width, 7, 2, 3), 3, 2, pad=1)
    for stage, count in enumerate(counts, 2):
        for i in range(1, count + 1):
            name = f"conv{stage}_{i}"
            new = net.conv(f"{name}_x1", bn_relu(f"{name}_a", top), 4 * growth, 1, bias=False)
            new = net.conv(f"{name}_x2", net.relu(f"relu_{name}_b", net.batch_norm(f"{name}_b", new)), growth, 3, pad=1,
                           bias=False)
            top = net.concat(f"concat_{stage}_{i}", top, new)
            width += growth
        if stage < 5:
            width //= 2
            top = net.conv(f"conv{stage}_blk", bn_relu(f"conv{stage}_blk", top), width, 1, bias=False)
            top = net.pool(f"pool{stage}", top, 2, 2, kind="AVE")
    net.loss("loss", net.fc("fc", net.global_pool("pool5", bn_relu("conv5_blk", top)), 1000), top5="accuracy_top5")
    return net


def densenet121():
    """Huang et al., "Densely connected convolutional networks", CVPR 2017, growth 32."""
    return densenet("DenseNet-121", 32, 64, (6, 12, 24, 16))
