#!/usr/bin/env python3
"""Sends USR1 and TERM to trainings at moments from their start to their end, and looks at how they end.

Usage: tests/faults/signals.py RESULTS [--moments=N] [--modes=NAME,NAME]
       tests/faults/signals.py RESULTS --table

A mode (MODES) is a number of ranks, what starts them, and who gets the signal: one rank, or what starts them (of srun all ranks, by
scancel). TERM to mpirun is left out: whatever its ranks end with, mpirun then ends with 1. The moments (20 of each signal without
--moments) are spread evenly to the end of a run that gets no signal, from the moment when the rank has had a processor for 40 ms: as long
as its first lines take at most. Before the ranks are there a signal to mpirun is its own. The job must end in less than 5 s with
 * 75 and a set, from which `train --snapshot=auto` goes on to the checksum of a run without a signal,
 * or 76, where it has not begun: no set, no other file; a training from the start follows,
 * or 0, where the training was over.
What takes longer is tried once more: the machine may be busy. Where every rank is gone and mpirun hangs or crashes, that is its code, with
what it waits in as a note; a run must go on all the same. Modes of srun need root and Slurm, and are left out without.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import job

TRAIN = [job.CORTADO, "train", "--solver=solver.prototxt"]
MODES = {  # name: ranks, what starts them, who gets the signal: a rank, or -1 for what starts them
    "alone": (1, "", 0),
    "mpirun with 1 rank": (1, "mpirun", -1),
    "mpirun with 2 ranks": (2, "mpirun", -1),
    "mpirun with 4 ranks": (4, "mpirun", -1),
    "rank 0 of 2": (2, "mpirun", 0),
    "rank 1 of 2": (2, "mpirun", 1),
    "rank 3 of 4": (4, "mpirun", 3),
    "srun with 2 ranks": (2, "srun", -1),
    "rank 1 of srun's 2": (2, "srun", 1),
}
FIRST_S, LIMIT_S = 0.040, 5.0


class Cluster:
    """Slurm of pretended nodes, where it can be had."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "slurm")
        self.script = os.path.join(job.ROOT, "tests", "slurm", "cluster.sh")
        self.env = None

    def up(self):
        os.environ["PATH"] += ":/usr/sbin"
        if os.path.isdir(self.folder) or os.getuid() != 0 or not all(shutil.which(t) for t in ("slurmctld", "slurmd", "munged", "srun")):
            return self.env is not None
        os.mkdir(self.folder)
        if subprocess.run([self.script, "up", self.folder, "2"], stdin=subprocess.DEVNULL, check=False).returncode == 0:
            out = subprocess.run(["sh", "-c", f". {self.folder}/env.sh; env"], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.env = {k: v for k, _, v in (line.partition("=") for line in out.splitlines()) if k.startswith(("SLURM", "OMPI_MCA"))}
        return self.env is not None

    def down(self):
        if os.path.isdir(self.folder):
            subprocess.run([self.script, "down", self.folder], check=False)
            time.sleep(1)


class Mode:
    def __init__(self, name, work, cluster):
        self.name, self.work, self.cluster = name, work, cluster
        self.ranks, self.starter, self.target = MODES[name]

    def start(self):
        starter = {"mpirun": [*job.MPIRUN, "-np", str(self.ranks)],
                   "srun": ["srun", f"-n{self.ranks}", f"-N{self.ranks}", "--mpi=pmix", "--kill-on-bad-exit=1", "--quiet"]}
        env = self.cluster.env if self.starter == "srun" else None
        folder = self.work.job(job.SOLVER + 'snapshot_prefix: "s"')
        return job.Started(self.ranks, starter.get(self.starter, []), " ".join(TRAIN), folder, env)

    def wait_until(self, j, after_s):
        """The process that gets the signal, so long after its exec, when it has had a processor for 40 ms. Where all ranks get the signal,
        that holds for each of them."""
        pids = [j.wait_for_exec(r) for r in (range(self.ranks) if self.target < 0 else [self.target])]
        start, had = time.monotonic(), {pid: job.processor_s(pid) for pid in pids if pid is not None}
        while j.process.poll() is None and None not in pids:
            if time.monotonic() - start >= after_s and all(job.processor_s(pid) - had[pid] >= FIRST_S for pid in pids):
                break
            time.sleep(0.0005)
        return pids[0]

    def reference(self):
        """The checksum of a run without a signal, and its seconds from the first rank's exec on."""
        j = self.start()
        j.wait_for_exec(0)
        start = time.monotonic()
        code = j.process.wait(120)
        seconds = time.monotonic() - start
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}:\n{j.log()[-3000:]}")
        return job.checksum(j.log()), seconds

    def kill(self, j, pid, number):
        if self.starter == "srun" and self.target < 0:
            with open(os.path.join(j.folder, "step"), encoding="ascii") as f:
                subprocess.run(["scancel", f"--signal={number.name[3:]}", f.read().strip() + ".0"], env=job.environment(self.cluster.env),
                               stderr=subprocess.DEVNULL, check=False)
        else:
            os.kill(pid if self.target >= 0 else j.process.pid, number)

    def send(self, number, after_s):
        """The exit code, the seconds from the signal on, the job. No code where the job was over."""
        j = self.start()
        pid = self.wait_until(j, after_s)
        try:
            if pid is None or j.process.poll() is not None:
                raise ProcessLookupError
            self.kill(j, pid, number)
        except ProcessLookupError:
            wait(j, 120)
            j.end()
            return None, 0, j
        start = time.monotonic()
        code = wait(j, LIMIT_S)
        if code is None:
            code = wait(j, 55) or "no end in 60 s"
        took = time.monotonic() - start
        j.end()
        return code, took, j

    def judge(self, code, j, checksum):
        """What is wrong."""
        out, folder = j.log(), j.folder
        sets = [int(n) for n in re.findall(r"s_iter_(\d+)\.solverstate\.h5\b", " ".join(os.listdir(folder)))]
        # where other ranks had begun, mpirun kills them, so that PREFIX.owner may stay; who goes on takes it over
        rest = [n for n in os.listdir(folder) if re.search(r"\.tmp|\.owner\.|\.probe", n)]
        if code == 0:
            return "" if "Optimization Done" in out else f"0, but not done: {out[-300:]}"
        if code == 76:
            return f"left {sets} {rest}" if sets or rest else self.resume(folder, checksum, 0)
        if code in (job.LAUNCHER_HANGS, job.LAUNCHER_CRASHES):
            return self.resume(folder, checksum, max(sets, default=0))
        if code == 75:
            return self.resume(folder, checksum, max(sets)) if sets and not rest else f"75 with sets of {sets}, and {rest}"
        return f"exit code {code}: {out[-400:]}"

    def resume(self, folder, checksum, newest):
        code, out = job.run(job.launch(self.ranks, [*TRAIN, "--snapshot=auto"]), folder)
        begun = job.BEGUN.search(out)
        begun = int(begun.group(1)) if begun else 0
        if code != 0 or job.checksum(out) != checksum:
            return f"on resume exit code {code}, checksum {job.checksum(out)}: {out[-300:]}"
        return "" if begun == newest else f"resumed after {begun}, with a set of {newest}"


