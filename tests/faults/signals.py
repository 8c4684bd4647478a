#!/usr/bin/env python3
"""Sends USR1 and TERM to trainings at moments from their start to their end, and looks at how they end.

Usage: tests/faults/signals.py RESULTS [--moments=N] [--modes=NAME,NAME]
       tests/faults/signals.py RESULTS --table

A mode (MODES) is a number of ranks, what starts them, and who gets the signal: one rank, or what starts them (of srun all ranks, by
scancel). TERM to mpirun is left out: whatever its ranks end with, mpirun then ends with 1. The moments (20 of each
signal without --moments) are spread evenly from 40 ms after its rank's exec to the end of a run that gets no signal. Before the
ranks are there a signal to mpirun is its own. The job must end in less than 5 s with
 * 75 and a set, from which `train --snapshot=auto` goes on to the checksum of a run without a signal,
 * or 76, where it has not begun: no set, no other file; a training from the start follows,
 * or 0, where the training was over.
What takes longer is tried once more: the machine may be busy. Modes of srun need root and Slurm, and are left out without.
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
# Open MPI 4.1.4 with PMIx 4.2.2, where ranks end while they connect: every rank is gone, and mpirun waits for a lock of its own, or ends
# by a fault in its own end.
LAUNCHER_HANGS, LAUNCHER_CRASHES = "mpirun hangs", "mpirun crashes"


class Cluster:
    """Slurm of pretended nodes, where it can be had."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "slurm")
        self.script = os.path.join(job.ROOT, "tests", "slurm", "cluster.sh")
        os.environ["PATH"] += ":/usr/sbin"
        self.env = None
        if os.getuid() != 0 or not all(shutil.which(t) for t in ("slurmctld", "slurmd", "munged", "srun")):
            return
        os.mkdir(self.folder)
        if subprocess.run([self.script, "up", self.folder, "2"], stdin=subprocess.DEVNULL, check=False).returncode == 0:
            out = subprocess.run(["sh", "-c", f". {self.folder}/env.sh; env"], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.env = {k: v for k, _, v in (line.partition("=") for line in out.splitlines()) if k.startswith(("SLURM", "OMPI_MCA"))}

    def down(self):
        if os.path.isdir(self.folder):
            subprocess.run([self.script, "down", self.folder], check=False)
            time.sleep(1)


class Mode:
    def __init__(self, name, work, cluster):
        self.name, self.work, self.cluster = name, work, cluster
        self.ranks, self.starter, self.target = MODES[name]

    def command(self):
        program = ["sh", "-c", "echo ${SLURM_JOB_ID:-} >step; echo $$ >rank.${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}; "
                   f"exec {' '.join(TRAIN)}"]
        if self.starter == "mpirun":
            return [*job.MPIRUN, "-np", str(self.ranks), *program]
        if self.starter == "srun":
            return ["srun", f"-n{self.ranks}", f"-N{self.ranks}", "--mpi=pmix", "--kill-on-bad-exit=1", "--quiet", *program]
        return program

    def start(self):
        folder = self.work.job(job.SOLVER + 'snapshot_prefix: "s"')
        with open(os.path.join(folder, "log"), "wb") as log:
            env = job.environment(self.cluster.env if self.starter == "srun" else ())
            return folder, subprocess.Popen(self.command(), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for_exec(self, folder, process, rank):
        """The process of a rank, as soon as it runs the program; None where the job ended before."""
        while process.poll() is None:
            try:
                with open(os.path.join(folder, f"rank.{rank}"), encoding="ascii") as f:
                    pid = int(f.read())
                with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                    if f.read().strip() == os.path.basename(job.CORTADO)[:15]:
                        return pid
            except (OSError, ValueError):
                pass
            time.sleep(0.001)
        return None

    def wait_until(self, folder, process, after_s):
        """The process that gets the signal, so long after its exec, and when its first lines have run, which takes less than
        FIRST_S where it has a processor for itself. Where all ranks get the signal, that holds for each of them."""
        ranks = range(self.ranks) if self.target < 0 else [self.target]
        pids = [self.wait_for_exec(folder, process, r) for r in ranks]
        start = time.monotonic()
        while process.poll() is None and None not in pids:
            now = time.monotonic() - start
            if now >= max(after_s, FIRST_S) and all(is_heard(pid) for pid in pids):
                break
            time.sleep(0.0005)
        return pids[0]

    def reference(self):
        """The checksum of a run without a signal, and its seconds from the first rank's exec on."""
        folder, process = self.start()
        self.wait_for_exec(folder, process, 0)
        start = time.monotonic()
        code = process.wait(120)
        seconds = time.monotonic() - start
        out = log_of(folder)
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}:\n{out[-3000:]}")
        return job.checksum(out), seconds

    def kill(self, folder, process, pid, number):
        if self.starter == "srun" and self.target < 0:
            with open(os.path.join(folder, "step"), encoding="ascii") as f:
                subprocess.run(["scancel", f"--signal={number.name[3:]}", f.read().strip() + ".0"], env=job.environment(self.cluster.env),
                               stderr=subprocess.DEVNULL, check=False)
        else:
            os.kill(pid if self.target >= 0 else process.pid, number)

    def any_left(self, folder):
        """Whether a rank still runs."""
        for rank in range(self.ranks):
            try:
                with open(os.path.join(folder, f"rank.{rank}"), encoding="ascii") as f:
                    pid = f.read().strip()
                with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                        return True
            except (OSError, ValueError):
                pass
        return False

    def send(self, number, after_s):
        """The exit code, the seconds from the signal on, the folder. None where the job was over."""
        folder, process = self.start()
        pid = self.wait_until(folder, process, after_s)
        try:
            if pid is None or process.poll() is not None:
                raise ProcessLookupError
            self.kill(folder, process, pid, number)
        except ProcessLookupError:
            process.wait(120)
            return None, 0, folder
        start = time.monotonic()
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = LAUNCHER_HANGS if self.starter and not self.any_left(folder) else None
        if code is None:
            try:
                code = process.wait(55)
            except subprocess.TimeoutExpired:
                code = "no end in 60 s"
        if isinstance(code, str):
            process.kill()
            process.wait()
        return (code if not isinstance(code, int) or code >= 0 else 128 - code), time.monotonic() - start, folder

    def judge(self, code, folder, checksum):
        """What is wrong."""
        out = log_of(folder)
        sets = [int(n) for n in re.findall(r"s_iter_(\d+)\.solverstate\.h5\b", " ".join(os.listdir(folder)))]
        # where other ranks had begun, mpirun kills them, so that PREFIX.owner may stay; who goes on takes it over
        rest = [n for n in os.listdir(folder) if re.search(r"\.tmp|\.owner\.|\.probe", n)]
        if code == 0:
            return "" if "Optimization Done" in out else f"0, but not done: {out[-300:]}"
        if code == 76:
            return f"left {sets} {rest}" if sets or rest else self.resume(folder, checksum, 0)
        if code in (LAUNCHER_HANGS, LAUNCHER_CRASHES):
            return self.resume(folder, checksum, max(sets, default=0)) or "the launcher's fault: ranks ended in time, and a run goes on"
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


def is_heard(pid):
    """Whether a process blocks or catches USR1, as it does from its first lines on."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            found = re.findall(r"^Sig(?:Blk|Cgt):\s*([0-9a-f]+)", f.read(), re.M)
    except OSError:
        return True
    return any(int(mask, 16) >> (signal.SIGUSR1 - 1) & 1 for mask in found)


def log_of(folder):
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as f:
        return f.read()


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
                code, took, folder = mode.send(number, after)
                if code in (None, LAUNCHER_HANGS) or took < LIMIT_S:
                    break
            if code is None:
                continue
            if code == 139 and "mpirun(+" in log_of(folder):
                code = LAUNCHER_CRASHES
            wrong = mode.judge(code, folder, checksum)
            if took >= LIMIT_S and code != LAUNCHER_HANGS:
                wrong = f"took {took:.1f} s; {wrong}"
            results.add(f"signal: {word}, {mode.name}", case, [75, 76, 0], code, f"after {after:.3f} s: {wrong}" if wrong else "")


def try_all(results, options, folder):
    work, cluster = job.Work(folder), None
    for name in options["modes"].split(",") if "modes" in options else MODES:
        if MODES[name][1] == "srun" and cluster is None:
            cluster = Cluster(folder)
        if MODES[name][1] == "srun" and cluster.env is None:
            print(f"left out: {name}, without Slurm", flush=True)
            continue
        try:
            try_mode(Mode(name, work, cluster), results, int(options.get("moments", 20)))
        finally:
            if cluster and name == list(MODES)[-1]:
                cluster.down()


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"moments", "modes"}, try_all)
