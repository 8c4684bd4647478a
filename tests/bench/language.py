#!/usr/bin/env python3
"""Training steps of language models beside PyTorch's, in alternating runs: time, ratio, memory.

Usage: tests/bench/language.py [--pairs=5] [--steps=5] [--runs=gpt2:1:f32,gpt2:1:bf16,char:16:f32,char:16:bf16]

A run is NET:BATCH:PRECISION. CORTADO names the program, TORCH a Python with PyTorch, THREADS how many threads
both take (2). In each pair `cortado train` on models/gpt2 or models/gpt_char, PyTorch eager and PyTorch compiled
make the same steps on random tokens: forward, backward, clipping to 1, AdamW (fused there). A process's figure is
the median of its steps without the first two. Printed are the medians of the pairs, the ratio of the better of
PyTorch's two to Cortado's with its least and largest pair, and the largest resident memory of a process.
"""
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NETS = {"gpt2": ("gpt2", 12, 12, 768, 50257, 1024), "char": ("gpt_char", 6, 6, 384, 128, 256)}


def peer(net, batch, precision, compiled, steps):
    """PyTorch's side: prints the milliseconds of each step."""
    import contextlib
    import time

    import torch
    from torch_gpt import Model

    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    _, layers, heads, width, words, length = NETS[net]
    torch.manual_seed(1)
    model = Model(layers, heads, width, words, length)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.02)
    rule = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if compiled else model
    tokens = torch.randint(0, words, (batch, length + 1))
    for _ in range(steps):
        start = time.perf_counter()
        cast = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with cast:
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        rule.zero_grad(set_to_none=True)
        loss.item()
        print((time.perf_counter() - start) * 1e3, flush=True)


def run(command, where, threads):
    """The output, and the most resident memory in GB."""
    environment = dict(os.environ, OMP_NUM_THREADS=threads, THREADS=threads)
    with open(f"{where}/said", "w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, cwd=where, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        said.seek(0)
        text = said.read()
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}:\n{text[-2000:]}")
    return text, usage.ru_maxrss * 1024 / 1e9


def prepare(net, batch, precision, steps, where):
    name, _, _, _, words, length = NETS[net]
    with open(f"{ROOT}/models/{name}/train_val.prototxt", encoding="utf-8") as f:
        text = re.sub(r' tokenizer: "[^"]*"', "", re.sub(r"data/\w+/\w+\.bin", "tokens.bin", f.read()))
    with open(f"{where}/net.prototxt", "w", encoding="utf-8") as f:
        f.write(re.sub(r"batch_size: \d+", f"batch_size: {batch}", text))
    random.seed(1)
    with open(f"{where}/tokens.bin", "wb") as f:
        for _ in range((steps + 2) * batch * length):
            f.write(random.randrange(words).to_bytes(2, "little"))
    with open(f"{where}/solver.prototxt", "w", encoding="utf-8") as f:
        f.write(f'net: "net.prototxt" type: "AdamW" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 momentum2: 0.95 '
                f"weight_decay: 0.1 clip_gradients: 1 max_iter: {steps} display: 1 snapshot_after_train: false "
                f'test_interval: 0 precision: {precision.upper()} solver_mode: CPU random_seed: 1')


def ours(batch, length, where, threads):
    cortado = os.path.abspath(os.environ.get("CORTADO", f"{ROOT}/cortado"))
    _, memory = run([cortado, "train", "--solver=solver.prototxt", "--metrics=m.jsonl", "--overwrite"], where, threads)
    with open(f"{where}/m.jsonl", encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    os.remove(f"{where}/m.jsonl")
    steps = [batch * length / e["tokens_per_s"] * 1e3 for e in events if e["event"] == "train"]
    return statistics.median(steps[2:]), memory


def theirs(net, batch, precision, compiled, steps, where, threads):
    python = os.environ.get("TORCH", sys.executable)
    text, memory = run([python, os.path.abspath(__file__), "peer", net, str(batch), precision, str(int(compiled)),
                        str(steps)], where, threads)
    times = [float(line) for line in text.split("\n") if re.fullmatch(r"[\d.]+", line)]
    return statistics.median(times[2:]), memory


def compare(net, batch, precision, pairs, steps):
    threads = os.environ.get("THREADS", "2")
    rows = []
    with tempfile.TemporaryDirectory() as where:
        prepare(net, batch, precision, steps, where)
        for _ in range(pairs):
            rows.append([ours(batch, NETS[net][5], where, threads)] +
                        [theirs(net, batch, precision, compiled, steps, where, threads) for compiled in (False, True)])
    time = [statistics.median(r[i][0] for r in rows) for i in range(3)]
    memory = [max(r[i][1] for r in rows) for i in range(3)]
    ratios = sorted(min(r[1][0], r[2][0]) / r[0][0] for r in rows)
    print(f"{net} B{batch} {precision}: Cortado {time[0]:.0f} ms, {memory[0]:.2f} GB; PyTorch eager {time[1]:.0f} ms, "
          f"{memory[1]:.2f} GB; compiled {time[2]:.0f} ms, {memory[2]:.2f} GB; better / ours "
          f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, {pairs} pairs)", flush=True)


def main():
    if sys.argv[1:2] == ["peer"]:
        peer(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5] == "1", int(sys.argv[6]))
        return
    options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
    for one in options.get("runs", "gpt2:1:f32,gpt2:1:bf16,char:16:f32,char:16:bf16").split(","):
        net, batch, precision = one.split(":")
        compare(net, int(batch), precision, int(options.get("pairs", "5")), int(options.get("steps", "5")))


main()
