#!/usr/bin/env python3
"""Runs a small training with too little memory, shared memory, processes or threads, and with more of it, step by step.

Usage: tests/faults/memory_limits.py RESULTS [--classes=NAME/NAME]
       tests/faults/memory_limits.py RESULTS --table

 * group: a control group of its own limits a job, with `memory { }` and without, from a share of the least that the plan says to above it. Below, the
   job must end with 2 before the first step, and one line that says the limit and what it takes. Above, it ends as without a limit.
 * killer: another process takes the group's memory while the job runs, until the kernel kills a rank. The job must end, and go on to
   the same bits from the newest set.
 * shm: /dev/shm is a file system of some kilobytes. The job must end as without, or in less than 60 s with a code of docs/slurm.md and a
   line of error; never by a signal.
 * processes: a normal user may have so many processes and threads. The same must follow.
Needs Linux, root, and version 1 or 2 of control groups below /sys/fs/cgroup.
"""
import os
import re
import signal
import subprocess
import sys
import time

import job

WIDE = 3000
NET = f"""
layer {{ name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {{ shape {{ dim: 8 dim: 2000 }} shape {{ dim: 8 }}
  data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "wide" type: "InnerProduct" bottom: "data" top: "wide"
  inner_product_param {{ num_output: {WIDE} weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "wide" top: "wide" }}
layer {{ name: "deep" type: "InnerProduct" bottom: "wide" top: "deep"
  inner_product_param {{ num_output: {WIDE} weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "deep" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SOLVER = """net: "../wide.prototxt" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 max_iter: %d display: 1 snapshot: %d solver_mode: CPU
random_seed: 7 deterministic: true snapshot_prefix: "s" global_batch_size: 8
"""
SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.1, 1.3, 2.0)
TRAIN = [job.CORTADO, "train", "--solver=solver.prototxt"]
DOCUMENTED = (1, 2, 3, 4, 5, 6)
MIB = 1 << 20


class Group:
    """A control group with a limit of memory; removed at the end."""

    def __init__(self, limit):
        self.one = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = os.path.join("/sys/fs/cgroup/memory" if self.one else "/sys/fs/cgroup", f"cortado-faults.{os.getpid()}")
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes" if self.one else "memory.max", limit)
        if self.one and os.path.exists(os.path.join(self.path, "memory.swappiness")):
            self.write("memory.swappiness", 0)
        if not self.one:
            self.write("memory.swap.max", 0)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def inside(self, command):
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def close(self):
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)
        raise OSError(f"{self.path} has processes")


class Work(job.Work):
    def begin(self, iterations=3, more=""):
        with open(os.path.join(self.path, "wide.prototxt"), "w", encoding="utf-8") as f:
            f.write(NET)
        return self.job(SOLVER % (iterations, max(iterations // 3, 1)) + more)


def loss(out):
    return float(re.findall(r"Iteration \d+, loss = ([-0-9.e]+)", out)[-1])


def last_words(code, out, reference_out, started):
    """What is wrong of an end: right is the result of a run without a limit, or a documented code and a line of error. Where ranks
    exchange messages in place of shared memory, as a warning says, sums have another order, and the loss is the same to rounding."""
    said = job.errors(out)
    if code == 0 and "no room in /dev/shm" in out:
        return "" if abs(loss(out) - loss(reference_out)) < 1e-4 * abs(loss(reference_out)) else "another loss"
    if code == 0:
        return "" if job.checksum(out) == job.checksum(reference_out) else "another checksum"
    if code not in DOCUMENTED:
        return f"exit code {code}: {out[-400:]}"
    if not said:
        return f"exit code {code} without a line of error: {out[-400:]}"
    if started > 60:
        return f"an end after {started:.0f} s: {said[0]}"
    return ""


def reference(work, ranks, more=""):
    path = work.begin(more=more)
    begun = time.monotonic()
    code, out = job.run(job.launch(ranks, TRAIN), path)
    if code != 0:
        sys.exit(f"exit code {code}:\n{out[-3000:]}")
    return out, job.checksum(out), time.monotonic() - begun


def need(work, ranks, more=""):
    """MiB that the plan says a rank takes at least."""
    path = work.begin(more=more)
    little = [*TRAIN, "--set=memory.limit_mb=1"] if more else ["env", "SLURM_MEM_PER_NODE=1", *TRAIN]
    code, out = job.run(job.launch(ranks, little), path)
    found = re.search(r"the least is (\d+) MiB", out)
    if code != 2 or not found:
        sys.exit(f"no need in: {out[-1000:]}")
    return int(found.group(1))


def try_group(results, work):
    for ranks, more in ((1, ""), (2, ""), (1, "memory { }"), (2, "memory { }"), (2, "memory { zero: 2 }"), (2, "memory { zero: 3 }")):
        usual, _, _ = reference(work, ranks, more)
        most = need(work, ranks, more) * ranks
        for share in SHARES:
            case = f"{ranks} ranks, {more or 'no memory { }'}, {share:.2f} of {most} MiB"
            if results.has("group", case):
                continue
            path, group = work.begin(more=more), Group(int(share * most) * MIB)
            code, out = job.run(group.inside(job.launch(ranks, TRAIN)), path)
            group.close()
            said = job.errors(out)
            wrong = ""
            if code == 0 and job.checksum(out) != job.checksum(usual):
                wrong = "another checksum"
            elif code == 0 and share < 1:
                wrong = "runs where it is not to"
            elif code != 0 and share > 1:
                wrong = f"exit code {code} with more than the plan says: {out[-400:]}"
            elif share < 1 and code != 2:
                wrong = f"exit code {code}: {out[-400:]}"
            elif share < 1 and ("Iteration 0," in out or len(said) != 1 or "control group leaves a rank" not in said[0]):
                wrong = f"no such line: {' / '.join(said)}"
            results.add("group", case, [0 if share > 1 else 2], code, wrong)


FIRST = ["sh", "-c", 'echo 1000 >/proc/self/oom_score_adj && exec "$@"', "sh"]  # whom the kernel kills first
HOG = """import os, sys, time
kept = []
while os.path.exists(sys.argv[1]):
    kept.append(bytearray(b"x" * (4 << 20)))
    time.sleep(0.001)
