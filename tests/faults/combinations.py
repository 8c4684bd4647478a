#!/usr/bin/env python3
"""Draws options that meet each other, trains by them, goes on from a set in several ways, and compares losses and weights.

Usage: tests/faults/combinations.py RESULTS [--cases=N] [--first=0] [--seed=1] [--keep=FOLDER]
       tests/faults/combinations.py RESULTS --table

A case draws a net, what is computed (an update rule, rates, clipping, a codec, an average, local steps, OptEx: WHAT), how (ranks, plan,
collective, topology: HOW), and what changes no bit (ZeRO, files, snapshots, checks, overlap: BESIDE). Its trainings have 12 iterations:
 * plain: what and how. It ends with 0, or says in one line why not, with 2, before the first step.
 * whole: with what changes no bit, too. The same losses and weights, or such a line.
 * again: from a set of whole, or behind a kill of whole: the same losses and weights.
 * moved: from a set of whole on other ranks, by another plan, with other things beside: the same losses but for rounding.
 * changed: from a set of whole with something else that is computed: the loss of the set's weights comes first.
 * check: `cortado check` of whole refuses what the training refuses.
Any other code, a crash, a number that is not finite, or no end is wrong. --keep has the folders of the cases that are wrong. job.py says
what RESULTS and --table are.
"""
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import job

LIMIT_S = 300
LOSS = re.compile(r"Iteration (\d+)(?: \(.*?\))?, loss = (\S+)")
SHAPE = re.compile(r"rank \d+ on \S+: ")
LAST, BATCH = 12, 12
CONV = """
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.00390625 }
  data_param { source: "../data/train_lmdb" backend: LMDB batch_size: 12 shuffle: true } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.00390625 }
  data_param { source: "../data/test_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
RELU = CONV.index('layer { name: "relu"')
NORM = CONV[:RELU] + """layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "norm" scale_param { bias_term: true } }
""" + CONV[RELU:].replace('bottom: "conv" top: "conv"', 'bottom: "norm" top: "norm"').replace('bottom: "conv"', 'bottom: "norm"')
FILTER = CONV[:RELU] + """layer { name: "filter" type: "Filter" bottom: "conv" bottom: "label" bottom: "label" top: "kept" top: "known" }
""" + CONV[RELU:].replace('bottom: "conv" top: "conv"', 'bottom: "kept" top: "kept"').replace('bottom: "conv"', 'bottom: "kept"') \
    .replace('bottom: "label"', 'bottom: "known"')
WORDS = """
layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "../text.bin" batch_size: 12 seq_len: 12 vocabulary: 31 } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte" param { name: "wte" }
  embed_param { input_dim: 31 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x" position_param { max_length: 12 weight_filler { type: "gaussian" std: 0.02 } } }
repeat { count: 2 prefix: "h%d_" bottom: "x" top: "x"
  layer { name: "ln" type: "LayerNorm" bottom: "x" top: "ln" }
  layer { name: "qkv" type: "InnerProduct" bottom: "ln" top: "qkv"
    inner_product_param { num_output: 72 axis: 2 weight_filler { type: "gaussian" std: 0.2 } } }
  layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 6 causal: true dropout: 0.1 } }
  layer { name: "proj" type: "InnerProduct" bottom: "attn" top: "proj"
    inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.1 } } }
  layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "proj" top: "x" } }
