#!/usr/bin/env python3
"""Writes neuron_golden.h: layers of one function, PReLU and losses, computed by PyTorch in double.

Usage: tests/golden/make_neuron_golden.py > tests/golden/neuron_golden.h     (needs PyTorch)
Gradients are autograd's, but for the centers of CenterLoss, which are no gradient: there the fork's
rule is written out. Numbers have 9 digits, so a float is exact and a double good to 1e-9.
"""
import torch
import torch.nn.functional as F

torch.manual_seed(77)
torch.set_default_dtype(torch.float64)


def emit(name, tensor):
    values = ", ".join("%.9g" % v for v in tensor.detach().flatten().tolist())
    print("static const double %s[] = { %s };" % (name, values))


def rand(*shape, scale=1.0):
    return (scale * torch.randn(*shape)).float().double().requires_grad_()  # exact in f32


def positive(*shape):
    return (0.1 + 3 * torch.rand(*shape)).float().double().requires_grad_()


def neurons():
    """All on the same x and dy, or, where the function needs it, on a positive x."""
    e = torch.e
    x, p, dy = rand(3, 5, 4, scale=2.5), positive(3, 5, 4), rand(3, 5, 4)
    emit("neuron_x", x)
    emit("neuron_p", p)
    emit("neuron_dy", dy)
    cases = {
        "abs": (x, torch.abs),
        "bnll": (x, F.softplus),
        "clip": (x, lambda v: torch.clamp(v, -0.75, 1.5)),
        "elu": (x, lambda v: F.elu(v, 0.7)),
        "elu_below": (x, lambda v: F.elu(v, -0.4)),
        "exp": (x, torch.exp),
        "exp_base": (x, lambda v: 2.0 ** (0.5 * v + 0.25)),
        "gelu": (x, F.gelu),
        "gelu_tanh": (x, lambda v: F.gelu(v, approximate="tanh")),
        "log": (p, torch.log),
        "log_base": (p, lambda v: torch.log10(3 * v + 0.5)),
        "mish": (x, F.mish),
        "affine": (x, lambda v: 1.5 * v - 0.25),
        "square": (x, lambda v: (0.5 * v + 0.25) ** 2),
        "root": (p, lambda v: (2 * v + 0.5) ** 0.5),
        "inverse_root": (p, lambda v: (2 * v + 0.5) ** -0.5),
        "inverse": (p, lambda v: 1 / (2 * v + 0.5)),
        "power": (p, lambda v: (2 * v + 0.5) ** 1.7),
        "cube": (x, lambda v: (0.5 * v + 0.25) ** 3),
        "relu6": (x, lambda v: torch.clamp(v, 0, 6)),
        "relu6_slope": (x, lambda v: torch.clamp(v, 0, 6) + 0.1 * torch.clamp(v, max=0)),
        "sigmoid": (x, torch.sigmoid),
        "swish": (x, lambda v: v * torch.sigmoid(1.5 * v)),
        "tanh": (x, torch.tanh),
    }
    for name, (v, f) in cases.items():
        v.grad = None
        y = f(v)
        y.backward(dy)
        emit("neuron_y_" + name, y)
        emit("neuron_dx_" + name, v.grad)


def prelu():
    x, dy, a, one = rand(3, 5, 2, 3), rand(3, 5, 2, 3), rand(5), rand(1)
    emit("prelu_x", x)
    emit("prelu_dy", dy)
    for name, slope in (("each", a), ("shared", one)):
        x.grad = None
        y = F.prelu(x, slope)
        y.backward(dy)
        emit("prelu_a_" + name, slope)
        emit("prelu_y_" + name, y)
        emit("prelu_dx_" + name, x.grad)
        emit("prelu_da_" + name, slope.grad)


def emit_loss(name, loss, *inputs, factor=1):
    for v in inputs:
        v.grad = None
    (0.75 * loss).backward()  # 0.75: the loss weight
    emit(name, loss)
    for i, v in enumerate(inputs):
        emit("%s_d%d" % (name, i), factor * v.grad)


