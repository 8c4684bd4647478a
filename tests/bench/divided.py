#!/usr/bin/env python3
"""Nets that two ranks run together by a parallel file, beside how they run otherwise, in alternating runs.

Usage: tests/bench/divided.py [--pairs=5] [--runs=gpt2,alexnet64,alexnet32,half_speed,pipeline,predict,vgg16,memory]

  gpt2        GPT-2 124M, batch 1, 1024 tokens, AdamW: one rank of two threads; two of one, tensor 2
  alexnet64   AlexNet, 64 images, two pretended hosts with 1 Gbit/s between them (scripts/netns.sh, root):
  alexnet32   … or 32: data parallel; fully connected layers split, convolutions by samples
  half_speed  VGG-16 for CIFAR-10 and ResNet-20, 96 images, the second rank held to half of a core (cgroup, root):
              shares 48 and 48; 64 and 32
  pipeline    AlexNet, 64 images in 8 micro-batches, two stages of one core each, cut behind pool2: the slower
              stage's layers alone, one after the other on one core; the pipeline
  predict     four plans each of AlexNet, VGG-16 for CIFAR-10 and a GPT, by profiles of one rank with two batches:
              steps as `cortado plan` foresees them and as they are
  vgg16       VGG-16, 16 images, at most 1.6 GiB a rank: what `cortado plan` says and writes, and what its file takes
  memory      the plans of predict, without profiles: bytes of each rank as planned, allocated, and resident at most

CORTADO names the program. Each pair runs one after the other; a run's figure is the median of its steps without
the first two. Printed are medians over the pairs, and the ratio with its least and largest pair.
"""
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.path.abspath(os.environ.get("CORTADO", f"{ROOT}/cortado"))
STEPS = 8


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def entry(split, *names):
    return "".join(f' layer {{ name: "{name}" split: {split} }}\n' for name in names)


def solver(where, net, more=""):
    write(f"{where}/{net}.solver", f'net: "{net}.prototxt" lr_policy: "fixed" max_iter: {STEPS} display: 1 '
          f"snapshot_after_train: false random_seed: 1 solver_mode: CPU {more}")


def images(model, batch, where, net, size):
    """A model's training net on made-up images."""
    parts = re.split(r"(?m)^(?=layer |repeat )", read(f"{ROOT}/models/{model}/train_val.prototxt"))
    layers = [p for p in parts[1:] if "phase: TEST" not in p and 'type: "Data"' not in p]
    write(f"{where}/{net}.prototxt",
          parts[0] + f'layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{\n'
          f"  shape {{ dim: {batch} dim: 3 dim: {size} dim: {size} }} shape {{ dim: {batch} }}\n"
          f'  data_filler {{ type: "uniform" min: -1 max: 1 }} data_filler {{ type: "constant" value: 1 }} }} }}\n' +
          "".join(layers))


