#!/usr/bin/env python3
"""Writes update_golden.h: weights after each of six updates by every rule, in double precision.

Usage: tests/golden/make_update_golden.py > tests/golden/update_golden.h     (needs PyTorch)

Two weights of 5 and 3 elements, rates x 1 and x 2, decay x 1 and x 0.5; gradients as the Probe layer
of tests/solver_harness.c makes them. Nesterov, AdaGrad, RMSProp, AdaDelta and AdamW are torch.optim's.
torch.optim.Adam adds eps to the corrected root, Caffe to the plain one, so Adam is written out here
and compared with torch's with an eps that makes no difference; LARS and LAMB, which torch.optim does
not have, are written out from their papers (docs/training.md).
"""
import math
import torch

torch.set_default_dtype(torch.float64)

START = [[0.75, -1.25, 0.5, 2.0, -0.125], [0.25, -0.5, 1.5]]
LR_MULT, DECAY_MULT = [1.0, 2.0], [1.0, 0.5]
STEPS = 6


def f32(x):
    return float(torch.tensor(x, dtype=torch.float32))


def gradient(weight, step, w):
    k = torch.arange(len(w))
    return 0.5 * w + torch.sin(1.0 + weight * 7 + k + 3 * step)


def by_torch(make, decay):
    """make(groups) gives the optimizer; torch adds the decay to the gradient itself."""
    w = [torch.tensor(s, requires_grad=True) for s in START]
    opt = make(w, decay)
    out = []
    for step in range(STEPS):
        for i in range(2):
            w[i].grad = gradient(i, step, w[i].detach())
        opt.step()
        out.append([v for t in w for v in t.detach().tolist()])
    return out


def groups(w, lr, decay):
    return [{"params": [w[i]], "lr": lr * LR_MULT[i], "weight_decay": decay * DECAY_MULT[i]} for i in range(2)]


def by_hand(rule, lr, decay):
    """rule(t, i, w, g, decay, rate, state) gives the new weight."""
    w = [torch.tensor(s) for s in START]
    state = [{} for _ in w]
    out = []
    for step in range(STEPS):
        for i in range(2):
            g = gradient(i, step, w[i])
            w[i] = rule(step + 1, i, w[i], g, decay * DECAY_MULT[i], lr * LR_MULT[i], state[i])
        out.append([v for t in w for v in t.tolist()])
    return out


def moments(t, g, b1, b2, s):
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g * g
    return s["m"], s["v"]


def adam(b1, b2, delta):
    def rule(t, i, w, g, decay, rate, s):
        m, v = moments(t, g + decay * w, b1, b2, s)
        return w - rate * math.sqrt(1 - b2**t) / (1 - b1**t) * m / (v.sqrt() + delta)
    return rule


def lars(momentum, coefficient):
    """You, Gitman, Ginsburg 2017, algorithm 1; the second weight has one axis: no ratio."""
    def rule(t, i, w, g, decay, rate, s):
        local = coefficient * w.norm() / (g.norm() + decay * w.norm()) if i == 0 else 1.0
        s["v"] = momentum * s.get("v", 0.0) + rate * local * (g + decay * w)
        return w - s["v"]
    return rule


def lamb(b1, b2, delta):
    """You et al. 2020, algorithm 2."""
    def rule(t, i, w, g, decay, rate, s):
        m, v = moments(t, g, b1, b2, s)
        r = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + delta) + decay * w
        return w - rate * (w.norm() / r.norm() if i == 0 else 1.0) * r
    return rule


def emit(name, steps):
    print("static const double golden_%s[%d][8] = {" % (name, STEPS))
    for s in steps:
        print("    { " + ", ".join("%.15g" % v for v in s) + " },")
    print("};")


def main():
    m, m2, rms, delta, decay = f32(0.9), f32(0.99), f32(0.95), f32(0.01), f32(0.25)
    lr, gw = f32(0.1), f32(0.02)
    print("/* Written by make_update_golden.py: do not edit. */")
    print("static const double golden_start[8] = { %s };" % ", ".join("%g" % v for s in START for v in s))
    emit("nesterov", by_torch(lambda w, d: torch.optim.SGD(groups(w, lr, d), lr=lr, momentum=m, nesterov=True), decay))
    emit("adagrad", by_torch(lambda w, d: torch.optim.Adagrad(groups(w, lr, d), lr=lr, eps=delta), decay))
    emit("rmsprop", by_torch(lambda w, d: torch.optim.RMSprop(groups(w, lr, d), lr=lr, alpha=rms, eps=delta), decay))
    emit("adadelta", by_torch(lambda w, d: torch.optim.Adadelta(groups(w, lr, d), lr=lr, rho=m, eps=delta), decay))
    emit("adam", by_hand(adam(m, m2, delta), lr, decay))
    emit("adamw", by_torch(lambda w, d: torch.optim.AdamW(groups(w, lr, d), lr=lr, betas=(m, m2), eps=delta), decay))
    emit("lars", by_hand(lars(m, gw), lr, decay))
    emit("lamb", by_hand(lamb(m, m2, delta), lr, decay))

    ours = by_hand(adam(m, m2, 1e-14), lr, decay)
    theirs = by_torch(lambda w, d: torch.optim.Adam(groups(w, lr, d), lr=lr, betas=(m, m2), eps=1e-14), decay)
    worst = max(abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y))
    assert worst < 1e-12, worst


main()
