"""Inception-v3."""
from .net import Net


def inception_v3():
    """Szegedy et al., "Rethinking the Inception architecture", CVPR 2016, with its auxiliary head."""
    net = Net("Inception-v3", 'type: "msra"', lr2=False, eps=0.001)

    def chain(name, bottom, *convs):
        """Convolutions (out, kernel[, stride]) in a row; they pad to keep the size but where they have a stride."""
        top = bottom
        for i, (out, kernel, *stride) in enumerate(convs, 1):
            pad = tuple(k // 2 for k in kernel) if isinstance(kernel, tuple) else kernel // 2
            top = net.conv_bn(f"{name}_{i}", top, out, kernel, *(stride or [1]), pad=0 if stride else pad)
        return top

    def pooled(name, bottom, out):
        return chain(f"{name}_pool", net.pool(f"{name}_pool", bottom, 3, 1, pad=1, kind="AVE"), (out, 1))

    def block_a(name, bottom, out):
        return net.concat(name, chain(f"{name}_1x1", bottom, (64, 1)), chain(f"{name}_5x5", bottom, (48, 1), (64, 5)),
                          chain(f"{name}_3x3", bottom, (64, 1), (96, 3), (96, 3)), pooled(name, bottom, out))

    def block_b(name, bottom):
        return net.concat(name, chain(f"{name}_3x3", bottom, (384, 3, 2)),
                          chain(f"{name}_double", bottom, (64, 1), (96, 3), (96, 3, 2)),
                          net.pool(f"{name}_pool", bottom, 3, 2))

    def block_c(name, bottom, n):
        return net.concat(name, chain(f"{name}_1x1", bottom, (192, 1)),
                          chain(f"{name}_7x7", bottom, (n, 1), (n, (1, 7)), (192, (7, 1))),
                          chain(f"{name}_double", bottom, (n, 1), (n, (7, 1)), (n, (1, 7)), (n, (7, 1)), (192, (1, 7))),
                          pooled(name, bottom, 192))

    def block_d(name, bottom):
        return net.concat(name, chain(f"{name}_3x3", bottom, (192, 1), (320, 3, 2)),
                          chain(f"{name}_7x7", bottom, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)),
                          net.pool(f"{name}_pool", bottom, 3, 2))

    def block_e(name, bottom):
        three = chain(f"{name}_3x3", bottom, (384, 1))
        double = chain(f"{name}_double", bottom, (448, 1), (384, 3))
        return net.concat(name, chain(f"{name}_1x1", bottom, (320, 1)),
                          chain(f"{name}_3x3a", three, (384, (1, 3))), chain(f"{name}_3x3b", three, (384, (3, 1))),
                          chain(f"{name}_doublea", double, (384, (1, 3))),
                          chain(f"{name}_doubleb", double, (384, (3, 1))), pooled(name, bottom, 192))

    def auxiliary(bottom):
        net.where = "train"
        top = chain("aux", net.pool("aux_pool", bottom, 5, 3, kind="AVE"), (128, 1), (768, 5, 1))
        net.loss("loss_aux", net.fc("aux_fc", top, 1000), 0.3, top1=None, keep=False)
        net.where = ""

    top = net.data("data/imagenet/train_lmdb", "data/imagenet/val_lmdb", (3, 320, 320), 32, 50,
                   "crop_size: 299 mean_value: 104 mean_value: 117 mean_value: 123")
    top = net.conv_bn("conv2", net.conv_bn("conv1", top, 32, 3, 2), 32, 3)
    top = net.pool("pool1", net.conv_bn("conv3", top, 64, 3, pad=1), 3, 2)
    top = net.pool("pool2", net.conv_bn("conv5", net.conv_bn("conv4", top, 80, 1), 192, 3), 3, 2)
    for name, out in (("a1", 32), ("a2", 64), ("a3", 64)):
        top = block_a(name, top, out)
    top = block_b("b", top)
    for name, n in (("c1", 128), ("c2", 160), ("c3", 160), ("c4", 192)):
        top = block_c(name, top, n)
    auxiliary(top)
    top = block_e("e2", block_e("e1", block_d("d", top)))
    net.loss("loss", net.fc("fc", net.dropout("drop", net.global_pool("pool", top), 0.5), 1000), top5="accuracy_top5")
    return net
