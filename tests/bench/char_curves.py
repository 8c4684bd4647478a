#!/usr/bin/env python3
"""The loss of models/gpt_char on a text after some hundred steps, beside PyTorch's with the same recipe.

Usage: tests/bench/char_curves.py DIR [--seeds=3] [--steps=500] [--results=FILE]

DIR holds the text's parts, *train*.txt and *valid*.txt. CORTADO names the program, TORCH a Python with PyTorch,
THREADS how many threads both take (2). Both sides have the net, fillers, AdamW, warm-up, cosine, clipping and decay
of models/gpt_char with max_iter = steps, and see each window of 256 characters at most once an epoch, in an order of
their own. Each run ends with the mean loss over the windows of the validation text, the last incomplete batch
dropped. Runs whose result stands in FILE (a JSON line each) are not made again. Printed are the losses, and the
mean difference with the 95 % interval of Student's t over the seeds: within 0.02, worse, or not shown.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

from paired import interval

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAYERS, HEADS, WIDTH, WORDS, LENGTH, BATCH, AIM = 6, 6, 384, 128, 256, 16, 0.02


def fill(model, init):
    """As the fillers of models/gpt_char."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            init.normal_(weight, 0, 0.005774 if name.endswith(("out.weight", "narrow.weight")) else 0.02)
        elif name.endswith("bias"):
            init.zeros_(weight)


def peer(where, seed, steps):
    """PyTorch's side: prints the loss of some steps, and that of the validation text last."""
    import array

    import torch
    from torch_gpt import Model

    def tokens(part):
        numbers = array.array("H")
        with open(f"{where}/{part}.bin", "rb") as f:
            numbers.frombytes(f.read())
        return torch.tensor(numbers, dtype=torch.long)

    def batch_of(data, windows):
        rows = torch.stack([data[w * LENGTH:w * LENGTH + LENGTH + 1] for w in windows])
        return rows[:, :-1], rows[:, 1:]

    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    torch.manual_seed(seed)
    model = Model(LAYERS, HEADS, WIDTH, WORDS, LENGTH)
    fill(model, torch.nn.init)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == many], "weight_decay": decay}
              for many, decay in ((True, 0.1), (False, 0.0))]
    rule = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, fused=True)
    train, valid = tokens("train"), tokens("valid")
    windows = (len(train) - 1) // LENGTH
    order = torch.randperm(windows).tolist()
    for step in range(steps):
        done = max(step - 100, 0) / (steps - 100)
        rate = 1e-3 * step / 100 if step < 100 else 1e-4 + 9e-4 * 0.5 * (1 + math.cos(math.pi * done))
        for group in rule.param_groups:
            group["lr"] = rate
        while len(order) < BATCH:
            order += torch.randperm(windows).tolist()
        loss = model(*batch_of(train, order[:BATCH]))
        order = order[BATCH:]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        rule.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, loss.item(), flush=True)
    batches = (len(valid) - 1) // LENGTH // BATCH
    with torch.no_grad():
        losses = [model(*batch_of(valid, range(i * BATCH, i * BATCH + BATCH))).item() for i in range(batches)]
    print("valid", sum(losses) / batches, batches)


def run(command, where):
    environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("THREADS", "2"))
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def cortado():
    return os.path.abspath(os.environ.get("CORTADO", f"{ROOT}/cortado"))


def ours(where, seed, steps):
    batches = (os.path.getsize(f"{where}/valid.bin") // 2 - 1) // LENGTH // BATCH
    with open(f"{ROOT}/models/gpt_char/solver.prototxt", encoding="utf-8") as f:
        text = f.read()
    for field, value in (("max_iter", steps), ("test_iter", batches), ("test_interval", steps)):
        text, n = re.subn(rf"(?m)^{field}: .*$", f"{field}: {value}", text)
        if n != 1:
            sys.exit(f"models/gpt_char/solver.prototxt: {field} stands there {n} times")
    text = re.sub(r"(?m)^snapshot.*\n", "", text)
    with open(f"{where}/solver.prototxt", "w", encoding="utf-8") as f:
        f.write(f"{text}random_seed: {seed}\ntest_initialization: false\nsnapshot_after_train: false\n")
    metrics = f"{where}/m{seed}.jsonl"
    run([cortado(), "train", "--solver=solver.prototxt", f"--metrics={metrics}", "--overwrite"], where)
    with open(metrics, encoding="utf-8") as f:
        tests = [e for e in map(json.loads, f) if e["event"] == "test"]
    if tests[-1]["iter"] != steps:
        sys.exit(f"the last test was at {tests[-1]['iteration']}, not after {steps} steps")
    return math.log(tests[-1]["perplexity"])


def theirs(where, seed, steps):
    python = os.environ.get("TORCH", sys.executable)
    said = run([python, os.path.abspath(__file__), "peer", where, str(seed), str(steps)], where)
    return float(re.search(r"(?m)^valid (\S+)", said).group(1))


def prepare(text, where):
    run([cortado(), "convert", "text", f"--from={text}", f"--to={where}", "--tokenizer=char"], where)
    with open(f"{ROOT}/models/gpt_char/train_val.prototxt", encoding="utf-8") as f:
        net = f.read().replace("data/warandpeace/", f"{where}/")
    with open(f"{where}/train_val.prototxt", "w", encoding="utf-8") as f:
        f.write(net)


def verdict(differences):
    mean, half = interval(differences)
    if len(differences) < 2:
        return f"difference {mean:+.4f}, one seed: not shown"
    word = "within" if abs(mean) + half <= AIM else "worse" if mean - half > AIM else "not shown"
    return f"difference {mean:+.4f} +- {half:.4f}: {word} ({AIM})"


def main():
    if sys.argv[1] == "peer":
        peer(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[2:])
    steps, results = int(options.get("steps", "500")), os.path.abspath(options.get("results", "char_curves.jsonl"))
    known = {}
    if os.path.exists(results):
        with open(results, encoding="utf-8") as f:
            known = {(r["side"], r["seed"], r["steps"]): r["loss"] for r in map(json.loads, f)}
    with tempfile.TemporaryDirectory() as where:
        prepare(os.path.abspath(sys.argv[1]), where)
        for seed in range(1, int(options.get("seeds", "3")) + 1):
            for side, make in (("cortado", ours), ("pytorch", theirs)):
                if (side, seed, steps) in known:
                    continue
                loss = known[side, seed, steps] = make(where, seed, steps)
                with open(results, "a", encoding="utf-8") as f:
                    f.write(json.dumps({"side": side, "seed": seed, "steps": steps, "loss": loss}) + "\n")
            ours_loss, their_loss = known["cortado", seed, steps], known["pytorch", seed, steps]
            print(f"seed {seed}: Cortado {ours_loss:.4f}, PyTorch {their_loss:.4f}", flush=True)
    print(verdict([known["cortado", s, steps] - known["pytorch", s, steps]
                   for s in range(1, int(options.get("seeds", "3")) + 1)]))


main()
