#!/usr/bin/env python3
"""Steps of ZeRO on described machines: SIMULATED and MODELLED, never measured.

    zero_study.py PROFILE FOLDER [--nodes=4,64,1024] [--steps_to=4] [--machines=...] [--zero=0,1,2,3] [--blocks=48]

PROFILE is of GPT-2 XL with few blocks, three or more, on a machine that has no room for 48:
    cortado time --model=models/gpt2_xl/train_val.prototxt --set=repeat.count=3 --set=type=AdamW \
        --set=recompute=CHEAP --iterations=3 --json=PROFILE
Its blocks are repeated: each of their steps takes the median of that step over the blocks. The rest is as it is.
A rank has 8 sequences, 10 a second when alone, so that the network bounds the step; sums go by `rhd`.
Whole steps are simulated to --steps_to nodes. On more, both halves of a sum are, of the bytes of a usual bucket and
of the table of tokens: those are what a step there is made of. FOLDER keeps every run: the same command goes on.
"""
import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
NET = os.path.join(ROOT, "models/gpt2_xl/train_val.prototxt")
STEP = ["--images_per_s=10", "--batch=8", "--set=comm.allreduce=rhd"]
HALVES = {"a block's layer": 40966400, "the table": 321644800}  # bytes


def run(words):
    r = subprocess.run([CORTADO] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(words)}: {r.stderr[-600:]}")
    return r.stdout


def block_of(key):
    m = re.match(r"h(\d+)_", key)
    return int(m.group(1)) if m else None


