#!/usr/bin/env python3
"""Sets fields of the schema to values at the edges of their types and meanings, in files that then run, and judges what comes of it.

Usage: tests/faults/fields.py RESULTS [--cases=N] [--first=0] [--seed=1] [--keep=FOLDER] [--kinds=NAME/NAME]
       tests/faults/fields.py RESULTS --table
       tests/faults/fields.py --unjudged

A case takes small files that run (drawn_fields.py: solvers, nets of each layer, readers, transforms, plans, machines, sweeps) and sets one to three
fields of framework/proto/cortado.proto. `cortado check` looks at them; 4 iterations with a snapshot in the middle run; a copy goes on from there;
the files are written back by `cortado convert`, and run again. What must follow:
 * end: an exit code of the docs, in 60 s and 1 GiB. What asks for more steps than that holds is stopped by SIGTERM: 75 or 76.
 * refused: one line that names the file, a line of what was drawn or of what holds it, and the field; before the first step, with no file left.
   A word that is no value of the field's type is refused.
 * check: refuses what the training refuses, and nothing else. Data, files and memory it cannot know.
 * losses: finite, or 5.
 * acts: where one field has another value, something changes: losses, weights, tests, rates, files, or a warning names it. QUIET says which
   fields change nothing of that by the docs.
 * again: the same losses and weights from the snapshot on.
 * written: what `convert` writes is the same when it is read and written again, also by way of bytes, and its run has the same losses and weights.
--unjudged lists the fields that no rule here reaches. --keep has the folders of the cases that are wrong. job.py says what RESULTS and --table are.
"""
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import drawn_fields
import drawn_sets
import job

LIMIT_S, LIMIT_BYTES, LAST = 60, 1 << 30, 4
SHAPE = re.compile(r"rank \d+ on \S+: ")
LOSS = re.compile(r"Iteration (\d+)(?: \(.*?\))?, loss = (\S+)")
TOLD = re.compile(r"(Iteration \d+)(?: \(.*?\))?(, (?:loss|lr) = .*)|(T(?:rain|est) (?:net output|loss).*)")
PLACE = re.compile(r"\b(net|solver|plan|machine|sweep)\.prototxt:(\d+)")
ENDLESS = {"ParallelParameter.global_batch", "ParallelParameter.micro_batches", "SolverParameter.global_batch_size", "SweepParameter.runs", "SweepFieldParameter.steps", "SolverParameter.iter_size", "SolverParameter.test_iter", "SolverParameter.batch_tokens", "SolverParameter.max_epoch"}
WEIGHTS = {"solver": 34, "layer": 26, "net": 10, "data": 8, "transform": 8, "machine": 5, "plan": 5, "sweep": 4}
POOL = {  # words that mean something, beside those of the type
    "SolverParameter.lr_policy": "fixed step exp inv multistep poly sigmoid cosine multifixed plateau Fixed",
    "SolverParameter.type": "SGD Nesterov AdaGrad RMSProp AdaDelta Adam AdamW LARS LAMB Lion OptEx sgd",
    "OptExParameter.base_type": "SGD Nesterov AdaGrad Adam OptEx", "SolverParameter.regularization_type": "L1 L2 l2",
    "SolverParameter.eval_type": "classification detection", "SolverParameter.ap_version": "11point MaxIntegral Integral",
    "CommParameter.allreduce": "ring rhd tree swing hier torus torus:2 tree<1K,ring impi none", "CommParameter.topology": "2x1 1x2 2x2 torus:2 slurm taihulight",
    "BestParameter.metric": "accuracy loss lost", "SweepParameter.metric": "accuracy loss lost", "FillerParameter.type": "constant gaussian uniform xavier msra bilinear positive_unitball",
    "KernelParameter.forward": "auto ref direct", "KernelParameter.backward_data": "auto ref", "KernelParameter.backward_weight": "auto ref",
    "SweepFieldParameter.field": "base_lr gamma nothing batch_size momentum=", "SweepParameter.set": "max_iter=3 max_iter nothing=1 max_iter=1.5 display=2",
}
PLACELESS = {"MemoryParameter.path", "MemoryParameter.limit_mb", "CommParameter.topology"}  # found where files are made, by the name of the field alone
LATE = {"SweepParameter.metric", "SweepFieldParameter.field", "SweepFieldParameter.value", "SweepFieldParameter.from", "SweepFieldParameter.to",
        "SweepParameter.test_net", "SweepParameter.set"}  # of nets and tests: found by the first run, which the folder has then
