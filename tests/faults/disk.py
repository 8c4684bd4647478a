#!/usr/bin/env python3
"""Has each call fail that names or writes a file, as disks and file servers do, and looks at what is left.

Usage: tests/faults/disk.py RESULTS [--most=N] [--modes=NAME,NAME] [--calls=PATTERN] [--ways=NAME,NAME]
       tests/faults/disk.py RESULTS --table

A mode (MODES) is a training that writes sets or a metrics file, a conversion, or a plan. faults.c lists the calls of one process on
files below "out". Then the command runs again and again, and one call fails in one way (WAYS): once, or for good as on a disk that is
full, dead or read-only from there on. A mode takes --most of these cases, evenly spread (all without), of the calls "NAME FILE" that
--calls finds. The command must
 * end with 3 and one line of error, which names a file or the folder,
 * leave nothing under a final name but what a run without a fault leaves there, byte for byte,
 * leave no temporary file, where the disk lets it remove one;
 * and `train --snapshot=auto` must go on then without a fault, from the newest set whose name was there, to the same checksum.
Where only a file cannot be removed, a lock file not say who has it, or a line not get into a run's log.txt (stderr has it), the
command may go on to 0, with the files of a run without a fault. So it may after a failed close of the file that says who owns a
prefix, of a file without a name any more, or of one that is synced once more behind it, as where LMDB closes one. And where HDF5 looks
whether a file is there, and then makes it.
"""
import errno
import hashlib
import os
import re
import shutil
import struct
import sys
import zlib

import job

