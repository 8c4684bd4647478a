#!/usr/bin/env python3
"""How evenly the work of training steps is split, on more threads than the machine has cores.

  tests/bench/balance.py THREADS [MODEL BATCH ITERATIONS]...

Threads sleep where they have nothing to do (OMP_WAIT_POLICY=passive), so the processor time of each
is its share of the work, whenever it ran. Of two runs, with few and with more steps, the difference
is that of the steps alone. Printed: the mean of the team without the main thread, the largest share
over it, and what the main thread has beyond it: work that nobody shares, of the steps' total.
"""
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))


def times(pid):
    """Seconds on a processor of each thread, by its number."""
    found = {}
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
                found[int(tid)] = int(f.read().split()[0]) * 1e-9
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return found


def run(threads, model, batch, iterations):
    """The threads' times at the end, main thread first, then the team in the order of its making."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
    command = [CORTADO, "time", f"--model={ROOT}/models/{model}/train_val.prototxt", "--limits=false",
               f"--set=batch_size={batch}", f"--iterations={iterations}", "--log=error"]
    p = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    last = {}
    while p.poll() is None:
        now = times(p.pid)
        if len(now) >= len(last):
            last = {t: max(s, last.get(t, 0.0)) for t, s in now.items()}
        time.sleep(0.02)
    if p.returncode != 0:
        sys.exit(f"{' '.join(command)}: {p.returncode}")
    main = last.pop(p.pid)
    return main, last


def team_of(workers, threads):
    """The team: the threads - 1 that worked most; the others read data."""
    return sorted(workers.values(), reverse=True)[: threads - 1]


def main(threads, jobs):
    print(f"{'model':12} {'batch':>5} {'threads':>7} {'mean ms':>8} {'largest/mean':>12} {'main alone %':>12}")
    for model, batch, iterations in jobs:
        few_main, few = run(threads, model, batch, 1)
        many_main, many = run(threads, model, batch, 1 + iterations)
        team = [m - f for m, f in zip(sorted(team_of(many, threads)), sorted(team_of(few, threads)))]
        mean = sum(team) / len(team)
        own = many_main - few_main
        total = sum(team) + own
        print(f"{model:12} {batch:5d} {threads:7d} {1e3 * mean / iterations:8.2f} {max(team) / mean:12.2f}"
              f" {100.0 * max(own - mean, 0.0) / total:12.1f}", flush=True)


if __name__ == "__main__":
    rest = sys.argv[2:] or ["resnet20", "256", "4", "alexnet", "1", "8", "googlenet", "1", "4"]
    main(int(sys.argv[1]), [(rest[i], int(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)])
