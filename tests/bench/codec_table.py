#!/usr/bin/env python3
"""Steps of training with every codec on described machines: SIMULATED and MODELLED, never measured.

    codec_table.py FOLDER PROFILES [--nodes=16,128,1024] [--ways=dense,...] [--minutes=60] [--csv=FILE] [--no_run]

PROFILES holds alexnet.json, vgg16.json, lstm.json and resnet50.json, of `cortado time --json` on an
idle machine (lstm: models/lstm/train_val_1500.prototxt). FOLDER keeps every run: the same command
goes on where it stopped; it stops after so many minutes. Needs `make` and `make SIMGRID=1`.

simulated   all messages of two steps, by SMPI, where they are no more than MOST_MESSAGES
composed    one bucket for each class of sizes by SMPI, the step of them by the timeline of the model
            (comm/sync/step_timeline.h): MODELLED. What AUTO takes is what it takes in a job, by the cost model alone.
modelled    by the cost model alone, where neither was run.
Each cell says which. Where a cell has several, they say how good composing and the model are.

Nodes, assumed: P100's class (published speeds of one: AlexNet 2987, VGG-16 154, ResNet-50 219 images/s;
LSTM 470 columns of 35 words/s, 5 Tflop/s; 500 GB/s of memory) behind a dragonfly of Piz Daint's kind and a
leaf-spine network of 100 Gbit/s; SW26010 (swCaffe: 94.17, 6.21, 5.56 images/s; LSTM 47 columns/s, 0.5
Tflop/s; 100 GB/s) on TaihuLight. Codecs take as many bytes of that memory an element as were measured on
this project's machine (CODING), and additions three bytes for each that they add. One rank a node.
"""
import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))

# bytes of memory traffic an element or entry: nanoseconds of `cortado bench comm --fit` (2 ranks of one
# thread, AMD EPYC, Zen 5) times the 36 GB/s that its memory streams
CODING = {k: 36 * v for k, v in dict(
    update_ns=0.341, select_ns=0.326, pack_ns=0.48, add_ns=4.735, merge_ns=5.223, sign_ns=1.146, unsign_ns=0.157,
    factor_ns=0.821, column_ns=0.114).items()}
MACHINES = {  # the ready machine, GB/s of memory, which chip
    "daint": ("daint", 500, "p100"),
    "leafspine": ("ethernet_100g", 500, "p100"),
    "taihulight": ("taihulight", 100, "sw26010"),
}
SPEED = {"p100": dict(alexnet=2987, vgg16=154, lstm=470, resnet50=219),
         "sw26010": dict(alexnet=94.17, vgg16=6.21, lstm=47, resnet50=5.56)}
BATCH = dict(alexnet=64, vgg16=32, lstm=20, resnet50=32)
MODEL = dict(alexnet="alexnet/train_val", vgg16="vgg16/train_val", resnet50="resnet50/train_val",
             lstm="lstm/train_val_1500")
D = "density=0.001"
WAYS = {
    "dense": None, "bf16": "bf16", "fp16": "fp16",
    "allgather": f"redsync:{D},exchange=allgather", "quantised": f"redsync:{D},exchange=allgather,quantize=true",
    "gtopk": f"redsync:{D},exchange=gtopk", "oktopk": f"redsync:{D},exchange=oktopk",
    "powersgd": "powersgd:rank=2", "onebit": "onebit", "auto": f"auto:{D}",
    "auto_all": f"auto:{D},among=REDSYNC,among=BF16,among=FP16,among=POWERSGD,among=ONEBIT",
}
AUTO_SET = ["dense", "bf16", "fp16", "allgather", "gtopk", "oktopk"]  # what AUTO may take by itself
MOST_MESSAGES = float(os.environ.get("MOST_MESSAGES", 3e5))
MIN_ELEMENTS = 131072 // 4


# ---- files

