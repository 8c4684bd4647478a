#!/usr/bin/env python3
"""Full training steps (forward, backward, update) in f32 and in bf16, in turns, and the largest resident memory.

  tests/bench/precision.py [--threads=N] [--rounds=N] [--args="..."] MODEL BATCH ITERATIONS ...

MODEL: a folder of models/, or a file in it. --args: more arguments of `cortado time`.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(model, batch, iterations, precision, threads, extra, out):
    path = os.path.join(ROOT, "models", model)
    if os.path.isdir(path):
        path = os.path.join(path, "train_val.prototxt")
    command = [os.environ.get("CORTADO", os.path.join(ROOT, "cortado")), "time", f"--model={path}",
               f"--iterations={iterations}", f"--set=batch_size={batch}", f"--set=precision={precision}",
               f"--json={out}", "--log=error"] + extra
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}")
    with open(out) as f:
        return json.load(f)["step_ms"], usage.ru_maxrss / 1024


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--args", default="")
    p.add_argument("rows", nargs="+")
    a = p.parse_args()
    print(f"{'model':12} {'batch':>5} {'F32 ms':>10} {'BF16 ms':>10} {'ratio':>6} {'F32 MiB':>8} {'BF16 MiB':>8}")
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        for model, batch, iterations in zip(a.rows[0::3], a.rows[1::3], a.rows[2::3]):
            ratios = []
            for _ in range(a.rounds):
                f32, f32_mib = run(model, batch, iterations, "F32", a.threads, a.args.split(), out.name)
                bf16, bf16_mib = run(model, batch, iterations, "BF16", a.threads, a.args.split(), out.name)
                ratios.append(f32 / bf16)
                print(f"{model:12} {batch:>5} {f32:10.1f} {bf16:10.1f} {ratios[-1]:6.2f} {f32_mib:8.0f} {bf16_mib:8.0f}",
                      flush=True)
            if a.rounds > 1:
                print(f"{model:12} median ratio {statistics.median(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
