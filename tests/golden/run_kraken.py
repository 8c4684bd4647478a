#!/usr/bin/env python3
"""Nets of scripts/nets/kraken.py beside their formulas in NumPy (docs/hidden-sums.md): scores of the next token.

  run_kraken.py CORTADO WORK

The formulas run in double, and in f32 to see how far rounding takes them. Ours may be as far times SLACK: both
round in every operation, in another order."""
import os
import subprocess
import sys

import h5py
import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from nets import kraken  # noqa: E402
from nets.language import Shape  # noqa: E402
from nets.net import for_training, for_use  # noqa: E402

SLACK = 8
SHAPE = Shape("small", "x", 61, 13, 64, 3, 4, 2, 2)
CASES = [("standard", 1), ("parallel", 1), ("ladder", 1), ("kraken", 1), ("kraken", 2), ("kraken", 3), ("kraken", 4)]


class Formulas:
    """A net's, with the weights of one file; all arrays of one precision."""

    def __init__(self, weights, heads):
        self.w, self.heads = weights, heads

    def fc(self, name, x):
        return x @ self.w[f"{name}/0"].T + self.w[f"{name}/1"]

    def norm(self, name, x):
        mean = x.mean(-1, keepdims=True)
        spread = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + x.dtype.type(1e-5))
        return (x - mean) / spread * self.w[f"{name}/0"] + self.w[f"{name}/1"]

    def attend(self, at, x):
        n, t, d = x.shape
        q, k, v = np.split(self.fc(f"{at}attn_qkv", x).reshape(n, t, 3 * self.heads, -1), 3, axis=2)
        scores = np.einsum("nihc,njhc->nhij", q, k) / x.dtype.type(np.sqrt(q.shape[-1]))
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("nhij,njhc->nihc", share / share.sum(-1, keepdims=True), v).reshape(n, t, d)
        return self.fc(f"{at}attn_proj", mixed)

    def feed(self, at, x):
        x = self.fc(f"{at}fc", x)
        x = x * x.dtype.type(0.5) * (1 + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x ** 3)))
        return self.fc(f"{at}proj", x)

    def standard(self, x, _):
        for block in range(SHAPE.blocks):
            at = f"h{block}_"
            x = x + self.attend(at, self.norm(f"{at}ln1", x))
            x = x + self.feed(at, self.norm(f"{at}ln2", x))
        return x

    def parallel(self, x, _):
        for block in range(SHAPE.blocks):
            at = f"h{block}_"
            normed = self.norm(f"{at}ln1", x)
            x = x + self.attend(at, normed) + self.feed(at, normed)
        return x

    def ladder(self, x, _):
        late = 0
        for block in range(SHAPE.blocks):
            at = f"h{block}_"
            a = self.attend(at, self.norm(f"{at}ln1", x))
            x = x + late
            f = self.feed(at, self.norm(f"{at}ln2", x))
            x, late = x + a, f
        return x + late

    def kraken(self, x, ways):
        total, y = x, [x] * ways
        for block in range(SHAPE.blocks):
            at = [f"h{block}_w{i}_" for i in range(ways)]
            if block > 0:
                total = sum(y)
            a = [self.attend(at[i], self.norm(f"{at[i]}ln1", y[i])) for i in range(ways)]
            y = [total / x.dtype.type(ways) + a[i] + self.feed(at[i], self.norm(f"{at[i]}ln2", total + a[i]))
                 for i in range(ways)]
        return sum(y)

    def scores(self, kind, ways, tokens):
        x = self.w["wte/0"][tokens] + self.w["wpe/0"][: tokens.shape[1]]
        return self.norm("ln_f", getattr(self, kind)(x, ways)) @ self.w["wte/0"].T


def cortado(program, work, *arguments):
    done = subprocess.run([program, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout.decode()}")


def shapes(program, work):
    """Of the weights of the net there: what a file of them has."""
    cortado(program, work, "train", "--solver=solver.prototxt", "--overwrite")
    cortado(program, work, "convert", "model", "--from=s_iter_1.caffemodel.h5", "--to=s.npz")
    with np.load(f"{work}/s.npz") as f:
        return {key: f[key].shape for key in f.files}


def check(program, kind, ways, work):
    """Prints the line of one case."""
    random = np.random.default_rng(7)
    tokens = random.integers(0, SHAPE.tokens, (SHAPE.batch, SHAPE.seq_len))
    net = kraken.KINDS[kind](SHAPE, ways)
    with h5py.File(f"{work}/x.h5", "w") as f:
        f["tokens"] = tokens.astype(np.float32)
        f["next"] = np.roll(tokens, -1, 1).astype(np.float32)
    data = 'layer {{ name: "data" type: "HDF5Data" {} hdf5_data_param {{ source: "x.txt" batch_size: {} }} }}'
    layers = [x for x in net.layers if x[0] != "TokenData"]
    files = {"x.txt": "x.h5\n",
             "net.prototxt": "\n".join([data.format('top: "tokens" top: "next"', SHAPE.batch), *for_training(layers)]),
             "deploy.prototxt": "\n".join([data.format('top: "tokens"', SHAPE.batch), *for_use(net.layers)]),
             "solver.prototxt": 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 display: 1 snapshot_prefix: "s" '
                                "random_seed: 1 test_initialization: false"}
    for name, text in files.items():
        with open(f"{work}/{name}", "w", encoding="ascii") as f:
            f.write(text + "\n")
    weights = {key: (random.standard_normal(shape) * 0.3).astype(np.float32) for key, shape in shapes(program, work).items()}
    np.savez(f"{work}/w.npz", **weights)
    cortado(program, work, "extract", "--model=deploy.prototxt", "--weights=w.npz", "--blobs=head", "--to=out.h5",
            "--iterations=1")
    with h5py.File(f"{work}/out.h5", "r") as f:
        ours = f["head"][:]
    heads = SHAPE.heads if kind != "kraken" else kraken.narrow(SHAPE, ways).heads
    double = Formulas({k: v.astype(np.float64) for k, v in weights.items()}, heads).scores(kind, ways, tokens)
    single = Formulas(weights, heads).scores(kind, ways, tokens)
    limit, error = SLACK * np.max(np.abs(single - double)), np.max(np.abs(ours.reshape(double.shape) - double))
    name = f"{kind}_{ways}_scores"
    print(f"ok {name}" if error <= limit else f"not ok {name}: {error:.3g} off, {limit:.3g} allowed")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for kind, ways in CASES:
        work = f"{sys.argv[2]}/{kind}{ways}"
        os.makedirs(work)
        check(os.path.abspath(sys.argv[1]), kind, ways, work)


if __name__ == "__main__":
    main()
