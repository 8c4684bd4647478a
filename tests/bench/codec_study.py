#!/usr/bin/env python3
"""What codecs do to a net's result on data it has not seen, over paired seeds.

Usage: tests/bench/codec_study.py NET DATA WORK [--ranks=2] [--seeds=25] [--steps=N] [--base=NAME] [--limit=L] [--only=NAME,NAME] [--results=FILE]

NET is gpt (a small GPT on characters with AdamW, nats a character; DATA: a folder with *train*.txt and *valid*.txt),
cheap (one convolution on MNIST with SGD, errors in points; DATA: MNIST's four files), cnn (three convolutions on CIFAR-10
with SGD, errors in points; DATA: its binary batches) or lstm (one LSTM on words with SGD and clipping, nats a word; DATA: as gpt's). WORK is a folder for what is made
of the data. CORTADO names the program, MPIRUN what starts ranks (mpirun --oversubscribe --bind-to none); each stands for a node, since codecs spare the wires between
nodes. A seed chooses
weights and the order of samples, the same for all columns. Runs whose result stands in FILE (a JSON line each) are not
made again. Printed are, for each column, the mean difference to the baseline, its 95 % interval by Student's t over the
seeds, and the verdict against the limit: within, worse, or not shown.
"""
import json
import os
import re
import shlex
import subprocess
import sys

from paired import interval, verdict

LAYERS, HEADS, WIDTH, LENGTH, BATCH = 2, 4, 64, 64, 16
GPT = f"""
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
CHEAP = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.00390625 }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 64 shuffle: true } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.00390625 }
  data_param { source: "set/test_lmdb" backend: LMDB batch_size: 250 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip1" type: "InnerProduct" bottom: "conv" top: "ip1" inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
CNN = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.0078125 mean_value: 120 mirror: true }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 64 shuffle: true } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.0078125 mean_value: 120 }
  data_param { source: "set/test_lmdb" backend: LMDB batch_size: 100 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 32 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "pool1" top: "pool1" }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 32 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "conv3" type: "Convolution" bottom: "pool2" top: "conv3"
  convolution_param { num_output: 64 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } } }
layer { name: "relu3" type: "ReLU" bottom: "conv3" top: "conv3" }
layer { name: "pool3" type: "Pooling" bottom: "conv3" top: "pool3" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool3" top: "ip1" inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
LSTM = """
layer { name: "data" type: "TextData" top: "words" top: "cont" top: "next" include { phase: TRAIN }
  text_data_param { source: "set/train.h5" batch_size: 20 steps: 20 } }
layer { name: "data" type: "TextData" top: "words" top: "cont" top: "next" include { phase: TEST }
  text_data_param { source: "set/valid.h5" batch_size: 20 steps: 20 } }
layer { name: "embed" type: "Embed" bottom: "words" top: "embed"
  embed_param { input_dim: 10000 num_output: 128 bias_term: false weight_filler { type: "uniform" min: -0.1 max: 0.1 } } }
