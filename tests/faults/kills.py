#!/usr/bin/env python3
"""Kills jobs at every system call of their snapshots, goes on from what is on disk, and compares bit by bit.

Usage: tests/faults/kills.py RESULTS [--most=N] [--modes=NAME,NAME]
       tests/faults/kills.py RESULTS --table

A job of each mode (a codec, a tier of memory, a stage of ZeRO, a plan, local steps; MODES) trains 12 iterations of a small net,
with a set every 4. strace lists the calls that files see on one rank, from the first that names the prefix on. Then the job runs
again and again, and strace kills that rank by SIGKILL as it enters the k-th of them, which stands behind the one before. A mode
takes --most of them, evenly spread (all without), the ranks in turn. Behind each kill `train --snapshot=auto` goes on, without
strace, and must
 * end with 0, and with the weights' checksum of the run that nobody killed,
 * have begun from the newest set whose last rename was over when the kill came, or a newer one,
 * leave no file with the end .tmp, and no owner.
strace is needed; job.py says what RESULTS and --table are.
"""
import os
import re
import sys

import job

CALLS = ("openat,creat,write,pwrite64,writev,pwritev,rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync,ftruncate,"
         "fallocate,close,link,linkat,mkdir,rmdir,flock,fcntl")
PLAN = 'ranks: 2 global_batch: 12 stage { first: "in" last: "drop" rank: 0 } stage { first: "ip" last: "loss" rank: 1 }\n'
NORM = job.NET.replace('layer { name: "relu"', 'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }\nlayer { name: "relu"')
SMALL = "min_bytes: 64"
MODES = {  # name: ranks, what is added to the solver, options
    "plain": (1, "", []),
    "plain on 2": (2, "", []),
    "plain on 4": (4, "", []),
    "statistics on 3": (3, "checksum_interval: 2", ["--set=net=../norm.prototxt"]),
    "adam": (1, 'type: "Adam" momentum2: 0.99', []),
    "average": (2, "average { type: EMA decay: 0.9 }", []),
    "async": (2, "snapshot_async: true", []),
    "kept": (1, "snapshot_keep: 1", []),
    "topk": (2, f"compression {{ type: TOPK density: 0.05 {SMALL} }}", []),
    "redsync on 4": (4, f"compression {{ type: REDSYNC density: 0.05 {SMALL} }}", []),
    "powersgd": (2, f"compression {{ type: POWERSGD rank: 1 {SMALL} }}", []),
    "onebit": (2, f"compression {{ type: ONEBIT {SMALL} }}", ["--topology=2x1"]),
    "int4": (2, f"compression {{ type: INT4 error_feedback: true {SMALL} }}", ["--topology=2x1"]),
    "zero 1": (2, "memory { zero: 1 }", []),
    "zero 2": (2, "memory { zero: 2 }", []),
    "zero 3": (2, "memory { zero: 3 }", []),
    "state in a file": (2, 'memory { state: FILE path: "." }', []),
    "weights in a file": (2, 'memory { state: FILE weights: FILE path: "." }', []),
    "local steps": (2, "outer { local_iter: 3 groups: 2 }", []),
    "local steps later": (2, f"outer {{ local_iter: 3 groups: 2 delay: 1 compression {{ type: TOPK density: 0.1 {SMALL} }} }}", []),
    "pipeline": (2, "", ["--parallel=../two.plan"]),
}
TRAIN = [job.CORTADO, "train", "--solver=solver.prototxt"]


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.solver, self.options = MODES[name]

    def folder(self):
        return self.work.job(job.SOLVER + 'snapshot_prefix: "s" ' + self.solver)

    def run(self, folder, tracer=None, rank=0, more=()):
        return job.run(job.launch(self.ranks, [*TRAIN, *self.options, *more], tracer, rank), folder)

    def reference(self):
        """The checksum of the run that nobody kills."""
        code, out = self.run(self.folder())
        if code != 0 or not job.checksum(out):
            sys.exit(f"{self.name}: exit code {code}:\n{out[-3000:]}")
        return job.checksum(out)

    def calls(self, rank):
        """This rank's calls of its main thread, one a line of strace's, and from which one on the prefix is named."""
        folder = self.folder()
        code, out = self.run(folder, ["strace", "-o", "calls", "-e", f"trace={CALLS}"], rank)
        if code != 0:
            sys.exit(f"{self.name}, rank {rank}, under strace: exit code {code}:\n{out[-3000:]}")
        with open(os.path.join(folder, "calls"), encoding="utf-8", errors="replace") as f:
            lines = [line for line in f if "(" in line and not line.startswith(("---", "+++"))]
        named = [i for i, line in enumerate(lines) if '"s' in line or '"./s' in line]
        return lines, (named[0] if named else len(lines)), (named[-1] if named else 0)

    def kill(self, rank, at, lines, checksum):
        """The exit code of the job that was killed, and what went wrong behind it. No code: it ended before."""
        folder = self.folder()
        call = lines[at].split("(")[0]  # strace counts each call's name by itself
        when = sum(line.startswith(call + "(") for line in lines[:at + 1])
        tracer = ["strace", "-o", "calls", "-e", f"trace={CALLS}", "-e", f"inject={call}:signal=KILL:when={when}"]
        code, out = self.run(folder, tracer, rank)
        with open(os.path.join(folder, "calls"), encoding="utf-8", errors="replace") as f:
            traced = f.read()
        if "+++ killed by SIGKILL +++" not in traced:
            return (None, "") if code == 0 else (code, f"not killed: {out[-300:]}")
        whole = re.findall(r'rename\w*\(.*"s_iter_(\d+)\.solverstate\.h5"\) += 0', traced)
        left = sorted(os.listdir(folder))
        ended, (code, out) = code, self.run(folder, more=["--snapshot=auto"])
        found, begun = job.checksum(out), job.BEGUN.search(out)
        begun = int(begun.group(1)) if begun else 0
        wrong = []
        if code != 0:
            wrong.append(f"exit code {code} on resume")
        if found != checksum:
            wrong.append("another checksum" if found else "no checksum")
        if whole and begun < int(whole[-1]):
            wrong.append(f"resumed after {begun}, with a set of {whole[-1]}")
        rest = [n for n in os.listdir(folder) if ".tmp" in n or ".owner" in n or ".probe" in n]
        if rest:
            wrong.append(f"left: {' '.join(rest)}")
        if wrong:
            wrong.append(f"before: {' '.join(left)}; {out[-400:]}")
        return ended, "; ".join(wrong)


def try_mode(mode, results, most):
    checksum = mode.reference()
    for rank in range(mode.ranks):
        lines, first, last = mode.calls(rank)
        step = max(1.0, (last + 1 - first) / max(1, most // mode.ranks))
        for k in range(int((last + 1 - first) / step)):
            at = first + int(k * step)
            case = f"rank {rank}, call {at}"
            if results.has(f"kill: {mode.name}", case):
                continue
            code, wrong = mode.kill(rank, at, lines, checksum)
            if code is not None:
                results.add(f"kill: {mode.name}", case, [137], code, f"({lines[at].strip()[:100]}): {wrong}" if wrong else "")


def try_all(results, options, folder):
    work = job.Work(folder, [("two.plan", PLAN), ("norm.prototxt", NORM)])
    for name in options["modes"].split(",") if "modes" in options else MODES:
        try_mode(Mode(name, work), results, int(options.get("most", "1000000")))


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes"}, try_all)
