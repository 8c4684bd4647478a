"""What tests/long/plans.sh runs: prints "ok NAME" or "not ok NAME", and the figures behind it."""
import array
import json
import os
import re
import subprocess
import sys
import zipfile

CORTADO, ROOT, WORK = sys.argv[1:4]
JOB = [os.environ["MPIRUN"], *os.environ["MPIRUN_FLAGS"].split()]
BATCH = 12


def write(name, text):
    with open(f"{WORK}/{name}", "w", encoding="utf-8") as f:
        f.write(text)


def run(*words):
    environment = dict(os.environ, OMP_NUM_THREADS="1", CORTADO_OVERWRITE="true")
    done = subprocess.run(words, cwd=WORK, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2500:]}")


# ---- nets

def model(name, channels, size):
    """A model's layers on the made-up digits, brought to its shape."""
    with open(f"{ROOT}/models/{name}/train_val.prototxt", encoding="utf-8") as f:
        parts = re.split(r"(?m)^(?=layer )", f.read())
    layers = [p for p in parts[1:] if 'type: "Data"' not in p and "accuracy_top5" not in p]
    front = ""
    for phase, source in (("TRAIN", "train"), ("TEST", "test")):
        front += (f'layer {{ name: "in" type: "Data" top: "digits" top: "label" include {{ phase: {phase} }}\n'
                  f"  transform_param {{ scale: 0.00390625 }}\n"
                  f'  data_param {{ source: "data/{source}_lmdb" backend: LMDB batch_size: {BATCH} }} }}\n')
    wide = '"digits" bottom: "digits" bottom: "digits"' if channels == 3 else '"digits"'
    front += f'layer {{ name: "wide" type: "Concat" bottom: {wide} top: "wide" }}\n' if channels == 3 else ""
    front += (f'layer {{ name: "scaled" type: "Interp" bottom: "{"wide" if channels == 3 else "digits"}" top: "data"\n'
              f"  interp_param {{ height: {size} width: {size} }} }}\n")
    return front + "".join(layers)


def small(text):
    return text.replace("num_output: 4096", "num_output: 96").replace("num_output: 1000", "num_output: 10").replace(
        "std: 0.005 ", "std: 0.03 ").replace("std: 0.01 ", "std: 0.03 ")


def gpt():
    def data(phase):
        return (f'layer {{ name: "in" type: "TokenData" top: "tokens" top: "next" include {{ phase: {phase} }}\n'
                f'  token_data_param {{ source: "text.bin" batch_size: {BATCH} seq_len: 16 vocabulary: 31 }} }}\n')
    with open(f"{ROOT}/models/gpt_char/train_val.prototxt", encoding="utf-8") as f:
        text = f.read()
    text = text[text.index('layer { name: "wte"'):]
    for old, new in (("384", "24"), ("1152", "72"), ("1536", "49"), ("count: 6", "count: 4"), ("128", "31"),
                     ("max_length: 256", "max_length: 16"), ("std: 0.02", "std: 0.2")):
        text = text.replace(old, new)
    return data("TRAIN") + data("TEST") + text


# ---- plans: of each net the layers of the first half, its ends, and what is split how

def entries(splits):
    return "".join(f'layer {{ name: "{name}" split: {split} }}\n' for split, names in splits.items() for name in names)


def ranks(first, n):
    return " ".join(f"rank: {r}" for r in range(first, first + n))


