#!/usr/bin/env python3
"""Draws nets, computes them in many ways, and compares what comes out with the reference engines.

Usage: tests/faults/forward.py RESULTS [--cases=N] [--first=0] [--seed=1] [--keep=FOLDER] [--onnxruntime=PYTHON]
       tests/faults/forward.py RESULTS --table

A case draws a net (drawn_nets.py), fills its weights and trains it two steps. The yardstick is the net with the engine "ref" in each layer,
one thread, portable code and `fuse: false`. Then, with each instruction set, in memory that is full of 3e38:
 * values: as layers run by themselves, on several threads, with some of the samples, with shapes that vary, without Winograd, in bf16.
 * bits: again, on other threads, fused or not, in place or apart, with inner blobs looked at, behind another shape, with another sample that is no
   number or another last token, with `recompute`. They are those of the first run.
 * gradients: a step of rate 1, by the same ways.
 * served: texts side by side, padded, and growing, as `cortado serve` runs them, also on two ranks.
 * formats: weights there and back through each one, bit by bit, and the net through ONNX; with --onnxruntime in that program, too.
Every third case is a net that ranks divide by drawn plans instead (divided): a step has the gradients of one rank.

Where no bits are promised the limit is 4 times the largest change of 3 yardsticks whose weights and inputs are changed, each number by chance up or
down, by as much as sums round: 2^-24 times the root of their terms (Higham and Mary 2019), since a sum that rounds is the exact one of changed
factors. Winograd's bound is 64 times that (winograd.h). bf16 rounds each value by 2^-9, in as many layers as there are. Onnxruntime's functions are
others: 4 times what comes out where each layer's values are off by two units of the last place comes on top. Gradients that cancel, such as a bias's before a norm, keep the rounding of the largest one.
--keep has the folders of the cases that are wrong. job.py says what RESULTS and --table are. CORTADO_LIBRARY names the library
(build/mpicc/lib/libcortado.so, of `make library`). PYTHON has numpy, onnx and onnxruntime.
"""
import array
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import zipfile

import drawn_nets
import job

LIMIT_S = 120
WINOGRAD = 64.0
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "net_worker.py")


def numbers(draw, shape, kind):
    count = math.prod(shape)
    if kind == "real":
        return array.array("f", [0.0 if draw.random() < 0.05 else draw.gauss(0, 1) for _ in range(count)])
    if kind == "cont":
        return array.array("f", [0.0 if i < shape[1] or draw.random() < 0.2 else 1.0 for i in range(count)])
    if kind == "steps":
        out = array.array("f")
        for _ in range(shape[0]):
            s = 0
            for _ in range(shape[1]):
                s += draw.random() < 0.2
                out.append(s)
        return out
    most = int(kind.split()[1])
    return array.array("f", [draw.randrange(most) for _ in range(count)])


def read_npz(path):
    """Arrays of floats by name: shape, values."""
    found = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            data = z.read(name)
            size = struct.unpack("<H", data[8:10])[0]
            head = eval(data[10:10 + size].decode("latin1"), {"__builtins__": {}}, {})
            found[name[:-4]] = (head["shape"], array.array("f", data[10 + size:]))
    return found


def write_npz(path, arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, (shape, values) in arrays.items():
            head = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
            head += b" " * (-(10 + len(head) + 1) % 64) + b"\n"
            z.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + values.tobytes())


def changed(draw, values, by):
    return array.array("f", [v * (1 + by * draw.choice((-1, 1))) for v in values])


def read_found(folder, name):
    """What a job found; a text: why it failed; None: it did not end."""
    try:
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as f:
            said = json.load(f)
    except OSError:
        return None
    if said["error"]:
        return said["error"]
    found = {}
    with open(os.path.join(folder, name), "rb") as f:
        data = f.read()
    for key, (at, count, code) in said["index"].items():
        a = array.array(code)
        a.frombytes(data[at:at + count * a.itemsize])
        found[key] = a
    return found


def largest(a):
    return max((abs(v) for v in a), default=0.0)


def difference(a, b):
    """The largest; infinite where one alone is no number."""
    if len(a) != len(b):
        return math.inf
    most = 0.0
    for x, y in zip(a, b):
        d = abs(x - y)
        if d != d:
            if (x != x) != (y != y) or (x == x and x != y):
                return math.inf
            continue
        most = max(most, d)
    return most


