#!/usr/bin/env python3
"""Starts two jobs that want the same files, at the same time and one after the other.

Usage: tests/faults/sharing.py RESULTS [--delays=N] [--modes=NAME/NAME]
       tests/faults/sharing.py RESULTS --table

A mode (MODES) is a command whose files lie in "shared". A first job and a second one, which differ by a seed or a path of their own,
run alone first, and one after the other. Then the second starts --delays times (8 without) after 0 to 1.2 times what the first takes
alone. Right is one of these:
 * both end with 0, each with the checksum it has alone, and "shared" is what either leaves alone, or the second after the first;
 * one ends in less than 5 s with 2 or 3, and one line of error that names the other's host and process, or, where the other is over,
   says of the files that they are there; "shared" is what the other leaves alone.
No temporary file stays in either case. Where a mode's bytes are not the same in every run, a command (proof) reads the files instead.
In a mode "on two hosts" the second job has a host's name and process numbers of its own, so that it does not see the first's
processes; the file system is one. Where name spaces may not be made, as without root, these modes are left out. A log or a file of
metrics does not say who has it: "on another host" will do.
"""
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import job

SOON = 5.0  # seconds
TRAIN = [job.CORTADO, "train", "--solver=solver.prototxt", "--set=max_iter=400", "--set=snapshot=100", "--set=display=20"]
OWN = "--set=snapshot_prefix=own{who}/s"
SEED = "--set=random_seed={who}"
TIME = [job.CORTADO, "time", "--model=../net.prototxt", "--iterations=1", "--limits=false",
        "--set=layer[conv].convolution_param.num_output=4"]
DIGITS = [job.CORTADO, "convert", "digits", "--to=shared/d", "--count=300", "--seed={who}"]
STAGE = [*TRAIN, OWN, "--stage=shared"]
ELSEWHERE = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
ON_TWO_HOSTS = "on two hosts"
MODES = {  # name: ranks, command ({who} is 1 or 2), proof; "stale": the folder has a copy of an older state
    "snapshot prefix": (1, [*TRAIN, SEED, "--set=snapshot_prefix=shared/s"], "sets"),
    "snapshot prefix, 2 ranks": (2, [*TRAIN, SEED, "--set=snapshot_prefix=shared/s"], "sets"),
    "snapshot prefix, a thread": (1, [*TRAIN, SEED, "--set=snapshot_prefix=shared/s", "--set=snapshot_async=true"], "sets"),
    "run folder": (1, [*TRAIN, SEED, "--run=shared/run"], "log"),
    "run folder to overwrite": (1, [*TRAIN, SEED, "--run=shared/run", "--overwrite"], "log"),
    "metrics": (1, [*TRAIN, OWN, SEED, "--metrics=shared/m.jsonl"], "lines"),
    "metrics, 2 ranks": (2, [*TRAIN, OWN, SEED, "--metrics=shared/m.jsonl"], "lines"),
    "metrics to overwrite": (1, [*TRAIN, OWN, SEED, "--metrics=shared/m.jsonl", "--overwrite"], "lines"),
    "metrics that go on": (1, [*TRAIN, OWN, SEED, "--metrics=shared/m.jsonl", "--snapshot=auto"], "lines"),
    "trace": (1, [*TRAIN, OWN, SEED, "--trace=shared/t.json", "--overwrite"],
              [sys.executable, "-c", "import json; json.load(open('shared/t.json'))"]),
    "stage": (1, STAGE, None),
    "stage, 2 ranks": (2, STAGE, None),
    "stage of an older state": (1, STAGE, "stale"),
    "index": (1, [*TRAIN, OWN], "index"),
    "index, 2 ranks": (2, [*TRAIN, OWN], "index"),
    "digits": (1, DIGITS, None),
    "digits by force": (1, [*DIGITS, "--force"], None),
    "digits in shards": (1, [*DIGITS, "--shards=2"], None),
    "digits in HDF5": (1, [*DIGITS, "--backend=hdf5"], None),
    "digits in HDF5 by force": (1, [*DIGITS, "--backend=hdf5", "--force"], None),
    "mean": (1, [job.CORTADO, "convert", "mean", "--from=../data/train_lmdb", "--to=shared/mean.binaryproto", "--force"], None),
    "weights": (1, [job.CORTADO, "convert", "model", "--from=../w{who}.h5", "--to=shared/w.safetensors"], None),
    "weights in HDF5": (1, [job.CORTADO, "convert", "model", "--from=../w{who}.h5", "--to=shared/w.caffemodel.h5"], None),
    "weights of Caffe": (1, [job.CORTADO, "convert", "model", "--from=../w{who}.h5", "--to=shared/w.caffemodel"], None),
    "plan of engines": (1, [*TIME, "--plan=shared/e.plan"], [*TIME, "--plan=shared/e.plan"]),
    "plan of engines, 2 ranks": (2, [*TIME, "--plan=shared/e.plan"], [*TIME, "--plan=shared/e.plan"]),
    "plan of ranks": (1, [job.CORTADO, "plan", "--model=../net.prototxt", "--ranks=2", "--limits=50,10", "--out=shared/p.plan"], None),
    "study of times": (1, [*TIME, "--json=shared/t.json"], [sys.executable, "-c", "import json; json.load(open('shared/t.json'))"]),
}
MODES[f"snapshot prefix of a long job, {ON_TWO_HOSTS}"] = (
    1, [*TRAIN[:3], "--set=max_iter=8000", "--set=snapshot=4000", "--set=display=400", SEED, "--set=snapshot_prefix=shared/s"], "sets")