def machine_file(folder, name):
    ready, memory, _ = MACHINES[name]
    text = [l for l in open(os.path.join(ROOT, "topology/machines", ready + ".prototxt"))
            if not l.startswith("sum_gbs") and not l.startswith("#")]
    coding = " ".join(f"{k}: {v / memory:.6g}" for k, v in CODING.items())
    text.append(f"sum_gbs: {memory / 3:.6g}\ncoding {{ memory_gbs: {memory} {coding} }}\n")
    path = os.path.join(folder, name + ".prototxt")
    with open(path, "w") as f:
        f.writelines(text)
    return path


def one_bucket(folder, count):
    rows = 1 << (count.bit_length() // 2)
    p = dict(profile=1, net=f"bucket{count}", net_hash="0" * 16, batch=1, ranks=1, threads=1, images_per_s=1e6,
             step_ms=2e-6, update_ms=0, wait_data_ms=0, params=[dict(key="w", offset=0, count=count, rows=rows)],
             forward=[dict(kind="wait", param=0), dict(kind="forward", layer=0, ms=1e-6, polls=0)],
             backward=[dict(kind="backward", layer=0, ms=1e-6, polls=0), dict(kind="ready", param=0)],
             layers=[dict(name="a", type="InnerProduct", forward_ms=1e-6, backward_ms=1e-6, parameters=count)],
             step_ms_samples=[2e-6])
    path = os.path.join(folder, f"bucket{count}.json")
    with open(path, "w") as f:
        json.dump(p, f)
    return path


class Runner:
    def __init__(self, folder, deadline, run):
        self.folder, self.deadline, self.run, self.spent = folder, deadline, run, 0
        os.makedirs(os.path.join(folder, "sim"), exist_ok=True)

    def simulate(self, label, words):
        """The result of a simulation, from the folder or run now; None: no time."""
        h = hashlib.sha1(" ".join(w.replace(self.folder, "") for w in words).encode())
        for w in words:
            if w.startswith(("--machine=", "--profile=")):
                h.update(open(w.split("=", 1)[1], "rb").read())
        key = h.hexdigest()[:10]
        path = os.path.join(self.folder, "sim", f"{label}-{key}.json")
        if os.path.exists(path):
            return json.load(open(path))
        if not self.run or time.time() > self.deadline:
            return None
        start = time.time()
        r = subprocess.run([CORTADO, "simulate"] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if r.returncode != 0:
            sys.stderr.write(f"{label}: {r.stderr[-600:]}\n")
            sys.exit(1)
        with open(path, "w") as f:
            f.write(r.stdout)
        result = json.loads(r.stdout)
        self.spent += result["wall_s"]
        print(f"# {label}: {result['mean_step_ms']:.3f} ms; took {time.time() - start:.0f} s, "
              f"{result['wall_s']:.0f} of the processor", flush=True)
        return result

    def modelled(self, machine, net, profile, nodes):
        """What the model says of all ways: {(nodes, way): result}, with buckets."""
        out = os.path.join(self.folder, "model", f"{machine}-{net}")
        words = ["scale", f"--machine={os.path.join(self.folder, machine)}.prototxt",
                 f"--model={ROOT}/models/{MODEL[net]}.prototxt", f"--profile={profile}",
                 f"--images_per_s={SPEED[MACHINES[machine][2]][net]}", f"--batch={BATCH[net]}",
                 f"--nodes={','.join(map(str, nodes))}", "--kind=modelled", "--no_bench", f"--out={out}",
                 "--log=error"]
        words += [f"--ablate=compression={spec}" for spec in WAYS.values() if spec]
        r = subprocess.run([CORTADO] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if r.returncode != 0:
            sys.stderr.write(r.stdout[-300:] + r.stderr[-900:])
            sys.exit(1)
        found = {}
        runs = os.path.join(out, "runs")
        for name in sorted(os.listdir(runs), key=lambda n: os.path.getmtime(os.path.join(runs, n))):
            run = json.load(open(os.path.join(runs, name)))
            d = run["define"]
            for way, spec in WAYS.items():
                if d["config"] == (f"compression={spec}" if spec else "default"):
                    found[(d["nodes"], way)] = run["result"]
        return found


# ---- the timeline of comm/sync/step_timeline.c

def step_of(profile, buckets, update_s):
    """Seconds of a step in the steady state: buckets are (first, n, encode, wire, decode), seconds."""
    params = profile["params"]
    n = len(buckets)
    parts = [0] * len(params)
    t = dict(now=0.0, link=0.0)
    state = []

    def advance(until, stop=False):
        while t["link"] < until:
            i = next((k for k in range(n - 1, -1, -1) if state[k]["left"] and not state[k]["landed"]), -1)
            if i < 0:
                break
            most = until - t["link"]
            if state[i]["rest"] > most:
                state[i]["rest"] -= most
                t["link"] = until
                return
            t["link"] += state[i]["rest"]
            state[i]["rest"] = 0
            state[i]["landed"] = True
            if stop:
                return
        if t["link"] < until < float("inf"):
            t["link"] = until

    def leave(i):
        t["now"] += buckets[i][2]
        advance(t["now"])
        state[i]["left"] = True

    def report():
        again = True
        while again:
            again = False
            for i in range(n):
                if not state[i]["landed"] or state[i]["reported"]:
                    continue
                state[i]["reported"] = again = True
                t["now"] += buckets[i][4]
                for k in range(buckets[i][0], buckets[i][0] + buckets[i][1]):
                    parts[k] -= 1
                    if parts[k] == 0:
                        t["now"] += update_s * params[k]["count"]
                advance(t["now"])

    def is_open():
        return any(not s["reported"] for s in state)

    def wait_for(first, m):
        if not is_open():
            return
        advance(t["now"])
        report()
        while any(parts[k] > 0 for k in range(first, first + m)):
            advance(float("inf"), True)
            t["now"] = max(t["now"], t["link"])
            report()

    step = 0.0
    for _ in range(4):
        mark = t["now"]
        for e in profile["forward"]:
            if e["kind"] == "wait":
                if is_open():
                    wait_for(e["param"], 1)
            else:
                t["now"] += e["s"]
        if is_open():
            wait_for(0, len(params))
        parts[:] = [0] * len(params)
        state[:] = [dict(missing=b[1], left=False, landed=False, reported=False, rest=b[3]) for b in buckets]
        for b in buckets:
            for k in range(b[0], b[0] + b[1]):
                parts[k] += 1
        for e in profile["backward"]:
            if e["kind"] == "ready":
                advance(t["now"])
                for i, b in enumerate(buckets):
                    if b[0] <= e["param"] < b[0] + b[1]:
                        state[i]["missing"] -= 1
                        if state[i]["missing"] == 0:
                            leave(i)
            else:
                t["now"] += e["s"]
        step = t["now"] - mark
    return step


def scaled(path, images_per_s, batch):
    """The profile on another chip, as ct_profile_scale() has it; seconds in "s", and of an update."""
    p = json.load(open(path))
    steps = p["forward"] + p["backward"]
    compute_ms = sum(e.get("ms", 0) for e in steps) + p["update_ms"]
    factor = 1e3 * batch / images_per_s / compute_ms
    for e in steps:
        if "ms" in e:
            e["s"] = 1e-3 * factor * e["ms"]
    count = sum(q["count"] for q in p["params"])
    return p, 1e-3 * factor * p["update_ms"] / count


# ---- classes of sizes

CLASSES = {  # elements; more of them where what is cheap changes with the size
    "dense": [1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26],
    "gtopk": [1 << 16, 1 << 20, 1 << 24, 1 << 26],
    "powersgd": [1 << 16, 1 << 20, 1 << 24, 1 << 26],
    "allgather": [1 << 18, 1 << 24], "oktopk": [1 << 18, 1 << 24], "onebit": [1 << 18, 1 << 24],
}


class Classes:
    """Seconds of the messages of one bucket of so many elements, by SMPI; between classes and beyond: lines."""

    def __init__(self, runner, machine, nodes):
        self.runner, self.machine, self.nodes, self.points = runner, machine, nodes, {}

    def coding_s(self, model, way, count):
        per = [(b["encode_ms"] + b["decode_ms"]) / b["count"] for b in model[(self.nodes, way)]["buckets"]
               if b["codec"] != "none"]
        return 1e-3 * max(per) * count if per else 0

    def get(self, kind, model):
        if kind in self.points:
            return self.points[kind]
        points = []
        for count in CLASSES[kind]:
            words = [f"--machine={os.path.join(self.runner.folder, self.machine)}.prototxt", f"--nodes={self.nodes}",
                     f"--profile={one_bucket(self.runner.folder, count)}", "--overlap=off", "--warmup=0",
                     "--iterations=1"]
            words += ["--set=comm.bucket_mb=65536"]
            if WAYS[kind]:
                words.append(f"--compression={WAYS[kind]}")
            r = self.runner.simulate(f"{self.machine}-{self.nodes}-{kind}-{count}", words)
            if r is None:
                return None
            points.append((count, max(0, 1e-3 * r["mean_step_ms"] - self.coding_s(model, kind, count))))
        self.points[kind] = points
        return points

    def wire_s(self, kind, count, model):
        points = self.get(kind, model)
        if points is None:
            return None
        k = 1
        while k < len(points) - 1 and points[k][0] < count:
            k += 1
        (x0, y0), (x1, y1) = points[k - 1], points[k]
        return max(y0 * min(1, count / x0), y0 + (y1 - y0) * (count - x0) / (x1 - x0))


def compose(classes, model, way, profile, update_s, real):
    """A step of simulated buckets (real) or of the model's own, in seconds; None: some are missing."""
    result, buckets = model[(classes.nodes, way)], []
    for b in result["buckets"]:
        wire = 1e-3 * b["wire_ms"]
        if real:
            kind, count = b["algorithm"], b["count"]
            if b["codec"] == "none":
                kind = "dense"
            elif b["codec"] in ("bf16", "fp16"):
                kind, count = "dense", b["count"] / 2
            elif b["codec"] in ("powersgd", "onebit"):
                kind = b["codec"]
            wire = classes.wire_s(kind, count, model)
            if wire is None:
                return None
        buckets.append((b["first"], b["n"], 1e-3 * b["encode_ms"], wire, 1e-3 * b["decode_ms"]))
    return step_of(profile, buckets, update_s)


def messages(way, result, nodes):
    """About how many of them two steps are."""
    each = dict(allgather=nodes, quantised=nodes, oktopk=2 * nodes, onebit=2 * nodes, gtopk=2 * nodes.bit_length(),
                powersgd=6 * nodes.bit_length())
    n = 0
    for b in result["buckets"]:
        kind = b["codec"] if b["codec"] in ("powersgd", "onebit") else b["algorithm"]
        n += each.get(kind, 8 * nodes.bit_length())
    return 2.0 * nodes * n


# ---- the table

def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder")
    a.add_argument("profiles")
    a.add_argument("--nodes", default="16,128,1024")
    a.add_argument("--nets", default="alexnet,vgg16,lstm,resnet50")
    a.add_argument("--machines", default=",".join(MACHINES))
    a.add_argument("--ways", default=",".join(WAYS), help="simulated ones; the model has all")
    a.add_argument("--minutes", type=float, default=60)
    a.add_argument("--csv", default="")
    a.add_argument("--no_run", action="store_true")
    o = a.parse_args()
    folder = os.path.abspath(o.folder)
    os.makedirs(folder, exist_ok=True)
    runner = Runner(folder, time.time() + 60 * o.minutes, not o.no_run)
    nodes = [int(n) for n in o.nodes.split(",")]
    runner.ways = o.ways.split(",")
    rows = []
    for m in o.machines.split(","):
        machine_file(folder, m)
    for n in nodes:
        for m in o.machines.split(","):
            classes = Classes(runner, m, n)
            for net in o.nets.split(","):
                path = os.path.join(os.path.abspath(o.profiles), net + ".json")
                if os.path.exists(path):
                    rows += cell(runner, classes, m, net, path, n, nodes)
    report(rows, o.csv)


def cell(runner, classes, m, net, path, n, nodes):
    speed = SPEED[MACHINES[m][2]][net]
    model = runner.modelled(m, net, path, nodes)
    profile, update_s = scaled(path, speed, BATCH[net])
    rows = []
    for way, spec in WAYS.items():
        result = model[(n, way)]
        words = [f"--machine={os.path.join(runner.folder, m)}.prototxt", f"--nodes={n}", f"--profile={path}",
                 f"--images_per_s={speed}", f"--batch={BATCH[net]}", "--iterations=1", "--warmup=1"]
        if spec:
            words.append(f"--compression={spec}")
        simulated = None
        if way in runner.ways and messages(way, result, n) <= MOST_MESSAGES:
            simulated = runner.simulate(f"{m}-{n}-{net}-{way}", words)
        composed = None
        if way != "quantised" and way in runner.ways:
            composed = compose(classes, model, way, profile, update_s, True)
        check = compose(classes, model, way, profile, update_s, False)
        if abs(check * 1e3 / result["step_ms"] - 1) > 1e-6:
            sys.exit(f"{m} {n} {net} {way}: the timeline gives {1e3 * check:.6f} ms, "
                     f"the program {result['step_ms']:.6f}")
        rows.append(dict(machine=m, nodes=n, net=net, way=way, batch=BATCH[net], images_per_s=speed,
                         compute_ms=result["compute_ms"],
                         simulated_ms=simulated["mean_step_ms"] if simulated else "",
                         composed_ms=1e3 * composed if composed is not None else "",
                         model_ms=result["step_ms"], mb_sent=1e-6 * result["bytes_sent"],
                         compressed=sum(b["codec"] != "none" for b in result["buckets"])))
    return rows


def report(rows, path):
    if path:
        with open(path, "w", newline="") as f:
            w = csv.DictWriter(f, fieldnames=list(rows[0]), lineterminator="\n")
            w.writeheader()
            for r in rows:
                w.writerow({k: (f"{v:.6g}" if isinstance(v, float) else v) for k, v in r.items()})
    names = [w for w in WAYS]
    print("| machine | net | nodes | kind | dense, ms | " + " | ".join(names[1:]) + " | AUTO / best | all / best |")
    print("|" + "---|" * (len(names) + 6))
    cells = {}
    for r in rows:
        cells.setdefault((r["machine"], r["net"], r["nodes"]), {})[r["way"]] = r
    for (m, net, n), c in cells.items():
        known = [k for k in ("simulated", "composed") if all(c[w][k + "_ms"] != "" for w in AUTO_SET + ["auto"])]
        kind = (known + ["model"])[0]
        t = {w: r[kind + "_ms"] for w, r in c.items() if r[kind + "_ms"] != ""}
        best = min(t[w] for w in AUTO_SET)
        all_best = min(v for w, v in t.items() if w != "quantised" and not w.startswith("auto"))
        print(f"| {m} | {net} | {n} | {'modelled' if kind == 'model' else kind} | {t['dense']:.2f} | " +
              " | ".join(f"{t['dense'] / t[w]:.3f}" if w in t else "" for w in names[1:]) +
              f" | {best / t['auto']:.3f} | " + (f"{all_best / t['auto_all']:.3f} |" if "auto_all" in t else "|"))
    for kind in ("composed", "model"):
        off = sorted(abs(r[kind + "_ms"] / r["simulated_ms"] - 1) for r in rows
                     if r["simulated_ms"] != "" and r[kind + "_ms"] != "")
        if off:
            print(f"\n{kind} against simulated: {len(off)} steps, median {100 * off[len(off) // 2]:.1f} %, "
                  f"most {100 * off[-1]:.1f} %")


main()