BEYOND = {"MemoryParameter.path", "SolverParameter.snapshot_prefix", "SolverParameter.solver_mode", "SolverParameter.weights",
          "SolverParameter.precision", "CommParameter.topology"}  # what check does not look at
QUIET = set("""CodingParameter.* SweepParameter.at_once SweepParameter.threads HDF5DataParameter.other_files SweepParameter.seed RandomAspectRatioParameter.max_attempt TransformationParameter.skip_broken LayerParameter.phase WindowDataParameter.threads AnnotatedDataParameter.max_boxes InfogainLossParameter.source WarmupParameter.policy_after
BestParameter.metric BestParameter.direction SampleConstraint.* EltwiseParameter.stable_prod_grad *.ignore_label *.rand_skip LayerParameter.name V1LayerParameter.name V1LayerParameter.param ParamSpec.name CompressionParameter.wire
CompressionParameter.resync_iter *.engine SolverParameter.max_epoch CompressionParameter.min_bytes CompressionParameter.local_clip SolverParameter.clip_gradients CommParameter.* KernelParameter.* MemoryParameter.* CompressionParameter.exchange CompressionParameter.selection
SolverParameter.deterministic SolverParameter.watchdog_seconds SolverParameter.max_hours SolverParameter.stop_on_nan SolverParameter.reproducible_sum
SolverParameter.winograd SolverParameter.fuse SolverParameter.node_reader SolverParameter.cuda_graph SolverParameter.snapshot_async
SolverParameter.checksum_interval SolverParameter.verify_memory SolverParameter.recompute SolverParameter.device_id SolverParameter.snapshot_minutes
SolverParameter.layer_wise_reduce SolverParameter.eval_type SolverParameter.patience SolverParameter.max_iter SolverParameter.comm SolverParameter.memory
NetParameter.name NetParameter.fuse NetParameter.recompute NetParameter.serve NetParameter.class_name NetParameter.force_backward
DataParameter.prefetch DataParameter.threads ImageDataParameter.threads""".split())
NEEDS = {  # fields that act beside these words alone, by the docs
    "SolverParameter.gamma": '"(step|exp|inv|multistep|sigmoid|plateau)"', "SolverParameter.power": '"(inv|poly)"', "SolverParameter.stepsize": '"(step|sigmoid)"',
    "SolverParameter.stepvalue": '"multistep"', "SolverParameter.min_lr": '"(cosine|poly)"', "SolverParameter.stagelr": '"multifixed"',
    "SolverParameter.stageiter": '"multifixed"', "SolverParameter.plateau_winsize": '"plateau"', "SolverParameter.momentum2": '"Adam',
    "SolverParameter.rms_decay": '"RMSProp"', "SolverParameter.delta": '"(Ada|RMS)', "SolverParameter.local_gw_ratio": '"LARS"',
    "SolverParameter.warmup_start_lr": "warmup_iter", "SolverParameter.rampup_lr": "rampup_interval", "SolverParameter.test_initialization": "test_iter",
    "SolverParameter.loss_scale": "FP16", "SolverParameter.loss_scale_window": "FP16", "SolverParameter.show_per_class_result": "DetectionEvaluate",
    "SolverParameter.ap_version": "DetectionEvaluate", "SolverParameter.test_compute_loss": "test_iter", "SolverParameter.optex": '"OptEx"',
    "TokenDataParameter.mask_token": "mask_ratio", "TokenDataParameter.end_token": '"places"', "TextDataParameter.synthetic_words": "nothing",
    "DataParameter.synthetic_shape": "nothing", "ImageDataParameter.synthetic_shape": "nothing", "HDF5DataParameter.synthetic_shape": "nothing",
    "WeightAverageParameter.decay": "EMA", "WeightAverageParameter.interval": "SWA", "TransformationParameter.allow_upscale": "rand_?resize",
    "ConvolutionParameter.negative_slope": "relu: true", "InnerProductParameter.negative_slope": "relu: true", "ResizeParameter.pad_value": "PAD",
    "SweepFieldParameter.log": "steps: [3-9]", "SweepFieldParameter.whole": "from: [1-9]", "CompressionParameter.momentum_correction": "REDSYNC|POWERSGD",
    "CompressionParameter.mask_momentum": "REDSYNC", "CompressionParameter.quantize": "REDSYNC|TOPK", "CompressionParameter.rank": "POWERSGD",
    "CompressionParameter.density": "REDSYNC|TOPK", "CompressionParameter.error_feedback": "INT", "CompressionParameter.freeze_variance": "ONEBIT",
    "CompressionParameter.among": "AUTO", "CompressionParameter.warmup_density": "warmup_iter", "CompressionParameter.warmup_iter": "type",
    "EmitConstraint.emit_overlap": "MIN_OVERLAP", "BatchNormParameter.bias_term": "use_weight_bias", "NetState.stage": " stage:", "NetState.not_stage": " stage:",
    "NetState.level": "_level:", "NetStateRule.min_level": " level:", "NetStateRule.max_level": " level:",
    "FillerParameter.value": '"constant"', "FillerParameter.min": '"uniform"', "FillerParameter.max": '"uniform"', "FillerParameter.mean": '"gaussian"',
    "FillerParameter.std": '"gaussian"', "FillerParameter.sparse": '"gaussian"', "FillerParameter.variance_norm": '"(xavier|msra)"',
}


