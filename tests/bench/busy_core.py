#!/usr/bin/env python3
"""Training on cores of which a busy program has one: images a second beside it, over those without it.

    busy_core.py CORTADO [--net=resnet20] [--batch=128] [--iterations=60] [--turns=5] [--busy=1] [--other=CORTADO]

Each turn times steps (`cortado time --json`) without and with as many busy programs, in three ways: as the program waits by itself, with
waits of its OpenMP as they are without that (GOMP_SPINCOUNT=300000), and with OMP_WAIT_POLICY=passive. Images a second are of
the mean step, not of the median: a step that was kept from its core counts. Then medians of the turns' ratios, and their range.
With --other the ways are two programs as they wait by themselves: this one and another build of it, in turns.
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


def images_per_s(args, program, more):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "times.json"
        subprocess.run([os.path.abspath(program), "time", f"--model=models/{args.net}/train_val.prototxt", f"--set=batch_size={args.batch}",
                        f"--iterations={args.iterations}", "--limits=false", "--log=error", f"--json={out}"], check=True, cwd=ROOT,
                       env={**os.environ, **more}, stdout=subprocess.DEVNULL)
        steps = json.loads(out.read_text())["step_ms_samples"]
    return 1000 * args.batch / statistics.mean(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cortado")
    parser.add_argument("--net", default="resnet20")
    parser.add_argument("--other")
    for name, usual in (("batch", 128), ("iterations", 60), ("turns", 5), ("busy", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    args = parser.parse_args()
    ways = {way: (args.cortado, more) for way, more in WAYS.items()}
    if args.other:
        ways = {"this": (args.cortado, {}), "other": (args.other, {})}
    ratios = {way: [] for way in ways}
    alone_of = {way: [] for way in ways}
    for turn in range(args.turns):
        for way, (program, more) in ways.items():
            alone = images_per_s(args, program, more)
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
            try:
                beside = images_per_s(args, program, more)
            finally:
                for p in busy:
                    p.kill()
                    p.wait()
            ratios[way].append(beside / alone)
            alone_of[way].append(alone)
            print(f"turn {turn + 1}, {way}: {alone:.1f} images/s alone, {beside:.1f} beside {args.busy} busy: {beside / alone:.2f}", flush=True)
    for way, r in ratios.items():
        print(f"{way}: {statistics.median(r):.2f} of its quiet speed ({min(r):.2f} to {max(r):.2f}), which is {statistics.median(alone_of[way]):.0f} images/s")


if __name__ == "__main__":
    main()
