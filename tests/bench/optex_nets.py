#!/usr/bin/env python3
"""Rounds of OptEx until a net is as good as wanted, beside iterations of a batch that is 4 times as large.

    optex_nets.py CORTADO FOLDER [--net=mnist|mnist256|cifar10|cifar10large] [--ways=LAST,NONE,KERNEL,GUARD] [--seeds=5] [--tuning=3]
                  [--momentum=0.9[,0.95,...]]

FOLDER holds data/mnist or data/cifar10 as the models name them. It keeps what each run found, in runs.json: a call that
was ended goes on. Each way has a rate, and a momentum of those given, of its own: the best of as many settings each, by
seeds from 100 on, which are not evaluated. Then as many seeds give pairs with equal seeds. A run counts iterations until the mean
of two tests in a row reaches the target; the number in between two tests is by a straight line; then the run is
ended. Ratios are of OptEx to the larger batch; the interval is that of the mean of the ratios' logarithms. One thread, rates
fixed, no decay of them.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import time

from paired import interval, verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETS = {  # model, batch of a point, accuracy to reach, iterations at most, tests' distance, batches of a test, rates of a step, limit
    "mnist": ("lenet", 16, 0.95, 240, 10, 10, (0.005, 0.01, 0.02), 0.95),
    "mnist256": ("lenet", 256, 0.95, 80, 4, 10, (0.005, 0.01, 0.02, 0.04), 1.03),
    "cifar10": ("quick", 25, 0.45, 800, 20, 10, (0.0000625, 0.000125, 0.00025, 0.0005, 0.001), 1.02),
    "cifar10large": ("quick", 100, 0.45, 240, 10, 10, (0.00025, 0.0005, 0.001, 0.002), 1.02),
}
POINTS, FIRST_TUNED = 4, 100
WAYS = ("LAST", "NONE", "KERNEL")  # OptEx with a predictor, REPLAY; "GUARD": LAST with it; beside "batch", 4 times as large


def settings_of(way, batch, rate, momentum):
    """Of a way; the rate is that of one of POINTS steps, whose sum a larger batch takes at once."""
    given = {"momentum": momentum, "lr_policy": "fixed", "snapshot": 0, "snapshot_after_train": "false", "display": 0}
    if way == "batch":
        return dict(given, global_batch_size=batch * POINTS, base_lr=rate * POINTS)
    more = {"KERNEL": {"optex.noise": 0.1}}.get(way, {})
    more.update({"optex.guard": "true" if way == "GUARD" else "false", "optex.parallel": POINTS, "optex.predictor": "LAST" if way == "GUARD" else way})
    return dict(given, global_batch_size=batch, base_lr=rate, type="OptEx", **more)


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
        self.model, self.batch, self.target, self.most, self.every, self.batches, self.rates, self.limit = NETS[args.net]
        self.file = self.folder / "runs.json"
        self.runs = json.loads(self.file.read_text()) if self.file.exists() else {}
        for name in ("solver.prototxt", "train_val.prototxt"):
            (self.folder / name).write_text((ROOT / "models" / self.model / name).read_text())

    def count(self, key, given):
        """One run, ended at the target."""
        metrics, log = self.folder / "metrics.jsonl", self.folder / "run.log"
        metrics.unlink(missing_ok=True)
        command = [os.path.abspath(self.args.cortado), "train", "--solver=solver.prototxt", "--overwrite", f"--metrics={metrics.name}"]
        with log.open("w") as out:
            run = subprocess.Popen(command + [f"--set={name}={value}" for name, value in given.items()], cwd=self.folder,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=out, stderr=subprocess.STDOUT)
            n, ended = math.inf, False
            while not ended and not math.isfinite(n):
                time.sleep(0.5)
                ended = run.poll() is not None
                lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
                events = [json.loads(line) for line in lines if line.endswith("\n")]
                n = reached([(e["iter"], e["outputs"]["accuracy"]) for e in events if e["event"] == "test"], self.target)
            if not ended:
                run.kill()
            run.wait()
        if ended and run.returncode not in (0, 5):  # 5: a loss that is no number
            raise SystemExit(f"{key}: exit code {run.returncode}\n{log.read_text()[-2000:]}")
        return n

    def run(self, way, rate, momentum, seed):
        """Iterations to the target, from runs.json where they are there."""
        key = f"{self.args.net} {way} rate {rate} momentum {momentum} seed {seed}"
        if key in self.runs:
            return self.runs[key] or math.inf
        given = settings_of(way, self.batch, rate, momentum)
        given.update(random_seed=seed, test_interval=self.every, test_iter=self.batches, max_iter=self.most)
        n = self.count(key, given)
        self.runs[key] = n if math.isfinite(n) else None
        self.file.write_text(json.dumps(self.runs, indent=1))
        print(f"{key}: {n:.1f}", flush=True)
        return n

    def tune(self, way):
        every = [(r, m) for r in self.rates for m in self.args.momentum]
        return min(every, key=lambda setting: self.mean(way, *setting))

    def mean(self, way, rate, momentum):
        """Of the logarithms over the seeds of tuning; infinite where one never reaches the target."""
        found = []
        for seed in range(FIRST_TUNED, FIRST_TUNED + self.args.tuning):
            found.append(self.run(way, rate, momentum, seed))
            if not math.isfinite(found[-1]):
                return math.inf
        return sum(math.log(n) for n in found) / len(found)

    def compare(self):
        best = {way: self.tune(way) for way in ("batch", *self.args.ways)}
        seeds = range(1, self.args.seeds + 1)
        runs = {way: [] for way in best}
        for seed in seeds:
            for way, of_way in runs.items():
                of_way.append(self.run(way, *best[way], seed))
        for way in self.args.ways:
            self.judge(way, runs[way], runs["batch"], best)

    def judge(self, way, mine, base, best):
        if not all(math.isfinite(n) for n in mine + base):
            print(f"{self.args.net} {way}: {sum(not math.isfinite(n) for n in mine)} of {len(mine)} never reach {self.target}; "
                  f"of the batch {sum(not math.isfinite(n) for n in base)}")
            return
        mean, half = interval([math.log(a / b) for a, b in zip(mine, base)])
        low, high = math.exp(mean - half), math.exp(mean + half)
        print(f"{self.args.net} {way}: {math.exp(mean):.3f} of the {POINTS}-fold batch ({low:.3f} to {high:.3f}), {len(mine)} seeds; at most "
              f"{self.limit}: {verdict(low, high, self.limit)}; settings {best[way]} and {best['batch']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cortado")
    parser.add_argument("folder")
    parser.add_argument("--net", choices=NETS, default="mnist")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuning", type=int, default=3)
    parser.add_argument("--momentum", type=lambda text: [float(v) for v in text.split(",")], default=[0.9])
    Study(parser.parse_args()).compare()


if __name__ == "__main__":
    main()
