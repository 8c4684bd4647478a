#!/usr/bin/env python3
"""Where sums that hide pay: the time to the first token on nodes of a described machine, modelled and simulated.

Usage: tests/bench/kraken_study.py DIR --machine=M [--limits=GFLOPS,GBS] [--nodes=2,4,8] [--tokens=128,512,2048] [--like=gpt2]

Each node has one rank. Nets are those of scripts/nets/kraken.py at equal parameters, Kraken with a way on each rank. `cortado check
--parallel --phase=TEST` says what their ranks compute (operations or bytes at --limits of a node, whichever takes longer) and what
sums take; `cortado simulate --pass` sends the real program's messages in simulated time. A prompt needs the scores of its last
token alone, so the head counts for nothing: the nets have 128 tokens. CORTADO names the program. DIR gets the nets, the lists
of steps and the results. Printed: milliseconds, simulated / modelled, and how much of the sums hides by the model.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = ("standard", "parallel", "ladder", "kraken")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def make(kind, nodes, tokens, args):
    folder = os.path.join(args.dir, f"{kind}_{nodes}_{tokens}")
    run([sys.executable, os.path.join(ROOT, "scripts", "nets", "kraken.py"), f"--kind={kind}", f"--like={args.like}", f"--to={folder}",
         f"--seq_len={tokens}", "--batch=1", "--tokens=128", f"--ranks={nodes}", *([f"--ways={nodes}"] if kind == "kraken" else [])])
    return folder


def study(folder, nodes, args):
    """What check says, and the mean of the simulated forwards in milliseconds."""
    program = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
    steps, result = os.path.join(folder, "forward.json"), os.path.join(folder, "simulated.json")
    run([program, "check", f"--model={folder}/deploy.prototxt", f"--parallel={folder}/deploy_parallel.prototxt", "--phase=TEST",
         f"--machine={args.machine}", f"--limits={args.limits}", f"--json={steps}", "--log=error"])
    run([program, "simulate", f"--machine={args.machine}", f"--nodes={nodes}", f"--pass={steps}", f"--json={result}"])
    with open(steps) as f, open(result) as g:
        return json.load(f), json.load(g)["mean_forward_ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--limits", default="6000,400")
    parser.add_argument("--nodes", default="2,4,8")
    parser.add_argument("--tokens", default="128,512,2048")
    parser.add_argument("--like", default="gpt2")
    args = parser.parse_args()
    args.dir = os.path.abspath(args.dir)
    print("| nodes | tokens | one node | " + " | ".join(KINDS) + " |\n|" + "---|" * (3 + len(KINDS)))
    for nodes in map(int, args.nodes.split(",")):
        for tokens in map(int, args.tokens.split(",")):
            cells = []
            for kind in KINDS:
                m, simulated = study(make(kind, nodes, tokens, args), nodes, args)
                hidden = 1 - m["exposed_s"] / m["transfer_s"] if m["transfer_s"] > 0 else 0
                if not cells:
                    cells.append(f"{1e3 * m['one_rank_s']:.2f}")
                cells.append(f"{simulated:.2f} / {1e3 * m['forward_s']:.2f}, {hidden:.0%}")
            print(f"| {nodes} | {tokens} | " + " | ".join(cells) + " |", flush=True)


main()
