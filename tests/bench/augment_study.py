#!/usr/bin/env python3
"""What augmentation gives in accuracy: ResNet-20 on all CIFAR-10 pictures, beside crop and mirror alone, in paired seeds.

Usage: tests/bench/augment_study.py DIR WORK [--results=FILE] [--seeds=N] [--epochs=8] [--only=RECIPE,...]

DIR has train/CLASS/ and test/CLASS/ with the pictures; WORK gets the sets and may be used again. CORTADO names the program,
THREADS how many threads it takes (2). Runs whose result stands in FILE (docs/results/augmentation.jsonl, a JSON line each) are
not made again, so it can be stopped and called at any time. Each recipe has the seeds, and so the first weights and the order
of pictures, of crop and mirror. Statistics of BatchNorm go back 20 steps, not the 1000 of Caffe. Printed: accuracies on the
test pictures, and the mean difference in points with its 95 % interval.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from paired import interval

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = "crop and mirror"
RECIPES = {
    BASE: "",
    "colour and erasing": "color_jitter { brightness: 0.2 contrast: 0.2 saturation: 0.2 } erase { probability: 0.25 }",
    "RandAugment": "rand_augment { ops: 1 magnitude: 9 }",
    "CutMix": "cutmix { alpha: 1 } classes: 10",
}
BATCH = 128


def run(command, folder):
    env = dict(os.environ, OMP_NUM_THREADS=os.environ.get("THREADS", "2"))
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def make_sets(pictures, work, program):
    """How many pictures train and test have."""
    counts = {}
    for part in ("train", "test"):
        source = os.path.join(os.path.abspath(pictures), part)
        if not os.path.isdir(os.path.join(work, part)):
            run([program, "convert", "images", f"--from={source}", f"--to={part}", "--log=error"], work)
        counts[part] = sum(len(os.listdir(os.path.join(source, name))) for name in os.listdir(source))
    return counts


def make_net(recipe, work, folder):
    """The net of the models with the recipe's fields, as Caffe's users would write it."""
    with open(os.path.join(ROOT, "models", "resnet20", "train_val.prototxt")) as f:
        net = f.read()
    for part in ("train", "test"):
        net = net.replace(f"data/cifar10/{part}_lmdb", os.path.join(work, part, "train_lmdb"))
    net, n = re.subn(r"(transform_param \{ )(mirror: true crop_size: 32 pad: 4 )", rf"\g<1>\g<2>{RECIPES[recipe]} ", net, count=1)
    if n != 1:
        sys.exit("models/resnet20/train_val.prototxt: expected a transform_param with mirror and pad")
    # Caffe's statistics of BatchNorm go back a thousand steps, which is a quarter of a run of ten epochs.
    net = net.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { moving_average_fraction: 0.95 }')
    with open(os.path.join(folder, "net.prototxt"), "w") as f:
        f.write(net)


def train(recipe, seed, epochs, counts, work, program):
    """One run's record, with the accuracy on all test pictures at its end."""
    steps = epochs * counts["train"] // BATCH
    with tempfile.TemporaryDirectory(dir=work) as folder:
        make_net(recipe, work, folder)
        with open(os.path.join(folder, "solver.prototxt"), "w") as f:
            f.write(f'net: "net.prototxt"\ntype: "Nesterov"\nbase_lr: 0.1\nmomentum: 0.9\nweight_decay: 0.0005\nlr_policy: "cosine"\n'
                    f"max_iter: {steps}\ntest_interval: {steps}\ntest_iter: {counts['test'] // 100}\ntest_initialization: false\n"
                    f'display: {steps}\nsnapshot_prefix: "r"\nsnapshot_after_train: false\n')
        run([program, "train", "--solver=solver.prototxt", f"--seed={seed}", "--metrics=metrics"], folder)
        with open(os.path.join(folder, "metrics")) as f:
            tests = [e for e in map(json.loads, f) if e.get("event") == "test"]
    return {"recipe": recipe, "fields": RECIPES[recipe], "seed": seed, "epochs": epochs, "accuracy": tests[-1]["outputs"]["accuracy"]}


class Runs:
    """The runs that were made, in a file that grows by a line each."""

    def __init__(self, args, counts, program):
        self.args, self.counts, self.program, self.made = args, counts, program, []
        if os.path.exists(args.results):
            with open(args.results) as f:
                self.made = [json.loads(line) for line in f]

    def find(self, recipe, seed):
        wanted = {"recipe": recipe, "fields": RECIPES[recipe], "seed": seed, "epochs": self.args.epochs}
        return next((r["accuracy"] for r in self.made if all(r[k] == v for k, v in wanted.items())), None)

    def make(self, recipe, seed):
        if self.find(recipe, seed) is not None:
            return
        made = train(recipe, seed, self.args.epochs, self.counts, self.args.work, self.program)
        with open(self.args.results, "a") as f:
            f.write(json.dumps(made) + "\n")
        self.made.append(made)


def print_table(runs, recipes, seeds):
    print("| recipe | accuracy of each seed, % | points beside crop and mirror |\n|---|---|---|")
    for recipe in recipes:
        pairs = [(runs.find(recipe, s), runs.find(BASE, s)) for s in seeds if runs.find(recipe, s) is not None]
        cells = [recipe, ", ".join(f"{100 * a:.2f}" for a, _ in pairs), ""]
        if recipe != BASE and pairs:
            mean, half = interval([100 * (a - b) for a, b in pairs])
            cells[2] = f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pictures")
    parser.add_argument("work")
    parser.add_argument("--results", default=os.path.join(ROOT, "docs", "results", "augmentation.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--only", default=",".join(RECIPES))
    args = parser.parse_args()
    recipes = [BASE] + [r for r in args.only.split(",") if r != BASE]
    unknown = [r for r in recipes if r not in RECIPES]
    if unknown:
        sys.exit(f"--only: {', '.join(unknown)}: expected of {', '.join(RECIPES)}")
    args.work, args.results = os.path.abspath(args.work), os.path.abspath(args.results)
    os.makedirs(args.work, exist_ok=True)
    program = os.path.abspath(os.environ.get("CORTADO", os.path.join(ROOT, "cortado")))
    runs = Runs(args, make_sets(args.pictures, args.work, program), program)
    for seed in range(1, args.seeds + 1):
        for recipe in recipes:
            runs.make(recipe, seed)
    print_table(runs, recipes, range(1, args.seeds + 1))


main()