"""


def try_killer(results, work):
    for ranks in (1, 2):
        path = work.begin(90)
        code, out = job.run(job.launch(ranks, TRAIN), path, 300)
        sums, most = job.checksum(out), need(work, ranks) * ranks
        for k in range(3):
            case = f"{ranks} ranks, time {k}"
            if results.has("killer", case):
                continue
            path, group = work.begin(90), Group(3 * most * MIB)
            with open(os.path.join(path, "log"), "w", encoding="utf-8") as log:
                running = subprocess.Popen(group.inside(job.launch(ranks, TRAIN, FIRST)), cwd=path, env=job.environment(), stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=subprocess.STDOUT)
            while f"Iteration {32 + k}," not in read(path, "log") and running.poll() is None:
                time.sleep(0.02)
            open(os.path.join(path, "go"), "w", encoding="ascii").close()
            hog = subprocess.Popen(group.inside([sys.executable, "-c", HOG, os.path.join(path, "go")]))
            try:
                code = running.wait(120)
            except subprocess.TimeoutExpired:
                running.kill()
                code = "no end in 120 s"
            os.unlink(os.path.join(path, "go"))
            if hog.poll() is None:
                hog.send_signal(signal.SIGKILL)
            hog.wait()
            group.close()
            wrong = "" if code in (-9, 137) else f"exit code {code}: {read(path, 'log')[-300:]}"
            again, out = job.run(job.launch(ranks, [*TRAIN, "--snapshot=auto"]), path, 300)
            if again != 0 or job.checksum(out) != sums:
                wrong += f" does not go on to the same bits: exit code {again}, {out[-300:]}"
            elif not job.BEGUN.search(out):
                wrong += " does not go on from a set"
            results.add("killer", case, [137], code, wrong)


def read(path, name):
    with open(os.path.join(path, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def try_shm(results, work):
    for ranks in (2, 4):
        usual, _, _ = reference(work, ranks)
        for size in (4, 64, 256, 1024, 4096, 16384, 65536):
            case = f"{ranks} ranks, {size} KiB"
            if results.has("shm", case):
                continue
            path, begun = work.begin(), time.monotonic()
            inner = ["unshare", "-m", "--propagation=private", "sh", "-c", f'mount -t tmpfs -o size={size}k none /dev/shm && exec "$@"', "sh"]
            code, out = job.run([*inner, *job.launch(ranks, TRAIN)], path)
            results.add("shm", case, [0, *DOCUMENTED], code, last_words(code, out, usual, time.monotonic() - begun))


def try_processes(results, work):
    os.chmod(work.path, 0o777)
    for threads in (1, 4):
        with_threads = ["env", f"OMP_NUM_THREADS={threads}", *TRAIN]
        path = work.begin()
        code, usual = job.run(with_threads, path)
        if code != 0:
            sys.exit(usual)
        for most in (1, 2, 3, 4, 5, 6, 8, 12):
            case = f"{threads} threads, {most} allowed"
            if results.has("processes", case):
                continue
            path, begun = work.begin(), time.monotonic()
            os.chmod(path, 0o777)
            user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", f"--nproc={most}"]
            code, out = job.run([*user, *with_threads], path)
            results.add("processes", case, [0, *DOCUMENTED], code, last_words(code, out, usual, time.monotonic() - begun))


CLASSES = {"group": try_group, "killer": try_killer, "shm": try_shm, "processes": try_processes}


def try_all(results, options, folder):
    work = Work(folder)
    for name in options["classes"].split("/") if "classes" in options else CLASSES:
        CLASSES[name](results, work)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"classes"}, try_all)