def train(where, name, command, ranks, batch, options=(), threads=1, keep=False):
    """Milliseconds of a step of so many samples: the median without the first two."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    metrics = f"{where}/m.jsonl"
    words = [CORTADO, "train", f"--solver={name}.solver", f"--metrics={metrics}", "--overwrite", *options]
    done = subprocess.run([*command(ranks), *words], cwd=where, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    events = [json.loads(line) for line in read(metrics).splitlines()]
    if not keep:
        os.remove(metrics)
    steps = [batch / e["images_per_s"] * 1e3 for e in events if e["event"] == "train"]
    weights = re.search(r"weights and gradients ([\d.]+) MiB", done.stdout)
    return statistics.median(steps[2:]), float(weights.group(1)) if weights else 0.0


def local(ranks):
    """Each rank on a core of its own, where there are several."""
    if ranks == 1:
        return ["taskset", "-c", "0"] if os.environ["OMP_NUM_THREADS"] == "1" else []
    return ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-np", str(ranks)]


def hosts(ranks):
    os.environ["PIN"] = "1"
    return [f"{ROOT}/scripts/netns.sh", "run", str(ranks)]


def compare(what, pairs, one, other, names):
    rows = [(one(), other()) for _ in range(pairs)]
    time = [statistics.median(r[i][0] for r in rows) for i in (0, 1)]
    ratios = sorted(r[0][0] / r[1][0] for r in rows)
    print(f"{what}: {names[0]} {time[0]:.0f} ms, {rows[0][0][1]:.0f} MiB of weights and gradients a rank; "
          f"{names[1]} {time[1]:.0f} ms, {rows[0][1][1]:.0f} MiB; ratio {statistics.median(ratios):.3f} "
          f"({ratios[0]:.3f} to {ratios[-1]:.3f}, {pairs} pairs)", flush=True)


def gpt2(pairs, where):
    text = read(f"{ROOT}/models/gpt2/train_val.prototxt")
    text = re.sub(r' tokenizer: "[^"]*"', "", re.sub(r"data/\w+/\w+\.bin", "tokens.bin", text))
    write(f"{where}/net.prototxt", re.sub(r"batch_size: \d+", "batch_size: 1", text))
    random.seed(1)
    with open(f"{where}/tokens.bin", "wb") as f:
        for _ in range((STEPS + 2) * 1024):
            f.write(random.randrange(50257).to_bytes(2, "little"))
    solver(where, "net", 'type: "AdamW" base_lr: 0.001 momentum: 0.9 momentum2: 0.95 weight_decay: 0.1 '
           "global_batch_size: 1")
    plan = 'ranks: 2 global_batch: 1 micro_batches: 1\nstage { first: "wte" last: "loss" rank: 0 rank: 1 tensor: 2\n'
    plan += entry("REPLICATE", "data", "wpe") + entry("INPUT", "wte") + entry("OUTPUT", "head", "loss")
    for i in range(12):
        plan += entry("OUTPUT", f"h{i}_attn_qkv", f"h{i}_fc") + entry("HEADS", f"h{i}_attn")
        plan += entry("INPUT", f"h{i}_attn_proj", f"h{i}_proj")
    write(f"{where}/plan", plan + "}\n")
    compare("GPT-2 124M, B 1, T 1024", pairs, lambda: train(where, "net", local, 1, 1, threads=2),
            lambda: train(where, "net", local, 2, 1, ["--parallel=plan"]), ("1 rank x 2 threads", "2 ranks, tensor 2"))


def alexnet(pairs, where, batch):
    images("alexnet", batch, where, "net", 227)
    images("alexnet", batch // 2, where, "half", 227)
    for net in ("net", "half"):
        solver(where, net, "base_lr: 0.0001 momentum: 0.9 weight_decay: 0.0005")
    write(f"{where}/plan", f'ranks: 2 global_batch: {batch} micro_batches: 1\n'
          'stage { first: "conv1" last: "loss" rank: 0 rank: 1 tensor: 2\n' + entry("OUTPUT", "fc6", "fc8", "loss") +
          entry("INPUT", "fc7") + "}\n")
    subprocess.run([f"{ROOT}/scripts/netns.sh", "up", "2", "1gbit"], check=True, stdout=subprocess.DEVNULL)
    try:
        compare(f"AlexNet, {batch} images, 2 hosts, 1 Gbit/s", pairs, lambda: train(where, "half", hosts, 2, batch),
                lambda: train(where, "net", hosts, 2, batch, ["--parallel=plan"]), ("data parallel", "fc6 to fc8 split"))
    finally:
        subprocess.run([f"{ROOT}/scripts/netns.sh", "down"], check=True, stdout=subprocess.DEVNULL)


def half_speed(pairs, where):
    group = "/sys/fs/cgroup/cpu/cortado_half" if os.path.isdir("/sys/fs/cgroup/cpu") else "/sys/fs/cgroup/cortado_half"
    os.makedirs(group, exist_ok=True)
    if "/cpu/" in group:
        write(f"{group}/cpu.cfs_period_us", "10000")
        write(f"{group}/cpu.cfs_quota_us", "5000")
    else:
        write(f"{group}/cpu.max", "5000 10000")
    write(f"{where}/slow.sh", f'[ "$OMPI_COMM_WORLD_RANK" != 1 ] || echo $$ > {group}/cgroup.procs\nexec "$@"\n')
    slowed = lambda ranks: [*local(ranks), "sh", "slow.sh"]
    for model, first, name in (("vgg16_cifar", "conv1_1", "VGG-16 for CIFAR-10"), ("resnet20", "conv1", "ResNet-20")):
        half_speed_of(pairs, where, model, first, name, slowed)
    os.rmdir(group)


def half_speed_of(pairs, where, model, first, title, slowed):
    images(model, 96, where, "net", 32)
    solver(where, "net", "base_lr: 0.001 momentum: 0.9")
    for name, shares in (("even", (48, 48)), ("uneven", (64, 32))):
        write(f"{where}/{name}", 'ranks: 2 global_batch: 96 micro_batches: 1\nstage { first: "' + first + '" last: "loss" '
              f"rank: 0 rank: 1 share: {shares[0]} share: {shares[1]} }}\n")
    compare(f"{title}, 96 images, rank 1 at half speed", pairs,
            lambda: train(where, "net", slowed, 2, 96, ["--parallel=even"]),
            lambda: train(where, "net", slowed, 2, 96, ["--parallel=uneven"]), ("48 and 48", "64 and 32"))


def pipeline(pairs, where):
    """Stages alone: the first with a gradient of ones for what it makes, the second on made-up values."""
    images("alexnet", 64, where, "net", 227)
    text = read(f"{where}/net.prototxt")
    layers = re.split(r"(?m)^(?=layer )", text.replace("64", "8"))
    cut = next(i for i, l in enumerate(layers) if 'name: "pool2"' in l)
    first = "".join(layers[:cut + 1]).rstrip().removesuffix("}")
    write(f"{where}/first.prototxt", f"{first} loss_weight: 1 }}\n")
    write(f"{where}/second.prototxt", 'force_backward: true\n'
          'layer { name: "data" type: "DummyData" top: "plain" top: "label" dummy_data_param {\n'
          "  shape { dim: 8 dim: 256 dim: 13 dim: 13 } shape { dim: 8 }\n"
          '  data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 1 } } }\n'
          'layer { name: "blocks" type: "ToBlocks" bottom: "plain" top: "pool2" }\n' + "".join(layers[cut + 1:]))
    rule = "base_lr: 0.0001 momentum: 0.9 weight_decay: 0.0005 "
    solver(where, "net", rule)
    for name in ("first", "second"):
        solver(where, name, rule + "iter_size: 8 stop_on_nan: false")
    write(f"{where}/plan", 'ranks: 2 global_batch: 64 micro_batches: 8\nstage { first: "conv1" last: "pool2" rank: 0 }\n'
          'stage { first: "conv3" last: "loss" rank: 1 }\n')
    alone = lambda: max(train(where, name, local, 1, 64) for name in ("first", "second"))
    compare("AlexNet, 64 images, 2 stages, 8 micro-batches", pairs, alone,
            lambda: train(where, "net", local, 2, 64, ["--parallel=plan"]), ("the slower stage alone", "both"))


def vgg16(_, where):
    images("vgg16", 16, where, "net", 224)
    solver(where, "net", "base_lr: 0.0001 momentum: 0.9 weight_decay: 0.0005")
    planned = subprocess.run([CORTADO, "plan", "--solver=net.solver", "--ranks=2", "--global_batch_size=16",
                              "--memory_gib=1.6", "--out=plan"], cwd=where, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False, env=dict(os.environ, OMP_NUM_THREADS="1"))
    print(planned.stdout, flush=True)
    train(where, "net", local, 2, 16, ["--parallel=plan", "--iterations=4"], keep=True)
    tell_ranks(where)


def tell_ranks(where):
    """Of the last run: MiB planned, allocated, resident at most, and what may be resident (80 MiB + 5 % more)."""
    for line in read(f"{where}/m.jsonl").splitlines():
        event = json.loads(line)
        for r in event.get("ranks", []) if event["event"] == "done" else []:
            planned, allocated, resident = (r[f"{k}_bytes"] / 2**20 for k in ("memory", "allocated", "resident"))
            print(f"  rank {r['rank']}: planned {planned:.1f} MiB, allocated {allocated:.1f}, resident {resident:.1f} of "
                  f"{1.05 * planned + 80:.1f}", flush=True)


def profile(where, net, batch):
    """`cortado time --json` of a rank alone with that batch."""
    text = re.sub(r"(shape \{ dim: |batch_size: )\d+", rf"\g<1>{batch}", read(f"{where}/{net}.prototxt"))
    write(f"{where}/{net}{batch}.prototxt", text)
    subprocess.run(["taskset", "-c", "0", CORTADO, "time", f"--solver={net}.solver", "--set",
                    f"net={net}{batch}.prototxt", "--set", "global_batch_size=0", "--iterations=5",
                    f"--json={net}{batch}.json"], cwd=where, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return f"{net}{batch}.json"


def gpt_net(where, net, batch):
    text = read(f"{ROOT}/models/gpt_char/train_val.prototxt")
    text = re.sub(r' tokenizer: "[^"]*"', "", re.sub(r"data/\w+/\w+\.bin", "tokens.bin", text))
    write(f"{where}/{net}.prototxt", re.sub(r"batch_size: \d+", f"batch_size: {batch}", text))
    random.seed(1)
    with open(f"{where}/tokens.bin", "wb") as f:
        for _ in range((STEPS + 4) * batch * 256):
            f.write(random.randrange(128).to_bytes(2, "little"))


KINDS = {"data": ["data"], "tensor 2": ["tensor=2", "stages=1", "micro_batches=1"],
         "2 stages, 4": ["stages=2", "micro_batches=4"], "2 stages, 8": ["stages=2", "micro_batches=8"]}
NETS = (("alexnet", 32), ("vgg", 64), ("gpt", 8))


def three_nets(where):
    images("alexnet", 32, where, "alexnet", 227)
    images("vgg16_cifar", 64, where, "vgg", 32)
    gpt_net(where, "gpt", 8)
    for net, batch in NETS:
        solver(where, net, f"base_lr: 0.0001 momentum: 0.9 global_batch_size: {batch}")


def plan(where, net, batch, fixed, more):
    words = [CORTADO, "plan", f"--solver={net}.solver", "--ranks=2", f"--global_batch_size={batch}", "--json=plan.json",
             "--out=plan", *more, *(f"--fix={f}" for f in fixed)]
    done = subprocess.run(words, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}:\n{done.stdout[-2000:]}")
    return json.loads(read(f"{where}/plan.json"))["step_s"] * 1e3


def memory(_, where):
    three_nets(where)
    for net, batch in NETS:
        for kind, fixed in KINDS.items():
            plan(where, net, batch, fixed, ["--limits=200,30"])
            train(where, net, local, 2, batch, ["--parallel=plan", "--iterations=3"], keep=True)
            print(f"{net}, {kind}", flush=True)
            tell_ranks(where)


def predict(_, where):
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    three_nets(where)
    for net, batch in NETS:
        profiles = ",".join(profile(where, net, b) for b in (max(1, batch // 8), batch // 2))
        mine = []
        for kind, fixed in {**KINDS, "best": []}.items():
            foreseen = plan(where, net, batch, fixed, [f"--profile={profiles}"])
            measured = train(where, net, local, 2, batch, ["--parallel=plan"])[0]
            mine.append((kind, foreseen, measured))
            print(f"{net}, {kind}: foreseen {foreseen:.0f} ms, measured {measured:.0f} ms, "
                  f"{100 * (foreseen / measured - 1):+.0f} %", flush=True)
        best = min(m for _, _, m in mine)
        print(f"{net}: the plan is at {mine[-1][2] / best:.3f} of the fastest that was measured", flush=True)
        rows += mine[:-1]
    print(f"median error {100 * statistics.median(abs(f / m - 1) for _, f, m in rows):.1f} % of {len(rows)} plans")


RUNS = {"gpt2": gpt2, "alexnet64": lambda p, w: alexnet(p, w, 64), "alexnet32": lambda p, w: alexnet(p, w, 32),
        "half_speed": half_speed, "pipeline": pipeline, "predict": predict,
        "vgg16": vgg16, "memory": memory}


def main():
    options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
    for run in options.get("runs", ",".join(RUNS)).split(","):
        if run not in RUNS:
            sys.exit(f"no run is called {run}; there are {', '.join(RUNS)}")
        with tempfile.TemporaryDirectory() as where:
            RUNS[run](int(options.get("pairs", "5")), where)


main()