class Ended:
    def __init__(self, code, out, seconds, peak):
        self.code, self.out, self.seconds, self.peak = code, out, seconds, peak
        self.lines = sorted({SHAPE.sub("", line.split("] ", 1)[-1]) for line in job.errors(out)})


def limits():
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    os.setpgrp()


def run(command, folder, limit=LIMIT_S):
    """A run that is asked to stop where it takes longer; code: "hangs" where that does not end it."""
    started = time.time()
    with open(os.path.join(folder, "..", "out"), "wb") as out:
        p = subprocess.Popen(command, cwd=folder, env=job.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, preexec_fn=limits)
    asked = ended = False
    while not ended:
        pid, status, usage = os.wait4(p.pid, os.WNOHANG)
        ended = pid != 0
        past = time.time() - started
        if not ended and not asked and past > limit:
            p.send_signal(signal.SIGTERM)
            asked = True
        if not ended and past > limit + 20:
            os.killpg(p.pid, signal.SIGKILL)
            os.waitpid(p.pid, 0)
            break
        time.sleep(0.005)
    p.returncode = 0
    asked = asked and ended
    code = "hangs" if not ended else -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with open(os.path.join(folder, "..", "out"), encoding="utf-8", errors="replace") as f:
        said = f.read()
        if asked and re.search("Optimization stopped early|exit code 76", said):
            code = 75  # mpirun has a code of its own
        return Ended(code, said, time.time() - started, usage.ru_maxrss << 10 if ended else 0)


def signature(ended, folder):
    """What of a run a field may change."""
    told = ["".join(x for x in m if x) for m in TOLD.findall(ended.out)]
    return told, job.checksum(ended.out), sorted(n for n in os.listdir(folder) if not n.endswith(".prototxt"))


