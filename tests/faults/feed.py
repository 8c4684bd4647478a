#!/usr/bin/env python3
"""Draws data sets and the layers that read them, trains by them in many ways, and compares what nets are fed with what the files hold.

Usage: tests/faults/feed.py RESULTS [--cases=N] [--first=0] [--seed=1] [--keep=FOLDER]
       tests/faults/feed.py RESULTS --table

A case draws a set (drawn_sets.py), a layer for each phase, a global batch, and a training of some iterations whose HDF5Output layers write
down what it is fed:
 * fed, tests: one rank. Each sample comes as the rules of docs/data.md say: which, how often in an epoch, in which order where they say so, each
   number after the transform, a crop that is a window of the sample, labels. Each test begins where the first one did.
 * ranks: other numbers of ranks, threads, batches ahead, one reader a node or none, staged: all ranks together have the same bits.
 * plan: stages, shares, micro-batches: the same.
 * again: goes on from a set in the middle on other ranks: the same from there on.
 * dump: `cortado time --data --dump_batches` on several ranks: the same.
 * beside: a layer with a set of equal size walks in step.
 * optex: rounds of OptEx, whose points have the batches one after the other.
 * boxes: those of AnnotatedData, moved along with the crop.
 * test, extract: `cortado test` and `cortado extract` see what tests see.
 * seed: another seed gives another order; the same one the same.
Numbers are those of the file where nothing is computed; else a difference and a product round once each. Where images are augmented labels
tell the sample, and all ways have the same bits.
--keep has the folders of the cases that are wrong. job.py says what RESULTS and --table are.
"""
import collections
import math
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile

import drawn_sets
import job

LIMIT_S = 150
OLD = ("scale:", "mirror:", "crop_size:", "mean_file:")  # stood beside the source in Caffe's first nets
FIRST = "train0"  # layer with a bottom
REFUSED = ("repeat is", "stripes of", "global batch", "without one", "too few for layer", "fewer than a batch", "mix pairs of")


def layer(name, kind, bottoms, top, words):
    return (f'layer {{ name: "{name}" type: "{kind}"' + "".join(f' bottom: "{b}"' for b in bottoms) + "".join(f' top: "{t}"' for t in top) +
            f" {words} }}\n")


class Fed:
    """What a layer of one phase is told."""

    def __init__(self, draw, folder, s, phase):
        self.set, self.phase = s, phase
        self.transform = drawn_sets.Transform(draw, folder, s, phase)
        self.batch = draw.choice((1, 2, 3, 4, 5, 6, 8, 12, 12, 16, draw.randrange(1, 25)))
        self.shuffle, self.skip, self.stripes, self.words = phase == "TRAIN", 0, s.stripes, []
        self.old = s.type in ("Data", "ImageData", "WindowData") and draw.random() < 0.15
        if s.type in ("MemoryData", "TextData"):
            self.shuffle = False
        elif s.shuffles and draw.random() < 0.4:
            self.shuffle = draw.random() < 0.5
            self.words.append(f"shuffle: {'true' if self.shuffle else 'false'}")
        if s.type in ("Data", "AnnotatedData") and not s.stripes and draw.random() < 0.2:
            self.stripes = draw.randrange(1, s.n + 1)
            self.words.append(f"stripes: {self.stripes}")
        if s.skips and draw.random() < 0.25:
            self.skip = draw.choice((1, 3, s.n, 3 * s.n))
            self.words.append(f"rand_skip: {self.skip}")
        elif phase == "TRAIN" and s.kind not in ("tokens", "text", "windows") and draw.random() < 0.12 and self.batch > 1:
            self.transform.repeat = draw.choice([r for r in range(2, self.batch + 1) if self.batch % r == 0])
            self.transform.words.append(f"repeat: {self.transform.repeat}")

    def text(self, batch, threads, prefetch):
        s = self.set
        words = [s.words, f"batch_size: {batch}", *self.words, f"threads: {threads}" if s.threads and threads else ""]
        ahead = f"prefetch: {prefetch}" if prefetch else ""
        if s.field == "data_param":
            words.append(ahead)
        beside = f" data_param {{ {ahead} }}" if ahead and s.field != "data_param" else ""
        transform = self.transform.text()
        if self.old and not self.transform.wild and all(w.startswith(OLD) for w in self.transform.words):
            transform = ""
            words += self.transform.words
        beside += getattr(s, "beside", "")
        tops = s.tops + (["boxes"] if s.type == "AnnotatedData" else [])
        return layer("in", s.type, [], tops, f"include {{ phase: {self.phase} }} {transform} "
                     f"{s.field} {{ {' '.join(w for w in words if w)} }}{beside}")