def hinge():
    x, label = rand(5, 4, scale=1.5), torch.randint(0, 4, (5,))
    side = 1 - 2 * F.one_hot(label, 4)
    miss = torch.relu(1 + side * x)
    emit("hinge_x", x)
    emit("hinge_label", label)
    emit_loss("hinge_l1", miss.sum() / 5, x)
    emit_loss("hinge_l2", (torch.relu(1 + side * x) ** 2).sum() / 5, x)


def multinomial():
    p, label = torch.rand(6, 5).float().double().requires_grad_(), torch.randint(0, 5, (6,))
    emit("multinomial_p", p)
    emit("multinomial_label", label)
    emit_loss("multinomial", F.nll_loss(torch.log(p), label), p)


def infogain():
    x, h = rand(3, 4, 2, 2), rand(4, 4)
    label = torch.randint(0, 4, (3, 2, 2))
    label[1, 0, 1] = label[2, 1, 1] = 2  # the ignored one
    emit("infogain_x", x)
    emit("infogain_h", h)
    emit("infogain_label", label)
    for name, keep, divisor in (("valid", label != 2, (label != 2).sum()),
                                ("all", label != 9, 12), ("batch", label != 2, 3)):
        logp = torch.log_softmax(x, 1).permute(0, 2, 3, 1)
        emit_loss("infogain_" + name, -((h.detach()[label] * logp).sum(-1) * keep).sum() / divisor, x)


def sigmoid_loss():
    x, t = rand(4, 3, 2, scale=2.0), torch.randint(0, 2, (4, 3, 2)).double()
    t[0, 1, 0], t[3, 2, 1] = 0.25, 0.75
    t[1, 0, 1] = t[2, 2, 0] = 7  # the ignored one
    keep = t != 7
    emit("sigmoid_loss_x", x)
    emit("sigmoid_loss_t", t)
    for name, divisor in (("batch", 4), ("valid", keep.sum()), ("full", 24), ("none", 1)):
        loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
        emit_loss("sigmoid_loss_" + name, (loss * keep).sum() / divisor, x)


def contrastive():
    a, b = rand(6, 3, scale=0.6), rand(6, 3, scale=0.6)
    similar = torch.tensor([1.0, 0, 0, 1, 0, 0])
    emit("contrastive_a", a)
    emit("contrastive_b", b)
    emit("contrastive_similar", similar)
    for name, legacy in (("new", False), ("legacy", True)):
        d2 = ((a - b) ** 2).sum(1)
        apart = torch.relu(1.5 - d2) if legacy else torch.relu(1.5 - torch.sqrt(d2)) ** 2
        d = torch.sqrt(d2.detach())  # Caffe divides by d + 1e-4
        factor = torch.where((similar != 0) | torch.tensor(legacy), torch.ones(6), d / (d + 1e-4))
        emit_loss("contrastive_" + name, torch.where(similar != 0, d2, apart).sum() / 12, a, b,
                  factor=factor.unsqueeze(1))


def smooth_l1():
    a, b, inside, outside = rand(4, 5), rand(4, 5), torch.rand(4, 5).float().double(), \
        torch.rand(4, 5).float().double()
    for name, v in (("a", a), ("b", b), ("inside", inside), ("outside", outside)):
        emit("smooth_" + name, v)
    emit_loss("smooth_plain", F.smooth_l1_loss(a, b, reduction="sum") / 4, a, b)
    for name, out in (("inside_only", torch.ones(4, 5)), ("weighted", outside)):
        f = F.smooth_l1_loss(inside * a, inside * b, reduction="none", beta=1 / 1.5 ** 2)
        emit_loss("smooth_" + name, (out * f).sum() / 4, a, b)


def center():
    x, c = rand(7, 3, 2), rand(4, 6)
    label = torch.tensor([0, 2, 2, 0, 3, 2, 0])
    flat, rows = x.reshape(7, 6), c.detach()
    moved = torch.zeros(4, 6)
    for n in range(4):
        mine = label == n
        moved[n] = (rows[n] - flat.detach()[mine]).sum(0) / (1 + mine.sum())
    emit("center_x", x)
    emit("center_c", c)
    emit("center_label", label)
    emit("center_dc", moved)
    emit_loss("center", ((flat - rows[label]) ** 2).sum() / 14, x)