class Case:
    without = set()  # fields that the reference calls so

    def __init__(self, work, schema, bases, seen, seed, number, kinds):
        self.work, self.schema, self.seen = work, schema, seen
        self.draw = random.Random(f"{seed} {number}")
        kind = self.draw.choices(kinds, [WEIGHTS[k] for k in kinds])[0]
        self.index = self.draw.randrange(len(bases[kind]))
        self.base = bases[kind][self.index]
        self.folders, self.notes, self.rows = 0, [], []
        self.trees = {k: drawn_fields.copy(t) for k, t in self.base.files.items()}
        self.drawn = []  # (file, Field, word, how)
        self.change()

    def change(self):
        draw = self.draw
        for _ in range(draw.choice((1, 1, 1, 1, 1, 1, 2, 3))):
            file, path, message = draw.choice(self.base.focus)
            fields = [f for f in self.schema.fields(message) if f.kind not in ("NetParameter", "V1LayerParameter", "V0LayerParameter", "BlobProto", "LayerParameter")
                      and not (message in ("LayerParameter", "V1LayerParameter") and f.name.endswith("_param") and draw.random() < 0.93)]
            if not fields:
                continue
            f = draw.choice(fields)
            if any(d[:2] == (file, f) for d in self.drawn):
                continue
            node = drawn_fields.message_at(self.trees[file], path)
            there = [e[1] for e in node if e[0] == f.name]
            word = self.word(f, there)
            made = [f.name, drawn_fields.tree(word[1:-1]) if word.startswith("{") else word, True]
            how = "once"
            if draw.random() < 0.06:
                how = "twice"
            elif f.label == "repeated" and draw.random() < 0.3:
                how = draw.choice(("added", "two", "none", "many"))
            if how != "added":
                node[:] = [e for e in node if e[0] != f.name]
            node += [list(made) for _ in range({"twice": 2, "two": 2, "many": 10000, "none": 0}.get(how, 1))]
            self.drawn.append((file, f, word, how, there))

    def word(self, f, there):
        words = drawn_fields.values(self.schema, f)
        if f.told() in POOL and self.draw.random() < 0.7:
            return f'"{self.draw.choice(POOL[f.told()].split())}"'
        numbers = [w for w in there if isinstance(w, str) and re.fullmatch(r"-?[\d.]+", w)]
        if numbers and self.draw.random() < 0.25:  # near what fits
            value = float(numbers[0])
            return self.draw.choice([f"{v:.9g}" for v in (value + 1, value - 1, value * 2, value / 2, -value)])
        return self.draw.choice(words)

    def told(self):
        return f"{self.base.kind} {self.base.name}, {self.base.ranks} ranks: " + " ".join(f"{f.told()}={w[:40]!r} {how}" for _, f, w, how, _ in self.drawn)

    def folder(self, trees, copy=None):
        path = os.path.join(self.work, f"job{self.folders}")
        self.folders += 1
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(copy, path) if copy else os.mkdir(path)
        for name, t in trees.items():
            with open(os.path.join(path, f"{name}.prototxt"), "w", encoding="utf-8") as f:
                f.write(drawn_fields.Written(t).text)
        return path

    def check_command(self):
        b = self.base
        how = ["--parallel=plan.prototxt"] if b.kind == "plan" else ["--nodes=4", "--ranks_per_node=2", "--machine=machine.prototxt"] \
            if b.kind == "machine" else [f"--ranks={b.ranks}"]
        return [job.CORTADO, "check", "--solver=solver.prototxt", *how]

    def command(self, more=()):
        b = self.base
        if b.kind == "machine":
            return [job.CORTADO, "info", "--topology=machine.prototxt"]
        if b.kind == "sweep":
            return [job.CORTADO, "sweep", "sweep.prototxt", "--to=out"]
        stop = [] if not any(f.name in ("max_iter", "max_epoch") for _, f, _, _, _ in self.drawn) else [f"--set=stop_iter={LAST}"]
        plan = ["--parallel=plan.prototxt"] if b.kind == "plan" else []
        return job.launch(b.ranks, [job.CORTADO, "train", "--solver=solver.prototxt", *plan, *stop, *more])

    def wanted(self):
        """What the files give with nothing drawn; made once."""
        key = (self.base.kind, self.index)
        if key not in self.seen:
            drawn, self.drawn = self.drawn, []
            folder = self.folder(self.base.files)
            ended = run(self.command(), folder)
            if ended.code != 0:
                sys.exit(f"{self.base.kind} {self.base.name}: {ended.out[-3000:]}")
            self.seen[key] = self.sign(ended, folder)
            shutil.rmtree(folder)
            self.drawn = drawn
        return self.seen[key]

    def sign(self, ended, folder):
        if self.base.kind == "machine":
            checked = run(self.check_command(), folder)
            return re.sub(r"(?m)^[IW].*\n", "", ended.out + checked.out)
        if self.base.kind == "sweep":
            path = os.path.join(folder, "out", "table.csv")
            return open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        return signature(ended, folder)

    def add(self, what, code, wrong, note=""):
        self.rows.append((what, code, wrong, note))

    def refusal(self, ended, trees):
        """Why this is no refusal as it should be; empty: it is one."""
        if len(ended.lines) != 1:
            return f"{len(ended.lines)} lines of errors: {' / '.join(ended.lines) or ended.out[-300:]}"
        line = ended.lines[0]
        if any(f.told() in PLACELESS and (f.name in line or "machine file" in line) for _, f, _, _, _ in self.drawn) or "this cortado was built without" in line:
            return ""
        if LOSS.search(ended.out):
            return f"refused behind the first step: {line}"
        if len(line) > 4096:
            return f"a line of {len(line)} characters: {line[:300]}"
        places = PLACE.findall(line)
        if "run 0001 ended with exit code 2" in line and any(f.told() in LATE for _, f, _, _, _ in self.drawn):
            return ""
        if not places and any(how == "none" for _, _, _, how, _ in self.drawn) and ".prototxt: " in line:
            return ""  # of what is not there
        if not places:
            return f"no place: {line}"
        within = any(how == "none" for _, _, _, how, _ in self.drawn)  # it has no line
        for file, number in places:
            written = drawn_fields.Written(trees[file])
            spans = written.drawn + written.around
            within = within or any(a <= int(number) <= b for a, b in spans)
        names = [part for _, f, _, _, _ in self.drawn for part in (f.name, *f.name.split("_")) if len(part) > 3 or part == f.name] + [w.strip('"') for _, _, w, _, _ in self.drawn if len(w) > 4]
        names += [w for _, _, w, _, _ in self.drawn if w.startswith('"')]
        names += ["compression:", "bn_param", "x" * 100]  # of a value that is longer than a line may be
        if re.search(r'layer "(?!x")', line) and self.base.kind in ("layer", "data", "transform", "net", "solver", "plan"):
            return ""  # what it makes of the field's layer no longer fits there
        if self.base.kind in ("plan", "net") and any(re.search(rf"\b{re.escape(w)}\b", line) for _, _, w, _, _ in self.drawn):
            return ""
        if not any(n in line for n in names) and not re.search("shape|sizes|samples of|kernel", line):
            return f"no field: {line}"
        if ":1:1: " in line:  # what misses beside the field
            return ""
        if any(w.strip('"') in line for _, _, w, _, _ in self.drawn if len(w) > 4):  # the place is that of what does not go with it
            return ""
        return "" if within else f"another line: {line}"

    def run(self):
        wanted = self.wanted()
        trees = self.trees
        folder = self.folder(trees)
        before = sorted(os.listdir(folder))
        none = [(f, w) for _, f, w, how, _ in self.drawn if how != "none" and drawn_fields.is_none(self.schema, f, w)]
        checked = run(self.check_command(), folder) if self.base.kind != "sweep" else None
        after_check = sorted(os.listdir(folder))
        long = any(f.told() in ENDLESS for _, f, _, _, _ in self.drawn)
        ended = run(self.command(), folder, 10 if long else LIMIT_S)
        for name, e in (("check", checked), ("end", ended)):
            if e is None:
                continue
            with open(os.path.join(folder, "..", f"log.{name}"), "w", encoding="utf-8") as f:
                f.write(e.out)
            wrong = "" if e.code in (0, 1, 2, 3, 4, 5, 75, 76) else f"exit code {e.code}: {e.out[-300:]}"
            if e.peak > LIMIT_BYTES:
                wrong = wrong or f"{e.peak >> 20} MiB"
            if e.code in (75, 76) and not long:
                wrong = wrong or f"no end in {LIMIT_S} s"
            if wrong or name == "end":
                self.add(name, e.code, wrong, " / ".join(e.lines) if e.code else "")
        if after_check != before:
            self.add("check", checked.code, f"left {sorted(set(after_check) - set(before))}")
        if none and ended.code != 2:
            self.add("type", ended.code, "; ".join(f"{f.told()} took {w!r}, which is no {f.kind}" for f, w in none))
        if checked:
            agree = self.base.kind == "machine" and ": has " in checked.out or checked.code == ended.code or (checked.code == 0 and ended.code in (1, 3, 5, 75, 76)) or \
                (ended.code == 3 and any(f.name == "source" for _, f, _, _, _ in self.drawn)) or (checked.code == 0 and any(f.told() in BEYOND for _, f, _, _, _ in self.drawn))
            self.add("agree", checked.code, "" if agree else f"check ends with {checked.code} ({' / '.join(checked.lines)[:300]}), the run with {ended.code} ({' / '.join(ended.lines)[:300]})")
        if ended.code in (1, 2, 3, 4):
            self.add("refused", ended.code, self.refusal(ended, trees))
            left = [n for n in os.listdir(folder) if n not in before and "run 0001 ended with exit code 2" not in ended.out]
            if left and ended.code != 3:
                self.add("refused", ended.code, f"left {left}")
            return
        if ended.code == 5:
            self.add("losses", 5, "" if len(ended.lines) == 1 else f"{len(ended.lines)} lines: {' / '.join(ended.lines)}")
            return
        if ended.code != 0:
            return
        self.look(wanted, ended, folder, trees)

    def look(self, wanted, ended, folder, trees):
        """At a run that went to its end."""
        kind = self.base.kind
        found = self.sign(ended, folder)
        if kind not in ("machine", "sweep"):
            odd = [v for _, v in LOSS.findall(ended.out) if not drawn_fields.math.isfinite(float(v))]
            allowed = any(f.name == "stop_on_nan" for _, f, _, _, _ in self.drawn)
            self.add("losses", 0, f"a loss is {odd[0]}, and the code 0" if odd and not allowed else "")
        if len(self.drawn) == 1:
            self.add("acts", 0, self.acts(wanted, found, ended))
        if kind in ("machine", "sweep"):
            return
        if any(f.name == "random_seed" and w.startswith("-") for _, f, w, _, _ in self.drawn):
            return  # any seed
        self.again(found, ended, folder, trees)
        self.written(found, ended, folder, trees)

    def acts(self, wanted, found, ended):
        file, f, word, how, there = self.drawn[0]
        if found != wanted or how != "once" or word == "{}" or self.quiet(f):
            return ""
        if there and isinstance(there[-1], str) and drawn_fields.same(self.schema, f, word, there[-1]):
            return ""
        if not there and drawn_fields.same(self.schema, f, word, f.default):
            return ""
        if f.kind in ("float", "double") and abs(drawn_fields.number(word) - float(there[-1] if there else f.default or 0)) < 2e-4:
            return ""  # it is rounded away
        warned = [line for line in ended.out.splitlines() if line.startswith("W") and f.name in line]
        return "" if warned else f"{f.told()} = {word[:60]} ({self.base.kind} {self.base.name}) changes nothing"

    def quiet(self, f):
        """True where the docs say that the field changes no bit, or none in these files."""
        if f.told() in QUIET or f"{f.message}.*" in QUIET or f"*.{f.name}" in QUIET:
            return True
        if re.search("axis", f.name) or f.told() in self.without:
            return True
        needs, (file, _, _, _, _) = NEEDS.get(f.told()), self.drawn[0]
        if not needs:
            return False
        near = [drawn_fields.message_at(drawn_fields.copy(self.base.files[file]), path) for at, path, message in self.base.focus if message == f.message]
        return not any(re.search(needs, drawn_fields.Written(t).text) for t in (near if f.message == "FillerParameter" else self.base.files.values()))

    def again(self, found, ended, folder, trees):
        if not os.path.exists(os.path.join(folder, "s_iter_2.solverstate.h5")):
            return
        path = self.folder(trees, folder)
        for n in os.listdir(path):
            made = re.match(r"s_iter_(\d+)\.", n)
            if made and int(made.group(1)) > 2:
                os.unlink(os.path.join(path, n))
        e = run(self.command(["--snapshot=auto"]), path)
        if e.code != 0:
            self.add("again", e.code, f"exit code {e.code}: {' / '.join(e.lines) or e.out[-300:]}")
            return
        losses = dict(LOSS.findall(e.out))
        other = [i for i, v in LOSS.findall(ended.out) if int(i) >= 2 and losses.get(i) != v]
        wrong = f"the loss of iteration {other[0]} is another: {losses.get(other[0])}" if other else ""
        if job.checksum(e.out) != job.checksum(ended.out):
            wrong = wrong or "another checksum"
        self.add("again", 0, wrong)

    def written(self, found, ended, folder, trees):
        path = self.folder(trees)
        changed = {file for file, *_ in self.drawn if file in ("net", "solver")}
        for name in changed:
            os.rename(os.path.join(path, f"{name}.prototxt"), os.path.join(path, f"{name}.0"))
            ways = [(f"{name}.0", f"{name}.prototxt"), (f"{name}.prototxt", f"{name}.2.prototxt")]
            if name == "net":
                ways += [("net.0", "net.caffemodel"), ("net.caffemodel", "net.3.prototxt")]
            for a, b in ways:
                e = run([job.CORTADO, "convert", name, f"--from={a}", f"--to={b}"], path)
                if e.code != 0:
                    self.add("written", e.code, f"{a} to {b}: exit code {e.code}: {' / '.join(e.lines) or e.out[-300:]}")
                    return
            texts = []
            for n in (f"{name}.prototxt", f"{name}.2.prototxt", f"{name}.3.prototxt"):
                if os.path.exists(os.path.join(path, n)):
                    with open(os.path.join(path, n), "rb") as f:
                        texts.append(f.read())
            if any(t != texts[0] for t in texts):
                self.add("written", 0, f"{name} is another when written again")
                return
        if not changed:
            return
        for n in os.listdir(path):
            if not re.fullmatch(r"(net|solver|plan)\.prototxt", n):
                os.unlink(os.path.join(path, n))
        e = run(self.command(), path)
        again = self.sign(e, path)
        self.add("written", e.code, "" if again[:2] == found[:2] else f"the run of what was written back is another, with code {e.code}: {' / '.join(e.lines)}")