class Blocks:
    """A profile whose blocks are repeated: the first and the last stay so, those between are copies of the second."""

    def __init__(self, profile, n):
        self.p, self.n, self.old = profile, n, profile["params"]
        self.of = [block_of(q["key"]) for q in self.old]
        self.had = max(b for b in self.of if b is not None) + 1
        self.mine = {k: [i for i, b in enumerate(self.of) if b == k] for k in range(self.had)}
        self.params, self.moved, self.end = [], {}, 0
        for i in range(self.mine[self.had - 1][0]):
            self.add(i, None)
        for b in reversed(range(n)):
            for i in self.mine[self.source(b)]:
                self.add(i, b)
        for i in range(self.mine[0][-1] + 1, len(self.old)):
            self.add(i, None)

    def source(self, b):
        return 0 if b == 0 else self.had - 1 if b == self.n - 1 else 1

    def add(self, i, b):
        key = self.old[i]["key"] if b is None else re.sub(r"^h\d+_", f"h{b}_", self.old[i]["key"])
        self.moved[i, b] = len(self.params)
        self.params.append(dict(self.old[i], key=key, offset=self.end))
        self.end += -(-self.old[i]["count"] // 16) * 16

    def ends(self, steps, kind):
        """[first, end) of each block in a list: forward from its first wait on, backward up to its last ready."""
        at = {k: [i for i, e in enumerate(steps) if e["kind"] == kind and self.of[e["param"]] == k]
              for k in range(self.had)}
        others = [i for i, e in enumerate(steps) if e["kind"] == kind and self.of[e["param"]] is None]
        if kind == "wait":
            first = [at[k][0] for k in range(self.had)]
            return list(zip(first, first[1:] + [min(i for i in others if i > first[-1])]))
        end = [at[k][-1] + 1 for k in range(self.had)]
        return list(zip(end[1:] + [max(i + 1 for i in others if i < end[-1])], end))

    def stretch(self, steps, kind):
        cut = self.ends(steps, kind)
        part = [[dict(e) for e in steps[a:b]] for a, b in cut]
        if len({len(s) for s in part}) != 1:
            sys.exit("the blocks of the profile have unlike lists of steps")
        for row in zip(*part):
            for e in row:
                if "ms" in e:
                    e["ms"] = statistics.median(x["ms"] for x in row)

        def place(e, b):
            return dict(e, param=self.moved[e["param"], b]) if "param" in e else e
        out = [place(e, None) for e in steps[:min(a for a, _ in cut)]]
        for b in range(self.n) if kind == "wait" else reversed(range(self.n)):
            out += [place(e, b) for e in part[self.source(b)]]
        return out + [place(e, None) for e in steps[max(b for _, b in cut):]]

    def profile(self, net_hash):
        p = dict(self.p, params=self.params, net_hash=net_hash, forward=self.stretch(self.p["forward"], "wait"),
                 backward=self.stretch(self.p["backward"], "ready"))
        p["update_ms"] *= sum(q["count"] for q in self.params) / sum(q["count"] for q in self.old)
        p["step_ms"] = p["update_ms"] + sum(e.get("ms", 0) for e in p["forward"] + p["backward"])
        p["step_ms_samples"] = [p["step_ms"]]
        p["images_per_s"] = 1e3 * p["batch"] / p["step_ms"]
        del p["layers"]
        return p


class Study:
    def __init__(self, folder, profile):
        self.folder, self.profile = folder, profile

    def kept(self, name, words):
        path = os.path.join(self.folder, name + ".json")
        if not os.path.exists(path):
            text = run(words)
            with open(path, "w") as f:
                f.write(text)
            print(f"# {name}: {json.loads(text)['wall_s']:.0f} s of the processor", file=sys.stderr, flush=True)
        return json.load(open(path))

    def modelled(self, m, n, zero):
        out = os.path.join(self.folder, f"model-{m}-{n}-{zero}")
        run(["scale", f"--machine={m}", f"--nodes={n}", f"--model={NET}", f"--profile={self.profile}",
             "--kind=modelled", "--no_bench", f"--set=memory.zero={zero}", f"--out={out}", "--log=error"] + STEP)
        newest = max(glob.glob(out + "/runs/*.json"), key=os.path.getmtime)
        return json.load(open(newest))["result"]

    def step(self, m, n, zero):
        return self.kept(f"step-{m}-{n}-{zero}",
                         ["simulate", f"--machine={m}", f"--nodes={n}", f"--profile={self.profile}", "--iterations=1",
                          "--warmup=1", f"--set=memory.zero={zero}"] + STEP)

    def half(self, m, n, kind, size):
        r = self.kept(f"{kind}-{m}-{n}-{size}",
                      ["simulate", f"--machine={m}", f"--nodes={n}", f"--bench={size}", "--algorithm=rhd",
                       f"--kind={kind}"])
        return r["results"][0]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("profile")
    a.add_argument("folder")
    a.add_argument("--nodes", default="4,64,1024")
    a.add_argument("--steps_to", type=int, default=4)
    a.add_argument("--machines", default="ethernet_100g,daint,taihulight")
    a.add_argument("--zero", default="0,1,2,3")
    a.add_argument("--blocks", type=int, default=48)
    o = a.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    found = re.search(r"^net .*hash (\w+)", run(["check", f"--model={NET}", f"--set=repeat.count={o.blocks}"]), re.M)
    path = os.path.join(os.path.abspath(o.folder), "profile.json")
    with open(path, "w") as f:
        json.dump(Blocks(json.load(open(o.profile)), o.blocks).profile(found.group(1)), f)
    study, nodes, machines = Study(os.path.abspath(o.folder), path), o.nodes.split(","), o.machines.split(",")
    print("| machine | nodes | `zero` | MODELLED ms | SIMULATED ms | modelled over simulated | MB sent |")
    print("|---|---|---|---|---|---|---|")
    for m in machines:
        for n in nodes:
            for z in o.zero.split(","):
                r = study.modelled(m, n, z)
                s = study.step(m, n, z)["mean_step_ms"] if int(n) <= o.steps_to else None
                print(f"| {m} | {n} | {z} | {r['step_ms']:.1f} | " +
                      (f"{s:.1f} | {r['step_ms'] / s:.3f}" if s else " | ") +
                      f" | {1e-6 * r['bytes_sent']:.1f} |", flush=True)
    print("\n| machine | nodes | half | of | SIMULATED ms | MODELLED ms | modelled over simulated |")
    print("|---|---|---|---|---|---|---|")
    for size in sorted(HALVES, key=HALVES.get):
        for n in (n for n in nodes if int(n) > o.steps_to):
            for m in machines:
                for kind in "reduce_scatter", "allgather":
                    r = study.half(m, n, kind, HALVES[size])
                    print(f"| {m} | {n} | {kind} | {size} | {1e-3 * r['us']:.2f} | {1e-3 * r['predicted_us']:.2f} | "
                          f"{r['predicted_us'] / r['us']:.3f} |", flush=True)


main()
