#!/usr/bin/env python3
"""Training on cores of which a busy program has one: images a second beside it, over those without it.

    busy_core.py CORTADO [--net=resnet20] [--batch=128] [--iterations=60] [--turns=5] [--busy=1]

Each turn times steps (`cortado time --json`) without and with as many busy programs, in three ways: as the program waits by itself, with
waits of its OpenMP as they are without that (GOMP_SPINCOUNT=300000), and with OMP_WAIT_POLICY=passive. Images a second are of
the mean step, not of the median: a step that was kept from its core counts. Then medians of the turns' ratios, and their range.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAYS = {"as it is": {}, "spins as OpenMP does": {"GOMP_SPINCOUNT": "300000"}, "passive": {"OMP_WAIT_POLICY": "passive"}}


def images_per_s(args, more):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "times.json"
        subprocess.run([os.path.abspath(args.cortado), "time", f"--model=models/{args.net}/train_val.prototxt", f"--set=batch_size={args.batch}",
                        f"--iterations={args.iterations}", "--limits=false", "--log=error", f"--json={out}"], check=True, cwd=ROOT,
                       env={**os.environ, **more}, stdout=subprocess.DEVNULL)
        steps = json.loads(out.read_text())["step_ms_samples"]
    return 1000 * args.batch / statistics.mean(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cortado")
    parser.add_argument("--net", default="resnet20")
    for name, usual in (("batch", 128), ("iterations", 60), ("turns", 5), ("busy", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    args = parser.parse_args()
    ratios = {way: [] for way in WAYS}
    for turn in range(args.turns):
        for way, more in WAYS.items():
            alone = images_per_s(args, more)
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
            try:
                beside = images_per_s(args, more)
            finally:
                for p in busy:
                    p.kill()
                    p.wait()
            ratios[way].append(beside / alone)
            print(f"turn {turn + 1}, {way}: {alone:.1f} images/s alone, {beside:.1f} beside {args.busy} busy: {beside / alone:.2f}", flush=True)
    for way, r in ratios.items():
        print(f"{way}: {statistics.median(r):.2f} of its quiet speed ({min(r):.2f} to {max(r):.2f})")


if __name__ == "__main__":
    main()
