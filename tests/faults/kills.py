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
RESULTS has a JSON line for each kill; those that stand there are not made again. --table prints counts, and what went wrong.
Exits with 1 where anything did. CORTADO names the program, MPIRUN what starts ranks; strace is needed.
"""
import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none"))
CALLS = ("openat,creat,write,pwrite64,writev,pwritev,rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync,ftruncate,"
         "fallocate,close,link,linkat,mkdir,rmdir,flock,fcntl")
NET = """
layer { name: "in" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 }
  data_param { source: "../data/train_lmdb" backend: LMDB batch_size: 12 shuffle: true } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """net: "../net.prototxt" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 average_loss: 3
max_iter: 12 display: 1 snapshot_prefix: "s" snapshot: 4 solver_mode: CPU random_seed: 7 deterministic: true
"""
PLAN = 'ranks: 2 global_batch: 12 stage { first: "in" last: "drop" rank: 0 } stage { first: "ip" last: "loss" rank: 1 }\n'
SMALL = "min_bytes: 64"
MODES = {  # name: ranks, what is added to the solver, options
    "plain": (1, "", []),
    "plain on 2": (2, "", []),
    "plain on 4": (4, "", []),
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
CHECKSUM = re.compile(r"weights after iteration (\d+): checksum ([0-9a-f]+)")


def job(ranks, options, tracer=None, rank=0, more=()):
    """The command of a job; `tracer` in front of one rank's program."""
    program = [CORTADO, "train", "--solver=solver.prototxt", *options, *more]
    if ranks == 1:
        return [*(tracer or []), *program]
    if tracer is None:
        return [*MPIRUN, "-np", str(ranks), *program]
    inner = (f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ]; then exec {shlex.join(tracer + program)}; '
             f"else exec {shlex.join(program)}; fi")
    return [*MPIRUN, "-np", str(ranks), "sh", "-c", inner]


def run(command, folder):
    env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "no end in 120 s", ""
    return done.returncode, done.stdout


class Mode:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.solver, self.options = MODES[name]

    def folder(self):
        path = os.path.join(self.work, "job")
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        with open(os.path.join(path, "solver.prototxt"), "w", encoding="utf-8") as f:
            f.write(SOLVER + self.solver + "\n")
        return path

    def reference(self):
        """The checksum of the run that nobody kills."""
        code, out = run(job(self.ranks, self.options), self.folder())
        found = CHECKSUM.search(out)
        if code != 0 or not found:
            sys.exit(f"{self.name}: exit code {code}:\n{out[-3000:]}")
        return found.group(2)

    def calls(self, rank):
        """This rank's calls of its main thread, one a line of strace's, and from which one on the prefix is named."""
        folder = self.folder()
        code, out = run(job(self.ranks, self.options, ["strace", "-o", "calls", "-e", f"trace={CALLS}"], rank), folder)
        if code != 0:
            sys.exit(f"{self.name}, rank {rank}, under strace: exit code {code}:\n{out[-3000:]}")
        with open(os.path.join(folder, "calls"), encoding="utf-8", errors="replace") as f:
            lines = [line for line in f if "(" in line and not line.startswith(("---", "+++"))]
        named = [i for i, line in enumerate(lines) if '"s' in line or '"./s' in line]
        return lines, (named[0] if named else len(lines)), (named[-1] if named else 0)

    def kill(self, rank, at, lines, checksum):
        """What went wrong; empty: nothing. None: the job ended before."""
        folder = self.folder()
        call = lines[at].split("(")[0]  # strace counts each call's name by itself
        when = sum(line.startswith(call + "(") for line in lines[:at + 1])
        tracer = ["strace", "-o", "calls", "-e", f"trace={CALLS}", "-e", f"inject={call}:signal=KILL:when={when}"]
        code, out = run(job(self.ranks, self.options, tracer, rank), folder)
        with open(os.path.join(folder, "calls"), encoding="utf-8", errors="replace") as f:
            traced = f.read()
        if "+++ killed by SIGKILL +++" not in traced:
            return None if code == 0 else f"the job ended with {code}, not killed: {out[-300:]}"
        whole = re.findall(r'rename\w*\(.*"s_iter_(\d+)\.solverstate\.h5"\) += 0', traced)
        left = sorted(os.listdir(folder))
        code, out = run(job(self.ranks, self.options, more=["--snapshot=auto"]), folder)
        found, begun = CHECKSUM.search(out), re.search(r"resuming after (\d+) iterations", out)
        begun = int(begun.group(1)) if begun else 0
        wrong = []
        if code != 0:
            wrong.append(f"exit code {code} on resume")
        if not found or found.group(2) != checksum:
            wrong.append("another checksum" if found else "no checksum")
        if whole and begun < int(whole[-1]):
            wrong.append(f"resumed after {begun}, with a set of {whole[-1]}")
        rest = [n for n in os.listdir(folder) if ".tmp" in n or ".owner" in n or ".probe" in n]
        if rest:
            wrong.append(f"left: {' '.join(rest)}")
        if wrong:
            wrong.append(f"before: {' '.join(left)}; {out[-400:]}")
        return "; ".join(wrong)


