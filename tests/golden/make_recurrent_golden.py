#!/usr/bin/env python3
"""Writes recurrent_golden.h: two batches of an LSTM and of an RNN, computed by PyTorch in double.

Usage: tests/golden/make_recurrent_golden.py > tests/golden/recurrent_golden.h     (needs PyTorch)
The numbers are written with 9 digits, so a float is exact and a double good to 1e-9.

The state goes over from the first batch to the second, gradients do not. PyTorch's cells take the
gates of an LSTM as i f g o, Caffe as i f o g; PyTorch's second bias is zero. The static input is
put behind x, its weights behind those of x. A column whose cont is 0 starts from zeros.
"""
import torch

torch.manual_seed(2025)
torch.set_default_dtype(torch.float64)
T, N, D, S, H = 5, 3, 4, 2, 6
CONT = [[[0, 0, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]],
        [[1, 1, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]]]


def emit(name, tensor):
    values = ", ".join("%.9g" % v for v in tensor.detach().flatten().tolist())
    print("static const double %s[] = { %s };" % (name, values))


def rand(*shape):
    return torch.randn(*shape).float().double()  # exact in f32


def to_torch(gates):
    """Rows i f o g become i f g o."""
    i, f, o, g = gates.chunk(4)
    return torch.cat((i, f, g, o))


def leaves(shapes):
    return [rand(*s).mul(0.5).float().double().requires_grad_() for s in shapes]


def run_cell(step, name, weights, labels):
    for label, w in zip(labels, weights):
        emit("%s_%s" % (name, label), w)
    states = None
    for batch in range(2):
        x, static = rand(T, N, D).requires_grad_(), rand(N, S).requires_grad_()
        cont, dy = torch.tensor(CONT[batch], dtype=torch.float64), rand(T, N, H)
        y, states = step(x, static, cont, states)
        for w in weights:
            w.grad = None
        (y * dy).sum().backward()
        states = [s.detach() for s in states]
        key = "%s%d" % (name, batch)
        for label, value in (("x", x), ("static", static), ("cont", cont), ("dy", dy), ("y", y),
                             ("dx", x.grad), ("dstatic", static.grad)):
            emit("%s_%s" % (key, label), value)
        for label, w in zip(labels, weights):
            emit("%s_d%s" % (key, label), w.grad)


def functional(cell, weights):
    """The module with its parameters replaced by these tensors, so that gradients reach them."""
    return lambda x, state: torch.nn.utils.stateless.functional_call(cell, weights, (x, state))


def lstm():
    w = leaves([(4 * H, D), (4 * H,), (4 * H, S), (4 * H, H)])

    def step(x, static, cont, states):
        cell = functional(torch.nn.LSTMCell(D + S, H), {
            "weight_ih": to_torch(torch.cat((w[0], w[2]), 1)), "bias_ih": to_torch(w[1]),
            "weight_hh": to_torch(w[3]), "bias_hh": torch.zeros(4 * H)})
        h, c = states if states else (torch.zeros(N, H), torch.zeros(N, H))
        out = []
        for t in range(T):
            keep = cont[t].unsqueeze(1)
            h, c = cell(torch.cat((x[t], static), 1), (h * keep, c * keep))
            out.append(h)
        return torch.stack(out), [h, c]

    run_cell(step, "lstm", w, ("wx", "b", "ws", "wh"))


def rnn():
    w = leaves([(H, D), (H,), (H, S), (H, H), (H, H), (H,)])

    def step(x, static, cont, states):
        cell = functional(torch.nn.RNNCell(D + S, H), {
            "weight_ih": torch.cat((w[0], w[2]), 1), "bias_ih": w[1], "weight_hh": w[3],
            "bias_hh": torch.zeros(H)})
        h = states[0] if states else torch.zeros(N, H)
        out = []
        for t in range(T):
            h = cell(torch.cat((x[t], static), 1), h * cont[t].unsqueeze(1))
            out.append(torch.tanh(torch.nn.functional.linear(h, w[4], w[5])))
        return torch.stack(out), [h]

    run_cell(step, "rnn", w, ("wx", "b", "ws", "wh", "wo", "bo"))


print("/* Made by make_recurrent_golden.py with PyTorch %s; not edited. */" % torch.__version__)
print("/* clang-format off */")
print("enum { GOLDEN_T = %d, GOLDEN_N = %d, GOLDEN_D = %d, GOLDEN_S = %d, GOLDEN_H = %d };"
      % (T, N, D, S, H))
lstm()
rnn()
print("/* clang-format on */")
