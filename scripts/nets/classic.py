"""Nets in a line: AlexNet and its kin, VGG, GoogLeNet, Caffe's on CIFAR-10."""
from .net import Net

GAUSSIAN = 'type: "gaussian" std: '


def alexnet_kind(name, norm, batch_norm=False):
    """norm: "before" or "behind" the pooling, or None."""
    net = Net(name, GAUSSIAN + "0.01", bias=0)
    top = net.imagenet(256, 227)
    for i, (out, kernel, stride, pad, group, bias) in enumerate(
            ((96, 11, 4, 0, 1, 0), (256, 5, 1, 2, 2, 0.1), (384, 3, 1, 1, 1, 0), (384, 3, 1, 1, 2, 0.1),
             (256, 3, 1, 1, 2, 0.1)), 1):
        conv = net.conv(f"conv{i}", top, out, kernel, stride, pad, bias=not batch_norm, group=group, value=bias)
        top = net.relu(f"relu{i}", net.batch_norm(f"conv{i}", conv) if batch_norm else conv)
        if i in (1, 2) and norm == "before":
            top = net.lrn(f"norm{i}", top)
        if i in (1, 2, 5):
            top = net.pool(f"pool{i}", top, 3, 2)
        if i in (1, 2) and norm == "behind":
            top = net.lrn(f"norm{i}", top)
    for i in (6, 7):
        top = net.fc(f"fc{i}", top, 4096, weight=GAUSSIAN + "0.005", bias=0.1)
        if batch_norm:
            top = net.batch_norm(f"fc{i}", top)
        top = net.dropout(f"drop{i}", net.relu(f"relu{i}", top), 0.5)
    net.loss("loss", net.fc("fc8", top, 1000), top5="accuracy_top5")
    return net


def alexnet():
    """Krizhevsky et al., "ImageNet classification with deep convolutional networks", NIPS 2012, as Caffe trains it."""
    return alexnet_kind("AlexNet", "before")


def caffenet():
    """Caffe's reference net: AlexNet with pooling before normalisation."""
    return alexnet_kind("CaffeNet", "behind")


def alexnet_bn():
    """AlexNet with BatchNorm in place of LRN, as swCaffe's authors train it (Li et al., CLUSTER 2018)."""
    return alexnet_kind("AlexNet-BN", None, batch_norm=True)


def vgg(name, counts):
    net = Net(name, 'type: "msra"', bias=0)
    top = net.imagenet(32, 224)
    for stage, (count, width) in enumerate(zip(counts, (64, 128, 256, 512, 512)), 1):
        for i in range(1, count + 1):
            top = net.relu(f"relu{stage}_{i}", net.conv(f"conv{stage}_{i}", top, width, 3, pad=1))
        top = net.pool(f"pool{stage}", top, 2, 2)
    for name in ("fc6", "fc7"):
        top = net.fc(name, top, 4096, weight=GAUSSIAN + "0.005", bias=0.1)
        top = net.dropout(f"drop{name[-1]}", net.relu(f"relu{name[-1]}", top), 0.5)
    net.loss("loss", net.fc("fc8", top, 1000, weight=GAUSSIAN + "0.01"), top5="accuracy_top5")
    return net


def vgg16():
    """Simonyan, Zisserman, "Very deep convolutional networks", ICLR 2015, configuration D."""
    return vgg("VGG-16", (2, 2, 3, 3, 3))


def vgg19():
    """Simonyan, Zisserman, "Very deep convolutional networks", ICLR 2015, configuration E."""
    return vgg("VGG-19", (2, 2, 4, 4, 4))


def vgg16_cifar():
    """VGG-16's convolutions on CIFAR-10, with BatchNorm and one fully connected layer, as RedSync's authors train it."""
    net = Net("VGG-16-CIFAR", 'type: "msra"', lr2=False)
    top = net.cifar10(128)
    for stage, (count, width) in enumerate(zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512)), 1):
        for i in range(1, count + 1):
            top = net.conv_bn(f"conv{stage}_{i}", top, width, 3, pad=1)
        top = net.pool(f"pool{stage}", top, 2, 2)
    net.loss("loss", net.fc("fc", net.dropout("drop", top, 0.5), 10))
    return net


def cifar10_full():
    """Krizhevsky's net on CIFAR-10 ("layers-18pct"), as Caffe has it: cifar10_full."""
    net = Net("CIFAR10_full", GAUSSIAN + "0.01", bias=0)
    top = net.data("data/cifar10/train_lmdb", "data/cifar10/test_lmdb", (3, 32, 32), 100, 100,
                   "mean_value: 125 mean_value: 123 mean_value: 114")
    norm = "lrn_param { local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL }"
    top = net.conv("conv1", top, 32, 5, pad=2, weight=GAUSSIAN + "0.0001")
    top = net.relu("relu1", net.pool("pool1", top, 3, 2))
    top = net.conv("conv2", net.layer("norm1", "LRN", [top], ["norm1"], norm), 32, 5, pad=2)
    top = net.pool("pool2", net.relu("relu2", top), 3, 2, kind="AVE")
    top = net.conv("conv3", net.layer("norm2", "LRN", [top], ["norm2"], norm), 64, 5, pad=2)
    top = net.pool("pool3", net.relu("relu3", top), 3, 2, kind="AVE")
    net.layer("ip1", "InnerProduct", [top], ["ip1"],
              "param { lr_mult: 1 decay_mult: 250 } param { lr_mult: 2 decay_mult: 0 }",
              f'inner_product_param {{ num_output: 10 {net.fillers(None, True, 0)} }}')
    net.loss("loss", "ip1")
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
        return net.concat(f"{p}/output", one, three, five, proj)

    def auxiliary(p, bottom):
        net.where = "train"
        top = conv_relu(p, "conv", net.pool(f"{p}/ave_pool", bottom, 5, 3, kind="AVE"), 128, 1)
        top = net.relu(f"{p}/relu_fc", net.fc(f"{p}/fc", top, 1024, bias=0.2))
        top = net.fc(f"{p}/classifier", net.dropout(f"{p}/drop_fc", top, 0.7), 1000)
        net.loss(f"{p}/loss", top, 0.3, f"{p}/top-1", f"{p}/top-5", top=f"{p}/{p}", keep=False)
        net.where = ""

    top = net.imagenet(32, 224)
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
