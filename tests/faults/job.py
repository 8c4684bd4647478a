"""What the programs of tests/faults share: a small training, its runs, and rows of results that are kept in a file.

A row says what was tried and what came of it: `class` (a line of the table), `case` (unique in it), `wanted` (the exit codes that
are right), `code` (the one that came) and `wrong` (why the case is wrong; empty: it is right); some have a `note`. Cases that stand in the file are not
tried again. --table prints counts, and what went wrong; the programs exit with 1 where anything did. CORTADO names the program, MPIRUN
what starts ranks.
"""
import collections
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
MPIRUN = shlex.split(os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none"))
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
max_iter: 12 display: 1 snapshot: 4 solver_mode: CPU random_seed: 7 deterministic: true
"""
CHECKSUM = re.compile(r"weights after iteration (\d+): checksum ([0-9a-f]+)")
# Open MPI 4.1.4 with PMIx 4.2.2: every rank is gone, and mpirun waits for a lock of its own, or ends by a fault in its own end, or by
# a signal that comes when it hears none any more.
LAUNCHER_HANGS, LAUNCHER_CRASHES = "mpirun hangs", "mpirun crashes"
BEGUN = re.compile(r"resuming after (\d+) iterations")


def environment(more=()):
    """Ranks that wait give their processor away, since there may be fewer than ranks."""
    own = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_mpi_yield_when_idle": "1"}
    return {**os.environ, **own, **dict(more)}


def launch(ranks, program, before=None, rank=0):
    """The command of a job; `before` stands in front of one rank's program."""
    if ranks == 1:
        return [*(before or []), *program]
    if before is None:
        return [*MPIRUN, "-np", str(ranks), *program]
    inner = (f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ]; then exec {shlex.join(before + program)}; '
             f"else exec {shlex.join(program)}; fi")
    return [*MPIRUN, "-np", str(ranks), "sh", "-c", inner]