for mode_name in ("snapshot prefix", "snapshot prefix, 2 ranks", "run folder", "metrics", "stage", "index", "digits", "digits in shards",
                  "weights", "plan of engines", "plan of ranks"):
    MODES[f"{mode_name}, {ON_TWO_HOSTS}"] = MODES[mode_name]
LOGGED = re.compile(r"[IWE]\d{4} ")
UNSEEN = re.compile(r"(log\.txt|m\.jsonl) belongs to another job that runs, on another host")
GONE_BEFORE = re.compile(r"exists already|there already|earlier run")


class Run:
    """A job that runs beside this program. The process that its rank 0 has is known from /proc."""

    def __init__(self, ranks, command, who, folder, elsewhere=False):
        words = [w.replace("{who}", str(who)) for w in command]
        self.begun, self.folder = time.monotonic(), folder
        self.host = "elsewhere" if elsewhere else socket.gethostname()
        self.process = subprocess.Popen([*(ELSEWHERE if elsewhere else []), *job.launch(ranks, words)], cwd=folder,
                                        env=job.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.out, self.code, self.seconds = "", None, None
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            self.out, _ = self.process.communicate(timeout=120)
            self.code = self.process.returncode
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, _ = self.process.communicate()
            self.code = "no end in 120 s"
        self.seconds = time.monotonic() - self.begun

    def processes(self):
        """Host and number of this job's processes, as they and as this program see them, as long as it runs."""
        found, queue = set(), [self.process.pid]
        while queue:
            pid = queue.pop()
            try:
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                    found.add((self.host, int(re.search(r"^NSpid:.*?(\d+)$", f.read(), re.M).group(1))))
                found.add((socket.gethostname(), pid))
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
                        queue += [int(n) for n in f.read().split()]
            except OSError:
                pass
        return found

    def wait(self):
        self.thread.join()


def is_over(other, run):
    """Whether a job had ended by this one's end; it gives its files back a moment before its process ends."""
    return other.begun + other.seconds < run.begun + run.seconds + 1.0


def contents(folder):
    """Hash of each file below folder/shared."""
    found = {}
    for path, _, names in os.walk(os.path.join(folder, "shared")):
        for name in names:
            full = os.path.join(path, name)
            with open(full, "rb") as f:
                found[os.path.relpath(full, folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


def is_temporary(name):
    return re.search(r"\.tmp|\.part|\.owner|\.probe|\.aside|\.old", name) is not None


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.command, self.proof = MODES[name]
        self.index = os.path.join(work.path, "data", "train_lmdb", "data.mdb.index")
        self.elsewhere = name.endswith(ON_TWO_HOSTS)

    def folder(self):
        path = self.work.job(job.SOLVER)
        for name in ("shared", "own1", "own2", "own3"):
            os.mkdir(os.path.join(path, name))
        if self.proof == "index" and os.path.exists(self.index):
            os.unlink(self.index)
        if self.proof == "stale":
            run = Run(self.ranks, self.command, 3, path)
            run.wait()
            os.utime(os.path.join(self.work.path, "data", "train_lmdb", "data.mdb"))
        return path

    def alone(self, order):
        """Outputs, seconds and files of jobs one after the other; what later ones refuse is no matter."""
        folder, runs = self.folder(), []
        for who in order:
            runs.append(Run(self.ranks, self.command, who, folder))
            runs[-1].wait()
        if runs[0].code != 0:
            sys.exit(f"{self.name}: exit code {runs[0].code}:\n{runs[0].out[-3000:]}")
        return runs, self.state(folder)

    def state(self, folder):
        """What is compared of the files."""
        files = {n: h for n, h in contents(folder).items() if not is_temporary(n)}
        if self.proof in (None, "stale"):
            if self.proof == "stale":  # a time of change is in it
                files = {n: h for n, h in files.items() if not n.endswith(("stage.txt", ".index"))}
            return files
        if self.proof == "sets":  # the files say when they were made: their weights alone are compared
            return {n: self.weights(folder, n) for n in files if ".caffemodel" in n}
        if self.proof == "index":
            with open(self.index, "rb") as f:
                return hashlib.sha256(f.read()).hexdigest()
        return sorted(files)

    def weights(self, folder, name):
        to = os.path.join(folder, "own3", "w.safetensors")
        code, out = job.run([job.CORTADO, "convert", "model", f"--from={name}", f"--to={to}", "--force"], folder)
        if code != 0:
            return out
        with open(to, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def log_is_whole(self, folder, runs):
        """The run's log has the lines that the last job of these printed, and no others."""
        with open(os.path.join(folder, "shared", "run", "log.txt"), encoding="utf-8", errors="replace") as f:
            kept = [line for line in f.read().splitlines() if LOGGED.match(line)]
        said = [line for line in max(runs, key=lambda r: r.begun).out.splitlines() if LOGGED.match(line)]
        return "" if kept and kept == said[-len(kept):] and "Optimization Done" in " ".join(kept[-3:]) else "lines of log.txt are missing"

    def lines_are_whole(self, folder):
        """Each line of the metrics is JSON, and each run in it begins, goes on and ends."""
        runs, last = 0, -1
        with open(os.path.join(folder, "shared", "m.jsonl"), "rb") as f:
            for line in f:
                try:
                    event = json.loads(line)
                except ValueError:
                    return "a line of the metrics is no JSON"
                if event["event"] == "run":
                    runs, last = runs + 1, -1
                if event["event"] == "train":
                    if event["iter"] < last:
                        return "lines of two jobs in one file"
                    last = event["iter"]
        return "" if runs else "no run in the metrics"

    def look(self, folder, good):
        """What the files themselves show."""
        left = [n for n in contents(folder) if is_temporary(n)]
        left += [n for n in os.listdir(os.path.dirname(self.index)) if is_temporary(n)]
        wrong = [f"left: {' '.join(left)}"] if left else []
        if self.proof == "log" and good:
            why = self.log_is_whole(folder, good)
            wrong += [why] if why else []
        if self.proof == "lines":
            why = self.lines_are_whole(folder)
            wrong += [why] if why else []
        if isinstance(self.proof, list):
            code, out = job.run(self.proof, folder)
            if code != 0:
                wrong.append(f"the files do not load: {out[-300:]}")
        return wrong

    def meet(self, delay, sums, states):
        """One pair: both exit codes, and what went wrong."""
        folder = self.folder()
        first = Run(self.ranks, self.command, 1, folder)
        numbers, until = {1: set(), 2: set()}, time.monotonic() + delay
        while time.monotonic() < until:
            numbers[1] |= first.processes()
            time.sleep(min(0.02, max(0.0, until - time.monotonic())))
        over = not first.thread.is_alive()
        second = Run(self.ranks, self.command, 2, folder, self.elsewhere)
        while first.thread.is_alive() or second.thread.is_alive():
            numbers[1] |= first.processes()
            numbers[2] |= second.processes()
            time.sleep(0.02)
        first.wait()
        second.wait()
        wrong, good = [], []
        for who, run, other in ((1, first, second), (2, second, first)):
            if run.code == 0:
                good.append(who)
                if job.checksum(run.out) != sums[who]:
                    wrong.append(f"job {who} ends with another checksum")
                continue
            said = job.errors(run.out)
            named = re.search(r"host (\S+), process (\d+)", said[0]) if said else None
            if run.code not in (2, 3):
                wrong.append(f"job {who}: exit code {run.code}: {run.out[-300:]}")
            elif len(said) != 1:
                wrong.append(f"job {who}: {len(said)} lines of error: {' / '.join(said)[-400:]}")
            elif named and (named.group(1), int(named.group(2))) not in numbers[3 - who]:
                wrong.append(f"job {who} names another one: {said[0]}")
            elif not named and not (self.elsewhere and UNSEEN.search(said[0])) \
                    and not ((over or is_over(other, run)) and GONE_BEFORE.search(said[0])):
                wrong.append(f"job {who} does not name the other: {said[0]}")
            elif run.seconds >= SOON:
                wrong.append(f"job {who} ends after {run.seconds:.1f} s: {said[0]}")
        if not good:
            wrong.append("neither job ends with 0")
        elif self.state(folder) not in [states[g] for g in good] + ([states[3]] if len(good) == 2 else []):
            wrong.append(f"other files than alone: {' '.join(sorted(contents(folder)))[:300]}")
        return f"{first.code} and {second.code}", "; ".join(wrong + self.look(folder, [r for r in (first, second) if r.code == 0]))


def may_pretend_hosts():
    none = subprocess.DEVNULL
    return subprocess.run([*ELSEWHERE, "true"], stdin=none, stdout=none, stderr=none).returncode == 0


def try_all(results, options, folder):
    work = job.Work(folder)
    for who in (1, 2):
        path = work.job(job.SOLVER + 'snapshot_prefix: "s"')
        code, out = job.run([*TRAIN, f"--set=random_seed={who}"], path)
        if code != 0:
            sys.exit(out)
        shutil.move(os.path.join(path, "s_iter_400.caffemodel.h5"), os.path.join(folder, f"w{who}.h5"))
    n = int(options.get("delays", 8))
    for name in options["modes"].split("/") if "modes" in options else MODES:
        mode = Mode(name, work)
        if mode.elsewhere and not may_pretend_hosts():
            print(f"{name}: left out, no name spaces may be made", file=sys.stderr)
            continue
        runs, one = mode.alone([1])
        others, two = mode.alone([2])
        _, after = mode.alone([1, 2])
        sums = {1: job.checksum(runs[0].out), 2: job.checksum(others[0].out)}
        for k in range(n):
            share = 1.2 * k / max(n - 1, 1)
            case = f"{name}, after {share:.2f} of the first's time"
            if not results.has(f"sharing: {name}", case):
                codes, wrong = mode.meet(share * runs[0].seconds, sums, {1: one, 2: two, 3: after})
                results.add(f"sharing: {name}", case, [0, 2, 3], codes, wrong)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"delays", "modes"}, try_all)