def unjudged(schema, bases):
    """Fields that no case draws."""
    drawn = {m for kind in bases.values() for b in kind for _, _, m in b.focus}
    held = ("NetParameter", "V1LayerParameter", "V0LayerParameter", "BlobProto", "LayerParameter")
    for name in sorted(schema.messages):
        left = [f.name for f in schema.fields(name) if name not in drawn or f.kind in held]
        if left:
            print(f"{name}: " + ("all" if len(left) == len(schema.messages[name]) else ", ".join(left)))


def make_sets(folder):
    """What the readers of drawn_fields.py read."""
    draw = random.Random(3)
    job.Work(folder)
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as f:
        f.write(" ".join(draw.choice("the cat sat on a mat and ran off with hat".split()) for _ in range(1500)))
    for to in ("bin", "h5"):
        code, out = job.run([job.CORTADO, "convert", "text", "--from=text.txt", *(["--tokenizer=char"] if to == "bin" else []), f"--to=text.{to}"], folder)
        if code != 0:
            sys.exit(out)
    with open(os.path.join(folder, "list.txt"), "w", encoding="ascii") as f:
        for i in range(12):
            with open(os.path.join(folder, f"p{i}.png"), "wb") as p:
                p.write(drawn_sets.png(drawn_sets.planes_of(draw, 3, 12, 13), 12, 13, draw))
            f.write(f"../p{i}.png {i % 10}\n")
    values = [draw.random() for _ in range(12 * 60)]
    drawn_sets.Hdf5().write(os.path.join(folder, "set.h5"), {"data": ("f", (12, 3, 4, 5), values, 0), "label": ("f", (12,), [i % 10 for i in range(12)], 0)})
    with open(os.path.join(folder, "h5.txt"), "w", encoding="ascii") as f:
        f.write("../set.h5\n")
    drawn_sets.draw_windows(random.Random(1), folder, 24)
    drawn_sets.draw_annotated(random.Random(5), folder, 24)