def table(rows):
    count = collections.defaultdict(collections.Counter)
    for r in rows:
        count[r["mode"]]["wrong" if r["wrong"] else "right"] += 1
    print("| mode | kills | right | wrong |\n|---|---|---|---|")
    for mode, c in count.items():
        print(f"| {mode} | {c['right'] + c['wrong']} | {c['right']} | {c['wrong']} |")
    wrong = [r for r in rows if r["wrong"]]
    print(f"| all | {len(rows)} | {len(rows) - len(wrong)} | {len(wrong)} |")
    for r in wrong:
        print(f"{r['mode']}, rank {r['rank']}, call {r['call']} ({r['line']}): {r['wrong']}")
    return 1 if wrong else 0


def main(argv):
    words = [a for a in argv if not a.startswith("--")]
    given = dict((a[2:].split("=", 1) + [""])[:2] for a in argv if a.startswith("--"))
    if len(words) != 1 or set(given) - {"most", "modes", "table"}:
        sys.exit(__doc__)
    rows = []
    if os.path.exists(words[0]):
        with open(words[0], encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
    if "table" in given:
        sys.exit(table(rows))
    done = {(r["mode"], r["rank"], r["call"]) for r in rows}
    with tempfile.TemporaryDirectory(prefix="cortado-kills.") as work:
        code, out = run([CORTADO, "convert", "digits", "--to=data", "--count=600", "--seed=3"], work)
        if code != 0:
            sys.exit(out)
        for name, text in (("net.prototxt", NET), ("two.plan", PLAN)):
            with open(os.path.join(work, name), "w", encoding="utf-8") as f:
                f.write(text)
        for name in given["modes"].split(",") if "modes" in given else MODES:
            mode = Mode(name, work)
            checksum = mode.reference()
            for rank in range(mode.ranks):
                lines, first, last = mode.calls(rank)
                most = int(given.get("most", "1000000")) // mode.ranks
                step = max(1.0, (last + 1 - first) / max(1, most))
                for k in range(int((last + 1 - first) / step)):
                    at = first + int(k * step)
                    if (name, rank, at) in done:
                        continue
                    wrong = mode.kill(rank, at, lines, checksum)
                    if wrong is None:
                        continue
                    row = {"mode": name, "rank": rank, "call": at, "line": lines[at].strip()[:100], "wrong": wrong}
                    rows.append(row)
                    with open(words[0], "a", encoding="utf-8") as f:
                        f.write(json.dumps(row) + "\n")
                    if wrong:
                        print(f"{name}, rank {rank}, call {at} ({row['line']}): {wrong}", flush=True)
    sys.exit(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