class Onnxruntime:
    """A process of another Python, which runs one net after the other."""

    def __init__(self, python):
        self.process = subprocess.Popen([python, os.path.join(os.path.dirname(WORKER), "in_onnxruntime.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "done\n":
            sys.exit(f"onnxruntime ended with {self.process.wait()}")


class Case:
    def __init__(self, folder, seed, number, onnxruntime=None):
        self.folder, self.draw, self.onnxruntime = folder, random.Random(f"{seed} {number}"), onnxruntime
        self.theirs = None
        self.rows, self.notes, self.given, self.said = [], [], {}, {}

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def put_given(self, key, given):
        self.given[key] = {}
        for name, values in given.items():
            path = os.path.join(self.folder, f"{key}.{name}.raw")
            with open(path, "wb") as f:
                f.write(values.tobytes())
            self.given[key][name] = path

    def solver(self, name, net, words="", rate=1.0):
        return self.put(f"{name}.solver", f'net: "{net}" base_lr: {rate} lr_policy: "fixed" max_iter: 100 type: "SGD" momentum: 0 random_seed: 7 '
                        f'solver_mode: CPU test_iter: 1 test_interval: 100000 test_initialization: false snapshot_prefix: "s" {words}\n')

    def jobs(self, simd, jobs):
        """Runs jobs in a process; False where that did not end well."""
        to = os.path.join(self.folder, "found")
        os.makedirs(to, exist_ok=True)
        path = self.put(f"jobs.{simd or 'all'}.{len(self.notes)}", json.dumps({"jobs": jobs, "given": self.given, "to": to}))
        env = dict(job.environment(), MALLOC_PERTURB_="128", **({"CORTADO_SIMD": simd} if simd else {}))  # new memory holds 3e38
        try:
            done = subprocess.run([sys.executable, WORKER, path], cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S, check=False)
            code, out = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            code, out = "no end", ""
        self.notes.append(f"{simd}: {code} {out[-1500:]}")
        if code != 0:
            with open(os.path.join(to, "at"), encoding="utf-8") as f:
                at = f.read()
            self.rows.append((f"worker, {simd or 'all'}", code, f"exit code {code} in {at}: {out[-300:]}"))
        return code == 0

    def found(self, name):
        return read_found(os.path.join(self.folder, "found"), name)

    def say(self, name, wrong, code=0):
        self.rows.append((name, code, wrong))

    def near(self, what, name, wanted, limits, found):
        """A row: each array within its limit."""
        if isinstance(found, str) or found is None:
            return self.say(what, f"{name}: {found}")
        for key, values in wanted.items():
            if key not in found:
                return self.say(what, f"{name}: nothing is called {key}: {list(found)}")
            d = difference(values, found[key])
            if not d <= limits[key]:
                return self.say(what, f"{name}: {key} differs by {d:.3g}, allowed {limits[key]:.3g}, largest {largest(values):.3g}")
        return self.say(what, "")

    def same(self, what, name, wanted, found):
        if isinstance(found, str) or found is None or isinstance(wanted, str) or wanted is None:
            return self.say(what, f"{name}: {found if not isinstance(found, dict) else wanted}")
        for key, values in wanted.items():
            if key not in found:
                return self.say(what, f"{name}: nothing is called {key}: {list(found)}")
            if values.tobytes() != found[key].tobytes() and not both_nan(values, found[key]):
                n = sum(x != y for x, y in zip(values, found[key]))
                by = difference(values, found[key])
                return self.say(what, f"{name}: {key} has other bits in {n} of {len(values)} numbers, by {by:.3g} of {largest(values):.3g}")
        return self.say(what, "")

    def run(self):
        draw = self.draw
        self.net = net = drawn_nets.Net(draw)
        self.kind = draw.choice(("pictures", "pictures", "pictures", "tokens", "tokens", "steps"))
        net.batch = drawn_nets.KINDS[self.kind](net)
        drawn_nets.losses(net, draw)
        self.full = {name: numbers(draw, shape, kind) for name, shape, kind in net.inputs}
        self.put_given("full", self.full)
        self.put("ref", net.text(ref=True, fuse=False))
        self.put("auto", net.text())
        self.solver("first", "ref", "clip_gradients: 1", rate=0.05)
        self.solver("ref1", "ref")
        if not self.jobs("portable", [{"name": "first", "kind": "train", "solver": "first.solver", "threads": 1, "steps": 2, "save": "w.npz"}]):
            return self.rows
        if not first_has_weights(self.folder):
            return self.rows
        first = self.found("first")
        if isinstance(first, str):
            self.say("made", first)
            return self.rows
        self.say("made", "")
        names = net.names()
        self.inner = draw.choice(sorted({names[t] for l in net.layers for t in l.tops if not l.train}))
        self.yardsticks()
        if isinstance(self.ref, str) or isinstance(self.grad, str) or self.ref is None or self.grad is None:
            self.say("yardstick", f"{self.ref if isinstance(self.ref, str) else ''} {self.grad if isinstance(self.grad, str) else ''}")
            return self.rows
        if not all(math.isfinite(v) for a in self.ref.values() for v in a):
            return self.rows
        for simd in ("", "avx2", "portable"):
            self.ways(simd)
        if self.kind == "tokens" and "segment" not in net.shape and not any(l.kind == "MatMul" for l in net.layers):
            self.served()
        self.formats()
        return self.rows

    def served(self):
        """Texts of several lengths side by side, and texts that grow, as `cortado serve` runs them; on two ranks, too."""
        draw, net = self.draw, self.net
        words = next(int(kind.split()[1]) for name, _, kind in net.inputs if name == "tokens")
        most = net.shape["tokens"][1]
        shapes, texts = [], []
        ids = [i * 7919 % words for i in range(8 * most + 8)]
        for _ in range(2):
            k, t = draw.randrange(1, 5), draw.randrange(1, most + 1)
            shapes.append(f"{k}x{t}")
            texts += [(ids[i * t:i * t + t], t) for i in range(k)]
        lengths = [draw.randrange(1, most + 1) for _ in range(draw.randrange(2, 5))]
        shapes.append("+".join(str(t) for t in lengths))
        texts += 2 * [(ids[i * max(lengths):i * max(lengths) + t], t) for i, t in enumerate(lengths)]  # packed, and padded
        grows = most > 2 and all("causal" in l.fields for l in net.layers if l.kind == "Attention")
        if grows:
            k, t = draw.randrange(1, 4), draw.randrange(1, 3)
            c = draw.randrange(1, most - t + 1)
            shapes.append(f"{k}x{t}@{c}")
            texts += [(ids[i:i + c] + ids[i * t:i * t + t], 1) for i in range(k)]
        for i, (text, _) in enumerate(texts):
            self.put_given(f"text{i}", {"tokens": array.array("f", text)})
        runs = [{"name": f"{i}", "given": f"text{i}", "shapes": {"tokens": (1, len(text))}} for i, (text, _) in enumerate(texts)]
        jobs = [{"name": f"texts.{w}", "kind": "test", "net": "ref", "weights": f"{w}.npz", "threads": 1, "runs": runs}
                for w in ("w", "f320", "f321", "f322")]
        if not self.jobs("portable", jobs):
            return
        found = [self.found(j["name"]) for j in jobs]
        if isinstance(found[0], str) or len(self.ref) != 1:
            return
        out = next(iter(self.ref)).split("|")[1]
        rows, columns = [], len(found[0][f"0|{out}"]) // len(texts[0][0])
        for f in found:
            rows.append([v for i, (text, n) in enumerate(texts) for v in f[f"{i}|{out}"][-n * (len(f[f"{i}|{out}"]) // len(text)):]])
        limit = 4 * max(difference(rows[0], r) for r in rows[1:]) + 4 * 2.0 ** -24 * largest(rows[0])
        before = None
        for simd, ranks, threads in (("", 1, 1), ("", 1, 2), ("avx2", 1, 2), ("portable", 1, 1), ("", 2, 1)):
            command = [job.CORTADO, "bench", "serve", "--model=auto", "--weights=w.npz", "--shapes=" + ",".join(shapes), f"--threads={threads}",
                       "--scores=scores", *(["--parallel=tensor:2"] if ranks > 1 else [])]
            if os.path.exists(os.path.join(self.folder, "scores")):
                os.unlink(os.path.join(self.folder, "scores"))
            code, said = job.run(["env", *([f"CORTADO_SIMD={simd}"] if simd else []), *job.launch(ranks, command)], self.folder, LIMIT_S)
            what = "served" if ranks == 1 else "served, 2 ranks"
            if code != 0:
                lines = sorted({re.sub(r"rank \d+ on \S+: ", "", line.split("] ", 1)[-1]) for line in job.errors(said)})
                self.said[len(self.rows)] = " / ".join(lines)
                self.say(what, "" if code == 2 and len(lines) == 1 else f"{' '.join(command)}: {code}: {' / '.join(lines)[:300] or said[-300:]}", code)
                if ranks == 1:
                    return
                continue
            with open(os.path.join(self.folder, "scores"), encoding="ascii") as f:
                got = array.array("d", [float(w) for w in f.read().split()])
            self.near(what, f"{simd} {' '.join(command)}", {"rows": rows[0]}, {"rows": limit}, {"rows": got})
            alike, at = {}, 0
            for text, n in texts:
                row = got[at:at + n * columns]
                at += n * columns
                if n == len(text) and alike.setdefault(tuple(text), row) != row:
                    self.say("served: beside others", f"{simd} {' '.join(command)}: {text} gives {list(row)[:3]} and {list(alike[tuple(text)])[:3]}")
            if (simd, ranks) == ("", 1):
                if before:
                    self.same("served: threads", simd, {"rows": before}, {"rows": got})
                before = got

    def yardsticks(self):
        """The reference, and what changes by rounding."""
        draw, net = self.draw, self.net
        weights = read_npz(os.path.join(self.folder, "w.npz"))
        jobs = []
        eps = math.sqrt(net.terms) * 2.0 ** -24
        by = {"f32": eps, "winograd": eps * (WINOGRAD if net.winograd else 1), "bf16": 2.0 ** -9 * math.sqrt(1 + len(net.layers))}
        run = {"name": "full", "given": "full"}
        inner = {"name": "inner", "inner": [self.inner]}
        kinds = [k for k in by if k != "winograd" or net.winograd]
        for kind in kinds:
            for i in range(3):
                key = f"{kind}{i}"
                write_npz(os.path.join(self.folder, f"{key}.npz"), {n: (s, changed(draw, v, by[kind])) for n, (s, v) in weights.items()})
                real = {name for name, _, k in net.inputs if k == "real"}
                self.put_given(key, {n: changed(draw, v, by[kind]) if n in real else v for n, v in self.full.items()})
                jobs.append({"name": "test." + key, "kind": "test", "net": "ref", "weights": f"{key}.npz", "threads": 1,
                             "runs": [dict(run, given=key), dict(inner, given=key)]})
                jobs.append({"name": "train." + key, "kind": "train", "solver": "ref1.solver", "weights": f"{key}.npz", "given": key, "threads": 1})
        jobs.append({"name": "test.ref", "kind": "test", "net": "ref", "weights": "w.npz", "threads": 1, "runs": [run, inner]})
        jobs.append({"name": "train.ref", "kind": "train", "solver": "ref1.solver", "weights": "w.npz", "threads": 1})
        self.jobs("portable", jobs)
        self.ref, self.grad = self.found("test.ref"), self.found("train.ref")
        self.limit, self.grad_limit = {}, {}
        if not isinstance(self.ref, dict) or not isinstance(self.grad, dict):
            return
        for kind in by:
            at = kind if kind in kinds else "f32"
            eps = by[at]
            tests, trains = ([self.found(f"{t}.{at}{i}") for i in range(3)] for t in ("test", "train"))
            self.limit[kind] = {k: 4 * max(difference(v, t[k]) for t in tests) + 4 * 2.0 ** -24 * largest(v) for k, v in self.ref.items()}
            # the weights before the step were changed themselves
            moved = {k: difference(weights[k][1], v) for k, v in self.grad.items() if k in weights and not k.endswith("/2")}
            most = max(moved.values(), default=0.0)  # terms that cancel, as in the gradient of a bias before a norm, leave their rounding
            self.grad_limit[kind] = {k: 4 * max(difference(v, t[k]) for t in trains) + eps * most + 8 * (2.0 ** -24 if at != "bf16" else eps) * largest(v)
                                     for k, v in self.grad.items()}
        key = f"inner|{self.inner}"
        self.inner_ref, self.ref = {key: self.ref[key]}, {k: v for k, v in self.ref.items() if k.startswith("full|")}

    def ways(self, simd):
        draw, net = self.draw, self.net
        self.put("apart", net.text(apart=True))
        self.put("alone", net.text(fuse=False))
        full = {"name": "full"}
        jobs, t = [], draw.choice((2, 3)) if simd != "portable" else 1  # products are OpenBLAS's there, which adds up by threads
        inner = self.inner
        one, two = {}, {}
        if net.batch is not None and net.batch > 1:
            k = draw.randrange(1, net.batch)
            one = {name: (k, *shape[1:]) for name, shape, _ in net.inputs if name != "label"}
            self.put_given("some", {name: self.full[name][:math.prod(s)] for name, s in one.items()})
            two = {name: shape for name, shape, _ in net.inputs if name != "label"}
        self.put("varies", net.text(varies=True))
        bad, kept = self.poison()

        def test(name, threads, net_file="auto", runs=None, **more):
            jobs.append({"name": f"{simd}.{name}", "kind": "test", "net": net_file, "weights": "w.npz", "threads": threads, "runs": runs or [full], **more})

        def train(name, threads, words="", net_file="auto"):
            self.solver(f"t.{name}", net_file, words)
            jobs.append({"name": f"{simd}.t.{name}", "kind": "train", "solver": f"t.{name}.solver", "weights": "w.npz", "threads": threads,
                         "keep": int(name == "kept")})

        test("auto", 1, runs=[full, {"name": "again"}])
        test("threads", t)
        test("apart", t, "apart")
        test("alone", 1, "alone")
        if bad:
            test("bad", t, runs=[{"name": "bad", "given": "bad"}])
        test("inner", t, runs=[full, {"name": "inner", "inner": [inner]}])
        if one:
            test("batch", t, runs=[full, {"name": "some", "shapes": one, "given": "some"}, {"name": "back", "shapes": two}])
            test("varies", t, "varies", runs=[full, {"name": "some", "shapes": one, "given": "some"}, {"name": "back", "shapes": two}])
        for w in ("F2", "NEVER"):
            self.solver(w, "auto", f"winograd: {w}")
            test(w, t, solver=f"{w}.solver")
        self.solver("bf16", "auto", "precision: BF16")
        test("bf16", t, solver="bf16.solver")
        train("auto", 1)
        train("threads", t)
        train("apart", 1, net_file="apart")
        train("alone", 1, "fuse: false")
        train("never", t, "winograd: NEVER")
        train("cheap", 1, "recompute: CHEAP")
        train("kept", 1)
        train("bf16", t, "precision: BF16")
        if not self.jobs(simd, jobs):
            return
        auto = self.found(f"{simd}.auto")
        wide = "winograd"
        self.near("forward", f"{simd} auto", self.ref, self.limit[wide], auto)
        if not isinstance(auto, dict):
            return
        only = {k: v for k, v in auto.items() if k.startswith("full|")}
        self.same("forward again", f"{simd}", {k.replace("full|", "again|"): v for k, v in only.items()}, auto)
        self.same("threads", f"{simd} {t}", only, self.found(f"{simd}.threads"))
        rounds = simd == "portable" or net.few  # a bias stands in front of its sum, or behind it (design-notes.md, fusion)
        if rounds:
            self.near("fused", simd, only, self.limit["f32"], self.found(f"{simd}.alone"))
        else:
            self.same("fused", simd, only, self.found(f"{simd}.alone"))
        if bad:
            found = self.found(f"{simd}.bad")
            if isinstance(found, dict):
                found = {k.replace("bad|", "full|"): kept(v) for k, v in found.items()}
            self.same("neighbours", f"{simd} {bad}", {k: kept(v) for k, v in only.items()}, found)
        apart = self.found(f"{simd}.apart")
        if isinstance(apart, dict):  # names are those of the tops there
            back = {top: now for top, now in net.names().items()}
            apart = {f"full|{back[k.split('|')[1]]}": v for k, v in apart.items() if k.split("|")[1] in back}
        self.same("in place", f"{simd}", only, apart)
        found = self.found(f"{simd}.inner")
        self.same("inner blobs", f"{simd} {inner}", {**only, **{k.replace("full|", "inner|"): v for k, v in only.items()}}, found)
        self.near("inner values", f"{simd} {inner}", self.inner_ref, self.limit[wide], found)
        if one:
            rows = {k: v[:len(v) // net.batch * next(iter(one.values()))[0]] for k, v in self.ref.items()}
            for way in ("batch", "varies"):
                found = self.found(f"{simd}.{way}")
                self.near(f"{way}: full", simd, self.ref, self.limit[wide], found)
                if isinstance(found, dict):
                    self.near(f"{way}: rows", f"{simd} {one}", {k.replace("full|", "some|"): v for k, v in rows.items()},
                              {k.replace("full|", "some|"): v for k, v in self.limit[wide].items()}, found)
                    self.same(f"{way}: back", simd, {k.replace("full|", "back|"): v for k, v in found.items() if k.startswith("full|")}, found)
                    if way == "batch":
                        self.same("batch: as made", simd, only, {k: v for k, v in found.items() if k in only})
        for w, kind in (("F2", wide), ("NEVER", "f32"), ("bf16", "bf16")):
            self.near(w, simd, self.ref, self.limit[kind], self.found(f"{simd}.{w}"))
        got = self.found(f"{simd}.t.auto")
        self.near("gradients", f"{simd} auto", self.grad, self.grad_limit[wide], got)
        for way, kind in (("threads", wide), ("alone", wide), ("kept", wide), ("never", "f32"), ("bf16", "bf16")):
            self.near(f"gradients: {way}", f"{simd}", self.grad, self.grad_limit[kind], self.found(f"{simd}.t.{way}"))
        self.same("gradients: recompute", simd, got, self.found(f"{simd}.t.cheap"))
        self.same("gradients: in place", simd, got, self.found(f"{simd}.t.apart"))
        for way in ("threads",) if rounds else ("threads", "alone"):
            found = self.found(f"{simd}.t.{way}")
            if isinstance(found, dict) and isinstance(got, dict):
                self.same(f"loss: {way}", simd, {"loss": got["loss"]}, found)

    def poison(self):
        """What says that values, which the others must not see, are others: which, and what of an output it does not reach."""
        net, draw = self.net, self.draw
        if self.kind == "pictures" and net.batch > 1:
            s, value = draw.randrange(net.batch), draw.choice((math.nan, math.inf, -math.inf, 1e38))
            given = {n: array.array("f", v) for n, v in self.full.items()}
            size = len(given["data"]) // net.batch
            given["data"][s * size:(s + 1) * size] = array.array("f", [value] * size)
            self.put_given("bad", given)
            return f"sample {s} is {value}", lambda v: v[:len(v) // net.batch * s] + v[len(v) // net.batch * (s + 1):]
        if self.kind == "tokens" and all("causal" in l.fields if l.kind == "Attention" else l.kind != "MatMul" for l in net.layers):
            n, t = net.shape["tokens"]
            if t < 2:
                return "", None
            given = {n: array.array("f", v) for n, v in self.full.items()}
            for i in range(n):
                given["tokens"][i * t + t - 1] = float(draw.randrange(5))
            self.put_given("bad", given)
            return "last tokens are others", lambda v: array.array("f", [x for i in range(n) for x in v[i * len(v) // n:(i + 1) * len(v) // n - len(v) // n // t]])
        return "", None

    def formats(self):
        """Weights through each format, and the net through ONNX."""
        was, at = read_npz(os.path.join(self.folder, "w.npz")), "w.npz"
        for name in ("f.caffemodel", "f.caffemodel.h5", "f.safetensors", "f.npz"):
            code, out = job.run([job.CORTADO, "convert", "model", f"--from={at}", f"--to={name}"], self.folder)
            if code != 0:
                return self.say("formats", f"{name}: {code} {out[-300:]}", code)
            at = name
        got = read_npz(os.path.join(self.folder, "f.npz"))
        self.same("formats", "npz", {k: v for k, (_, v) in was.items()}, {k: v for k, (_, v) in got.items()})
        code, out = job.run([job.CORTADO, "convert", "model", "--from=w.npz", "--net=auto", "--to=net.onnx", "--fixed_batch"], self.folder)
        if code != 0:
            lines = job.errors(out)
            self.said[len(self.rows)] = " / ".join(lines)
            return self.say("to ONNX", "" if code == 2 and len(lines) == 1 else f"{code}: {out[-300:]}", code)
        if self.onnxruntime:
            self.allow_for_functions()
        if self.theirs:
            self.in_onnxruntime("net.onnx")
            code, out = job.run([job.CORTADO, "convert", "model", "--from=w.npz", "--net=auto", "--to=free.onnx"], self.folder)
            if code == 0:
                self.in_onnxruntime("free.onnx")
            else:
                lines = job.errors(out)
                self.say("to ONNX", "" if code == 2 and len(lines) == 1 else f"free batch: {code}: {out[-300:]}", code)
        code, out = job.run([job.CORTADO, "convert", "net", "--from=net.onnx", "--to=back", "--weights_to=back.npz"], self.folder)
        if code != 0:
            lines = job.errors(out)
            self.said[len(self.rows)] = " / ".join(lines)
            return self.say("from ONNX", "" if code == 2 and len(lines) == 1 else f"{code}: {out[-300:]}", code)
        self.jobs("", [{"name": "onnx", "kind": "test", "net": "back", "weights": "back.npz", "threads": 1, "runs": [{"name": "full"}]}])
        return self.near("through ONNX", "", self.ref, self.limit["winograd"], self.found("onnx"))

    def allow_for_functions(self):
        """Another library's functions are not ours: what comes out where each layer's values are off by two units of the last place."""
        for i in range(3):
            self.put(f"rounds{i}", self.net.text(ref=True, fuse=False, rounds=self.draw))
        self.jobs("portable", [{"name": f"rounds{i}", "kind": "test", "net": f"rounds{i}", "weights": "w.npz", "threads": 1, "runs": [{"name": "full"}]}
                               for i in range(3)])
        found = [self.found(f"rounds{i}") for i in range(3)]
        if not all(isinstance(f, dict) for f in found):
            return self.say("to ONNX", f"layers that round: {[f for f in found if not isinstance(f, dict)][0]}")
        self.theirs = {k: v + 4 * max(difference(self.ref[k], f[k]) for f in found) for k, v in self.limit["winograd"].items() if k in self.ref}

    def in_onnxruntime(self, name):
        """A row: onnxruntime gives of a file what the net gives."""
        self.onnxruntime.run({"net": os.path.join(self.folder, name), "given": self.given["full"],
                              "to": os.path.join(self.folder, "found", name)})
        found = self.found(name)
        if isinstance(found, dict):
            found = {f"full|{k}": v for k, v in found.items()}
        return self.near("in onnxruntime", name, self.ref, self.theirs, found)


def first_has_weights(folder):
    path = os.path.join(folder, "w.npz")
    return not os.path.exists(path) or bool(read_npz(path))


class Divided(Case):
    """Ranks have parts of a net: a step's gradients are those of one rank."""

    def run(self):
        draw = self.draw
        self.net = net = drawn_nets.Net(draw)
        net.divided = True
        self.kind = draw.choice(("pictures", "tokens"))
        net.batch = drawn_nets.KINDS[self.kind](net)
        drawn_nets.losses(net, draw)
        self.kind += ", divided"
        code, out = self.data()
        if code != 0:
            self.say("data", f"{code}: {out[-400:]}", code)
            return self.rows
        self.put("ref", net.text(ref=True, fuse=False, source="set.h5"))
        self.put("auto", net.text(source="set.h5"))
        self.solver("first", "ref", "clip_gradients: 1", rate=0.05)
        self.solver("ref1", "ref")
        if not self.jobs("portable", [{"name": "first", "kind": "train", "solver": "first.solver", "threads": 1, "steps": 1, "save": "w.npz"}]):
            return self.rows
        if isinstance(self.found("first"), str) or not first_has_weights(self.folder):
            self.say("made", self.found("first") if isinstance(self.found("first"), str) else "")
            return self.rows
        if not self.yardstick():
            return self.rows
        for i in range(4):
            self.divide(i)
        return self.rows

    def data(self):
        """A file of one batch."""
        lines = []
        for name, shape, kind in self.net.inputs:
            words = kind.split()
            if kind == "real":
                lines.append(f'layer {{ name: "{name}" type: "DummyData" top: "{name}" '
                             f'dummy_data_param {{ data_filler {{ type: "gaussian" }} {dims(shape)} }} }}')
                continue
            most = int(words[1]) if len(words) > 1 else 3
            lines.append(f'layer {{ name: "{name}0" type: "DummyData" top: "{name}0" dummy_data_param {{ data_filler {{ type: "gaussian" }} '
                         f'{dims((shape[0], most, *shape[1:]))} }} }} layer {{ name: "{name}1" type: "ArgMax" bottom: "{name}0" top: "{name}1" '
                         f'argmax_param {{ axis: 1 }} }} layer {{ name: "{name}" type: "Reshape" bottom: "{name}1" top: "{name}" '
                         f'reshape_param {{ {dims(shape)} }} }}')
        self.put("data", "\n".join(lines) + "\n")
        return job.run([job.CORTADO, "extract", "--model=data", "--blobs=" + ",".join(n for n, _, _ in self.net.inputs), "--to=set.h5", "--iterations=1"],
                       self.folder)

    def yardstick(self):
        draw, net = self.draw, self.net
        weights = read_npz(os.path.join(self.folder, "w.npz"))
        eps = math.sqrt(net.terms) * 2.0 ** -24 * (WINOGRAD if net.winograd else 1)
        jobs = [{"name": "ref", "kind": "train", "solver": "ref1.solver", "weights": "w.npz", "threads": 1}]
        for i in range(3):
            write_npz(os.path.join(self.folder, f"r{i}.npz"), {n: (s, changed(draw, v, eps)) for n, (s, v) in weights.items()})
            jobs.append({"name": f"r{i}", "kind": "train", "solver": "ref1.solver", "weights": f"r{i}.npz", "threads": 1})
        self.jobs("portable", jobs)
        found = [self.found(n) for n in ("ref", "r0", "r1", "r2")]
        if not all(isinstance(f, dict) for f in found):
            self.say("yardstick", str([f for f in found if not isinstance(f, dict)][0]))
            return False
        self.grad = {k: v for k, v in found[0].items() if k in weights}
        most = max((difference(weights[k][1], v) for k, v in self.grad.items()), default=0.0)
        self.limits = {k: 4 * max(difference(v, f[k]) for f in found[1:]) + eps * most + 8 * 2.0 ** -24 * largest(v) for k, v in self.grad.items()}
        return True

    def divide(self, i):
        """One plan."""
        draw, net = self.draw, self.net
        ranks = draw.choice((2, 2, 2, 3, 4))
        names = [l.name for l in net.layers]
        cuts = sorted(draw.sample(range(1, len(names)), min(len(names) - 1, draw.choice((0, 0, 0, 1, 1, 2)), ranks - 1)))
        places = list(zip([0, *cuts], [*cuts, len(names)]))
        counts = [1] * len(places)
        for _ in range(ranks - len(places)):
            counts[draw.randrange(len(counts))] += 1
        text, at = [], 0
        for (a, b), count in zip(places, counts):
            tensor = draw.choice([t for t in (1, count, count) if count % t == 0])
            text.append(f'stage {{ first: "{names[a]}" last: "{names[b - 1]}" ' + " ".join(f"rank: {r}" for r in range(at, at + count))
                        + (f" tensor: {tensor}" if tensor > 1 else ""))
            if tensor > 1:
                for l in net.layers[a:b]:
                    if draw.random() < 0.6:
                        split = self.split(l)
                        text.append(f'\nlayer {{ name: "{l.name}" split: {split}' + (f" part: {draw.randrange(tensor)}" if split == "ONE" else "") + " }\n")
            elif draw.random() < 0.2:
                c = draw.randrange(a, b)
                text.append(f'again {{ first: "{names[a]}" last: "{names[c]}" }}')
            text.append("}")
            at += count
        batch = net.inputs[0][1][0]
        self.put(f"p{i}.solver", f'net: "auto" base_lr: 1 lr_policy: "fixed" max_iter: 1 type: "SGD" momentum: 0 random_seed: 7 solver_mode: CPU '
                 f'snapshot_prefix: "p{i}" weights: "w.npz"\n')
        for _ in range(20):  # what it cannot be is left out, as check names it
            self.put(f"plan{i}", f"ranks: {ranks} global_batch: {batch} " + " ".join(text) + "\n")
            code, out = job.run(["sh", "-c", 'exec "$@" >check.out', "sh", job.CORTADO, "check", f"--solver=p{i}.solver", f"--parallel=plan{i}"], self.folder)
            lines = job.errors(out)
            if code == 0:
                break
            if code != 2 or len(lines) != 1:
                return self.say("check", f"plan{i}: {code}: {' / '.join(lines)[:300] or out[-300:]}", code)
            named = re.findall(r'"(l\d+_\w+)"', lines[0])
            left = [t for t in text if not any(f'\nlayer {{ name: "{n}"' in t for n in named)]
            if len(left) == len(text):
                left = [t for t in text if "split: ONE" not in t]
            if len(left) == len(text):
                self.said[len(self.rows)] = lines[0]
                return self.say("check", "", code)
            text = left
        code, out = job.run(job.launch(ranks, [job.CORTADO, "train", f"--solver=p{i}.solver", f"--parallel=plan{i}"]), self.folder, LIMIT_S)
        self.put(f"p{i}.log", out)
        if code != 0:
            return self.say("divided", f"plan{i}: {code}: {' / '.join(job.errors(out))[:300] or out[-300:]}", code)
        code, out = job.run([job.CORTADO, "convert", "model", f"--from=p{i}_iter_1.caffemodel.h5", f"--to=p{i}.npz"], self.folder)
        if code != 0:
            return self.say("divided", f"plan{i}: {code}: {out[-300:]}", code)
        return self.near("divided", f"plan{i}", self.grad, self.limits, {k: v for k, (_, v) in read_npz(os.path.join(self.folder, f"p{i}.npz")).items()})

    def split(self, layer):
        draw = self.draw
        if layer.kind in ("InnerProduct", "Convolution"):
            return draw.choice(("OUTPUT", "OUTPUT", "INPUT", "INPUT", "REPLICATE", "BATCH", "ONE" if draw.random() < 0.3 else "OUTPUT"))
        if layer.kind == "Embed":
            return draw.choice(("OUTPUT", "INPUT", "BATCH", "REPLICATE"))
        if layer.kind == "Attention":
            return draw.choice(("HEADS", "HEADS", "BATCH", "REPLICATE"))
        if layer.kind == "SoftmaxWithLoss":
            return draw.choice(("OUTPUT", "BATCH", "REPLICATE"))
        if layer.kind in ("LayerNorm", "RMSNorm"):
            return draw.choice(("SEQUENCE", "BATCH", "REPLICATE"))
        return draw.choice(("OUTPUT", "BATCH", "REPLICATE", "SEQUENCE") if draw.random() < 0.3 else ("BATCH", "REPLICATE"))


def dims(shape):
    return "shape { " + " ".join(f"dim: {d}" for d in shape) + " }"


def both_nan(a, b):
    return len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b))


def group_of(kind):
    """The line of the table."""
    if kind in ("forward", "F2", "NEVER", "bf16", "inner values", "batch: full", "batch: rows", "varies: full", "varies: rows"):
        return "values"
    if kind in ("formats", "to ONNX", "from ONNX", "through ONNX", "in onnxruntime"):
        return "formats"
    if kind in ("divided", "check"):
        return "divided"
    if kind in ("made", "yardstick") or kind.startswith("worker"):
        return "made"
    if kind in ("gradients: recompute", "gradients: in place"):
        return "bits"
    return next((g for g in ("gradients", "served") if kind.startswith(g)), "bits")


def try_all(results, options, folder):
    onnxruntime = Onnxruntime(options["onnxruntime"]) if "onnxruntime" in options else None
    for seed, number, name in job.drawn(results, options):
        path = os.path.join(folder, f"case{number}")
        os.mkdir(path)
        case = (Divided if number % 3 == 2 else Case)(path, seed, number, onnxruntime)
        rows = case.run()
        for group in dict.fromkeys(group_of(r[0]) for r in rows):
            own = [(i, r) for i, r in enumerate(rows) if group_of(r[0]) == group]
            wrong = "; ".join(f"{kind}: {why}" for _, (kind, _, why) in own if why)
            notes = [f"{len(own)} compared", *dict.fromkeys(case.said[i] for i, _ in own if i in case.said)]
            results.add(f"net: {group}", f"{name}: {case.kind}", [0, 2], max((r[1] for _, r in own), key=str), wrong, "; ".join(notes))
        if "keep" in options and any(r[2] for r in rows):
            kept = os.path.join(options["keep"], f"{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(path, kept)
            with open(os.path.join(kept, "told"), "w", encoding="utf-8") as f:
                f.write("\n".join(case.notes + [str(r) for r in rows if r[2]]) + "\n")
        shutil.rmtree(path)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "keep", "onnxruntime"}, try_all)