def run(command, folder, limit=120):
    """Exit code and both streams; a text in place of the code where there was no end."""
    try:
        done = subprocess.run(command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"no end in {limit} s", ""
    return done.returncode, done.stdout


class Started:
    """A job that runs: `program` on so many ranks, behind `starter` (words), of which each rank writes its number into rank.N. Both streams
    go to the file log, or to `stream`."""

    def __init__(self, ranks, starter, program, folder, env=None, stream=None):
        self.ranks, self.folder, self.starter, self.note = ranks, folder, starter, ""
        shell = ["sh", "-c", "echo ${SLURM_JOB_ID:-} >step; echo $$ >rank.${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}; "
                 f"exec {program}"]
        with open(os.path.join(folder, "log"), "ab") as log:
            to = log if stream is None else stream
            self.process = subprocess.Popen([*starter, *shell], cwd=folder, env=environment(env or ()), stdin=subprocess.DEVNULL,
                                            stdout=to, stderr=to)

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def pid(self, rank):
        """None where the rank has not begun."""
        try:
            with open(os.path.join(self.folder, f"rank.{rank}"), encoding="ascii") as f:
                return int(f.read())
        except (OSError, ValueError):
            return None

    def wait_for_exec(self, rank):
        """The process of a rank, as soon as it runs the program; None where the job ended before."""
        while self.process.poll() is None:
            pid = self.pid(rank)
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                    if f.read().strip() == os.path.basename(CORTADO)[:15]:
                        return pid
            except OSError:
                pass
            time.sleep(0.001)
        return None

    def told(self, code):
        """An exit code as shells have it, or LAUNCHER_HANGS, LAUNCHER_CRASHES, with a note of where; None: no end yet."""
        if code is None and self.starter and not self.left():
            self.note = waits(self.process.pid)
            return LAUNCHER_HANGS
        if code is not None and code < 0 and self.starter:
            frames = re.findall(r"^\[.*?\] (?:/\S*/)?(\S+\.so\S*|mpirun\S*)\[", self.log(), re.M)
            self.note = f"signal {-code} " + " < ".join(frames)
            return LAUNCHER_CRASHES
        return 128 - code if code is not None and code < 0 else code

    def left(self):
        """The ranks whose process still runs."""
        return [r for r in range(self.ranks) if state(self.pid(r)) not in "ZX"]

    def end(self):
        """Kills what is there of it."""
        for rank in self.left():
            os.kill(self.pid(rank), signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def state(pid):
    """A letter of /proc; X: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def processor_s(pid):
    """What a process has had of processors; infinite where it is gone."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
            return 1e-9 * int(f.read().split()[0])
    except (OSError, ValueError, IndexError):
        return float("inf")


def waits(pid):
    """What the threads of a process wait in: functions, from the inmost on."""
    if not shutil.which("gdb"):
        return "no gdb to look"
    done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 10"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", check=False)
    threads = done.stdout.split("\nThread ")[1:]
    return "; ".join(" < ".join(re.findall(r"^#\d+ +(?:0x\w+ in )?(\w+)", t, re.M)) for t in threads)


def checksum(out):
    found = CHECKSUM.search(out)
    return found.group(2) if found else None


def errors(out):
    """The lines that say what went wrong."""
    return [line for line in out.splitlines() if re.match(r"E(\d{4} | )", line)]


class Work:
    """A folder with data and a net, in which one job after the other has a folder of its own."""

    def __init__(self, path, files=()):
        self.path = path
        code, out = run([CORTADO, "convert", "digits", "--to=data", "--count=600", "--seed=3"], path)
        if code != 0:
            sys.exit(out)
        for name, text in (("net.prototxt", NET), *files):
            with open(os.path.join(path, name), "w", encoding="utf-8") as f:
                f.write(text)

    def job(self, solver):
        """A new folder in place of the last one's, with a solver."""
        path = os.path.join(self.path, "job")
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        with open(os.path.join(path, "solver.prototxt"), "w", encoding="utf-8") as f:
            f.write(solver + "\n")
        return path

    def faults(self):
        """The library of faults.c."""
        path = os.path.join(self.path, "faults.so")
        source = os.path.join(ROOT, "tests", "faults", "faults.c")
        if not os.path.exists(path):
            subprocess.run([os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1",
                            "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
        return path


class Results:
    """Rows, those of earlier calls too; each new one is in the file at once."""

    def __init__(self, path):
        self.path, self.rows = path, []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.rows = [json.loads(line) for line in f]
        self.done = {(r["class"], r["case"]) for r in self.rows}

    def has(self, name, case):
        return (name, case) in self.done

    def add(self, name, case, wanted, code, wrong, note=""):
        row = {"class": name, "case": case, "wanted": wanted, "code": code, "wrong": wrong}
        if note:
            row["note"] = note
        self.rows.append(row)
        self.done.add((name, case))
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        if wrong:
            print(f"{name}, {case}: {wrong[:400]}", file=sys.stderr, flush=True)


def table(rows, line="class"):
    """Prints counts of the rows of each `line`, and what went wrong. 1 where anything did."""
    count = collections.defaultdict(collections.Counter)
    for r in rows:
        count[r[line]]["wrong" if r["wrong"] else "right"] += 1
        count[r[line]][r["code"]] += 1
    print("| what | exit codes | tried | right | wrong |\n|---|---|---|---|---|")
    for name, c in count.items():
        codes = ", ".join(f"{code} ({n})" for code, n in sorted(c.items(), key=str) if code not in ("right", "wrong"))
        print(f"| {name} | {codes} | {c['right'] + c['wrong']} | {c['right']} | {c['wrong']} |")
    wrong = [r for r in rows if r["wrong"]]
    print(f"| all | | {len(rows)} | {len(rows) - len(wrong)} | {len(wrong)} |")
    for r in wrong:
        print(f"{r['class']}, {r['case']}: {r['wrong'][:400]}")
    return 1 if wrong else 0


def drawn(results, options):
    """Seed, number and name of each case that --seed, --first and --cases ask for and RESULTS lacks."""
    seed, first = int(options.get("seed", "1")), int(options.get("first", "0"))
    for number in range(first, first + int(options.get("cases", "100"))):
        name = f"seed {seed}, case {number}"
        if not any(r["case"] == name or r["case"].startswith(name + ":") for r in results.rows):
            yield seed, number, name


def main(argv, usage, known, try_all):
    """RESULTS and options: --table prints, otherwise try_all(results, options, folder) makes what is not there yet."""
    words = [a for a in argv if not a.startswith("--")]
    given = dict((a[2:].split("=", 1) + [""])[:2] for a in argv if a.startswith("--"))
    if len(words) != 1 or set(given) - {*known, "table"}:
        sys.exit(usage)
    results = Results(words[0])
    if "table" not in given:
        with tempfile.TemporaryDirectory(prefix="cortado-faults.") as folder:
            try_all(results, given, folder)
    sys.exit(table(results.rows))
