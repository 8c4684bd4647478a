#!/usr/bin/env python3
"""Plans beside the best data-parallel and the best uniform step, simulated on described machines.

Nothing is run but models: a minute or a few. Prints tables for docs/results and fails where a plan is
slower than one of the others.
  tests/bench/plan_study.py [CORTADO [MODELS]]     MODELS: the folder that `make models` fills
"""
import json
import os
import resource
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "cortado")
MODELS = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "models")
MACHINES = ("taihulight", "fat_tree_edr", "ethernet_100g")
MIXED = os.path.join(ROOT, "tests", "bench", "plan_mixed.prototxt")  # 1024 unlike nodes
LIMITS, MEMORY_GIB = "2000,100", 16
# net, nodes, samples of a step
CELLS = (("vgg16", 64, 1024), ("vgg16", 1024, 4096), ("gpt2_xl", 64, 256), ("gpt2_xl", 1024, 2048))


def plan(net, *options):
    """The answer, and the processor's seconds that the command took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    out = subprocess.run(
        [CORTADO, "plan", f"--model={MODELS}/{net}/train_val.prototxt", f"--limits={LIMITS}", "--json",
         *options], check=True, stdout=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1")).stdout
    return json.loads(out), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def step(seconds, of):
    return "does not fit" if seconds is None else f"{seconds:.3f} ({seconds / of:.2f})"


def describe(n, nodes):
    stages = len(n["stages"])
    replicas = nodes // n["tensor"] // stages
    again = sum(len(s["again"]) for s in n["stages"])
    return (f"{n['tensor']} x {replicas} x {stages}, {n['micro_batches']}"
            + (f", again {again}" if again else ""))


def main():
    bad = 0
    print("| net | nodes | samples | machine | plan, s | data-parallel | uniform "
          "| tensor x replicas x stages, micro-batches | GiB | configurations | search, s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for net, nodes, batch in CELLS:
        for machine in MACHINES + ((MIXED,) if nodes == 1024 else ()):
            n, seconds = plan(net, f"--machine={machine}", f"--ranks={nodes}",
                              f"--global_batch_size={batch}", f"--memory_gib={MEMORY_GIB}")
            best, others = n["step_s"], (n["data_parallel_step_s"], n["uniform_step_s"])
            most = max(r["memory_bytes"] for r in n["ranks"]) / 2**30
            slower = any(o is not None and best > o * (1 + 1e-9) for o in others)
            bad += slower or most > MEMORY_GIB
            print(f"| {net} | {nodes} | {batch} | {os.path.basename(machine).split('.')[0]} | {best:.3f} | {step(others[0], best)} "
                  f"| {step(others[1], best)} | {describe(n, nodes)} | {most:.1f} "
                  f"| {n['configurations']} | {seconds:.1f} |{' SLOWER' if slower else ''}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