def plans(net):
    a, b = f'first: "{net["first"]}" last: "{net["cut"]}"', f'first: "{net["then"]}" last: "loss"'
    whole, low, high = f'first: "{net["first"]}" last: "loss"', entries(net["low"]), entries(net["high"])
    again = f'again {{ first: "{net["first"]}" last: "{net["cut"]}" }}'
    one = lambda n, more: f"stage {{ {whole} {ranks(0, n)} {more} }}"
    two = lambda n, m, x, y: f"stage {{ {a} {ranks(0, n)} {x} }}\nstage {{ {b} {ranks(n, m)} {y} }}"
    return {
        "shares": (2, 1, one(2, "share: 7 share: 5")),
        "split": (2, 1, one(2, f"tensor: 2 {low} {high}")),
        "half split": (3, 1, one(3, f"tensor: 3 {entries(net['high3'])}")),
        "replicas": (4, 1, one(4, f"tensor: 2 share: 7 share: 5 {low} {high}")),
        "stages": (2, 1, two(1, 1, "", "")),
        "pipeline": (2, 4, two(1, 1, again, "")),
        "uneven stages": (3, 2, two(2, 1, "share: 4 share: 2", "")),
        "all": (4, 2, two(2, 2, f"tensor: 2 {low} {again}", f"tensor: 2 {high}")),
    }


LENET = {"text": lambda: model("lenet", 1, 28), "first": "scaled", "cut": "pool2", "then": "ip1",
         "low": {"OUTPUT": ["conv1"], "INPUT": ["conv2"]}, "high": {"OUTPUT": ["ip1"], "INPUT": ["ip2"]},
         "high3": {"OUTPUT": ["ip1"]}, "rate": 0.02, "weights": 8}
QUICK = {"text": lambda: model("quick", 3, 32), "first": "wide", "cut": "pool2", "then": "conv3",
         "low": {"OUTPUT": ["conv1"], "INPUT": ["conv2"]}, "high": {"OUTPUT": ["conv3"], "INPUT": ["ip1"]},
         "high3": {"INPUT": ["ip1"], "OUTPUT": ["ip2", "loss"]}, "rate": 0.01, "weights": 10}
ALEX = {"text": lambda: small(model("alexnet", 3, 67)), "first": "wide", "cut": "pool2", "then": "conv3",
        "low": {"OUTPUT": ["conv1"]}, "high": {"OUTPUT": ["conv3", "fc6", "fc8", "loss"], "INPUT": ["fc7"]},
        "high3": {"OUTPUT": ["fc6"], "INPUT": ["fc7"]}, "rate": 0.002, "weights": 16}
BLOCK = lambda k: {"OUTPUT": [f"h{k}_attn_qkv", f"h{k}_fc"], "HEADS": [f"h{k}_attn"],
                   "INPUT": [f"h{k}_attn_proj", f"h{k}_proj"]}
JOIN = lambda *parts: {s: [n for p in parts for n in p.get(s, [])] for s in ("OUTPUT", "INPUT", "HEADS", "REPLICATE")}
ENDS = {"INPUT": ["wte"], "REPLICATE": ["in", "wpe"]}
GPT = {"text": gpt, "first": "wte", "cut": "h1_sum2", "then": "h2_ln1",
       "low": JOIN(BLOCK(0), BLOCK(1), ENDS), "high": JOIN(BLOCK(2), BLOCK(3), {"OUTPUT": ["head", "loss"]}),
       "high3": JOIN(BLOCK(0), BLOCK(3)), "rate": 0.1, "weights": 52}


# ---- figures