def try_all(results, options, folder):
    make_sets(folder)
    schema = drawn_fields.Schema(os.path.join(job.ROOT, "framework", "proto", "cortado.proto"))
    bases, seen = drawn_fields.all_bases(schema), {}
    with open(os.path.join(job.ROOT, "docs", "config-reference.md"), encoding="utf-8") as f:
        parts = re.split(r"(?m)^## ", f.read())
    Case.without = {f"{p.split()[0]}.{name}" for p in parts[1:] for name in re.findall(r"(?mi)^\| `(\w+)` .*without effect", p)}
    kinds = options["kinds"].split("/") if "kinds" in options else list(WEIGHTS)
    for seed, number, name in job.drawn(results, options):
        before = sorted(os.listdir(folder))
        case = Case(folder, schema, bases, seen, seed, number, kinds)
        if not case.drawn:
            continue
        case.run()
        for what, code, wrong, note in case.rows:
            results.add(f"fields: {what}", name, [0, 2], code, wrong and f"{case.told()}: {wrong}", case.told() + (": " + note if note else "") if what == "end" else "")
        if "keep" in options and any(r[2] for r in case.rows):
            kept = os.path.join(options["keep"], f"{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, ignore=lambda d, names: [n for n in names if d == folder and not n.startswith(("job", "log"))])
        for n in os.listdir(folder):
            if n not in before:
                path = os.path.join(folder, n)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


if __name__ == "__main__":
    if "--unjudged" in sys.argv:
        read = drawn_fields.Schema(os.path.join(job.ROOT, "framework", "proto", "cortado.proto"))
        sys.exit(unjudged(read, drawn_fields.all_bases(read)))
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "keep", "kinds"}, try_all)
