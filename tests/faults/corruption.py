#!/usr/bin/env python3
"""Flips one bit in the memory of a rank between two steps, as bad memory does, and looks whether the job notices.

Usage: tests/faults/corruption.py RESULTS [--most=N] [--modes=NAME/NAME]
       tests/faults/corruption.py RESULTS --table

gdb runs one rank, stops it after iteration AT and has flip.c change a number there. A mode (MODES) is a training, what is changed, and
what must notice: `checksum_interval` (2 iterations here), or `verify_memory`. Then the job must end with 5 and one line that says so.
With `checksum_interval` that is within one interval. From 3 ranks on, and with `verify_memory` always, it
names the rank; with `verify_memory` the buffer, too. Each mode also runs with neither option and the flip of a large bit: it must end
otherwise than without a flip, or the bit was none that counts. Needs gdb and x86-64; BUILD names the folder of the program's build.
"""
import os
import re
import shutil
import subprocess
import sys

import job

AT = 6  # iterations are done
EVERY = 2
BITS = (31, 30, 26, 23, 22, 12)
BUILD = os.environ.get("BUILD", os.path.dirname(os.path.realpath(job.CORTADO)))
WEIGHTS, HISTORY, STORED_WEIGHTS, CODEC = range(4)  # as in flip.c
SPARSE = "type: TOPK density: 0.05 min_bytes: 64"
MODES = {  # name: ranks, the rank with the flip, solver, what is changed and its number, what notices
    "weights of 2 ranks": (2, 1, "", (WEIGHTS, 0), "sum"),
    "weights of 3 ranks": (3, 1, "", (WEIGHTS, 0), "sum"),
    "weights of 4 ranks": (4, 3, "", (WEIGHTS, 0), "sum"),
    "momentum of 2 ranks": (2, 0, "", (HISTORY, 0), "sum"),
    "momentum of 3 ranks": (3, 2, "", (HISTORY, 0), "sum"),
    "mean square of 3 ranks": (3, 1, 'type: "Adam" momentum2: 0.999', (HISTORY, 1), "sum"),
    "momentum, verify_memory": (3, 2, "", (HISTORY, 0), "memory"),
    "momentum of 1 rank": (1, 0, "", (HISTORY, 0), "memory"),
    "average of the weights": (2, 1, "average { type: EMA decay: 0.9 }", (HISTORY, 1), "memory"),
    "states in shards, zero 1": (3, 1, "memory { zero: 1 }", (HISTORY, 0), "memory"),
    "states in shards, zero 2": (2, 1, "memory { zero: 2 }", (HISTORY, 0), "memory"),
    "states in shards, zero 3": (3, 2, "memory { zero: 3 }", (HISTORY, 0), "memory"),
    "weights in shards, zero 3": (3, 1, "memory { zero: 3 }", (STORED_WEIGHTS, 0), "memory"),
    "residual of TOPK": (3, 1, f"compression {{ {SPARSE} }}", (CODEC, 0), "memory"),
    "momentum of REDSYNC": (2, 1, "compression { type: REDSYNC density: 0.05 min_bytes: 64 }", (CODEC, 1), "memory"),
    "residual of TOPK by a thread": (2, 0, f"compression {{ {SPARSE} }} comm {{ progress: THREAD forward_overlap: false }}", (CODEC, 0),
                                     "memory"),
    "residual of ONEBIT": (3, 0, "compression { type: ONEBIT min_bytes: 64 }", (CODEC, 0), "memory"),
    "residual of INT4": (2, 1, "compression { type: INT4 error_feedback: true min_bytes: 64 }", (CODEC, 0), "memory"),
    "residual of POWERSGD": (3, 2, "compression { type: POWERSGD rank: 2 min_bytes: 64 }", (CODEC, 0), "memory"),
    "residual of 1 rank": (1, 0, f"compression {{ {SPARSE} }}", (CODEC, 0), "memory"),
}
SAYS = {"sum": r"after iteration (\d+) the (?:weights|states of the update rule) differ", "memory": r"verify_memory: .*this rank's "}


