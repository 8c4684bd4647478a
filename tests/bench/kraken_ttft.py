#!/usr/bin/env python3
"""The time to the first token of a prompt on two ranks: Kraken, its rivals, and one rank, at equal parameters.

Usage: tests/bench/kraken_ttft.py DIR [--tokens=128,512] [--like=gpt2] [--iterations=15] [--rounds=3] [--precision=F32] [--kinds=standard,kraken]

LAUNCH starts two ranks (mpirun -np 2; "scripts/netns.sh run 2" for two pretended hosts, PIN=1 to keep each on a core), ONE one
rank (nothing; "scripts/netns.sh run 1"), CORTADO names the program; a rank has one thread. DIR gets the nets.
A prompt needs the scores of its last token alone, so the head counts for nothing: the nets have 128 tokens. What is timed is a pass of
one sequence (cortado bench serve --rows=LAST), waits for the other rank included. Rounds take the kinds in turn; printed are the medians
of all rounds in milliseconds, and their ratios to the standard net's and to one rank's. --keep prints each round.

From the traces of both ranks come: attention, the median of these layers in milliseconds; sum, what one takes alone, by
`bench comm --algorithm=transfer` with its bytes; hidden, the mean over all sums of 1 - (begin + wait) / (from begin to the end of wait).
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


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done


def measure(folder, launch, divided, args):
    """The median of a pass in milliseconds, and the file of the trace of its first passes."""
    program = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
    tokens = folder.rsplit("_", 1)[1]
    out, trace = os.path.join(folder, "serve.json"), os.path.join(folder, "trace.json")
    command = [*launch.split(), program, "bench", "serve", f"--model={os.path.join(folder, 'deploy.prototxt')}", f"--shapes=1x{tokens}",
               f"--repeat={args.iterations}", f"--json={out}", f"--precision={args.precision}", "--threads=1", "--log=error",
               "--rows=LAST"]
    if divided:
        command += [f"--parallel={os.path.join(folder, 'deploy_parallel.prototxt')}", f"--trace={trace}", "--trace_iterations=0-1"]
    run(command)
    with open(out) as f:
        return json.loads(f.readline())["ms"], trace


def spans_of(trace):
    """Of each rank and pass its spans, in order."""
    with open(trace) as f:
        spans = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    passes = {}
    for e in sorted(spans, key=lambda e: e["ts"]):
        passes.setdefault((e["pid"], e["args"]["iteration"]), []).append(e)
    return passes


def look_at(trace):
    """The median of attention in milliseconds, the bytes of a sum, and the mean share of a sum that is hidden."""
    attention, size, hidden = [], 0, []
    for spans in spans_of(trace).values():
        begun = {}
        for e in spans:
            kind = e["args"]["kind"]
            if e["args"].get("type") == "Attention":
                attention.append(1e-3 * e["dur"])
            elif kind == "begin sum":
                begun[e["name"]] = e
                size = max(size, e["args"]["bytes"])
            elif kind == "wait for sum":
                begin = begun.pop(e["name"])
                hidden.append(1 - (begin["dur"] + e["dur"]) / (e["ts"] + e["dur"] - begin["ts"]))
    return statistics.median(attention), size, statistics.mean(hidden)


def sum_alone(size, launch):
    """Milliseconds."""
    program = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
    done = run([*launch.split(), program, "bench", "comm", f"--sizes={size}", "--algorithm=transfer", "--repeat=50", "--threads=1",
                "--log=error", "--json"])
    return 1e-3 * json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["us"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--tokens", default="128,512")
    parser.add_argument("--like", default="gpt2")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the standard net is always there")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="F32")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    args.dir = os.path.abspath(args.dir)
    kinds = [k for k in KINDS if k in ("standard", *args.kinds.split(","))]
    launch, one = os.environ.get("LAUNCH", "mpirun -np 2"), os.environ.get("ONE", "")
    print("| tokens | kind | ms | to standard | to one rank | times one rank | attention | sum | hidden |\n|---|---|---|---|---|---|---|---|---|")
    for tokens in map(int, args.tokens.split(",")):
        folder = {k: make(k, tokens, args) for k in kinds}
        ms, seen = {k: [] for k in (*kinds, "one rank")}, {k: [] for k in kinds}
        for _ in range(args.rounds):
            ms["one rank"].append(measure(folder["standard"], one, False, args)[0])
            for k in kinds:
                time, trace = measure(folder[k], launch, True, args)
                ms[k].append(time)
                seen[k].append(look_at(trace))
            if args.keep:
                print({k: round(v[-1], 2) for k, v in ms.items()}, file=sys.stderr)
        middle = {k: statistics.median(v) for k, v in ms.items()}
        for k, v in middle.items():
            row = f"| {tokens} | {k} | {v:.1f} | {v / middle['standard']:.3f} | {v / middle['one rank']:.3f} | {middle['one rank'] / v:.2f} |"
            if k in seen:
                attention, size, hidden = (statistics.median(x) for x in zip(*seen[k]))
                row += f" {attention:.2f} | {sum_alone(int(size), launch):.2f} | {hidden:.2f} |"
            print(row, flush=True)


main()
