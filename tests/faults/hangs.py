#!/usr/bin/env python3
"""Has trainings hang, or break, at moments from their start to their end, and looks at how soon and how they end.

Usage: tests/faults/hangs.py RESULTS [--most=N] [--modes=NAME,NAME]
       tests/faults/hangs.py RESULTS --table

A mode (MODES) is a number of ranks and what befalls one of them: the last, or the first where only that one speaks and writes files.
 * stop: SIGSTOP. The others end the job with 6.
 * pipe: nobody reads its output any more, and the pipe is full. 6; 0 where it had no more to say.
 * input, output: a call on the training data, or on files of the job's folder, never returns; every other time none from there on. 6.
 * heap: in such a call the heap breaks, so that the next block ends the process with the heap's lock held. 134.
 * clock: the clock of the day jumps by an hour, forth or back. 0 and the same weights.
 * clock and stop, clock and output: both; the clock jumps first. 6.
--most (12) moments a mode are spread evenly: over the time of a run without a fault, from the moment when the rank has had a processor for
40 ms, or over the calls that faults.c lists. The limit of the watchdog is 3 s (WATCHDOG_S), of the start, too. The job must be over
within 5 s more, and no rank be left. A case that is wrong is tried once more, since the machine may be busy: "at the second try" says so.
Two kinds of cases have codes of their own and count as right. mpirun waits for good for a rank that stops when it has ended MPI, since
the others have ended: no rank is there that could see it (LATE). And mpirun itself hangs or crashes where every rank is gone
(job.LAUNCHER_HANGS, LAUNCHER_CRASHES); a note says where.
"""
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time

import job

WATCHDOG_S, MARGIN_S, FIRST_S, HOUR_S = 3, 5.0, 0.040, 3600
SOLVER = job.SOLVER + f'watchdog_seconds: {WATCHDOG_S}'
TRAIN = f"{job.CORTADO} train --solver=solver.prototxt --run=run --start_seconds={WATCHDOG_S}"
FOLDER = {"input": "data", "output": "job", "heap": "job", "clock and output": "job"}  # whose files the fault meets
WHAT = ("stop", "pipe", "input", "output", "heap", "clock", "clock and stop", "clock and output")
MODES = {f"{what} on {ranks} rank{'s' if ranks > 1 else ''}": (what, ranks)
         for what in WHAT for ranks in (1, 2, 4) if ranks > 1 or "stop" not in what}
LATE = "stopped behind MPI's end"
APART = (LATE, job.LAUNCHER_HANGS, job.LAUNCHER_CRASHES)
SET_PIPE_SIZE = 1031  # fcntl's F_SETPIPE_SZ