def commands(library, what, bit, place):
    """What gdb does."""
    return ["set pagination off", "set confirm off", f"set environment LD_PRELOAD {library}", "handle all nostop noprint pass",
            "handle SIGTRAP stop", "break *ct_solver_agree", f"ignore 1 {AT}", "run",
            f"call (int)flip((void *)$rdi, {what[0]}, {what[1]}, {place}L, {bit}U)", "delete", "continue", "quit $_exitcode"]


def make_library(folder):
    path = os.path.join(folder, "flip.so")
    source = os.path.join(job.ROOT, "tests", "faults", "flip.c")
    subprocess.run(["mpicc", "-D_GNU_SOURCE", "-std=c11", "-g", "-fopenmp", f"-I{job.ROOT}", f"-I{BUILD}", "-shared", "-fPIC", "-o", path,
                    source], check=True)
    return path


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.rank, self.solver, self.what, self.by = MODES[name]

    def run(self, checks, bit=None, place=0):
        overlap = "" if "forward_overlap" in self.solver else "comm { forward_overlap: false }"
        options = f"checksum_interval: {EVERY if checks and self.by == 'sum' else 0}"
        if checks and self.by == "memory":
            options += " verify_memory: true"
        path = self.work.job(f'{job.SOLVER} {self.solver} {overlap} {options} snapshot_prefix: "s"')
        before = None
        if bit is not None:
            with open(os.path.join(path, "gdb"), "w", encoding="utf-8") as f:
                f.write("\n".join(commands(self.work.flip, self.what, bit, place)) + "\n")
            before = ["gdb", "-q", "-batch", "-nx", "-x", "gdb", "--args"]
        program = [job.CORTADO, "train", "--solver=solver.prototxt"]
        return job.run(job.launch(self.ranks, program, before, self.rank), path)

    def judge(self, code, out):
        """What went wrong of a run in which a bit was flipped."""
        said = job.errors(out)
        if "flipped bit" not in out:
            return f"nothing was flipped: {out[-400:]}"
        if code != 5:
            return f"exit code {code}: {out[-400:]}"
        if len(said) != 1:
            return f"{len(said)} lines of error: {' / '.join(said)[-400:]}"
        found = re.search(SAYS[self.by], said[0])
        if not found:
            return f"another error: {said[0]}"
        if self.by == "sum":
            if int(found.group(1)) > AT + EVERY:
                return f"found after iteration {found.group(1)}"
            if self.ranks > 2 and not re.search(rf"another one: {self.rank} \(", said[0]):
                return f"does not name rank {self.rank}: {said[0]}"
        elif self.ranks > 1 and f"rank {self.rank} on" not in said[0]:
            return f"does not name rank {self.rank}: {said[0]}"
        return ""


def try_all(results, options, folder):
    if shutil.which("gdb") is None:
        sys.exit("no gdb")
    work = job.Work(folder)
    work.flip = make_library(folder)
    for name in options["modes"].split("/") if "modes" in options else MODES:
        mode = Mode(name, work)
        code, out = mode.run(True)
        if code != 0:
            sys.exit(f"{name}: exit code {code}:\n{out[-3000:]}")
        sums = {job.checksum(out)}
        alone = name == "average of the weights"  # no weight follows from it
        if not alone and not results.has(f"unseen: {name}", "no checks, bit 30"):
            code, out = mode.run(False, 30)
            seen = code == 5 or (code == 0 and job.checksum(out) not in sums)
            results.add(f"unseen: {name}", "no checks, bit 30", [0, 5], code, "" if seen else f"a flip without effect: {out[-400:]}")
        cases = [(bit, place) for place in (0, 37) for bit in BITS]
        most = min(len(cases), int(options.get("most", len(cases))))
        for k in range(most):
            bit, place = cases[k * len(cases) // most]
            case = f"{name}, bit {bit} of number {place}"
            if not results.has(f"memory: {name}", case):
                code, out = mode.run(True, bit, place)
                results.add(f"memory: {name}", case, [5], code, mode.judge(code, out))


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes"}, try_all)
