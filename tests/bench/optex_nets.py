#!/usr/bin/env python3
"""Rounds of OptEx until a net is as good as wanted, beside iterations of a batch that is 4 times as large.

    optex_nets.py CORTADO FOLDER [--net=mnist|cifar10] [--seeds=5] [--momentum=0.9[,0.95,...]]

FOLDER holds data/mnist or data/cifar10 as the models name them. It keeps what each run found, in runs.json: a call that
was ended goes on. Each way has a rate, and a momentum of those given, of its own: the best of as many settings each, by
seed 100, which is not evaluated. Then as many seeds give pairs with equal seeds. A run counts iterations until the mean
of two tests in a row reaches the target; the number in between two tests is by a straight line. Ratios are of OptEx to
the larger batch; the interval is that of the mean of the ratios' logarithms. One thread, rates fixed, no decay of them.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess

from paired import interval

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETS = {  # model, batch of a point, accuracy to reach, iterations at most, tests' distance, batches of a test, rates of a step
    "mnist": ("lenet", 16, 0.95, 240, 10, 10, (0.005, 0.01, 0.02)),
    "cifar10": ("quick", 100, 0.55, 1000, 25, 20, (0.0005, 0.001, 0.002)),
}
POINTS = 4
WAYS = ("batch", "LAST", "NONE", "KERNEL")  # a batch 4 times as large; OptEx with a predictor, REPLAY


def settings_of(way, batch, rate, momentum):
    """Of a way; the rate is that of one of POINTS steps, whose sum a larger batch takes at once."""
    given = {"momentum": momentum, "lr_policy": "fixed", "snapshot": 0, "snapshot_after_train": "false", "display": 0}
    if way == "batch":
        return dict(given, global_batch_size=batch * POINTS, base_lr=rate * POINTS)
    noise = {"optex.noise": 0.1} if way == "KERNEL" else {}
    return dict(given, global_batch_size=batch, base_lr=rate, type="OptEx", **{"optex.parallel": POINTS, "optex.predictor": way}, **noise)


def reached(tests, target):
    """Iterations until the mean of two tests reaches it; infinite: it never does. tests: (iteration, accuracy)."""
    means = [(b[0], (a[1] + b[1]) / 2) for a, b in zip(tests, tests[1:])]
    for before, now in zip([(0, 0.0)] + means, means):
        if now[1] >= target:
            return before[0] + (now[0] - before[0]) * (target - before[1]) / (now[1] - before[1])
    return math.inf


class Study:
    def __init__(self, args):
        self.args, self.folder = args, pathlib.Path(args.folder)
        self.model, self.batch, self.target, self.most, self.every, self.batches, self.rates = NETS[args.net]
        self.file = self.folder / "runs.json"
        self.runs = json.loads(self.file.read_text()) if self.file.exists() else {}
        for name in ("solver.prototxt", "train_val.prototxt"):
            (self.folder / name).write_text((ROOT / "models" / self.model / name).read_text())

    def run(self, way, rate, momentum, seed):
        """Iterations to the target, from runs.json where they are there."""
        key = f"{self.args.net} {way} rate {rate} momentum {momentum} seed {seed}"
        if key in self.runs:
            return self.runs[key] or math.inf
        given = settings_of(way, self.batch, rate, momentum)
        given.update(random_seed=seed, test_interval=self.every, test_iter=self.batches, max_iter=self.most)
        metrics = self.folder / "metrics.jsonl"
        command = [os.path.abspath(self.args.cortado), "train", "--solver=solver.prototxt", "--overwrite", f"--metrics={metrics.name}"]
        done = subprocess.run(command + [f"--set={name}={value}" for name, value in given.items()], cwd=self.folder,
                              env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, check=False)
        if done.returncode not in (0, 5):  # 5: a loss that is no number
            raise SystemExit(f"{key}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        events = [json.loads(line) for line in metrics.read_text().splitlines()]
        n = reached([(e["iter"], e["outputs"]["accuracy"]) for e in events if e["event"] == "test"], self.target)
        self.runs[key] = n if math.isfinite(n) else None
        self.file.write_text(json.dumps(self.runs, indent=1))
        print(f"{key}: {n:.1f}", flush=True)
        return n

    def tune(self, way):
        every = [(r, m) for r in self.rates for m in self.args.momentum]
        return min(every, key=lambda setting: self.run(way, *setting, 100))

    def compare(self):
        best = {way: self.tune(way) for way in WAYS}
        base = [self.run("batch", *best["batch"], seed) for seed in range(1, self.args.seeds + 1)]
        for way in WAYS[1:]:
            mine = [self.run(way, *best[way], seed) for seed in range(1, self.args.seeds + 1)]
            if not all(math.isfinite(n) for n in mine + base):
                print(f"{way}: {sum(not math.isfinite(n) for n in mine)} of {len(mine)} never reach {self.target}")
                continue
            mean, half = interval([math.log(a / b) for a, b in zip(mine, base)])
            print(f"{way}: {math.exp(mean):.3f} of the {POINTS}-fold batch ({math.exp(mean - half):.3f} to {math.exp(mean + half):.3f}), "
                  f"{len(mine)} seeds; settings {best[way]} and {best['batch']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cortado")
    parser.add_argument("folder")
    parser.add_argument("--net", choices=NETS, default="mnist")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--momentum", type=lambda text: [float(v) for v in text.split(",")], default=[0.9])
    Study(parser.parse_args()).compare()


if __name__ == "__main__":
    main()