E = errno
WAYS = {  # name: what faults.c does, kinds of calls that it meets, kinds that fail from there on
    "ENOSPC": (E.ENOSPC, "WCSX", ""),
    "EIO": (E.EIO, "WCRSX", ""),
    "ESTALE": (E.ESTALE, "WCRSX", ""),
    "short write": ("short", "W", ""),
    "full from there on": ("short", "W", "WC"),
    "dead from there on": (E.EIO, "WCRSX", "WCRS"),
    "read-only from there on": (E.EROFS, "WCR", "WCR"),
}
SHORT = {"write", "pwrite", "writev", "pwritev"}
TRAIN = [job.CORTADO, "train", "--solver=solver.prototxt"]
SETS = 'snapshot_prefix: "out/s" '
ELSEWHERE = 'snapshot_prefix: "elsewhere/s" '
SMALL = "min_bytes: 64"
DEPLOY = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 28 dim: 28 } } }' + \
    re.sub(r'layer \{ name: "(in|loss|drop)".*?\n(?=layer|$)', "", job.NET, flags=re.S)
ONNX = [job.CORTADO, "convert", "model", "--from=../w.h5", "--net=../deploy.prototxt"]
IMAGES = [job.CORTADO, "convert", "images", "--from=../pictures", "--validation=0.3", "--to=out/d"]
MODES = {  # name: ranks, the rank with the fault, solver (None: no training), command
    "set": (1, 0, SETS, TRAIN),
    "set of 2 ranks": (2, 0, SETS, TRAIN),
    "set in binary": (1, 0, SETS + "snapshot_format: BINARYPROTO", TRAIN),
    "last set kept alone": (1, 0, SETS + "snapshot_keep: 1", TRAIN),
    "set with an average": (1, 0, SETS + "average { type: EMA decay: 0.9 }", TRAIN),
    "set by a thread": (2, 0, SETS + "snapshot_async: true", TRAIN),
    "file of rank 1": (2, 1, SETS + f"compression {{ type: TOPK density: 0.05 {SMALL} }}", TRAIN),
    "set of shards": (2, 0, SETS + "memory { zero: 2 }", TRAIN),
    "metrics": (1, 0, ELSEWHERE, [*TRAIN, "--metrics=out/m.jsonl"]),
    "metrics of 2 ranks": (2, 0, ELSEWHERE, [*TRAIN, "--metrics=out/m.jsonl"]),
    "events": (1, 0, ELSEWHERE, [*TRAIN, "--tensorboard=out/events"]),
    "run folder": (1, 0, "", [*TRAIN, "--run=out/run"]),
    "digits": (1, 0, None, [job.CORTADO, "convert", "digits", "--to=out/d", "--count=200", "--seed=3"]),
    "digits in shards": (1, 0, None, [job.CORTADO, "convert", "digits", "--to=out/d", "--count=200", "--seed=3", "--shards=2"]),
    "digits in HDF5": (1, 0, None, [job.CORTADO, "convert", "digits", "--to=out/d", "--count=200", "--seed=3", "--backend=hdf5"]),
    "MNIST": (1, 0, None, [job.CORTADO, "convert", "mnist", "--from=../idx", "--to=out/d", "--mean=out/mean.binaryproto"]),
    "weights": (1, 0, None, [job.CORTADO, "convert", "model", "--from=../w.h5", "--to=out/w.safetensors"]),
    "weights in HDF5": (1, 0, None, [job.CORTADO, "convert", "model", "--from=../w.h5", "--to=out/w.caffemodel.h5"]),
    "weights of Caffe": (1, 0, None, [job.CORTADO, "convert", "model", "--from=../w.h5", "--to=out/w.caffemodel"]),
    "weights of NumPy": (1, 0, None, [job.CORTADO, "convert", "model", "--from=../w.h5", "--to=out/w.npz"]),
    "ONNX": (1, 0, None, [*ONNX, "--to=out/w.onnx"]),
    "ONNX in two files": (1, 0, None, [*ONNX, "--to=out/w.onnx", "--external_data"]),
    "net": (1, 0, None, [job.CORTADO, "convert", "net", "--from=../net.prototxt", "--to=out/n.prototxt"]),
    "images": (1, 0, None, [*IMAGES, "--mean=out/mean.binaryproto"]),
    "images in HDF5": (1, 0, None, [*IMAGES, "--backend=hdf5"]),
    "mean": (1, 0, None, [job.CORTADO, "convert", "mean", "--from=../data/train_lmdb", "--to=out/mean.binaryproto"]),
    "words": (1, 0, None, [job.CORTADO, "convert", "text", "--from=../text", "--to=out/t"]),
    "tokens": (1, 0, None, [job.CORTADO, "convert", "text", "--from=../text", "--to=out/t", "--tokenizer=bytes"]),
    "tokenizer": (1, 0, None, [job.CORTADO, "convert", "text", "--from=../text", "--to=out/t", "--train_bpe=300"]),
    "features": (1, 0, None, [job.CORTADO, "extract", "--model=../net.prototxt", "--weights=../w.h5", "--blobs=ip", "--iterations=2",
                              "--to=out/f.h5"]),
    "report of a test": (1, 0, None, [job.CORTADO, "test", "--model=../net.prototxt", "--weights=../w.h5",
                                      "--report=out/r.json"]),
    "plan of engines": (1, 0, None, [job.CORTADO, "time", "--model=../net.prototxt", "--iterations=1", "--limits=false",
                                     "--set=layer[conv].convolution_param.num_output=4", "--plan=out/e.plan"]),
    "new net": (1, 0, None, [job.CORTADO, "new", "--from=quick", "--data=../data", "--to=out/w"]),
    "plan of ranks": (1, 0, None, [job.CORTADO, "plan", "--model=../net.prototxt", "--ranks=2", "--limits=50,10",
                                   "--out=out/p.plan"]),
}


def write_idx(folder):
    """200 and 40 images as MNIST comes."""
    os.mkdir(folder)
    for name, n in (("train", 200), ("t10k", 40)):
        with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 2051, n, 28, 28) + bytes(i * 7 % 251 for i in range(n * 784)))
        with open(os.path.join(folder, f"{name}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n)))


def write_pictures(folder):
    """Two classes of ten pictures of 8 x 8, as PNG: a row is a byte for its filter, and three for each pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for label in ("cat", "dog"):
        os.makedirs(os.path.join(folder, label))
        for k in range(10):
            rows = b"".join(b"\0" + bytes((k * 11 + x * y + len(label)) % 251 for x in range(24)) for y in range(8))
            with open(os.path.join(folder, label, f"{k}.png"), "wb") as f:
                f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
                        + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_text(folder):
    """Three texts of a few hundred words."""
    os.mkdir(folder)
    for name, n in (("train", 60), ("valid", 10), ("test", 10)):
        with open(os.path.join(folder, f"{name}.txt"), "w", encoding="utf-8") as f:
            f.writelines(f"line {k} of {k * k % 17} words that say {k * 7 % 23}\n" for k in range(n))


def contents(folder):
    """Hash of each file below folder/out, and which names are temporary."""
    found = {}
    for path, _, names in os.walk(os.path.join(folder, "out")):
        for name in names:
            full = os.path.join(path, name)
            short = re.sub(r"(tfevents)\..*", r"\1", os.path.relpath(full, folder))  # TensorBoard's names hold the time
            with open(full, "rb") as f:
                found[short] = hashlib.sha256(f.read()).hexdigest()
    return found


def is_temporary(name):
    return re.search(r"\.tmp|\.part\b|\.owner|\.probe|\.aside|\.old", name) is not None


def words(call):
    return re.sub(r"\.\d{2,}(-[0-9a-f]{8})?\b", ".PID", f"{call[2]} {os.path.basename(call[3])}")


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.rank, self.solver, self.command = MODES[name]

    def folder(self):
        path = self.work.job(job.SOLVER + (self.solver or ""))
        os.mkdir(os.path.join(path, "out"))
        os.mkdir(os.path.join(path, "elsewhere"))
        return path

    def run(self, folder, fault=None):
        before = ["env", f"LD_PRELOAD={self.work.faults()}", "FAULT_IN=out", "FAULT_LOG=calls"]
        if fault:
            before.append(f"FAULT={fault}")
        return job.run(job.launch(self.ranks, self.command, before, self.rank), folder)

    def reference(self):
        """Of the run without a fault: its calls, each (number, kind, call, path), its files and its checksum."""
        folder = self.folder()
        code, out = self.run(folder)
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}:\n{out[-3000:]}")
        with open(os.path.join(folder, "calls"), encoding="utf-8") as f:
            calls = [line.rstrip("\n").split(" ", 3) for line in f]
        # the folder is there already: no system would say anything else
        calls = [(int(n), kind, call, path) for n, kind, call, path in calls if (call, path) != ("mkdir", "out")]
        return calls, contents(folder), job.checksum(out)

    def cases(self, calls, ways, pattern):
        return [(way, call) for way in ways for call in calls
                if call[1] in WAYS[way][1] and (WAYS[way][0] != "short" or call[2] in SHORT) and re.search(pattern, words(call))]

    def resume(self, folder, checksum, before):
        """What goes wrong when a training goes on without a fault."""
        os.makedirs(os.path.join(folder, "elsewhere"), exist_ok=True)
        code, out = job.run(job.launch(self.ranks, [*self.command, "--snapshot=auto"]), folder)
        begun = job.BEGUN.search(out)
        begun = int(begun.group(1)) if begun else 0
        sets = {name: int(n) for name in before for n in re.findall(r"_iter_(\d+)\.solverstate\.h5$", name)}
        wrong = []
        if code != 0:
            wrong.append(f"exit code {code} on resume: {out[-300:]}")
        elif job.checksum(out) != checksum:
            wrong.append("another checksum on resume")
        if sets and begun != max(sets.values()):
            wrong.append(f"resumed after {begun}, with sets of {sorted(sets.values())}")
        for name, n in sets.items():
            if n == begun or not os.path.exists(os.path.join(folder, name)):
                continue
            code, out = job.run(job.launch(self.ranks, [*self.command, f"--snapshot={name}"]), folder)
            if code != 0 or job.checksum(out) != checksum:
                wrong.append(f"the set of {n} is no good: exit code {code}, {out[-300:]}")
        rest = [n for n in contents(folder) if is_temporary(n)]
        if rest:
            wrong.append(f"left after resume: {' '.join(rest)}")
        return wrong

    def fail(self, way, call, files, checksum, calls):
        """The exit code, and what went wrong. calls: those of the run without a fault."""
        what, _, on = WAYS[way]
        number, kind, _, path = call
        folder = self.folder()
        code, out = self.run(folder, f"{number} {what} {on}".strip())
        left = contents(folder)
        said = job.errors(out)
        temporary = [n for n in left if is_temporary(n)]
        synced = any(c[0] > number and c[1] == "S" and c[3] == path for c in calls)
        unwritten = kind == "X" and (synced or re.search(r"\.owner|\.probe| \(deleted\)$", path))
        looks = call[2] == "open" and any(c[0] == number + 1 and c[2:] == call[2:] for c in calls)
        tells = path.endswith(".tmp.lock") and kind == "W"
        goes_on = kind == "R" or unwritten or looks or tells or path.endswith("log.txt") or (not on and what == "short")
        wrong = []
        if code == 0 and goes_on:
            if checksum and job.checksum(out) != checksum:
                wrong.append("went on to another checksum")
            kept = left.keys() - set(temporary) - files.keys()
            if not files.keys() <= left.keys() or (kept and kind != "R"):
                wrong.append(f"went on to other files: {' '.join(left)}")
        elif code != 3:
            wrong.append(f"exit code {code}: {out[-300:]}")
        elif len(said) != 1:
            wrong.append(f"{len(said)} lines of error: {' / '.join(said)[-400:]}")
        elif not re.search(r"out\b|snapshot_prefix|\.h5|\.plan|\.jsonl", said[0]):
            wrong.append(f"the error names no file: {said[0]}")
        other = [n for n, h in left.items() if not is_temporary(n) and self.solver is None and files.get(n) != h]
        if other:
            wrong.append(f"other bytes under the name: {' '.join(other)}")
        if temporary and "R" not in on and kind not in "R" and code == 3:
            wrong.append(f"left: {' '.join(temporary)}")
        if self.solver is not None:
            wrong += self.resume(folder, checksum, left)
        return code, "; ".join(wrong)


def prepare(folder):
    """Data, weights and a net, of which commands make files."""
    work = job.Work(folder)
    write_idx(os.path.join(folder, "idx"))
    path = work.job(job.SOLVER + 'snapshot_prefix: "s"')
    code, out = job.run(TRAIN, path)
    if code != 0:
        sys.exit(out)
    write_pictures(os.path.join(folder, "pictures"))
    write_text(os.path.join(folder, "text"))
    with open(os.path.join(folder, "deploy.prototxt"), "w", encoding="utf-8") as f:
        f.write(DEPLOY)
    shutil.move(os.path.join(path, "s_iter_12.caffemodel.h5"), os.path.join(folder, "w.h5"))
    return work


def try_all(results, options, folder):
    work = prepare(folder)
    for name in options["modes"].split(",") if "modes" in options else MODES:
        mode = Mode(name, work)
        calls, files, checksum = mode.reference()
        cases = mode.cases(calls, options["ways"].split(",") if "ways" in options else WAYS, options.get("calls", ""))
        most = min(len(cases), int(options.get("most", len(cases))))
        for k in range(most):
            way, call = cases[k * len(cases) // most]
            case = f"{name}, call {call[0]} ({words(call)})"
            if results.has(f"disk: {way}", case):
                continue
            code, wrong = mode.fail(way, call, files, checksum, calls)
            results.add(f"disk: {way}", case, [3], code, wrong)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes", "calls", "ways"}, try_all)
