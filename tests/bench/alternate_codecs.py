#!/usr/bin/env python3
"""AUTO beside the ways that it chooses from, step by step in turn inside one process, between pretended hosts.

Usage: tests/bench/alternate_codecs.py RESULTS [--nets=alexnet,lstm,vgg16/2,resnet50] [--gbits=1,5] [--hosts=4] [--rounds=12]
       [--steps=2]

Root; scripts/netns.sh makes the hosts, `make bench` alternate_codecs (ALTERNATE_CODECS names another). Computation is
replaced by sleep, as long as a step of the net's computation on one core (SECONDS). Of "vgg16/2" the matrices have half
their rows, and the links half the rate. A cell that stands in RESULTS, a JSON line each, is not measured again. For each
cell: the medians of all ways, and for AUTO the best other way's time by its own, in the median over the rounds, with a
95 % interval; the verdict against 0.98 is drawn from that.
"""
import json
import os
import statistics
import subprocess
import sys

from paired import median_interval, verdict

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECONDS = {"alexnet": 0.15, "lstm": 0.17, "vgg16": 0.6, "resnet50": 0.4}  # forward and backward, 2 images, 1 x 4 words, 1, 1
TOP = "type: REDSYNC density: 0.001"
WAYS = {
    "AUTO": "compression { type: AUTO density: 0.001 }",
    "dense": "",
    "bf16": "compression { type: BF16 }",
    "allgather": f"compression {{ {TOP} exchange: ALLGATHER }}",
    "gtopk": f"compression {{ {TOP} exchange: GTOPK }}",
    "oktopk": f"compression {{ {TOP} exchange: OKTOPK }}",
}
AIM = 0.98


def ways(gbit):
    """At 1 Gbit/s twice the bytes of bf16 hide nowhere: dense is not timed."""
    return {way: text for way, text in WAYS.items() if gbit > 1 or way != "dense"}


def measure(net, gbit, hosts, rounds, steps):
    name, _, part = net.partition("/")
    netns = os.path.join(ROOT, "scripts", "netns.sh")
    program = os.environ.get("ALTERNATE_CODECS", os.path.join(ROOT, "build/mpicc/tests/bench/alternate_codecs"))
    rate = f"{1000 * gbit / int(part or 1):g}mbit"
    subprocess.run([netns, "up", str(hosts), rate], check=True, stdout=subprocess.DEVNULL)
    # netns.sh passes words on, and a way has several: a script of its own holds them
    script = os.path.abspath(f"alternate.{os.getpid()}.sh")
    try:
        with open(script, "w", encoding="utf-8") as f:
            f.write(f"exec {program} {net} {SECONDS[name]} {rounds} {steps} " + " ".join(f"'{w}'" for w in ways(gbit).values()) + "\n")
        done = subprocess.run([netns, "run", str(hosts), "sh", script], env=dict(os.environ, OMP_NUM_THREADS="1"), check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    finally:
        os.remove(script)
        subprocess.run([netns, "down"], check=False, stdout=subprocess.DEVNULL)
    rows = [line.split() for line in done.stdout.splitlines() if line.count(" ") == 2 and line.replace(" ", "").replace(".", "").isdigit()]
    chosen = [line.split("] ", 1)[1] for line in done.stdout.splitlines() if "compression auto:" in line and ", tried" in line][:1]
    if done.returncode != 0 or len(rows) != rounds * len(ways(gbit)):
        sys.exit(f"{net}, {gbit} Gbit/s:\n{done.stdout[-3000:]}")
    ms = {way: [float(r[2]) for r in rows if int(r[1]) == k] for k, way in enumerate(ways(gbit))}
    return {"net": net, "gbit": gbit, "hosts": hosts, "steps": steps, "ms": ms, "chosen": chosen}


def show(cell):
    ms = cell["ms"]
    medians = {way: statistics.median(v) for way, v in ms.items()}
    best = min((way for way in ms if way != "AUTO"), key=medians.get)
    middle, low, high = median_interval([b / a for b, a in zip(ms[best], ms["AUTO"])])
    # a loss in the verdict's sense: what is missing to 1
    print(f"{cell['net']:9} {cell['gbit']:g} Gbit/s  " + "  ".join(f"{way} {v:.0f}" for way, v in medians.items())
          + f" ms; {best} / AUTO {middle:.3f} [{low:.3f}, {high:.3f}]  {verdict(1 - high, 1 - low, 1 - AIM)}", flush=True)


def main(argv):
    words = [a for a in argv if not a.startswith("--")]
    given = dict(a[2:].split("=", 1) for a in argv if a.startswith("--"))
    if len(words) != 1 or set(given) - {"nets", "gbits", "hosts", "rounds", "steps"}:
        sys.exit(__doc__)
    hosts, rounds, steps = int(given.get("hosts", 4)), int(given.get("rounds", 12)), int(given.get("steps", 2))
    done = {}
    if os.path.exists(words[0]):
        with open(words[0], encoding="utf-8") as f:
            done = {(c["net"], c["gbit"], c["hosts"]): c for c in map(json.loads, f)}
    for net in given.get("nets", "alexnet,lstm,vgg16/2,resnet50").split(","):
        for gbit in map(float, given.get("gbits", "1,5").split(",")):
            cell = done.get((net, gbit, hosts))
            if cell is None:
                cell = measure(net, gbit, hosts, rounds, steps)
                with open(words[0], "a", encoding="utf-8") as f:
                    f.write(json.dumps(cell) + "\n")
            show(cell)


if __name__ == "__main__":
    main(sys.argv[1:])
