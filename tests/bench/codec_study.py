#!/usr/bin/env python3
"""What codecs do to a small GPT on characters with AdamW: its loss on a text it has not seen, over paired seeds.

Usage: tests/bench/codec_study.py TEXT WORK [--ranks=2] [--seeds=25] [--steps=600] [--limit=0.02] [--only=NAME,NAME] [--results=FILE]

TEXT is a folder with *train*.txt and *valid*.txt, WORK one for what is made of it. CORTADO names the program, MPIRUN
what starts ranks (mpirun --oversubscribe --bind-to none). A seed chooses weights and the order of windows, the same
for all columns; the baseline is BF16. Runs whose result stands in FILE (a JSON line each) are not made again.
Printed are, for each column, the mean difference to the baseline in nats a character, its 95 % interval by Student's t
over the seeds, and the verdict against --limit: within, worse, or not shown.
"""
import json
import os
import re
import shlex
import subprocess
import sys

from paired import interval, verdict

LAYERS, HEADS, WIDTH, LENGTH, BATCH = 2, 4, 64, 64, 16
NET = f"""
layer {{ name: "data" type: "TokenData" top: "tokens" top: "next" include {{ phase: TRAIN }}
  token_data_param {{ source: "set/train.bin" batch_size: {BATCH} seq_len: {LENGTH} vocabulary: 128 tokenizer: "set/tokenizer.json" }} }}
layer {{ name: "data" type: "TokenData" top: "tokens" top: "next" include {{ phase: TEST }}
  token_data_param {{ source: "set/valid.bin" batch_size: {BATCH} seq_len: {LENGTH} vocabulary: 128 tokenizer: "set/tokenizer.json" }} }}
layer {{ name: "wte" type: "Embed" bottom: "tokens" top: "wte" param {{ name: "wte" }}
  embed_param {{ input_dim: 128 num_output: {WIDTH} bias_term: false weight_filler {{ type: "gaussian" std: 0.02 }} }} }}
layer {{ name: "wpe" type: "Position" bottom: "wte" top: "x"
  position_param {{ max_length: {LENGTH} weight_filler {{ type: "gaussian" std: 0.02 }} }} }}
repeat {{ count: {LAYERS} prefix: "h%d_" bottom: "x" top: "x"
  layer {{ name: "ln1" type: "LayerNorm" bottom: "x" top: "ln1" }}
  layer {{ name: "qkv" type: "InnerProduct" bottom: "ln1" top: "qkv"
    inner_product_param {{ num_output: {3 * WIDTH} axis: 2 weight_filler {{ type: "gaussian" std: 0.02 }} }} }}
  layer {{ name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param {{ num_heads: {HEADS} causal: true }} }}
  layer {{ name: "out" type: "InnerProduct" bottom: "attn" top: "out"
    inner_product_param {{ num_output: {WIDTH} axis: 2 weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
  layer {{ name: "sum1" type: "Eltwise" bottom: "x" bottom: "out" top: "sum1" }}
  layer {{ name: "ln2" type: "LayerNorm" bottom: "sum1" top: "ln2" }}
  layer {{ name: "fc" type: "InnerProduct" bottom: "ln2" top: "fc"
    inner_product_param {{ num_output: {4 * WIDTH} axis: 2 weight_filler {{ type: "gaussian" std: 0.02 }} }} }}
  layer {{ name: "gelu" type: "GELU" bottom: "fc" top: "fc" gelu_param {{ approximate: TANH }} }}
  layer {{ name: "proj" type: "InnerProduct" bottom: "fc" top: "proj"
    inner_product_param {{ num_output: {WIDTH} axis: 2 weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
  layer {{ name: "sum2" type: "Eltwise" bottom: "sum1" bottom: "proj" top: "x" }}
}}
layer {{ name: "ln_f" type: "LayerNorm" bottom: "x" top: "ln_f" }}
layer {{ name: "head" type: "InnerProduct" bottom: "ln_f" top: "head" param {{ name: "wte" }}
  inner_product_param {{ num_output: 128 axis: 2 bias_term: false }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param {{ axis: 2 }} }}
"""
BASE = "bf16"


