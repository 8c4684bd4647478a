#!/usr/bin/env python3
"""Writes layers_golden.h: inputs, results and gradients of layers, computed by PyTorch in double.

Usage: tests/golden/make_layers_golden.py > tests/golden/layers_golden.h     (needs PyTorch)
The numbers are written with 9 digits, so a float is exact and a double good to 1e-9.
"""
import torch
import torch.nn.functional as F

torch.manual_seed(2024)
torch.set_default_dtype(torch.float64)


def emit(name, tensor):
    values = ", ".join("%.9g" % v for v in tensor.detach().flatten().tolist())
    print("static const double %s[] = { %s };" % (name, values))


def rand(*shape):
    return torch.randn(*shape).float().double().requires_grad_()  # exact in f32


def batch_norm():
    """Three training steps of momentum 0.25 as Caffe counts (sums that decay), then a test step."""
    decay = 0.75
    mean, var, factor = torch.zeros(3), torch.zeros(3), 0.0
    for step in range(3):
        x, dy = rand(4, 3, 2, 5), rand(4, 3, 2, 5)
        # torch with momentum 1 puts the batch's mean and unbiased variance into the buffers
        batch_mean, batch_var = torch.zeros(3), torch.ones(3)
        y = F.batch_norm(x, batch_mean, batch_var, training=True, momentum=1.0, eps=1e-3)
        y.backward(dy)
        mean, var, factor = decay * mean + batch_mean, decay * var + batch_var, decay * factor + 1
        emit("bn_x%d" % step, x)
        emit("bn_dy%d" % step, dy)
        emit("bn_y%d" % step, y)
        emit("bn_dx%d" % step, x.grad)
    emit("bn_mean", mean)
    emit("bn_var", var)
    print("static const double bn_factor[] = { %.9g };" % factor)
    x, dy = rand(4, 3, 2, 5), rand(4, 3, 2, 5)
    y = F.batch_norm(x, mean / factor, var / factor, training=False, eps=1e-3)
    y.backward(dy)
    emit("bn_x_test", x)
    emit("bn_dy_test", dy)
    emit("bn_y_test", y)
    emit("bn_dx_test", x.grad)


def softmax():
    x, dy = rand(3, 7, 2, 3), rand(3, 7, 2, 3)
    y = torch.softmax(x, 1)
    y.backward(dy)
    emit("softmax_x", x)
    emit("softmax_dy", dy)
    emit("softmax_y", y)
    emit("softmax_dx", x.grad)


def softmax_loss():
    label = torch.randint(0, 7, (3, 2, 3))
    label[0, 1, 2] = label[2, 0, 0] = 5  # the ignored one
    emit("loss_label", label.double())
    x = rand(3, 7, 2, 3)
    emit("loss_x", x)
    for name, loss in (("valid", F.cross_entropy(x, label, ignore_index=5)),
                       ("all", F.cross_entropy(x, label)),
                       ("batch", F.cross_entropy(x, label, reduction="sum") / 3),
                       ("none", F.cross_entropy(x, label, reduction="sum", ignore_index=5))):
        x.grad = None
        loss.backward()
        emit("loss_" + name, loss)
        emit("loss_dx_" + name, x.grad)


def euclidean():
    a, b = rand(5, 3, 2), rand(5, 3, 2)
    loss = F.mse_loss(a, b, reduction="sum") / (2 * 5)
    loss.backward()
    for name, t in (("a", a), ("b", b), ("loss", loss), ("da", a.grad), ("db", b.grad)):
        emit("euclidean_" + name, t)


print("/* Made by make_layers_golden.py with PyTorch %s; not edited. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
for part in (batch_norm, softmax, softmax_loss, euclidean):
    part()
