#!/usr/bin/env python3
"""The time to the first token of a prompt on two ranks: Kraken, its rivals, and one rank, at equal parameters.

Usage: tests/bench/kraken_ttft.py DIR [--tokens=128,512] [--like=gpt2] [--iterations=15] [--rounds=3] [--precision=F32]

LAUNCH starts two ranks (mpirun -np 2; "scripts/netns.sh run 2" for two pretended hosts, PIN=1 to keep each on a core), ONE one
rank (nothing; "scripts/netns.sh run 1"), CORTADO names the program; a rank has one thread. DIR gets the nets.
A prompt needs the scores of its last token alone, so the head counts for nothing: the nets have 128 tokens. What is timed is a pass of
one sequence (cortado bench serve), waits for the other rank included. Rounds take the kinds in turn; printed are the medians of
all rounds in milliseconds, and their ratios to the standard net's and to one rank's. --keep prints each round.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = ("standard", "parallel", "ladder", "kraken")


def make(kind, tokens, args):
    folder = os.path.join(args.dir, f"{kind}_{tokens}")
    command = [sys.executable, os.path.join(ROOT, "scripts", "nets", "kraken.py"), f"--kind={kind}", f"--like={args.like}", f"--to={folder}",
               f"--seq_len={tokens}", "--batch=1", "--tokens=128", "--ranks=2"]
    if kind == "kraken":
        command += ["--ways=2"]
    subprocess.run(command, check=True)
    return folder


def measure(folder, launch, divided, args):
    """The median of a pass, in milliseconds."""
    program = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
    tokens = folder.rsplit("_", 1)[1]
    out = os.path.join(folder, "serve.json")
    command = [*launch.split(), program, "bench", "serve", f"--model={os.path.join(folder, 'deploy.prototxt')}", f"--shapes=1x{tokens}",
               f"--repeat={args.iterations}", f"--json={out}", f"--precision={args.precision}", "--threads=1", "--log=error"]
    if divided:
        command.append(f"--parallel={os.path.join(folder, 'deploy_parallel.prototxt')}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    with open(out) as f:
        return json.loads(f.readline())["ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--tokens", default="128,512")
    parser.add_argument("--like", default="gpt2")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="F32")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.dir = os.path.abspath(args.dir)
    launch, one = os.environ.get("LAUNCH", "mpirun -np 2"), os.environ.get("ONE", "")
    print("| tokens | kind | ms | to standard | to one rank |\n|---|---|---|---|---|")
    for tokens in map(int, args.tokens.split(",")):
        folder = {k: make(k, tokens, args) for k in KINDS}
        ms = {k: [] for k in (*KINDS, "one rank")}
        for _ in range(args.rounds):
            ms["one rank"].append(measure(folder["standard"], one, False, args))
            for k in KINDS:
                ms[k].append(measure(folder[k], launch, True, args))
            if args.keep:
                print({k: round(v[-1], 2) for k, v in ms.items()}, file=sys.stderr)
        middle = {k: statistics.median(v) for k, v in ms.items()}
        for k, v in middle.items():
            print(f"| {tokens} | {k} | {v:.1f} | {v / middle['standard']:.3f} | {v / middle['one rank']:.3f} |")


main()