class Way:
    """How a training runs."""

    def __init__(self, ranks=1, threads=0, prefetch=0, plan="", micro=1, words="", options=()):
        self.ranks, self.threads, self.prefetch, self.plan, self.micro, self.words, self.options = ranks, threads, prefetch, plan, micro, words, list(options)
        self.shares = None

    def told(self):
        return f"{self.ranks} ranks, threads {self.threads}, prefetch {self.prefetch} {self.micro} x {self.plan} {self.words} {' '.join(self.options)}"


def draw_way(draw, case, most=4):
    global_batch = case.train.batch
    way = Way(ranks=draw.randrange(1, min(most, global_batch) + 1), threads=draw.choice((0, 1, 2, 3)), prefetch=draw.choice((0, 0, 1, 2, 7)))
    if draw.random() < 0.35:
        way.words += " node_reader: false"
    if draw.random() < 0.25 and case.set.type != "MemoryData":
        way.options.append("--stage=../stage")
    if way.ranks > 1 and draw.random() < 0.3:
        way.words += f' comm {{ topology: "{draw.choice([t for t in (f"{way.ranks}x1", f"1x{way.ranks}", "2x2") if eval(t.replace("x", "*")) == way.ranks])}" }}'
    if draw.random() < 0.1 and way.ranks > 1:
        way.words += f" outer {{ local_iter: 2 groups: {draw.choice([g for g in (1, 2, 3, 4) if way.ranks % g == 0])} }}"
    return way