def wait(j, seconds):
    try:
        return j.told(j.process.wait(seconds))
    except subprocess.TimeoutExpired:
        return j.told(None)


def try_mode(mode, results, moments):
    checksum, seconds = mode.reference()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        word = number.name[3:]
        if (word, mode.starter, mode.target) == ("TERM", "mpirun", -1):
            continue
        for k in range(moments):
            after = FIRST_S + (seconds - FIRST_S) * k / moments
            case = f"{mode.name}, moment {k + 1} of {moments}"
            if results.has(f"signal: {word}, {mode.name}", case):
                continue
            for _ in range(2):
                code, took, j = mode.send(number, after)
                if code in (None, job.LAUNCHER_HANGS) or took < LIMIT_S:
                    break
            if code is None:
                continue
            wrong = mode.judge(code, j, checksum)
            if took >= LIMIT_S and code != job.LAUNCHER_HANGS:
                wrong = f"took {took:.1f} s; {wrong}"
            results.add(f"signal: {word}, {mode.name}", case, [75, 76, 0], code, f"after {after:.3f} s: {wrong}" if wrong else "", j.note)


def try_all(results, options, folder):
    work, cluster = job.Work(folder), Cluster(folder)
    try:
        for name in options["modes"].split(",") if "modes" in options else MODES:
            if MODES[name][1] == "srun" and not cluster.up():
                print(f"left out: {name}, without Slurm", flush=True)
            else:
                try_mode(Mode(name, work, cluster), results, int(options.get("moments", 20)))
    finally:
        cluster.down()


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"moments", "modes"}, try_all)