def columns(steps):
    """Names, and what each compresses by. All clip: by the norm of the sum, or of each gradient where that is none."""
    clip, small = "clip_gradients: 1", "min_bytes: 1024"
    return {
        BASE: f"{clip} compression {{ type: BF16 {small} }}",
        "dense": clip,
        "int8": f"{clip} compression {{ type: INT8 {small} }}",
        "int4": f"{clip} compression {{ type: INT4 {small} }}",
        "int4 ef": f"{clip} compression {{ type: INT4 error_feedback: true {small} }}",
        "topk 3 %": f"{clip} compression {{ type: TOPK density: 0.03 {small} }}",
        "bf16 local_clip": f"compression {{ type: BF16 local_clip: 1 {small} }}",
        "onebit plain": f"{clip} compression {{ type: ONEBIT freeze_variance: false warmup_iter: {steps // 6} {small} }}",
        "1-bit Adam": f"compression {{ type: ONEBIT local_clip: 1 warmup_iter: {steps // 6} {small} }}",
    }


def solver(seed, steps, more):
    return f"""net: "net.prototxt" type: "AdamW" base_lr: 0.003 lr_policy: "cosine" min_lr: 0.0003
warmup {{ iterations: {steps // 20} policy_after: true }} momentum: 0.9 momentum2: 0.99 weight_decay: 0.1 decay_rule: MATRICES
max_iter: {steps} random_seed: {seed} test_iter: 40 test_interval: {steps} test_initialization: false display: 0 snapshot: 0
snapshot_after_train: false solver_mode: CPU {more}
"""


class Study:
    def __init__(self, argv):
        words = [a for a in argv if not a.startswith("--")]
        given = dict(a[2:].split("=", 1) for a in argv if a.startswith("--"))
        if len(words) != 2 or set(given) - {"ranks", "seeds", "steps", "limit", "only", "results"}:
            sys.exit(__doc__)
        self.text, self.work = words
        self.ranks, self.seeds, self.steps = (int(given.get(k, d)) for k, d in (("ranks", 2), ("seeds", 25), ("steps", 600)))
        self.limit = float(given.get("limit", "0.02"))
        self.columns = columns(self.steps)
        self.only = given["only"].split(",") if "only" in given else [c for c in self.columns if c != BASE]
        unknown = [c for c in self.only if c not in self.columns]
        if unknown:
            sys.exit(f"no column {unknown[0]}; there are: {', '.join(self.columns)}")
        self.results = given.get("results", os.path.join(self.work, "results.jsonl"))
        self.cortado = os.environ.get("CORTADO", "cortado")
        self.mpirun = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none"))

    def prepare(self):
        os.makedirs(self.work, exist_ok=True)
        with open(os.path.join(self.work, "net.prototxt"), "w", encoding="utf-8") as f:
            f.write(NET)
        if not os.path.exists(os.path.join(self.work, "set", "train.bin")):
            subprocess.run([self.cortado, "convert", "text", f"--from={self.text}", f"--to={self.work}/set", "--tokenizer=char"], check=True)

    def key(self, name, seed):
        return {"column": name, "seed": seed, "ranks": self.ranks, "steps": self.steps}

    def load(self):
        done = {}
        if os.path.exists(self.results):
            with open(self.results, encoding="utf-8") as f:
                for line in f:
                    r = json.loads(line)
                    done[json.dumps({k: r[k] for k in ("column", "seed", "ranks", "steps")})] = r["loss"]
        return done

    def run(self, name, seed):
        path = os.path.join(self.work, "solver.prototxt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(solver(seed, self.steps, self.columns[name]))
        done = subprocess.run([*self.mpirun, "-np", str(self.ranks), self.cortado, "train", "--solver=solver.prototxt",
                               f"--global_batch_size={BATCH}"], cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        found = re.findall(r"Test net output #0: loss = ([0-9.]+)", done.stdout)
        if done.returncode != 0 or not found:
            sys.exit(f"{name}, seed {seed}:\n{done.stdout[-3000:]}")
        return float(found[-1])

    def losses(self, done, name):
        got = []
        for seed in range(1, self.seeds + 1):
            key = self.key(name, seed)
            if json.dumps(key) not in done:
                done[json.dumps(key)] = self.run(name, seed)
                with open(self.results, "a", encoding="utf-8") as f:
                    f.write(json.dumps({**key, "loss": done[json.dumps(key)]}) + "\n")
            got.append(done[json.dumps(key)])
        return got

    def main(self):
        self.prepare()
        done = self.load()
        base = self.losses(done, BASE)
        print(f"{self.ranks} ranks, {self.steps} steps, {self.seeds} seeds; {BASE} ends at {sum(base) / len(base):.4f} nats a character")
        for name in self.only:
            mean, half = interval([a - b for a, b in zip(self.losses(done, name), base)])
            print(f"{name:20} {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]  "
                  f"{verdict(mean - half, mean + half, self.limit)} {self.limit}", flush=True)


if __name__ == "__main__":
    Study(sys.argv[1:]).main()