def focal():
    x, label = rand(3, 4, 2, 3), torch.randint(0, 4, (3, 2, 3))
    label[0, 1, 2] = label[2, 0, 0] = 3  # the ignored one
    emit("focal_x", x)
    emit("focal_label", label)
    for name, gamma, alpha, keep in (("all", 2.0, 0.25, label != 9), ("gamma", 0.5, 0.75, label != 3),
                                     ("plain", 0.0, 1.0, label != 3)):
        logp = torch.log_softmax(x, 1).gather(1, label.unsqueeze(1)).squeeze(1)
        loss = -alpha * (1 - logp.exp()) ** gamma * logp
        emit_loss("focal_" + name, (loss * keep).sum() / keep.sum(), x)


def norms():
    x, dy = rand(3, 5, 2, 4), rand(3, 5, 2, 4)
    scale, bias, each, one = rand(2, 4), rand(2, 4), rand(5), rand(1)
    for name, v in (("x", x), ("dy", dy), ("scale", scale), ("bias", bias), ("each", each),
                    ("one", one)):
        emit("norm_" + name, v)

    def mvn(axes, divide, eps):
        c = x - x.mean(axes, keepdim=True)
        return c / (torch.sqrt((c * c).mean(axes, keepdim=True)) + eps) if divide else c

    def normalize(axes, s, eps):
        return x / torch.sqrt((x * x).sum(axes, keepdim=True) + eps) * s.view(1, -1, 1, 1)

    cases = {
        "mvn": (lambda: mvn((2, 3), True, 1e-9), ()),
        "mvn_across": (lambda: mvn((1, 2, 3), True, 0.125), ()),
        "mvn_mean": (lambda: mvn((2, 3), False, 0), ()),
        "layer": (lambda: F.layer_norm(x, (2, 4), scale, bias, 0.01), (scale, bias)),
        "layer_last": (lambda: F.layer_norm(x, (4,)), ()),
        "ssd": (lambda: normalize((1,), each, 1e-10), (each,)),
        "ssd_across": (lambda: normalize((1, 2, 3), one, 0.5), (one,)),
        "ssd_mixed": (lambda: normalize((1, 2, 3), each, 1e-10), (each,)),
    }
    for name, (f, weights) in cases.items():
        for v in (x,) + weights:
            v.grad = None
        y = f()
        y.backward(dy)
        emit("norm_y_" + name, y)
        emit("norm_dx_" + name, x.grad)
        for i, v in enumerate(weights):
            emit("norm_d%d_%s" % (i, name), v.grad)


def spp():
    """Bins that overlap the border hang over it by the same on both sides, as in Caffe."""
    x = rand(2, 3, 7, 6)
    emit("spp_x", x)
    for name, mean in (("max", False), ("mean", True)):
        levels = []
        for bins in (1, 2, 4):
            (kh, ph), (kw, pw) = [(k, (k * bins - n + 1) // 2) for n in (7, 6)
                                  for k in (-(-n // bins),)]
            out = []
            for i in range(bins):
                for j in range(bins):
                    top, left = i * kh - ph, j * kw - pw
                    part = x[:, :, max(top, 0):top + kh, max(left, 0):left + kw]
                    size = (min(top + kh, 7 + ph) - top) * (min(left + kw, 6 + pw) - left)
                    out.append(part.sum((2, 3)) / size if mean else part.amax((2, 3)))
            levels.append(torch.stack(out, 2).reshape(2, -1))
        y = torch.cat(levels, 1)
        dy = rand(*y.shape)
        x.grad = None
        y.backward(dy)
        emit("spp_dy_" + name, dy)
        emit("spp_y_" + name, y)
        emit("spp_dx_" + name, x.grad)


print("/* Made by make_neuron_golden.py with PyTorch %s; not edited. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
for part in (neurons, prelu, hinge, multinomial, infogain, sigmoid_loss, contrastive, smooth_l1,
             center, focal, norms, spp):
    part()