def draw_plan(draw, case):
    """None: the batch is too small."""
    b = case.train.batch
    micro = draw.choice([m for m in (1, 2, 3, 4) if b % m == 0 and (m == 1 or case.micro_is_whole())])
    n = b // micro
    way = Way(threads=draw.choice((0, 2)), prefetch=draw.choice((0, 1)))
    way.micro = micro
    replicas = draw.randrange(1, min(3, n) + 1)
    cuts = sorted(draw.sample(range(1, n), replicas - 1))
    shares = [b - a for a, b in zip([0] + cuts, cuts + [n])]
    words = " ".join(f"rank: {r}" for r in range(replicas))
    if draw.random() < 0.7:
        words += "".join(f" share: {x}" for x in shares)
    else:
        shares = [n // replicas + (r < n % replicas) for r in range(replicas)]
    if draw.random() < 0.5:
        way.ranks = replicas + 1
        way.plan = f'stage {{ first: "{FIRST}" last: "ip" {words} }} stage {{ first: "ip2" last: "none" rank: {replicas} }}'
    else:
        way.ranks = replicas
        way.plan = f'stage {{ first: "{FIRST}" last: "none" {words} }}'
    way.shares = shares
    return way


def read_npz(path):
    found = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            data = z.read(name)
            size = int.from_bytes(data[8:10], "little")
            shape = eval(data[10:10 + size].decode("latin1"), {"__builtins__": {}}, {})["shape"]
            found[name[:-4]] = (shape, data[10 + size:])
    return found


class Case:
    def __init__(self, folder, seed, number):
        self.folder, self.draw = folder, random.Random(f"{seed} {number}")
        self.rows, self.notes, self.n_job = [], [], 0
        self.h5 = drawn_sets.Hdf5()

    def say(self, what, wrong, code=0, said=""):
        self.rows.append((f"feed: {what}", code, wrong, said))

    # ---- runs

    def net(self, way, train_batch, test_batch):
        tops = self.set.tops
        text = self.train.text(train_batch, way.threads, way.prefetch) + self.test.text(test_batch, way.threads, way.prefetch)
        if self.twin:
            text += layer("twin", "HDF5Data", [], ["twin"], f'include {{ phase: TRAIN }} hdf5_data_param {{ source: "../twin.h5" batch_size: {train_batch} '
                          f"shuffle: {'true' if self.train.shuffle else 'false'} }}")
        for phase in ("train", "test"):
            pairs = [(tops[0], tops[-1] if len(tops) == 1 else tops[1])] + [(t, t) for t in tops[2:]] + ([("twin", "twin")] if self.twin and phase == "train" else [])
            for k, pair in enumerate(pairs):
                text += layer(f"{phase}{k}", "HDF5Output", pair, [], f"include {{ phase: {phase.upper()} }} "
                              f'hdf5_output_param {{ file_name: "{phase}{k}.h5" }}')
        product = 'inner_product_param { num_output: 2 weight_filler { type: "xavier" } }'
        text += layer("scale", "Scale", ["data"], ["scaled"], "scale_param { axis: 0 num_axes: 0 }")
        product = "include { phase: TRAIN } " + product
        kind = "InnerProduct"
        if self.set.type == "TextData":
            kind, product = "Scale", "include { phase: TRAIN } scale_param { axis: 0 num_axes: 0 }"
        text += layer("ip", kind, ["scaled"], ["ip"], product) + layer("ip2", kind, ["ip"], ["ip2"], product)
        text += layer("loss", "EuclideanLoss", ["ip2", "ip"], ["loss"], "loss_weight: 1e-9 include { phase: TRAIN }")
        return text + layer("none", "EuclideanLoss", ["scaled", "scaled"], ["none"], "include { phase: TEST }")

    def job(self, way, copy=None, seed=None):
        path = os.path.join(self.folder, f"job{self.n_job}")
        self.n_job += 1
        os.mkdir(path)
        replicas = way.ranks if not way.plan else 1
        by_solver = way.plan or self.by_solver or self.train.batch % way.ranks
        self.tests = self.test.batch % replicas == 0
        train_batch = self.train.batch // way.ranks if not by_solver else max(1, self.train.batch)
        with open(os.path.join(path, "net.prototxt"), "w", encoding="ascii") as f:
            f.write(self.net(way, train_batch, self.test.batch // replicas if self.tests else 1))
        words = [f'net: "net.prototxt" base_lr: 1e-6 lr_policy: "fixed" max_iter: {self.iterations} random_seed: {seed or self.seed} solver_mode: CPU',
                 f'snapshot_prefix: "s" snapshot: {self.middle} snapshot_after_train: false display: 0 watchdog_seconds: 60 iter_size: {self.iter_size}',
                 f"test_iter: {self.test_iter} test_interval: {self.test_interval}", way.words]
        if by_solver and not way.plan:
            words.append(f"global_batch_size: {self.train.batch}")
        with open(os.path.join(path, "solver.prototxt"), "w", encoding="ascii") as f:
            f.write("\n".join(words) + "\n")
        if way.plan:
            with open(os.path.join(path, "plan"), "w", encoding="ascii") as f:
                f.write(f"ranks: {way.ranks} global_batch: {self.train.batch} micro_batches: {way.micro} {way.plan}\n")
        if copy:
            for name in os.listdir(copy):
                if re.match(rf"s_iter_{self.middle}\.", name):
                    shutil.copy(os.path.join(copy, name), path)
        return path

    def run(self, what, way, path, verb, options):
        """Code and output; a row where it is neither 0 nor a refusal."""
        command = [job.CORTADO, verb, *options]
        code, out = job.run(job.launch(way.ranks, command), path, LIMIT_S)
        with open(os.path.join(path, f"log.{verb}"), "w", encoding="utf-8") as f:
            f.write(out)
        self.notes.append(f"{what}: {os.path.basename(path)}: {code}: {' '.join(command[1:])}; {way.told()}")
        if code != 0:
            lines = sorted({re.sub(r"rank \d+ on \S+: ", "", line.split("] ", 1)[-1]) for line in job.errors(out)})
            wrong = "" if code == 2 and self.may_refuse(lines) else f"exit code {code}: {' / '.join(lines) or out[-400:]}"
            self.say(what, wrong, code, " / ".join(lines) if not wrong else "")
        return code == 0

    def may_refuse(self, lines):
        """By what a rank has; or of augmentation what does not go together."""
        wild = self.train.transform.wild or self.test.transform.wild
        return bool(lines) and (all(any(w in line for w in REFUSED) for line in lines) or (wild and len(lines) == 1))

    def train_by(self, what, way, copy=None):
        """The folder, or None."""
        path = self.job(way, copy)
        options = ["--solver=solver.prototxt", *(["--parallel=plan"] if way.plan else []), *way.options,
                   *([f"--snapshot=s_iter_{self.middle}.solverstate.h5"] if copy else [])]
        return path if self.run(what, way, path, "train", options) else None

    # ---- what came

    def parts(self, path, name, ranks):
        """(shape, bytes) of each rank that wrote, of a file's data sets."""
        names = [os.path.join(path, name + end) for end in ("", *(f".{r}" for r in range(ranks)))]
        return [[self.h5.read(at, n) for n in ("data", "label")] for at in names if os.path.exists(at)]

    def steps(self, path, name, way, n_step, batch, shares=None):
        """For each step a list of (data, label) of its samples, as bytes; a text: why not."""
        parts = self.parts(path, name, way.ranks)
        if not parts:
            return f"{name} is not there"
        if self.set.type == "TextData":
            return self.columns(parts, n_step, batch, shares)
        local = [p[0][0][0] // n_step for p in parts]
        if any(p[0][0][0] % n_step for p in parts) or sum(local) != batch:
            return f"{name}: {[p[0][0][0] for p in parts]} samples of {n_step} steps of {batch}"
        if shares and local != shares:
            return f"{name}: ranks have {local} samples, not {shares}"
        out = []
        for step in range(n_step):
            rows = []
            for p, n in zip(parts, local):
                cut = [(math.prod(shape[1:]) * 4, data) for shape, data in p]
                for i in range(step * n, step * n + n):
                    rows.append(tuple(data[i * size // 4:(i + 1) * size // 4].tobytes() for size, data in cut))
            out.append(rows)
        return out

    def columns(self, parts, n_step, batch, shares):
        """Of texts time comes first: a column counts as a sample."""
        t, local = self.set.length, [p[0][0][1] for p in parts]
        if any(p[0][0][0] != n_step * t for p in parts) or sum(local) != batch or (shares and local != shares):
            return f"texts of shapes {[p[0][0] for p in parts]} of {n_step} steps of {t} x {batch}, {shares} of each rank"
        return [[tuple(data[step * t * n + c:(step + 1) * t * n:n].tobytes() for _, data in p) for p, n in zip(parts, local) for c in range(n)]
                for step in range(n_step)]

    def n_outputs(self):
        return 1 + len(self.set.tops[2:]) + (1 if self.twin else 0)

    def all_steps(self, path, phase, way, n_step, batch, shares=None):
        """The same of all files of a phase: each sample's tops side by side."""
        found = []
        for k in range(self.n_outputs() - (1 if self.twin and phase == "test" else 0)):
            steps = self.steps(path, f"{phase}{k}.h5", way, n_step, batch, shares)
            if isinstance(steps, str):
                return steps
            found.append(steps)
        return [[(rows[0][i][0], rows[0][i][1], *(r[i][0] for r in rows[1:])) for i in range(batch)] for rows in zip(*found)]

    def train_steps(self, path, way, since=0):
        """Of the batches of base, which may be several of an iteration, or micro-batches that make one."""
        n = (self.iterations - since) * self.iter_size
        shares = way.shares or [self.train.batch // way.ranks + (r < self.train.batch % way.ranks) for r in range(way.ranks)]
        steps = self.all_steps(path, "train", way, n * way.micro, self.train.batch // way.micro, shares)
        if isinstance(steps, str):
            return steps
        return [sum(steps[i:i + way.micro], []) for i in range(0, len(steps), way.micro)]

    def test_steps(self, path, way):
        """A list of passes; each is a list of steps."""
        parts = self.parts(path, "test0.h5", way.ranks)
        text = self.set.type == "TextData"
        total = parts[0][0][0][0] // self.set.length * self.test.batch if text and parts else sum(p[0][0][0] for p in parts)
        one = self.test.batch * self.test_iter
        if not total or total % one:
            return f"{total} samples of tests of {one}"
        steps = self.all_steps(path, "test", way, total // self.test.batch, self.test.batch)
        if isinstance(steps, str):
            return steps
        return [steps[i:i + self.test_iter] for i in range(0, len(steps), self.test_iter)]

    def same(self, what, wanted, found, way):
        if isinstance(found, str):
            return self.say(what, f"{found} ({way.told()})")
        if len(found) != len(wanted):
            return self.say(what, f"{len(found)} steps, not {len(wanted)} ({way.told()})")
        for k, (a, b) in enumerate(zip(wanted, found)):
            other = [i for i in range(len(a)) if a[i] != b[i]]
            if other:
                tops = [t for t in range(len(a[other[0]])) if a[other[0]][t] != b[other[0]][t]]
                return self.say(what, f"step {k}: samples {other} of {len(a)} are others, tops {tops} ({way.told()})")
        return self.say(what, "")

    def same_tests(self, path, way):
        if self.tests and not (way.plan and self.set.type == "MemoryData"):
            found = self.test_steps(path, way)
            if isinstance(found, str):
                return self.say("tests", f"{found} ({way.told()})")
            return self.same("tests", [s for p in self.tested[:1] * len(found) for s in p], [s for p in found for s in p], way)
        return None

    # ---- the rules

    def judge(self, what, fed, steps):
        """What came of one rank against what should."""
        s, t, found = self.set, fed.transform, []
        if s.type == "TextData":
            got = [[tuple(list(memory_floats(r)) for r in row) for row in rows] for rows in steps]
            other = [k for k, rows in enumerate(got) if rows != drawn_sets.columns(s, k, fed.batch)]
            return self.say(what, f"steps {other} are not those of the text: {got[other[0]]}" if other else "")
        if t.mixes and fed.phase == "TRAIN":
            return self.say(what, "")
        index = Index(s, t)
        for k, rows in enumerate(steps):
            for i, row in enumerate(rows):
                hit = index.labelled(memory_floats(row[1])[0]) if t.wild else index.find(memory_floats(row[0]), list(memory_floats(row[1])))
                if hit is None:
                    return self.say(what, f"step {k}, sample {i}: its values are those of no sample: {list(memory_floats(row[0]))[:6]}")
                sample, place = hit
                for top, wanted in enumerate(s.samples[sample].rest):
                    got = list(memory_floats(row[1 + top]))
                    if s.type == "TokenData" and top == 0 and getattr(s, "mask", None):
                        continue  # Index has looked
                    if got != [float(v) for v in wanted]:
                        return self.say(what, f"step {k}, sample {i}: it is sample {sample}, whose {s.tops[top + 1]} is {wanted}, not {got}")
                if self.twin and fed.phase == "TRAIN":  # its top is the last
                    other = int(memory_floats(row[-1])[0])
                    if s.stand_in(other) != sample:
                        return self.say("beside", f"step {k}, sample {i}: it is sample {sample}, beside it stands {other}")
                found.append((sample, place))
        if self.twin and fed.phase == "TRAIN":
            self.say("beside", "")
        return self.say(what, order(s, fed, [f[0] for f in found], len(steps[0])) or chance(s, fed, found))

    def everything(self):
        draw = self.draw
        n = draw.choice((1, 3, 7, 10, 16, 25, 40, draw.randrange(2, 61)))
        self.set = s = draw.choice(drawn_sets.SETS)(draw, self.folder, n)
        s.stand_in = lambda i: stand_in(s, i)
        self.train, self.test = Fed(draw, self.folder, s, "TRAIN"), Fed(draw, self.folder, s, "TEST")
        self.seed = draw.randrange(1, 1000)
        self.by_solver = draw.random() < 0.6
        self.iter_size = draw.choice((1, 1, 1, 2, 3))
        self.iterations = min(40, max(4, math.ceil(draw.choice((1, 2.2, 3)) * n / self.train.batch / self.iter_size)))
        self.middle = draw.randrange(1, self.iterations)
        self.test_iter, self.test_interval = draw.randrange(1, 5), draw.randrange(2, 6)
        self.twin = (s.shuffles and not s.skip_broken and self.train.skip == 0 and self.train.transform.repeat == 1 and self.train.stripes < 2
                     and draw.random() < 0.3)
        if self.twin:
            self.h5.write(os.path.join(self.folder, "twin.h5"), {"twin": ("i", (n,), range(n), 0)})
        self.notes.append(f"{s.kind} {getattr(s, 'notes', '')}, {n} samples, batch {self.train.batch} and {self.test.batch}")
        base = Way(threads=draw.choice((0, 2)), prefetch=draw.choice((0, 1)))
        path = self.train_by("fed", base)
        if path is None:
            return
        self.fed = self.train_steps(path, base)
        if isinstance(self.fed, str):
            return self.say("fed", self.fed)
        self.judge("fed", self.train, self.fed)
        self.tested = self.test_steps(path, base)
        if isinstance(self.tested, str):
            return self.say("tests", self.tested)
        self.judge("tests", self.test, self.tested[0])
        self.same("tests", [st for p in self.tested[:1] * len(self.tested) for st in p], [st for p in self.tested for st in p], base)
        for _ in range(2):
            self.other_ranks("ranks", draw_way(draw, self))
        if self.iter_size == 1 and draw.random() < 0.15:
            self.optex()
        if draw.random() < 0.6:
            self.other_ranks("plan", draw_plan(draw, self))
        self.goes_on(path)
        self.dump(draw_way(draw, self))
        self.by_verbs(path)
        return None

    def other_ranks(self, what, way):
        path = self.train_by(what, way)
        if path is not None:
            self.same(what, self.fed, self.train_steps(path, way), way)
            self.same_tests(path, way)

    def optex(self):
        """Rounds of several steps: ranks have whole batches, or share them."""
        points = self.draw.choice((2, 3))
        ranks = self.draw.choice([r for r in (1, points, 2 * points) if r <= 4 and self.train.batch >= max(1, r // points)])
        rounds = len(self.fed) // points
        way = Way(ranks=ranks, words=f' type: "OptEx" optex {{ base_type: "SGD" parallel: {points} guard: false }}')
        if not rounds:
            return None
        before, self.iterations, by, self.by_solver = self.iterations, rounds, self.by_solver, True
        path = self.train_by("optex", way)
        self.iterations, self.by_solver = before, by
        if path is None:
            return None
        each, sharers = max(1, points // ranks), max(1, ranks // points)
        found = [[] for _ in range(rounds * points)]
        for r in range(ranks):
            n = self.train.batch // sharers + (r % sharers < self.train.batch % sharers)
            folder = os.path.join(path, f"rank{r}")
            os.mkdir(folder)
            for k in range(self.n_outputs()):
                shutil.copy(os.path.join(path, f"train{k}.h5" + (f".{r}" if ranks > 1 else "")), os.path.join(folder, f"train{k}.h5"))
            steps = self.all_steps(folder, "train", Way(), rounds * each, n)
            if isinstance(steps, str):
                return self.say("optex", f"rank {r}: {steps} ({way.told()})")
            for j, rows in enumerate(steps):
                found[j // each * points + r // sharers * each + j % each] += rows
        return self.same("optex", self.fed[:rounds * points], found, way)

    def micro_is_whole(self):
        """Whether a batch is its micro-batches, one behind the other: not where a batch has columns or shares."""
        return self.set.type not in ("TextData", "WindowData") and self.train.transform.repeat == 1

    def goes_on(self, base):
        draw = self.draw
        way = draw_plan(draw, self) if draw.random() < 0.25 else draw_way(draw, self)
        path = self.train_by("again", way, copy=base)
        if path is not None:
            self.same("again", self.fed[self.middle * self.iter_size:], self.train_steps(path, way, self.middle), way)

    def samples_of(self, tops):
        """The samples of whole batches: (shape, floats) of each top."""
        if self.set.type == "TextData":
            return [tuple(data[c::shape[1]].tobytes() for shape, data in tops) for c in range(tops[0][0][1])]
        return [tuple(data[i * len(data) // shape[0]:(i + 1) * len(data) // shape[0]].tobytes() for shape, data in tops) for i in range(tops[0][0][0])]

    def dump(self, way):
        for what, seed in (("dump", self.seed), ("seed", self.seed + 1000)):
            if what == "seed":
                way = Way()
            path = self.job(way, seed=seed)
            options = ["--solver=solver.prototxt", "--data", f"--iterations={len(self.fed)}", "--dump_batches=d.npz", "--limits=false",
                       *[o.replace("--stage=", "--stage_dir=") for o in way.options]]
            if not self.run(what, way, path, "time", options):
                continue
            arrays = read_npz(os.path.join(path, "d.npz"))
            names = self.set.tops + ([self.set.tops[0]] if len(self.set.tops) == 1 else []) + (["twin"] if self.twin else [])
            steps = []
            for k in range(len(self.fed)):
                tops = [arrays[f"{t}/{k}"] for t in names]
                steps.append(self.samples_of([(shape, memory_floats(data)) for shape, data in tops]))
            if what == "dump":
                self.same("dump", self.fed, steps, way)
                if self.set.type == "AnnotatedData":
                    self.judge_boxes([memory_floats(arrays[f"boxes/{k}"][1]) for k in range(len(self.fed))], way)
            elif self.train.shuffle and self.set.n > 6 and sum(len(r) for r in steps) > 6:
                self.say("seed", "another seed gives the same batches" if steps == self.fed else "")

    def judge_boxes(self, boxes, way):
        index, s, size = Index(self.set, self.train.transform), self.set, 8 * self.set.most
        for k, rows in enumerate(self.fed):
            for i, row in enumerate(rows):
                sample, place = index.find(memory_floats(row[0]), [])
                got = [list(boxes[k][i * size + 8 * b:i * size + 8 * b + 8]) for b in range(s.most)]
                wanted = drawn_sets.box_rows(s, self.train.transform, sample, i, place)
                if any(abs(a - b) > 1e-5 for x, y in zip(wanted, got) for a, b in zip(x, y)):
                    return self.say("boxes", f"step {k}, sample {i}: it is sample {sample}, with boxes {wanted}, not {got} ({way.told()})")
        return self.say("boxes", "")

    def by_verbs(self, base):
        """What `cortado test` and `cortado extract` see."""
        way = Way(ranks=self.draw.choice([r for r in (1, 2, 3) if self.test.batch % r == 0]))
        path = self.job(way, copy=base)
        weights = f"--weights=s_iter_{self.middle}.caffemodel.h5"
        options = ["--model=net.prototxt", weights, f"--iterations={self.test_iter}"]
        found = None
        if self.run("test", way, path, "test", options):
            found = self.test_steps(path, way)
            found = found if isinstance(found, str) else [s for p in found for s in p]
            self.by_verb("test", found, way)
        path = self.job(Way(), copy=base)
        if self.run("extract", Way(), path, "extract", options + ["--blobs=" + ",".join(self.set.tops), "--to=e.h5"]):
            tops = [self.h5.read(os.path.join(path, "e.h5"), t) for t in (self.set.tops * 2)[:max(2, len(self.set.tops))]]
            rows = self.samples_of(tops)
            steps = [rows[i:i + self.test.batch] for i in range(0, len(rows), self.test.batch)]
            if self.set.type == "TextData":
                t, b = self.set.length, self.test.batch
                steps = [self.samples_of([((t, b), data[i:i + t * b]) for _, data in tops]) for i in range(0, len(tops[0][1]), t * b)]
            self.by_verb("extract", steps, Way())
            if found:
                self.same("extract", found, steps, way)

    def by_verb(self, what, found, way):
        """These know no seed: what is drawn may be others."""
        drawn = self.test.shuffle or self.test.skip or self.test.transform.mirror or self.test.transform.wild or self.set.type == "WindowData" or getattr(self.set, "mask", None)
        if isinstance(found, str) or not drawn:
            return self.same(what, self.tested[0], found, way)
        return self.judge(what, self.test, found)


def memory_floats(data):
    return memoryview(data).cast("f")


class Index:
    """Finds the sample, and the window of it, that values are."""

    def __init__(self, s, t):
        self.set, self.t, self.all = s, t, collections.defaultdict(list)
        for i, sample in enumerate(s.samples):
            if not sample.broken and not t.wild:
                for values, top, left, mirrored in t.windows(sample):
                    self.all[len(values)].append((values, t.within(sample), i, (top, left, mirrored)))

    def labelled(self, label):
        """Of what is augmented labels alone tell the sample."""
        for i, sample in enumerate(self.set.samples):
            if sample.rest[0] == [label] and not sample.broken:
                return i, (0, 0, False)
        return None

    def find(self, got, label):
        """Of several that it may be the one with the label."""
        found = None
        if getattr(self.set, "mask", None):  # the second top has what is hidden
            got = [b if b >= 0 else a for a, b in zip(got, label)]
        for values, within, i, place in self.all[len(got)]:
            if all(abs(a - b) <= within for a, b in zip(values, got)):
                found = i, place
                if self.set.samples[i].rest[:1] == [label]:
                    break
        return found


def stand_in(s, i):
    """The next good one for a broken sample."""
    while s.samples[i].broken:
        i = (i + 1) % s.n
    return i


def is_range(ids):
    return max(ids) - min(ids) + 1 == len(ids) == len(set(ids))


def in_stripes(ids, sizes):
    """Whether ids fall into runs of such sizes, each a mix of consecutive samples."""
    reach = {0}
    for at in range(len(ids)):
        if at in reach:
            reach |= {at + n for n in sizes if n and at + n <= len(ids) and is_range(ids[at:at + n])}
    return len(ids) in reach


def order(s, fed, ids, batch):
    """What is wrong with the order of the samples."""
    r, n = fed.transform.repeat, s.n
    if s.type == "WindowData":
        count = [sum(s.kinds[i] for i in ids[k:k + batch]) for k in range(0, len(ids), batch)]
        share = int(batch * drawn_sets.f32(s.share))
        return "" if set(count) == {share} else f"{count} windows of objects in batches of {batch}, not {share}"
    if r > 1:
        once = []
        for i in range(0, len(ids), batch):
            part = ids[i:i + batch // r]
            if ids[i:i + batch] != part * r:
                return f"step {i // batch}: not each sample {r} times: {ids[i:i + batch]}"
            once += part
        ids = once
    starts = range(min(fed.skip, n)) if fed.skip else (0,)
    whys = [order_from(s, fed, ids, start) for start in starts]
    return "" if "" in whys else whys[0]


def order_from(s, fed, ids, start):
    n = s.n
    if not fed.shuffle:
        wanted = [s.stand_in((start + i) % n) for i in range(len(ids))]
        return "" if ids == wanted else f"in order, but samples {ids[:20]} come, not {wanted[:20]}"
    each = collections.Counter(s.stand_in(i) for i in range(n))
    epochs = [ids[max(0, a):a + n] for a in range(-start, len(ids), n)]
    for k, e in enumerate(epochs):
        count = collections.Counter(e)
        if (len(e) == n and count != each) or any(c > each[i] for i, c in count.items()):
            twice = [i for i in count if count[i] > each[i]]
            return f"epoch {k}: samples {twice} come too often, {[i for i in each if i not in count][:9]} never ({len(e)} of {n})"
        if fed.stripes > 1 and len(e) == n and not s.skip_broken and not in_stripes(e, {n // fed.stripes, n // fed.stripes + 1}):
            return f"epoch {k}: not stripe by stripe: {e}"
        if len(e) == n > 9 and not s.skip_broken and e in (sorted(e), epochs[k - 1] if k else None):
            return f"epoch {k}: in the order of the epoch before, or of the set"
    return ""


def chance(s, fed, found):
    """Whether what is drawn varies: the odds are below 1e-9."""
    t = fed.transform
    if t.wild:
        return ""
    mirrored = {p[2] for _, p in found}
    if t.mirror and len(found) >= 32 and len(mirrored) < 2:
        return f"{len(found)} samples, and none mirrored, or all"
    if fed.phase == "TRAIN" and t.crop and len(found) >= 60 and all(len(t.windows(s.samples[i])) > 3 for i, _ in found):
        if len({p[:2] for _, p in found}) < 2:
            return f"{len(found)} crops, all at one place"
    return ""


def try_all(results, options, folder):
    for seed, number, name in job.drawn(results, options):
        path = os.path.join(folder, "case")
        os.mkdir(path)
        os.mkdir(os.path.join(path, "stage"))
        case = Case(path, seed, number)
        try:
            case.everything()
        except (OSError, RuntimeError, subprocess.CalledProcessError) as e:
            case.say("made", f"{type(e).__name__}: {e}")
        for k, (what, code, wrong, said) in enumerate(case.rows):
            results.add(what, f"{name}: {k}", [0, 2], code, wrong, said)
        with open(os.path.join(path, "told"), "w", encoding="utf-8") as f:
            f.write("\n".join(case.notes + [str(r) for r in case.rows]) + "\n")
        if "keep" in options and any(r[2] for r in case.rows):
            kept = os.path.join(options["keep"], f"feed.{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(path, kept)
        shutil.rmtree(path)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "keep"}, try_all)
