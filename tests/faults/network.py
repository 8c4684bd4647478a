#!/usr/bin/env python3
"""Takes the network from between two hosts, for a while or for good, under jobs of two ranks.

Usage: tests/faults/network.py RESULTS [--most=N] [--modes=NAME,NAME]
       tests/faults/network.py RESULTS --table

Two name spaces of the network stand for hosts, with a name, a /dev/shm and one end of a link each. That takes root, and Open MPI,
whose mpirun starts ranks there. A mode (MODES: a sum, codecs, a stage of ZeRO, a pipeline) trains over the link, which goes down
 * for 0.3, 1, 2 and 4 s: the job ends with 0, and the checksum of a run that keeps its link;
 * for good, at four moments of the training, and once before MPI has started: every rank is gone within the watchdog's seconds and
   5 s more. mpirun hears of that once the link is up again, and ends with 6.
A mode takes --most of these nine cases (all without).
"""
import os
import shlex
import subprocess
import sys
import time

import job

WATCHDOG = 4  # seconds
SMALL = "min_bytes: 64"
PLAN = 'ranks: 2 global_batch: 12 stage { first: "in" last: "drop" rank: 0 } stage { first: "ip" last: "loss" rank: 1 }\n'
MODES = {  # name: what is added to the solver, options
    "ring": ('comm { allreduce: "ring" }', []),
    "AUTO": ("", []),
    "a thread's progress": ("comm { progress: THREAD }", []),
    "topk": (f"compression {{ type: TOPK density: 0.05 {SMALL} }}", []),
    "powersgd": (f"compression {{ type: POWERSGD rank: 1 {SMALL} }}", []),
    "zero 2": ("memory { zero: 2 }", []),
    "pipeline": ("", ["--parallel=../two.plan"]),
}
AWAY_S = [0.3, 1, 2, 4]
MOMENTS = [0.1, 0.4, 0.7, 1.5]  # seconds after the first line of iterations
RSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=cortado${1##*.}
shift
exec ip netns exec $host unshare -u -m sh -c 'hostname "$0"; mount -t tmpfs none /dev/shm; eval "$1"' $host "$*"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    """cortado1 and cortado2, as long as this is open."""

    def __init__(self, folder):
        self.folder = folder
        self.close()
        for k in (1, 2):
            ip("netns", "add", f"cortado{k}")
        ip("link", "add", "cortado1", "netns", "cortado1", "type", "veth", "peer", "name", "cortado2", "netns", "cortado2")
        for k in (1, 2):
            inside = ["-n", f"cortado{k}"]
            ip(*inside, "addr", "add", f"10.77.9.{k}/24", "dev", f"cortado{k}")
            ip(*inside, "link", "set", f"cortado{k}", "up")
            ip(*inside, "link", "set", "lo", "up")
        self.rsh, self.list = os.path.join(folder, "rsh"), os.path.join(folder, "hosts")
        with open(self.rsh, "w", encoding="ascii") as f:
            f.write(RSH)
        os.chmod(self.rsh, 0o755)
        with open(self.list, "w", encoding="ascii") as f:
            f.write("10.77.9.1 slots=1\n10.77.9.2 slots=1\n")

    @staticmethod
    def link(up):
        ip("-n", "cortado2", "link", "set", "cortado2", "up" if up else "down")

    @staticmethod
    def close():
        for k in (1, 2):
            subprocess.run(["ip", "netns", "del", f"cortado{k}"], stderr=subprocess.DEVNULL, check=False)

    def launch(self, program):
        """mpirun itself runs on the first host."""
        net = "10.77.9.0/24"
        mpirun = ["mpirun", "-np", "2", "--hostfile", self.list, "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self.rsh,
                  "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net,
                  "--mca", "pml", "ob1", "-x", "OMP_NUM_THREADS", "--wdir", os.getcwd(), *program]
        return [self.rsh, "10.77.9.1", shlex.join(mpirun)]


class Mode:
    def __init__(self, name, work, hosts):
        self.name, self.work, self.hosts = name, work, hosts
        self.solver, self.options = MODES[name]

    def start(self, watchdog, iterations, before=""):
        path = self.work.job(job.SOLVER.replace("max_iter: 12", f"max_iter: {iterations}").replace("snapshot: 4", "snapshot: 1000000")
                             .replace("display: 1", "display: 100") + f'watchdog_seconds: {watchdog} snapshot_prefix: "s" ' + self.solver)
        program = [job.CORTADO, "train", "--solver=solver.prototxt", f"--start_seconds={watchdog}", *self.options]
        inner = ["sh", "-c", f"cd {shlex.quote(path)} && {before} exec {shlex.join(program)}"]
        self.log = os.path.join(path, "log")
        with open(self.log, "ab") as log:
            return subprocess.Popen(self.hosts.launch(inner), cwd=path, env=job.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def ranks(self):
        """Those that run in the job's folder."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/cwd") == os.path.dirname(self.log) and job.state(pid) not in "ZX":
                    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                        if f.read().strip() == os.path.basename(job.CORTADO)[:15]:
                            found.append(pid)
            except OSError:
                pass
        return found

    def wait_for(self, word, process, limit=60):
        end = time.monotonic() + limit
        while word not in self.text():
            if process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    @staticmethod
    def end(process, limit):
        """The exit code; None: none came."""
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def undisturbed(self, iterations):
        process = self.start(60, iterations)
        code = self.end(process, 120)
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}:\n{self.text()[-3000:]}")
        return job.checksum(self.text())

    def away(self, seconds, iterations, checksum):
        process = self.start(60, iterations)
        if not self.wait_for("Iteration 100 ", process):
            return self.end(process, 1), f"it does not begin: {self.text()[-300:]}"
        self.hosts.link(False)
        time.sleep(seconds)
        self.hosts.link(True)
        code = self.end(process, 120)
        if code == 0 and job.checksum(self.text()) == checksum:
            return code, ""
        return code, f"checksum {job.checksum(self.text())}, not {checksum}: {self.text()[-300:]}"

    def gone(self, moment):
        """Without a moment before MPI has started."""
        process = self.start(WATCHDOG, 100000000, "" if moment is not None else "echo begun >&2; sleep 1;")
        if not self.wait_for("Iteration 100 " if moment is not None else "begun\nbegun", process):
            return self.end(process, 1), f"it does not begin: {self.text()[-300:]}", ""
        time.sleep(moment or 0)
        self.hosts.link(False)
        begun = time.monotonic() + (0 if moment is not None else 1)
        wrong = ""
        while time.monotonic() < begun or self.ranks():
            time.sleep(0.05)
            if time.monotonic() - begun > WATCHDOG + 5:
                wrong = f"ranks run after {WATCHDOG + 5} s: {self.text()[-300:]}"
                break
        took = time.monotonic() - begun
        self.hosts.link(True)
        code = self.end(process, 60)
        if not wrong and code != 6:
            wrong = f"exit code {code}: {self.text()[-300:]}"
        return code, wrong, f"{took:.1f} s"


def try_mode(mode, results, most):
    cases = [("away", s) for s in AWAY_S] + [("gone", m) for m in [*MOMENTS, None]]
    iterations, checksum = 4000, None
    for k in range(most):
        what, number = cases[k * len(cases) // most]
        name = f"network: {what}"
        case = f"{mode.name}, " + (f"for {number} s" if what == "away" else "in the start" if number is None else f"after {number} s")
        if results.has(name, case):
            continue
        if what == "away":
            checksum = checksum or mode.undisturbed(iterations)
            results.add(name, case, [0], *mode.away(number, iterations, checksum))
        else:
            results.add(name, case, [6], *mode.gone(number))


def try_all(results, options, folder):
    if os.geteuid() != 0:
        sys.exit("name spaces of the network take root")
    work, hosts = job.Work(folder, [("two.plan", PLAN)]), Hosts(folder)
    try:
        for name in options["modes"].split(",") if "modes" in options else MODES:
            try_mode(Mode(name, work, hosts), results, int(options.get("most", len(AWAY_S) + len(MOMENTS) + 1)))
    finally:
        hosts.close()


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes"}, try_all)
