#!/usr/bin/env python3
"""Sizes of GPTs on described machines: which setting fits, by cortado plan and check. Modelled: nothing is run.

Prints the tables of docs/memory.md, "How large a model fits"; a minute or two. Fails where a size that fits does
not fit with more room.
  tests/bench/largest.py [CORTADO] [--gpus]      --gpus: without CPUs
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = next((a for a in sys.argv[1:] if a != "--gpus"), os.path.join(ROOT, "cortado"))
NET = open(os.path.join(ROOT, "tests/bench/nets/gpt_4096.prototxt")).read()
# name, blocks, width, heads. GPT-2's are Radford et al. 2019; 6.7 and 13 B Brown et al. 2020, table 2.1 (13 B with
# the width 5120 that its heads need); 66 B Zhang et al. 2022 (OPT), table 1; 25 B has the width of gpt_4096
SIZES = (("124 M", 12, 768, 12), ("355 M", 24, 1024, 16), ("774 M", 36, 1280, 20), ("1.56 B", 48, 1600, 25),
         ("6.7 B", 32, 4096, 32), ("13 B", 40, 5120, 40), ("25 B", 124, 4096, 32), ("66 B", 64, 9216, 72),
         ("175 B", 96, 12288, 96))
GPU_NODES = (("8 x V100 32 GB, 240 GB", "v100_8"),
             ("8 x A100 80 GB, 1 TiB", os.path.join(ROOT, "tests/bench/a100_8.prototxt")))
GIB = 2**30
CPU_NODES = (("16 GiB, disk", 16), ("256 GiB, disk", 256))
USABLE = 0.9
SOLVER = ('net: "net.prototxt" type: "Adam" base_lr: 0.0001 momentum: 0.9 momentum2: 0.95 lr_policy: "fixed" '
          'max_iter: 1 memory { }')


def net(blocks, width, heads, batch):
    text = NET.replace("num_heads: 32", f"num_heads: {heads}").replace("batch_size: 8", f"batch_size: {batch}")
    for many in (4, 3, 1):
        text = re.sub(rf"num_output: {many * 4096}\b", f"num_output: {many}W", text)
    text = re.sub(r"num_output: (\d)W", lambda m: f"num_output: {int(m[1]) * width}", text)
    return re.sub(r"count: \d+", f"count: {blocks}", text)


def answer(*command):
    """The JSON, or None where it does not fit (exit code 2 and one line that says so)."""
    run = subprocess.run([CORTADO, *command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode == 2 and ("does not fit" in run.stderr or ": the least is " in run.stderr):
        return None
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return json.loads(run.stdout)


def gib(n):
    return f"{n / GIB:.0f}" if n >= 10 * GIB else f"{n / GIB:.1f}"


def tier(memory, name):
    return next((t for t in memory["tiers"] if t["tier"] == name), None)


def on_gpus(machine):
    """A row's cell: where the state lies, and a step's seconds."""
    for tiers in ("device,host", "device,host,file"):
        n = answer("plan", "--solver=solver.prototxt", f"--machine={machine}", f"--tiers={tiers}",
                   "--set=precision=BF16")
        if n is not None:
            break
    else:
        return None
    chunks, memory = n["chunks"], n["ranks"][0]["memory"]
    shares = [f"{100 * chunks[t] / sum(chunks.values()):.0f} % {t}" for t in ("device", "host", "file") if chunks[t]]
    device = tier(memory, "device")
    return f"{', '.join(shares)}; {gib(device['sum'])} GiB a GPU; {n['step_s']:.3g} s"


def on_cpu(room):
    """A row's cell: the setting that puts least into files, then the one that makes nothing again."""
    best, least = None, None
    for recompute, again in (("NEVER", ""), ("BLOCKS", ", blocks made again")):
        n = answer("check", "--solver=solver.prototxt", "--phase=TRAIN", f"--set=recompute={recompute}",
                   f"--set=memory.limit_mb={room * 1024 * USABLE:.0f}")
        if n is None:
            continue
        host, file = tier(n["memory"], "host"), tier(n["memory"], "file")
        files = [use for use in ("weights", "states") if file and file[use]]
        if least is not None and len(files) >= least:
            continue
        least = len(files)
        where = f"{' and '.join(files)} in files ({gib(file['sum'])} GiB)" if files else "all in memory"
        best = f"{where}{again}; {gib(host['sum'])} GiB"
    return best


def table(title, nodes, batch, cell):
    print(f"\n{title}\n\n| parameters | " + " | ".join(name for name, _ in nodes) + " |")
    print("|---" * (len(nodes) + 1) + "|")
    for name, blocks, width, heads in SIZES:
        open("net.prototxt", "w").write(net(blocks, width, heads, batch))
        cells = [cell(room) for _, room in nodes]
        print(f"| {name} | " + " | ".join(c or "no" for c in cells) + " |", flush=True)
        for (_, a), (_, b), x, y in zip(nodes, nodes[1:], cells, cells[1:]):
            if x and not y:
                sys.exit(f"{name} fits {a}, but not {b}")


def largest(*options):
    n = answer("plan", "--model=" + os.path.join(ROOT, "tests/bench/nets/gpt_4096.prototxt"), "--machine=v100_8",
               "--largest=layers", *options)["largest"]
    print(f"| {' '.join(options) or '(none)'} | {n['count']} | {n['parameters'] * 1e-9:.2f} |", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        open("solver.prototxt", "w").write(SOLVER)
        print("| options | copies | 10^9 parameters |\n|---|---|---|")
        published = ("--state_bytes=14", "--usable=0.8", "--attention=reference")
        for options in ((), ("--set=precision=F32",), published, (*published, "--set=precision=F32")):
            largest(*options)
        table("GPUs, 8 sequences each", GPU_NODES, 8, on_gpus)
        if "--gpus" not in sys.argv:
            table("CPUs, 1 sequence", CPU_NODES, 1, on_cpu)


if __name__ == "__main__":
    main()