layer { name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 128 weight_filler { type: "uniform" min: -0.1 max: 0.1 } } }
layer { name: "score" type: "InnerProduct" bottom: "lstm" top: "score"
  inner_product_param { num_output: 10000 axis: 2 weight_filler { type: "uniform" min: -0.1 max: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss" softmax_param { axis: 2 } }
"""
SMALL = "min_bytes: 1024"
LOCAL = {  # groups of one rank that meet every 20 steps, DiLoCo's outer rule; and what compresses differences
    "": "",
    "int4": f"compression {{ type: INT4 {SMALL} }}",
    "topk 3 %": f"compression {{ type: TOPK density: 0.03 {SMALL} }}",
}
SAVES_NOTHING = "test_initialization: false display: 0 snapshot: 0 snapshot_after_train: false solver_mode: CPU"


def gpt_columns(steps):
    """Names, and what each compresses by. All clip: by the norm of the sum, or of each gradient where that is none."""
    clip, warm = "clip_gradients: 1", f"warmup_iter: {steps // 6}"
    return {
        "dense": clip,
        "bf16": f"{clip} compression {{ type: BF16 {SMALL} }}",
        "int8": f"{clip} compression {{ type: INT8 {SMALL} }}",
        "int4": f"{clip} compression {{ type: INT4 {SMALL} }}",
        "int4 ef": f"{clip} compression {{ type: INT4 error_feedback: true {SMALL} }}",
        "topk 3 %": f"{clip} compression {{ type: TOPK density: 0.03 {SMALL} }}",
        "bf16 local_clip": f"compression {{ type: BF16 local_clip: 1 {SMALL} }}",
        "onebit plain": f"{clip} compression {{ type: ONEBIT freeze_variance: false {warm} {SMALL} }}",
        "1-bit Adam": f"compression {{ type: ONEBIT local_clip: 1 {warm} {SMALL} }}",
        **{f"local {name}".strip(): f"{clip} outer {{ local_iter: 20 {how} }}" for name, how in LOCAL.items()},
    }


def gpt_solver(steps):
    return f"""type: "AdamW" base_lr: 0.003 lr_policy: "cosine" min_lr: 0.0003 warmup {{ iterations: {steps // 20} policy_after: true }}
momentum: 0.9 momentum2: 0.99 weight_decay: 0.1 decay_rule: MATRICES test_iter: 40 {SAVES_NOTHING}"""


def sgd_columns(steps, clip=""):
    warm = f"warmup_iter: {steps // 10}"
    columns = {
        "dense": "",
        "bf16": f"compression {{ type: BF16 {SMALL} }}",
        "int8": f"compression {{ type: INT8 {SMALL} }}",
        "int4": f"compression {{ type: INT4 {SMALL} }}",
        "int4 ef": f"compression {{ type: INT4 error_feedback: true {SMALL} }}",
        "topk 1 %": f"compression {{ type: TOPK density: 0.01 {warm} {SMALL} }}",
        "redsync 1 %": f"compression {{ type: REDSYNC density: 0.01 {warm} {SMALL} }}",
        "powersgd 2": f"compression {{ type: POWERSGD rank: 2 {warm} {SMALL} }}",
        "onebit": f"compression {{ type: ONEBIT {warm} {SMALL} }}",
    }
    return {name: f"{clip} {how}" for name, how in columns.items()}


def lstm_columns(steps):
    return sgd_columns(steps, "clip_gradients: 0.25")


def cheap_solver(steps):
    return f"""base_lr: 0.05 lr_policy: "cosine" momentum: 0.9 weight_decay: 0.0005 test_iter: 40 {SAVES_NOTHING}"""


def cnn_solver(steps):
    return f"""base_lr: 0.02 lr_policy: "cosine" momentum: 0.9 weight_decay: 0.001 test_iter: 20 {SAVES_NOTHING}"""


def lstm_solver(steps):
    return f"""base_lr: 10 lr_policy: "cosine" test_iter: 100 {SAVES_NOTHING}"""


class Net:
    def __init__(self, text, solver, columns, steps, limit, batch, convert, found, value, unit):
        self.text, self.solver, self.columns, self.steps, self.limit, self.batch = text, solver, columns, steps, limit, batch
        self.convert, self.found, self.value, self.unit = convert, found, value, unit


def errors(accuracy):
    return 100 - 100 * float(accuracy)


NETS = {
    "gpt": Net(GPT, gpt_solver, gpt_columns, 600, 0.02, BATCH, ["text", "--tokenizer=char"], "loss", float, "nats a character"),
    "cheap": Net(CHEAP, cheap_solver, sgd_columns, 400, 0.25, 64, ["mnist"], "accuracy", errors, "% errors"),
    "cnn": Net(CNN, cnn_solver, sgd_columns, 1000, 0.5, 64, ["cifar10"], "accuracy", errors, "% errors"),
    "lstm": Net(LSTM, lstm_solver, lstm_columns, 1000, 0.02, 20, ["text"], "loss", float, "nats a word"),
}


class Study:
    def __init__(self, argv):
        words = [a for a in argv if not a.startswith("--")]
        given = dict(a[2:].split("=", 1) for a in argv if a.startswith("--"))
        known = {"ranks", "seeds", "steps", "base", "limit", "only", "results"}
        if len(words) != 3 or words[0] not in NETS or set(given) - known:
            sys.exit(__doc__)
        self.name, self.data, self.work = words
        self.net = NETS[self.name]
        self.ranks, self.seeds = int(given.get("ranks", 2)), int(given.get("seeds", 25))
        self.steps = int(given.get("steps", self.net.steps))
        self.limit = float(given.get("limit", self.net.limit))
        self.columns = self.net.columns(self.steps)
        self.base = given.get("base", "bf16")
        self.only = given["only"].split(",") if "only" in given else [c for c in self.columns if c != self.base]
        unknown = [c for c in [self.base, *self.only] if c not in self.columns]
        if unknown:
            sys.exit(f"no column {unknown[0]}; there are: {', '.join(self.columns)}")
        self.results = given.get("results", os.path.join(self.work, "results.jsonl"))
        self.cortado = os.environ.get("CORTADO", "cortado")
        self.mpirun = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none"))

    def prepare(self):
        os.makedirs(self.work, exist_ok=True)
        with open(os.path.join(self.work, "net.prototxt"), "w", encoding="utf-8") as f:
            f.write(self.net.text)
        if not os.path.exists(os.path.join(self.work, "set")):
            kind, *more = self.net.convert
            subprocess.run([self.cortado, "convert", kind, f"--from={self.data}", f"--to={self.work}/set", *more], check=True)

    def key(self, name, seed):
        return {"net": self.name, "column": name, "seed": seed, "ranks": self.ranks, "steps": self.steps}

    def load(self):
        done = {}
        if os.path.exists(self.results):
            with open(self.results, encoding="utf-8") as f:
                for line in f:
                    r = json.loads(line)
                    done[json.dumps({k: v for k, v in r.items() if k != "result"})] = r["result"]
        return done

    def run(self, name, seed):
        path = os.path.join(self.work, "solver.prototxt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'net: "net.prototxt" max_iter: {self.steps} test_interval: {self.steps} random_seed: {seed}\n'
                    f"{self.net.solver(self.steps)}\n{self.columns[name]}\n")
        done = subprocess.run([*self.mpirun, "-np", str(self.ranks), self.cortado, "train", "--solver=solver.prototxt", "--overwrite",
                               f"--topology={self.ranks}x1", f"--global_batch_size={self.net.batch}"], cwd=self.work, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        found = re.findall(rf"Test net output #\d+: {self.net.found} = ([0-9.]+)", done.stdout)
        if done.returncode != 0 or not found:
            sys.exit(f"{name}, seed {seed}:\n{done.stdout[-3000:]}")
        return self.net.value(found[-1])

    def results_of(self, done, name):
        got = []
        for seed in range(1, self.seeds + 1):
            key = self.key(name, seed)
            if json.dumps(key) not in done:
                done[json.dumps(key)] = self.run(name, seed)
                with open(self.results, "a", encoding="utf-8") as f:
                    f.write(json.dumps({**key, "result": done[json.dumps(key)]}) + "\n")
            got.append(done[json.dumps(key)])
        return got

    def main(self):
        self.prepare()
        done = self.load()
        base = self.results_of(done, self.base)
        print(f"{self.name}, {self.ranks} ranks, {self.steps} steps, {self.seeds} seeds; "
              f"{self.base} ends at {sum(base) / len(base):.4f} {self.net.unit}")
        for name in self.only:
            mean, half = interval([a - b for a, b in zip(self.results_of(done, name), base)])
            print(f"{name:20} {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]  "
                  f"{verdict(mean - half, mean + half, self.limit)} {self.limit:g}", flush=True)


if __name__ == "__main__":
    Study(sys.argv[1:]).main()