layer { name: "ln_f" type: "LayerNorm" bottom: "x" top: "ln_f" }
layer { name: "head" type: "InnerProduct" bottom: "ln_f" top: "head" param { name: "wte" }
  inner_product_param { num_output: 31 axis: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }
"""
NETS = {"conv": CONV, "norm": NORM, "filter": FILTER, "words": WORDS}
PLANS = {  # of a net: ranks, micro-batches, stages
    "conv": [(2, 1, 'stage { first: "conv" last: "drop" rank: 0 } stage { first: "ip" last: "accuracy" rank: 1 }'),
             (2, 3, 'stage { first: "conv" last: "drop" rank: 0 } stage { first: "ip" last: "accuracy" rank: 1 }'),
             (2, 1, 'stage { first: "conv" last: "accuracy" rank: 0 rank: 1 tensor: 2 layer { name: "ip" split: INPUT } }'),
             (3, 2, 'stage { first: "conv" last: "drop" rank: 0 rank: 2 share: 4 share: 2 } stage { first: "ip" last: "accuracy" rank: 1 }'),
             (2, 1, 'stage { first: "conv" last: "accuracy" rank: 0 rank: 1 share: 9 share: 3 }'),
             (1, 4, 'stage { first: "conv" last: "accuracy" rank: 0 again { first: "conv" last: "drop" } }')],
    "words": [(2, 1, 'stage { first: "wte" last: "h0_sum" rank: 0 } stage { first: "h1_ln" last: "loss" rank: 1 }'),
              (2, 4, 'stage { first: "wte" last: "h0_sum" rank: 0 } stage { first: "h1_ln" last: "loss" rank: 1 }'),
              (2, 1, 'stage { first: "wte" last: "loss" rank: 0 rank: 1 tensor: 2 layer { name: "h0_qkv" split: OUTPUT } '
               'layer { name: "h0_attn" split: HEADS } layer { name: "h0_proj" split: INPUT } }'),
              (3, 1, 'stage { first: "wte" last: "h0_sum" rank: 0 rank: 1 } stage { first: "h1_ln" last: "loss" rank: 2 }'),
              (4, 2, 'stage { first: "wte" last: "h0_sum" rank: 0 rank: 1 } stage { first: "h1_ln" last: "loss" rank: 2 rank: 3 tensor: 2 '
               'layer { name: "h1_qkv" split: OUTPUT } layer { name: "h1_attn" split: HEADS } layer { name: "h1_proj" split: INPUT } }')],
}
PLANS["norm"] = PLANS["conv"]
PLANS["filter"] = [p for p in PLANS["conv"] if "tensor" not in p[2] and p[2].count("stage") == 1]  # what it leaves cannot cross a cut
RULES = [("SGD", "momentum: 0.9"), ("Nesterov", "momentum: 0.9"), ("AdaGrad", ""), ("RMSProp", "rms_decay: 0.95"), ("AdaDelta", "momentum: 0.95"),
         ("Adam", "momentum: 0.9"), ("AdamW", "momentum: 0.9 momentum2: 0.95"), ("LARS", "momentum: 0.9"), ("LAMB", "momentum: 0.9"),
         ("Lion", "momentum: 0.9 momentum2: 0.99")]
RATES = {"SGD": 0.05, "Nesterov": 0.05, "AdaDelta": 1.0, "LARS": 2.0}
SPARSE = ("ALLGATHER", "HIER", "GTOPK", "OKTOPK", "DENSE", "AUTO")


def one_of(draw, share, words):
    """One of words in a share of the cases, else nothing."""
    return draw.choice(words) if draw.random() < share else ""


def codec(draw):
    kind = draw.choice(("BF16", "FP16", "TOPK", "TOPK", "REDSYNC", "REDSYNC", "POWERSGD", "ONEBIT", "INT8", "INT4", "AUTO"))
    words = [f"type: {kind} min_bytes: 64"]
    if kind in ("TOPK", "REDSYNC"):
        words += ["density: 0.1", one_of(draw, 0.7, [f"exchange: {e}" for e in SPARSE]), one_of(draw, 0.3, ["wire: HALF", "wire: PAIRS"]),
                  one_of(draw, 0.2, ["quantize: true"]), one_of(draw, 0.3, ["selection: TRIMMED", "selection: SEARCH"])]
    if kind in ("REDSYNC", "POWERSGD", "ONEBIT"):
        words.append(one_of(draw, 0.3, ["momentum_correction: false", "momentum_correction: true"]))
        words.append(one_of(draw, 0.2, ["mask_momentum: false"]))
    if kind in ("INT8", "INT4"):
        words.append(one_of(draw, 0.5, ["error_feedback: true"]))
    if kind == "AUTO":
        words.append(one_of(draw, 0.5, ["among: REDSYNC", "among: POWERSGD among: TOPK", "among: BF16 among: INT8"]))
    if kind not in ("BF16", "FP16"):
        words.append(one_of(draw, 0.4, ["warmup_iter: 3", "warmup_iter: 7", "resync_iter: 4", "warmup_iter: 7 warmup_density: 0.5"]))
        words.append(one_of(draw, 0.15, ["local_clip: 0.5"]))
    return "{ " + " ".join(w for w in words if w) + " }"


class Setting:
    """What one training is told."""

    def __init__(self, net):
        self.net, self.what, self.how, self.beside = net, [], [], []
        self.ranks, self.plan, self.options, self.rule, self.batch = 1, None, [], "SGD", BATCH
        self.micro = 1

    def copy(self):
        other = Setting(self.net)
        other.__dict__.update({k: list(v) if isinstance(v, list) else v for k, v in self.__dict__.items()})
        return other

    def has(self, word):
        return word in " ".join(self.what + self.how + self.beside)

    def text(self, prefix):
        lines = [f'net: "../{self.net}.prototxt"', f'snapshot_prefix: "{prefix}"', f"max_iter: {LAST}",
                 "solver_mode: CPU random_seed: 7 display: 1 deterministic: true watchdog_seconds: 60",
                 *self.what, *self.how, *self.beside]
        return "\n".join(w for w in lines if w) + "\n"

    def told(self):
        """In one line."""
        words = [w for w in self.what + self.how + self.beside if w]
        return f"{self.net}, {self.ranks} ranks" + (f", {self.micro} x {self.plan}" if self.plan else "") + ": " + " ".join(words + self.options)


def draw_what(draw, s):
    rule, fields = draw.choice(RULES[:2]) if draw.random() < 0.4 else draw.choice(RULES)
    s.rule = rule
    optex = draw.random() < 0.06
    rate = RATES.get(rule, 0.003)
    s.what = [f"base_lr: {rate}", fields, f'type: "{rule}"' if not optex else 'type: "OptEx"']
    if optex:
        s.what.append(f'optex {{ base_type: "{rule}" parallel: {draw.choice((1, 2, 3, 4))} history: 3 '
                      f'predictor: {draw.choice(("LAST", "NONE", "SECANT", "KERNEL"))} guard: {draw.choice(("true", "false"))} '
                      + one_of(draw, 0.3, ["corrector: LAST_POINT", "snapshot_history: false"]) + " }")
    s.what.append(draw.choice(('lr_policy: "fixed"', 'lr_policy: "fixed"', 'lr_policy: "step" gamma: 0.5 stepsize: 4', 'lr_policy: "cosine"',
                               'lr_policy: "poly" power: 1.0', 'lr_policy: "plateau" gamma: 0.5 plateau_winsize: 2 plateau_winsize: 3',
                               'lr_policy: "multifixed" stagelr: 0.01 stagelr: 0.002 stageiter: 6 stageiter: 12')))
    s.what.append(one_of(draw, 0.15, ["warmup { iterations: 4 }", "warmup_iter: 4 warmup_start_lr: 0.001",
                                      "warmup { iterations: 4 policy_after: true }"]))
    s.what.append(one_of(draw, 0.6, ["weight_decay: 0.001", "weight_decay: 0.001 decay_rule: MATRICES",
                                     'weight_decay: 0.001 regularization_type: "L1"']))
    s.what.append(one_of(draw, 0.15, ["clip_gradients: 0.5"]))
    if s.plan is None or draw.random() < 0.3:
        s.what.append(one_of(draw, 0.15, ["iter_size: 2", "iter_size: 3"] + (["batch_tokens: 288"] if s.net == "words" else [])))
    s.what.append(one_of(draw, 0.2, ["average { type: EMA decay: 0.9 }", "average { type: SWA start_iter: 3 interval: 2 }"]))
    s.what.append(f"compression {codec(draw)}" if draw.random() < 0.35 else "")
    s.what.append(one_of(draw, 0.1, ["precision: BF16"]))
    s.what.append(one_of(draw, 0.08, ["reproducible_sum: true"]))
    if draw.random() < 0.1:
        s.what.append(f"outer {{ local_iter: {draw.choice((1, 3, 4))} groups: {draw.choice((0, 1, 2, 3))} "
                      + one_of(draw, 0.4, ["delay: 1"]) + one_of(draw, 0.3, [" optimizer: SGD momentum: 0", " lr: 1 optimizer: SGD"])
                      + (f" compression {codec(draw)}" if draw.random() < 0.4 else "") + " }")
    s.what.append(one_of(draw, 0.1, ["average_loss: 3"]))
    s.batch = draw.choice((BATCH, BATCH, BATCH, 7, 24)) if s.plan is None else BATCH
    s.what.append(f"global_batch_size: {s.batch}" if s.plan is None else "")


def draw_how(draw, s):
    s.plan, s.micro, s.options = None, 1, []
    if draw.random() < 0.25:
        s.ranks, s.micro, s.plan = draw.choice(PLANS[s.net])
    else:
        s.ranks = draw.choice((1, 2, 2, 2, 3, 4))
    s.how = ["comm {", one_of(draw, 0.3, [f'allreduce: "{a}"' for a in ("ring", "rhd", "tree", "swing", "hier", "torus", "tree<1K,ring", "impi")]),
             one_of(draw, 0.3, ["bucket_mb: 0.001", "bucket_mb: 0.01", "bucket_mb: 100"]), one_of(draw, 0.1, ["send_rows: false"]),
             one_of(draw, 0.4, [f'topology: "{s.ranks}x1"', f'topology: "1x{s.ranks}"'] + (['topology: "2x2"'] if s.ranks == 4 else []))]
    s.how += ["}", one_of(draw, 0.1, ["fuse: false"]), one_of(draw, 0.1, ["winograd: NEVER"])]


def draw_beside(draw, s, test):
    """Fields of comm come into the message that `how` has begun."""
    s.beside = [f"snapshot: {draw.choice((3, 4, 5))}"]
    comm = [one_of(draw, 0.2, ["verify_wire: true"]), one_of(draw, 0.25, ["overlap: false", "forward_overlap: false"]),
            one_of(draw, 0.25, ["progress: THREAD", "progress: POLL"])]
    s.how = s.how[:1] + comm + s.how[1:] if s.how else []
    memory = []
    if draw.random() < 0.5:
        memory = [one_of(draw, 0.7, [f"zero: {z}" for z in (0, 1, 2, 3)]), one_of(draw, 0.3, ["state: FILE", "state: HOST"]),
                  one_of(draw, 0.25, ["weights: FILE"])]
        memory.append(one_of(draw, 0.2, [f"limit_mb: {mb}" for mb in (32, 33, 34, 35, 36)]))
        if "FILE" in " ".join(memory):
            memory += ['path: "." chunk_mb: 0.004', one_of(draw, 0.3, ["checksum: true"]), one_of(draw, 0.3, ["prefetch: 1"])]
    s.beside.append("memory { " + " ".join(memory) + " }" if memory else "")
    s.beside += [one_of(draw, 0.3, ["snapshot_async: true"]), one_of(draw, 0.2, ["snapshot_keep: 2"]), one_of(draw, 0.2, ["snapshot_minutes: 0.0001"]),
                 one_of(draw, 0.15, ["snapshot_format: BINARYPROTO"]), one_of(draw, 0.2, ["verify_memory: true"]),
                 one_of(draw, 0.3, ["checksum_interval: 1", "checksum_interval: 3"]), one_of(draw, 0.1, ["node_reader: false"]),
                 one_of(draw, 0.25, ["recompute: CHEAP", "recompute: BLOCKS", "recompute: AUTO"])]
    if test:
        s.beside.append(f"test_iter: 2 test_interval: {draw.choice((3, 5))}")
        if s.net != "words":
            s.beside.append(one_of(draw, 0.4, ['best { metric: "accuracy" keep: 2 }', 'best { metric: "loss" keep: 1 }']))
    s.options = [o for o in (one_of(draw, 0.15, ["--metrics=m.jsonl"]), one_of(draw, 0.1, ["--trace=t.json"]),
                             one_of(draw, 0.1, ["--tensorboard=events"])) if o]


class Case:
    def __init__(self, work, seed, number, keep):
        self.work, self.keep, self.number = work, keep, number
        self.draw = random.Random(f"{seed} {number}")
        self.folders = 0

    def folder(self, s, copy=None):
        """A new folder with the solver; `copy`: with what is in that one."""
        path = os.path.join(self.work.path, f"job{self.folders}")
        self.folders += 1
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(copy, path) if copy else os.mkdir(path)
        with open(os.path.join(path, "solver.prototxt"), "w", encoding="utf-8") as f:
            f.write(s.text("s"))
        if s.plan:
            with open(os.path.join(path, "plan"), "w", encoding="utf-8") as f:
                f.write(f"ranks: {s.ranks} global_batch: {s.batch} micro_batches: {s.micro} {s.plan}\n")
        return path

    def command(self, s, more=()):
        return [job.CORTADO, "train", "--solver=solver.prototxt", *(["--parallel=plan"] if s.plan else []), *s.options, *more]

    def train(self, name, s, folder, more=()):
        started = time.time()
        code, out = job.run(job.launch(s.ranks, self.command(s, more)), folder, LIMIT_S)
        with open(os.path.join(folder, "log." + name), "w", encoding="utf-8") as f:
            f.write(out)
        self.notes.append(f"{name}: {code} in {time.time() - started:.0f} s: {s.told()}")
        return code, out

    def refusal(self, code, out):
        """Why this is no refusal as it should be; nothing: it is one."""
        lines = sorted({SHAPE.sub("", line.split("] ", 1)[-1]) for line in job.errors(out)})
        if code != 2:
            return f"exit code {code}: {' / '.join(lines) or out[-400:]}"
        if len(lines) != 1:
            return f"{len(lines)} lines of errors: {' / '.join(lines)}"
        if LOSS.search(out):
            return f"refused behind the first step: {lines[0]}"
        self.said.append(lines[0])
        return ""

    def run(self):
        """(class, code, why it is wrong) of each training."""
        draw = self.draw
        self.notes, self.said, rows = [], [], []
        s = Setting(draw.choice(("conv", "conv", "norm", "filter", "words", "words")))
        draw_how(draw, s)
        draw_what(draw, s)
        w = s.copy()
        draw_beside(draw, w, draw.random() < 0.3)
        plain = s.copy()
        plain.how = s.how
        plain.beside = [next(b for b in w.beside if b.startswith("snapshot: "))]
        folder = self.folder(plain)
        code, out = self.train("plain", plain, folder)
        if code != 0:
            rows.append(("plain", code, self.refusal(code, out)))
            self.compare_check(plain, folder, code, rows)
            return rows
        wanted, sums = losses(out), job.checksum(out)
        rows.append(("plain", code, "" if finite(wanted) else "losses that are no numbers"))
        folder = self.folder(w)
        code, out = self.train("whole", w, folder)
        self.compare_check(w, folder, code, rows)
        if code != 0:
            rows.append(("whole", code, self.refusal(code, out)))
            return rows
        averaged = w.net == "norm" and w.ranks > 1  # running statistics are averaged at tests, checks and snapshots: others by rounding
        rows.append(("whole", code, differ(wanted, losses(out), 2e-2 if w.has("compression") else 1e-4) if row_differs(w)
                     else other(wanted, None if averaged else sums, out)))
        wanted, sums = losses(out), None if averaged and w.has("snapshot_minutes") else job.checksum(out)
        sets = sorted(int(m.group(1)) for m in (re.fullmatch(r"s_iter_(\d+)\.solverstate\.h5", n) for n in os.listdir(folder)) if m)
        at = [i for i in sets if 0 < i < LAST]
        if not at:
            rows.append(("again", 0, f"no set to go on from: {sets}"))
            return rows
        at = draw.choice(at)
        if draw.random() < 0.25:
            rows.append(self.killed(w, wanted, sums))
        else:
            code, out = self.train("again", w, self.cut(w, folder, at), ["--snapshot=auto"])
            rows.append(("again", code, other(wanted, sums, out, at) if code == 0 else unfit(code, out)))
        rows.append(self.moved(s, w, folder, at, wanted))
        rows += self.changed(s, w, folder, at, wanted)
        return rows

    def compare_check(self, s, folder, code, rows):
        checked, why = self.check(s, folder)
        if s.has("limit_mb") or s.has("impi"):  # what MPI takes is unknown to it, and whether a collective adds in one order
            return
        rows.append(("check", checked, "" if checked == code else f"check ends with {checked}, the training with {code}: {why}"))

    def check(self, s, folder):
        code, out = job.run([job.CORTADO, "check", "--solver=solver.prototxt",
                             *(["--parallel=plan"] if s.plan else [f"--ranks={s.ranks}"])], folder)
        with open(os.path.join(folder, "log.check"), "w", encoding="utf-8") as f:
            f.write(out)
        return code, " / ".join(job.errors(out)) or out[-200:]

    def cut(self, s, folder, at):
        """A folder in which the set of `at` is the newest; beside a solver that goes on."""
        path = self.folder(s, folder)
        for name in os.listdir(path):
            made = re.match(r"s_iter_(\d+)\.", name)
            if made and int(made.group(1)) > at:
                os.unlink(os.path.join(path, name))
        for name in ("m.jsonl", "t.json"):
            if os.path.exists(os.path.join(path, name)):
                os.unlink(os.path.join(path, name))
        return path

    def killed(self, s, wanted, sums):
        """A rank is killed behind an iteration, and the job goes on."""
        folder, draw = self.folder(s), self.draw
        starter = [*job.MPIRUN, "-np", str(s.ranks)] if s.ranks > 1 else []
        behind, rank = draw.randrange(1, LAST), draw.randrange(s.ranks)
        j = job.Started(s.ranks, starter, " ".join(self.command(s)), folder)
        mark = f"Iteration {behind} ("
        while j.process.poll() is None and mark not in j.log():
            time.sleep(0.0005)
        try:
            os.kill(j.pid(rank), signal.SIGKILL)
        except (OSError, TypeError):
            pass
        try:
            j.process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        j.end()
        for name in ("m.jsonl", "t.json"):
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        code, out = self.train("killed", s, folder, ["--snapshot=auto"])
        found = job.BEGUN.search(out)
        left = [n for n in os.listdir(folder) if ".tmp" in n or ".owner" in n or ".probe" in n]
        wrong = other(wanted, sums, out, int(found.group(1)) if found else 0) if code == 0 else unfit(code, out)
        return ("killed", code, wrong + (f"; left {left}" if left else ""))

    def moved(self, s, w, folder, at, wanted):
        """Other ranks, another plan, other things beside."""
        draw, m = self.draw, s.copy()
        draw_how(draw, m)
        if m.plan and m.batch != BATCH:
            m.plan, m.micro = None, 1
        m.what = [x for x in m.what if not x.startswith("global_batch_size")]
        m.what.append("" if m.plan else f"global_batch_size: {m.batch}")
        draw_beside(draw, m, draw.random() < 0.3)
        code, out = self.train("moved", m, self.cut(m, folder, at), ["--snapshot=auto"])
        if code != 0:
            return ("moved", code, self.refusal(code, out))
        found = losses(out)
        if not finite(found):
            return ("moved", code, "losses that are no numbers")
        if not job.BEGUN.search(out):
            return ("moved", code, "began anew")
        one = m.ranks == w.ranks and m.plan == w.plan
        if (s.net == "norm" and not one) or s.has("outer") or (s.has("OptEx") and not one) or m.micro != w.micro or s.has("average_loss"):
            return ("moved", code, "")
        first = differ({at: wanted[at]}, {at: found.get(at, "none")}, 1e-2 if s.has("BF16") else 2e-4)
        lossy = s.has("compression") or s.has("BF16") or s.rule not in ("SGD", "Nesterov", "LARS")
        return ("moved", code, first or differ({i: v for i, v in wanted.items() if i >= at}, found, 0.3 if lossy else 2e-3))

    def changed(self, s, w, folder, at, wanted):
        """Something else is computed from there; then again without what changes no bit."""
        draw, c = self.draw, w.copy()
        draw_what(draw, c)
        code, out = self.train("changed", c, self.cut(c, folder, at), ["--snapshot=auto"])
        row = self.judge_changed(c, w, code, out, at, wanted)
        if row[2] or code != 0 or row_differs(c):
            return [row]
        b = c.copy()
        b.how, b.beside, b.options = s.how, [next(x for x in w.beside if x.startswith("snapshot: "))], []
        bare, said = self.train("bare", b, self.cut(b, folder, at), ["--snapshot=auto"])
        if bare != 0:
            return [row, ("bare", bare, f"exit code {bare}: {job.errors(said) or said[-400:]}")]
        averaged = c.net == "norm" and c.ranks > 1
        return [row, ("bare", bare, other(losses(out), None if averaged else job.checksum(out), said, at))]

    def judge_changed(self, c, w, code, out, at, wanted):
        if code != 0:
            wrong = self.refusal(code, out)
            if code == 3 and len(job.errors(out)) == 1 and not LOSS.search(out):
                wrong = ""
                self.said.append(job.errors(out)[0].split("] ", 1)[-1])
            return ("changed", code, wrong)
        found = losses(out)
        if not finite(found):
            return ("changed", code, "losses that are no numbers")
        if not job.BEGUN.search(out):
            return ("changed", code, "began anew")
        same = c.batch == w.batch and passes(c) == passes(w) and not any(x.has(y) for x in (c, w) for y in ("outer", "OptEx", "precision", "average_loss"))
        return ("changed", code, differ({at: wanted[at]}, {at: found.get(at, "none")}, 2e-4) if same else "")


def unfit(code, out):
    """What should have gone on; memory that MPI takes is not the same in each run, so a limit may be too small by that."""
    why = job.errors(out)
    return "" if code == 2 and len(why) == 1 and "limit_mb" in why[0] else f"exit code {code}: {why or out[-400:]}"


def row_differs(s):
    """Sums over several passes are added up in another order there."""
    return bool([x for x in passes(s) if x]) and (s.has("zero: 2") or s.has("zero: 3") or s.has("limit_mb"))


def passes(s):
    return [x for x in s.what if x.startswith(("iter_size", "batch_tokens"))]


def losses(out):
    return {int(i): loss for i, loss in LOSS.findall(out)}


def finite(found):
    return bool(found) and all(math.isfinite(float(v)) for v in found.values())


def other(wanted, sums, out, since=0):
    """Where losses from an iteration on, or weights (but where there is no sum of them), are others, digit by digit."""
    found = losses(out)
    unlike = [i for i, v in wanted.items() if i >= since and found.get(i) != v]
    if unlike:
        return f"{len(unlike)} losses are others, the first of iteration {unlike[0]}: {found.get(unlike[0])} for {wanted[unlike[0]]}"
    return "" if sums is None or job.checksum(out) == sums else "another checksum"


def differ(wanted, found, limit):
    for i, v in wanted.items():
        a, b = float(v), float(found.get(i, "nan"))
        if not abs(a - b) <= limit * max(1.0, abs(a)):
            return f"the loss of iteration {i} is {b}, not {a}"
    return ""


def try_all(results, options, folder):
    work = job.Work(folder, [(f"{name}.prototxt", text) for name, text in NETS.items()])
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as f:
        words = random.Random(5)
        f.write(" ".join(words.choice("the cat sat on a mat and ran off with hat".split()) for _ in range(1500)))
    code, out = job.run([job.CORTADO, "convert", "text", "--from=text.txt", "--tokenizer=char", "--to=text.bin"], folder)
    if code != 0:
        sys.exit(out)
    for seed, number, name in job.drawn(results, options):
        case = Case(work, seed, number, options.get("keep"))
        rows = case.run()
        for kind, code, wrong in rows:
            results.add(f"combination: {kind}", name, [0, 2], code, wrong, "; ".join(case.said if code in (2, 3) else []))
        if "keep" in options and any(r[2] for r in rows):
            kept = os.path.join(options["keep"], f"{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            with open(os.path.join(kept, "told"), "w", encoding="utf-8") as f:
                f.write("\n".join(case.notes + [str(r) for r in rows]) + "\n")
        for n in os.listdir(folder):
            if n.startswith("job"):
                shutil.rmtree(os.path.join(folder, n))


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "keep"}, try_all)