class Pipe:
    """Is read into a job's log until it is blocked: then it is full, and stays so."""

    def __init__(self, folder):
        self.reads, self.writes = os.pipe()
        fcntl.fcntl(self.writes, SET_PIPE_SIZE, 4096)
        os.set_blocking(self.reads, False)
        self.log, self.stop = os.path.join(folder, "log"), threading.Event()
        self.thread = threading.Thread(target=self.copy, daemon=True)
        self.thread.start()

    def copy(self):
        with open(self.log, "ab", buffering=0) as log:
            while not self.stop.is_set():
                try:
                    log.write(os.read(self.reads, 65536))
                except BlockingIOError:
                    time.sleep(0.002)

    def block(self):
        self.stop.set()
        self.thread.join()
        own = os.open(f"/proc/self/fd/{self.writes}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            try:
                while True:
                    os.write(own, b" " * size)
            except BlockingIOError:
                pass
        os.close(own)

    def close(self):
        self.stop.set()
        self.thread.join()
        os.close(self.reads)
        os.close(self.writes)


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.what, self.ranks = MODES[name]
        self.rank = 0 if self.what == "pipe" or FOLDER.get(self.what) == "job" else self.ranks - 1
        self.checksum, self.calls, self.seconds, self.pipe = None, [], 0.0, None

    def start(self, **faults):
        """A job. faults: variables that faults.c reads, for the rank with the fault."""
        folder = self.work.job(SOLVER)
        if self.what in FOLDER:
            faults.update(FAULT_IN=FOLDER[self.what], FAULT_LOG="calls")
        if faults:
            faults["LD_PRELOAD"] = self.work.faults()
        self.pipe = Pipe(folder) if self.what == "pipe" else None
        to = f">/proc/{os.getpid()}/fd/{self.pipe.writes} 2>&1" if self.pipe else ""
        with open(os.path.join(folder, "rank.sh"), "w", encoding="utf-8") as f:
            f.write(f'[ "${{OMPI_COMM_WORLD_RANK:-0}}" = {self.rank} ] || exec {TRAIN}\n')
            f.writelines(f'{name}="{value}"\nexport {name}\n' for name, value in faults.items())
            f.write(f"exec {TRAIN} {to}\n")
        starter = [*job.MPIRUN, "-np", str(self.ranks)] if self.ranks > 1 else []
        return job.Started(self.ranks, starter, "sh rank.sh", folder)

    def close(self):
        if self.pipe:
            self.pipe.close()

    def reference(self):
        """Of a run without a fault: checksum, seconds from the rank's exec on, calls. A busy machine may need a second one."""
        code = None
        for _ in range(3):
            j = self.start()
            j.wait_for_exec(self.rank)
            start = time.monotonic()
            code = j.process.wait(120)
            self.seconds = time.monotonic() - start
            self.close()
            if code == 0:
                break
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}:\n{j.log()[-3000:]}")
        self.checksum = job.checksum(j.log())
        if self.what in FOLDER:
            with open(os.path.join(j.folder, "calls"), encoding="utf-8") as f:
                self.calls = [line.split(" ", 1)[1].strip() for line in f]

    def wait_until(self, j, after_s):
        """The rank's process, so long after its exec, when it has had a processor for 40 ms; None: the job was over before."""
        pid = j.wait_for_exec(self.rank)
        start, had = time.monotonic(), job.processor_s(pid)
        while pid is not None and job.state(pid) not in "ZX":
            if time.monotonic() - start >= after_s and job.processor_s(pid) - had >= FIRST_S:
                return pid
            time.sleep(0.0005)
        return None

    def wait_for_call(self, j, number):
        """The same, when its call of that number is under way."""
        while j.process.poll() is None:
            try:
                with open(os.path.join(j.folder, "calls"), encoding="utf-8") as f:
                    if re.search(rf"^{number} ", f.read(), re.M):
                        return j.pid(self.rank)
            except OSError:
                pass
            time.sleep(0.005)
        return None

    def befall(self, k, most):
        """The job with the fault of the k-th of so many moments, and its words; where it was over before, no words."""
        after = FIRST_S + (self.seconds - FIRST_S) * k / most
        faults = {}
        if "clock" in self.what:
            faults["FAULT_CLOCK"] = f"{after if self.what == 'clock' else after / 2:.3f} {HOUR_S * (-1) ** k}"
        if self.what not in FOLDER:
            j = self.start(**faults)
            pid, words = self.wait_until(j, after), f"after {after:.3f} s"
            if pid is not None and self.pipe:
                self.pipe.block()
            if pid is not None and "stop" in self.what:
                os.kill(pid, signal.SIGSTOP)
        else:
            number = 1 + k * len(self.calls) // most
            never = "stall" if k % 2 == 0 else "stall WCRSXI"
            j = self.start(FAULT=f"{number} {'heap' if self.what == 'heap' else never}", **faults)
            pid, words = self.wait_for_call(j, number), f"call {number} ({self.calls[number - 1]})"
        return j, None if pid is None else words

    def judge(self, j, code, took_s, limit_s):
        wrong = []
        wanted = {"heap": [134], "clock": [0], "pipe": [6, 0]}.get(self.what, [6])
        if code not in wanted:
            wrong.append(f"exit code {code}: {j.log()[-500:]}")
        if took_s > limit_s:
            wrong.append(f"took {took_s:.1f} s")
        time.sleep(0.1)
        if j.left():
            wrong.append(f"ranks {j.left()} are left")
        if self.what == "clock" and code == 0 and job.checksum(j.log()) != self.checksum:
            wrong.append("another checksum")
        return wrong

    def attempt(self, k, most):
        """Exit code and what is wrong; no code where the job was over before."""
        limit_s = MARGIN_S + {"clock": 2 * self.seconds, "heap": 0.0}.get(self.what, WATCHDOG_S)
        j, words = self.befall(k, most)
        start = time.monotonic()
        try:
            code = j.told(j.process.wait(limit_s + 10))
        except subprocess.TimeoutExpired:
            code = j.told(None) or f"no end in {limit_s + 10:.0f} s"
        took_s = time.monotonic() - start
        done = job.checksum(j.log()) and "no progress" not in j.log()
        if isinstance(code, str) and "stop" in self.what and j.left() == [self.rank] and done:
            code = LATE
        wrong = [] if code in APART or words is None else self.judge(j, code, took_s, limit_s)
        j.end()
        self.close()
        return (code if words else None), f"{words}: {'; '.join(wrong)}" if wrong else "", j.note


def try_mode(mode, results, most):
    name = f"hang: {mode.name}"
    if all(results.has(name, f"moment {k + 1} of {most}") for k in range(most)):
        return
    mode.reference()
    for k in range(most):
        case = f"moment {k + 1} of {most}"
        if results.has(name, case):
            continue
        code, wrong, note = mode.attempt(k, most)
        if wrong:
            print(f"{name}, {case}: {wrong}; once more", file=sys.stderr, flush=True)
            code, wrong, note = mode.attempt(k, most)
            code = code if wrong or code is None else f"{code} at the second try"
        if code is not None:
            results.add(name, case, [0, 6, 134], code, wrong, note)


def try_all(results, options, folder):
    work = job.Work(folder)
    for name in options["modes"].split(",") if "modes" in options else MODES:
        try_mode(Mode(name, work), results, int(options.get("most", "12")))


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes"}, try_all)
