#!/usr/bin/env python3
"""Trains for hours with a fault every so many seconds, goes on after each, and compares all losses with those of a run without faults.

Usage: tests/faults/soak.py RESULTS [--ranks=2] [--seconds=3600] [--every=60] [--seed=1] [--usual=PATH]
       tests/faults/soak.py RESULTS --table

A piece is a training that begins from the newest set (--snapshot=auto), with a set every SNAPSHOT iterations, until a fault ends it. The
seed of the piece draws the fault, its moment (from half of --every to one and a half) and its rank:
 * kill: SIGKILL. The job ends with 137.
 * term: SIGTERM, to the launcher where there is one, as a scheduler sends it. 75, and mpirun's own 1; the set is of that iteration.
 * stop: SIGSTOP. The watchdog ends the job with 6.
 * usr1: SIGUSR1 to a rank, as a scheduler warns. 75.
 * disk: a call on the sets fails: no space, an I/O error. 3, or the job goes on (a line of its log); then a kill ends the piece. Where
   that call would read the newest set, the one before is taken, with a warning.
Right is a piece that ends with such a code, whose losses have, iteration by iteration, the digits of the run without faults; and that
loses no more than what came behind the newest set. A row of the class growth is a piece of at least GROWTH_S seconds: the memory of a rank
at its end, less what it had after a quarter and behind the first set of the piece, may be at most GROWTH_KIB; but for a piece that
begins without a set, and so makes its first sets and removes its first one. The run without faults is made first, for as many
iterations as pieces reach, and its losses are kept in RESULTS.losses. Several soaks with as many ranks, side by side, may share it:
PATH.losses.
--seconds is the time of pieces of this call; a later call goes on where RESULTS ends, with the sets in RESULTS.job.
"""
import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import job

SNAPSHOT, USUAL, DISPLAY, BATCH = 500, 10000, 20, 240  # iterations; of the run without faults; samples
WATCHDOG_S, GROWTH_S, GROWTH_KIB = 3, 45.0, 64
SOLVER = f"""net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 average_loss: 7 max_iter: %d
display: {DISPLAY} snapshot: {SNAPSHOT} snapshot_keep: 3 snapshot_prefix: "sets/s" solver_mode: CPU random_seed: 7 deterministic: true
watchdog_seconds: {WATCHDOG_S} snapshot_after_train: false
"""
FAULTS = ("kill", "term", "stop", "usr1", "disk")
WANTED = {"kill": [137], "term": [75, 1], "stop": [6], "usr1": [75], "disk": [3, 137]}
LOSS = re.compile(r"Iteration (\d+)(?: \(.*?\))?, loss = (\S+)")
ENDLESS = 1 << 30


def losses(out):
    return {int(i): loss for i, loss in LOSS.findall(out)}