def train(net, where, steps, plan=None, micro=1, resume=None, rate=0.01):
    os.makedirs(f"{WORK}/{where}", exist_ok=True)
    write("solver", f'net: "{net}.prototxt" base_lr: {rate} lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005\n'
          f"max_iter: {steps} display: 1 random_seed: 3 solver_mode: CPU test_iter: 10 test_interval: {steps}\n"
          f'snapshot_prefix: "{where}/s" test_initialization: false global_batch_size: {BATCH}')
    options = ["--metrics=m.jsonl"]
    if plan is None:
        options += [f"--global_batch_size={BATCH // micro}", "--set", f"iter_size={micro}"]
    else:
        write("plan", f"ranks: {plan[0]} global_batch: {BATCH} micro_batches: {micro}\n{plan[2]}\n")
        options += ["--parallel=plan"]
    if resume is not None:
        options += [f"--snapshot={resume}/s_iter_{steps - 20}.solverstate.h5"]
    if os.path.exists(f"{WORK}/m.jsonl"):
        os.remove(f"{WORK}/m.jsonl")
    run(*(JOB + ["-np", str(plan[0])] if plan else []), CORTADO, "train", "--solver=solver", *options)
    with open(f"{WORK}/m.jsonl", encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    losses = [e["loss"] for e in events if e["event"] == "train"]
    tests = [e for e in events if e["event"] == "test"]
    return losses, tests[-1] if tests else None


def tensors(where, steps):
    run(CORTADO, "convert", "model", f"--from={where}/s_iter_{steps}.caffemodel.h5", "--to=w.npz", "--force")
    with zipfile.ZipFile(f"{WORK}/w.npz") as z:
        out = {}
        for name in z.namelist():
            data = z.read(name)
            out[name] = array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])
        return out


def difference(a, b):
    """The largest of a tensor, over its largest value, of all tensors."""
    assert a.keys() == b.keys()
    worst = 0.0
    for name, x in a.items():
        most = max(map(abs, x)) or 1.0
        worst = max(worst, max(abs(p - q) for p, q in zip(x, b[name])) / most)
    return worst


def judge(name, what, value, limit):
    print(f"{'ok' if value <= limit else 'not ok'} {name} {what}: {value:.2g} (limit {limit:g})", flush=True)


def accuracy(test):
    return float(test["outputs"].get("accuracy", 0))


def compare(label, net):
    write(f"{label}.prototxt", net["text"]())
    rate, reference = net["rate"], {}
    for micro in (1, 2, 4):
        first, _ = train(label, f"{label}_one{micro}_1", 1, micro=micro, rate=rate)
        losses, test = train(label, f"{label}_one{micro}", 50, micro=micro, rate=rate)
        reference[micro] = (first[0], tensors(f"{label}_one{micro}_1", 1), losses[-1], test)
    assert len(reference[1][1]) == net["weights"], (label, sorted(reference[1][1]))
    before = {}
    for name, plan in plans(net).items():
        what, micro = f"{label} {name}".replace(" ", "_"), plan[1]
        loss, weights, last, test = reference[micro]
        first, _ = train(label, f"{what}_1", 1, plan, micro, rate=rate)
        judge(what, "first loss", abs(first[0] - loss), 1e-6 * max(1, loss))
        judge(what, "weights after a step", difference(weights, tensors(f"{what}_1", 1)), 1e-5)
        losses, mine = train(label, what, 50, plan, micro, rate=rate)
        judge(what, "loss after 50 steps", abs(losses[-1] - last) / last, 1e-3)
        judge(what, "accuracy after 50 steps", abs(accuracy(mine) - accuracy(test)), 0.002)
        other = before.get(micro)
        if other is not None:  # twenty steps more from what another file left: by this one, by one rank
            train(label, what, 70, plan, micro, rate=rate, resume=other)
            train(label, f"{what}_after", 70, micro=micro, rate=rate, resume=other)
            judge(what, f"weights 20 steps after {other}",
                  difference(tensors(f"{what}_after", 70), tensors(what, 70)), 1e-3)
        before[micro] = what


def main():
    run(CORTADO, "convert", "digits", "--to=data", "--count=2000", "--seed=3")
    words = "the cat sat on a mat and ran off with hat".split()
    write("text.txt", " ".join(words[(i * i * 7 + i) % 11] for i in range(6000)) + "\n")
    run(CORTADO, "convert", "text", "--from=text.txt", "--tokenizer=char", "--to=text.bin")
    nets = {"lenet": LENET, "quick": QUICK, "alexnet": ALEX, "gpt": GPT}
    for label in sys.argv[4:] or nets:
        try:
            compare(label, nets[label])
        except (RuntimeError, AssertionError) as error:
            print(f"not ok {label}\n    {error}", flush=True)


main()
