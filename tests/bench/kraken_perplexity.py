#!/usr/bin/env python3
"""What Kraken and its rivals lose or gain in perplexity beside the standard net of as many parameters.

Usage: tests/bench/kraken_perplexity.py DIR [--results=FILE] [--work=DIR] [--steps=1000] [--seeds=3] [--rates=0.0005,0.001,0.002]
           [--width=192] [--blocks=4] [--heads=6] [--seq_len=128] [--batch=16]

DIR holds a text's parts, *train*.txt and *valid*.txt. CORTADO names the program, THREADS how many threads it takes (2).
Each kind trains from seed 1 with each learning rate, and from the other seeds with the rate that ended best, so that
no kind is judged at another one's rate; where the best rate is the last of those given, rates beyond are tried, too.
Then each pair of equal seeds gives a ratio of perplexities (a character of the whole validation text) to the
standard net's. Printed are the mean ratio and its 95 % interval of Student's t on logarithms, and a verdict: within
3 %, worse, or not shown. Runs whose result stands in FILE (a JSON line each) are not made again.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

from paired import interval, verdict

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = {"standard": ("standard", 1), "parallel": ("parallel", 1), "ladder": ("ladder", 1), "kraken 2": ("kraken", 2),
         "kraken 4": ("kraken", 4)}
AIM = 0.03
SHAPE = ("width", "blocks", "heads", "seq_len", "batch")


def run(command, folder):
    env = dict(os.environ, OMP_NUM_THREADS=os.environ.get("THREADS", "2"))
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stderr + done.stdout


def make_data(text, work, program):
    target = os.path.join(work, "data", "warandpeace")
    if not os.path.isdir(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        run([program, "convert", "text", f"--from={os.path.abspath(text)}", f"--to={target}", "--tokenizer=char"], work)


def make_net(kind, args, work):
    """The kind's folder, and its number of learned parameters."""
    name, ways = KINDS[kind]
    folder = os.path.join(work, kind.replace(" ", "_"))
    shape = [f"--{n}={getattr(args, n)}" for n in SHAPE]
    run([sys.executable, os.path.join(ROOT, "scripts", "nets", "kraken.py"), f"--kind={name}", f"--ways={ways}", f"--to={folder}",
         *shape], work)
    return folder


def train(kind, rate, seed, args, work, program):
    """One run's record, with the mean loss over the whole validation text."""
    folder = make_net(kind, args, work)
    windows = (os.path.getsize(os.path.join(work, "data", "warandpeace", "valid.bin")) // 2 - 1) // args.seq_len
    metrics = os.path.join(tempfile.mkdtemp(dir=work), "metrics")
    settings = dict(base_lr=rate, min_lr=rate / 10, max_iter=args.steps, test_interval=args.steps,
                    test_iter=windows // args.batch, test_initialization="false", snapshot=0, snapshot_after_train="false",
                    display=args.steps)
    run([program, "train", f"--solver={os.path.join(folder, 'solver.prototxt')}", f"--seed={seed}",
               f"--metrics={metrics}", *(f"--set={k}={v}" for k, v in settings.items())], work)
    with open(metrics) as f:
        tests = [e for e in map(json.loads, f) if e.get("event") == "test"]
    return {"kind": kind, "rate": rate, "seed": seed, "loss": tests[-1]["outputs"]["loss"], "steps": args.steps,
            "shape": {n: getattr(args, n) for n in SHAPE}}


class Runs:
    """The runs that were made, in a file that grows by a line each."""

    def __init__(self, args, work, program):
        self.args, self.work, self.program = args, work, program
        self.made = []
        if os.path.exists(args.results):
            with open(args.results) as f:
                self.made = [json.loads(line) for line in f]

    def loss(self, kind, rate, seed):
        wanted = {"kind": kind, "rate": rate, "seed": seed, "steps": self.args.steps,
                  "shape": {n: getattr(self.args, n) for n in SHAPE}}
        for r in self.made:
            if all(r[k] == v for k, v in wanted.items()):
                return r["loss"]
        r = train(kind, rate, seed, self.args, self.work, self.program)
        with open(self.args.results, "a") as f:
            f.write(json.dumps(r) + "\n")
        self.made.append(r)
        return r["loss"]


def sweep(runs, kind, rates):
    """The rate that ends best. Where it is the largest, or the smallest, of those given, others follow beyond, each by a factor of two."""
    tried = sorted(rates)
    while True:
        best = min(tried, key=lambda r: runs.loss(kind, r, 1))
        if best == tried[-1]:
            tried.append(2 * best)
        elif best == tried[0]:
            tried.insert(0, best / 2)
        else:
            return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--results", default="kraken.jsonl")
    parser.add_argument("--work")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", default="0.0005,0.001,0.002")
    for name, value in zip(SHAPE, (192, 4, 6, 128, 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    rates = [float(r) for r in args.rates.split(",")]
    work = os.path.abspath(args.work or tempfile.mkdtemp())
    program = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
    make_data(args.text, work, program)
    runs = Runs(args, work, program)
    best = {kind: sweep(runs, kind, rates) for kind in KINDS}
    loss = {kind: [runs.loss(kind, best[kind], seed) for seed in range(1, args.seeds + 1)] for kind in KINDS}
    print("| kind | rate | perplexity of each seed | ratio to standard | verdict |\n|---|---|---|---|---|")
    for kind in KINDS:
        mean, half = interval([a - b for a, b in zip(loss[kind], loss["standard"])])
        low, high = math.exp(mean - half), math.exp(mean + half)
        cells = [kind, f"{best[kind]:g}", ", ".join(f"{math.exp(v):.3f}" for v in loss[kind])]
        cells += ["1", ""] if kind == "standard" else [f"{math.exp(mean):.4f} ({low:.4f} to {high:.4f})", verdict(low, high, 1 + AIM)]
        print("| " + " | ".join(cells) + " |")


main()