class Soak:
    def __init__(self, results, options, folder):
        self.results = results
        self.ranks, self.every = int(options.get("ranks", "2")), float(options.get("every", "60"))
        self.seed = int(options.get("seed", "1"))
        self.tools = job.Work(folder)
        self.folder = results.path + ".job"
        if not os.path.isdir(self.folder):
            shutil.copytree(folder, self.folder, ignore=shutil.ignore_patterns("job"))
            with open(os.path.join(self.folder, "net.prototxt"), "w", encoding="utf-8") as f:
                f.write(job.NET.replace("../data", "data").replace("batch_size: 12", f"batch_size: {BATCH}"))
            os.mkdir(os.path.join(self.folder, "sets"))
        self.usual_path = os.path.abspath(options.get("usual", results.path))
        self.reached = 0
        self.usual = {}

    def start(self, iterations, name, **faults):
        """A training in the soak's folder, whose log is empty."""
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(SOLVER % iterations)
        for old in ("log", *(f"rank.{r}" for r in range(self.ranks))):
            if os.path.exists(os.path.join(self.folder, old)):
                os.unlink(os.path.join(self.folder, old))
        if faults:
            faults.update(FAULT_IN="sets", LD_PRELOAD=self.tools.faults())
        starter = [*job.MPIRUN, "-np", str(self.ranks)] if self.ranks > 1 else []
        train = f"{job.CORTADO} train --solver={name} --snapshot=auto"
        with open(os.path.join(self.folder, "rank.sh"), "w", encoding="utf-8") as f:
            f.write(f'[ "${{OMPI_COMM_WORLD_RANK:-0}}" = 0 ] || exec {train}\n')
            f.writelines(f'export {key}="{value}"\n' for key, value in faults.items())
            f.write(f"exec {train}\n")
        return job.Started(self.ranks, starter, "sh rank.sh", self.folder)

    def wait_for_steps(self, j):
        """Until the first loss is there. The iteration that the piece begins from; None: it ended before."""
        while j.process.poll() is None:
            log = j.log()
            if LOSS.search(log):
                begun = job.BEGUN.search(log)
                return int(begun.group(1)) if begun else 0
            time.sleep(0.01)
        return None

    def befall(self, what, j, rank):
        if what in ("kill", "disk"):
            os.kill(j.pid(rank), signal.SIGKILL)
        elif what == "stop":
            os.kill(j.pid(rank), signal.SIGSTOP)
        elif what == "usr1":
            os.kill(j.pid(rank), signal.SIGUSR1)
        else:
            j.process.send_signal(signal.SIGTERM)

    def piece(self, k):
        """One training, and one row or two."""
        draw = random.Random(f"{self.seed} {k}")
        what, rank = FAULTS[draw.randrange(len(FAULTS))], draw.randrange(self.ranks)
        after = self.every * (0.5 + draw.random())
        faults = {"FAULT": f"{draw.randrange(1, 2000)} {draw.choice((5, 28))}"} if what == "disk" else {}
        j = self.start(ENDLESS, "solver.prototxt", **faults)
        begun = self.wait_for_steps(j)
        start, since, resident = time.monotonic(), 0.0, []
        while j.process.poll() is None and (took := time.monotonic() - start) < after:
            if not resident and took > after / 4 and self.has_made_a_set(begun, j):
                since = took
                resident.append(self.resident(j))
            time.sleep(0.1)
        took = time.monotonic() - start
        resident.append(self.resident(j))
        ended_by_disk = j.process.poll() is not None
        if not ended_by_disk:
            self.befall(what, j, 0 if what == "disk" else rank)
        try:
            code = j.told(j.process.wait(WATCHDOG_S + 15))
        except subprocess.TimeoutExpired:
            code = j.told(None) or "no end"
        log = j.log()
        j.end()
        wrong = self.judge(what, begun, code, log)
        found = losses(log)
        self.results.add(f"piece: {what}", f"{self.ranks} ranks, seed {self.seed}, piece {k}", WANTED[what], code, wrong,
                         f"iterations {begun} to {max(found, default=begun)} in {took:.0f} s, rank {rank}")
        if begun and len(resident) == 2 and None not in resident and took >= GROWTH_S and not ended_by_disk:
            more = max(b - a for a, b in zip(*resident))
            self.results.add("growth", f"{self.ranks} ranks, seed {self.seed}, piece {k}", [0], 0,
                             "" if more <= GROWTH_KIB else f"{more} KiB", f"{more} KiB in {took - since:.0f} s")
        self.reached = max(self.reached, max(found, default=0))

    def has_made_a_set(self, begun, j):
        """Since the piece began: a set takes memory that stays, for the next one."""
        return begun is not None and max(losses(j.log()), default=0) > (begun // SNAPSHOT + 1) * SNAPSHOT

    def resident(self, j):
        """KiB of each rank that are no file's, swapped out or not; None where one is gone."""
        kib = []
        for rank in range(self.ranks):
            try:
                with open(f"/proc/{j.pid(rank)}/status", encoding="ascii", errors="replace") as f:
                    parts = re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+)", f.read(), re.M)
            except OSError:
                return None
            if not parts:
                return None
            kib.append(sum(map(int, parts)))
        return kib

    def judge(self, what, begun, code, log):
        wrong = []
        if begun is None:  # it ended before the first loss
            begun = self.reached
        if code not in (*WANTED[what], job.LAUNCHER_HANGS, job.LAUNCHER_CRASHES):
            wrong.append(f"exit code {code}: {log[-400:]}")
        newest = self.reached // SNAPSHOT * SNAPSHOT
        unread = what == "disk" and "snapshot skipped: " in log  # the call that failed was to read the newest set
        if begun < newest - (SNAPSHOT if self.lost_one or unread else 0):
            wrong.append(f"began from {begun}, with a set of {newest}")
        self.lost_one = (what == "disk")
        found = losses(log)
        self.make_usual(max(found, default=0))
        other = [i for i, loss in found.items() if self.usual.get(i) != loss]
        if other:
            wrong.append(f"{len(other)} of {len(found)} losses are others, the first of iteration {other[0]}")
        return "; ".join(wrong)

    lost_one = True  # the first piece of a call knows nothing of the one before

    def make_usual(self, iterations):
        """The losses of the run without faults, up to this iteration. It goes on from its own last set, by itself."""
        if iterations <= max(self.usual, default=0):
            return
        with open(self.usual_path + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read_usual()
            if iterations > max(self.usual, default=0):
                self.run_usual((iterations // USUAL + 1) * USUAL)

    def run_usual(self, end):
        folder = self.usual_path + ".usual"
        if not os.path.isdir(folder):
            shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("s_*", "s.*", "log", "rank.*"))
        for name in os.listdir(os.path.join(folder, "sets")):  # whose losses a run that was broken off has not kept
            made = re.search(r"_iter_(\d+)\.", name)
            if made and int(made.group(1)) > max(self.usual, default=0) + DISPLAY:
                os.unlink(os.path.join(folder, "sets", name))
        with open(os.path.join(folder, "usual.prototxt"), "w", encoding="utf-8") as f:
            f.write(SOLVER.replace(f"snapshot: {SNAPSHOT} ", f"snapshot: {USUAL} ") % end)
        code, out = job.run(job.launch(self.ranks, [job.CORTADO, "train", "--solver=usual.prototxt", "--snapshot=auto"]), folder, 3600)
        if code != 0:
            sys.exit(f"the run without faults: exit code {code}: {out[-2000:]}")
        with open(self.usual_path + ".losses", "a", encoding="utf-8") as f:
            f.writelines(f"{i} {loss}\n" for i, loss in losses(out).items())
        self.read_usual()

    def read_usual(self):
        path = self.usual_path + ".losses"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.usual = {int(i): loss for i, loss in (line.split() for line in f)}


def try_all(results, options, folder):
    soak = Soak(results, options, folder)
    end = time.monotonic() + float(options.get("seconds", "3600"))
    k = sum(r["class"].startswith("piece") for r in results.rows)
    while time.monotonic() < end:
        soak.piece(k)
        k += 1


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"ranks", "seconds", "every", "seed", "usual"}, try_all)
