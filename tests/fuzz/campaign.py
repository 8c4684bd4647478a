#!/usr/bin/env python3
"""Runs the programs of tests/fuzz for as long as they are due, and says whose each fault is.

Usage: tests/fuzz/campaign.py RESULTS [--minutes=N] [--slice=SECONDS] [NAME …]
       tests/fuzz/campaign.py RESULTS --seconds=N [NAME …]
       tests/fuzz/campaign.py RESULTS --table

Without names it is about all targets.

`make fuzz-programs` has built build/fuzz/obj/fuzz_NAME, through ASan and UBSan. With --minutes that target runs for a slice
which has had the smallest part of its BUDGET, until the minutes are over or none is due; with --seconds each target runs once
for so long. The corpus that grows stays in build/fuzz/NAME, and a second call goes on from it. An input counts that crashes,
leaks, takes more than 2 s of the processor or more than 1 GiB; it stays in build/fuzz/NAME.found. It is ours where a function
of this program, not of a library, comes first in a stack of the report: in that of the fault, or in that of the allocation.
RESULTS has a JSON line for each run. SIGTERM ends the campaign behind the slice that runs. Exits with 1 where this call found a
fault of ours.
"""
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEEDS = ["tests/fuzz/corpus", "tests/golden/broken", "tests/golden/broken_solver", "tests/golden/old", "tests/golden/caffe", "tests/golden/torch"]  # no target needs files of its own
HEAVY = {"model", "hdf5", "image", "tokenizer", "request", "http"}  # weights, snapshots, images, tokenizers, HTTP
LONG, SHORT = 7200, 900  # seconds of the processor: of the heavy ones, of the others
MOST_S, MOST_MB = 2, 1024  # of an input
OURS = re.compile(r" [^ ]*\b(framework|layers|comm|topology|planner|serve|runtime|library|cli|tests)/[^ ]*\.[ch]:\d+")
LIBRARY = re.compile(r"lib(hdf5|turbojpeg|jpeg|png|webp|tiff|jansson|z|lmdb|protobuf-c|mpi|microhttpd)[^/ ]*\.so")


def budget(name):
    return LONG if name in HEAVY else SHORT


def targets():
    return sorted(os.path.basename(f)[5:-2] for f in glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c")))


def used():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


def is_ours(report):
    """Whether in some stack a function of ours stands before any of a library; what has no stack is ours."""
    if "runtime error:" in report:
        return True
    stacks, opened = 0, False
    for line in report.splitlines():
        if re.match(r" *#0 ", line):
            stacks, opened = stacks + 1, True
        if opened and LIBRARY.search(line):
            opened = False
        if opened and OURS.search(line):
            return True
    return stacks == 0


def environment(tmp, folder):
    return dict(os.environ, TMPDIR=tmp, FUZZ_SEEDS=folder, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", ASAN_OPTIONS="quarantine_size_mb=16")


def judge(program, path, env):
    """ "ours", "library", or None: the input by itself is harmless."""
    before = used()
    done = subprocess.run([program, f"-rss_limit_mb={MOST_MB}", "-timeout=60", path], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    slow = re.search(r"Executed .* in (\d+) ms", done.stdout)
    if done.returncode == 0 and (not slow or used() - before < MOST_S + 1 or int(slow.group(1)) < 1000 * MOST_S):
        return None
    with open(path + ".log", "w", encoding="utf-8") as f:
        f.write(done.stdout)
    return "ours" if done.returncode == 0 or is_ours(done.stdout) else "library"


def run(name, seconds, most_found=200):
    """One run of a target; its line of RESULTS."""
    program = os.path.join(ROOT, "build/fuzz/obj/fuzz_" + name)
    folder = os.path.join("build/fuzz", "fuzz_" + name)
    found = folder + ".found"
    os.makedirs(os.path.join(ROOT, folder), exist_ok=True)
    shutil.rmtree(os.path.join(ROOT, found), ignore_errors=True)
    os.makedirs(os.path.join(ROOT, found))
    before, began = used(), time.time()
    with tempfile.TemporaryDirectory(prefix="fz", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as tmp:
        env = environment(tmp, os.path.join(ROOT, folder))
        command = [program, f"-max_total_time={seconds}", "-fork=1", "-ignore_crashes=1", "-ignore_ooms=1", "-ignore_timeouts=1",
                   f"-rss_limit_mb={MOST_MB}", f"-timeout={4 * MOST_S}", f"-artifact_prefix={found}/", folder, *SEEDS]
        done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        with open(os.path.join(ROOT, found, "log"), "w", encoding="utf-8") as f:
            f.write(done.stdout)
        row = {"target": name, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)), "cpu_s": round(used() - before, 1)}
        last = re.findall(r"^#(\d+): cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout, re.M)
        row.update(zip(("executions", "edges", "features", "corpus"), map(int, last[-1] if last else (0, 0, 0, 0))))
        if not last and done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}:\n{done.stdout[-3000:]}")
        inputs = [p for kind in ("crash", "oom", "timeout", "leak") for p in glob.glob(os.path.join(ROOT, found, kind + "-*"))]
        # seeds that end a process are left out by libFuzzer without a word
        inputs += glob.glob(os.path.join(ROOT, folder, "seed.*"))
        row.update(ours=0, library=0, ours_in=[])
        for path in sorted(inputs)[:most_found]:
            whose = judge(program, path, env)
            if whose:
                row[whose] += 1
            if whose == "ours":
                row["ours_in"].append(os.path.relpath(path, ROOT))
    return row


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def table(rows, names):
    print("| target | due | reached | executions | edges | features | inputs kept | ours | libraries' |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        of = [r for r in rows if r["target"] == name]
        most = {k: max((r[k] for r in of), default=0) for k in ("edges", "features", "corpus")}
        total = {k: sum(r[k] for r in of) for k in ("cpu_s", "executions", "ours", "library")}
        print(f"| {name} | {clock(budget(name))} | {clock(total['cpu_s'])} | {total['executions']} | {most['edges']} | "
              f"{most['features']} | {most['corpus']} | {total['ours']} | {total['library']} |")
    print(f"{clock(sum(r['cpu_s'] for r in rows))} of the processor, {sum(r['executions'] for r in rows)} executions, "
          f"{sum(r['ours'] for r in rows)} faults of ours, {sum(r['library'] for r in rows)} in libraries")


def main(argv):
    words = [a for a in argv if not a.startswith("--")]
    given = dict((a[2:].split("=", 1) + [""])[:2] for a in argv if a.startswith("--"))
    if not words or set(given) - {"minutes", "seconds", "slice", "table"}:
        sys.exit(__doc__)
    names = words[1:] or targets()
    if set(names) - set(targets()):
        sys.exit(f"no such target: {' '.join(sorted(set(names) - set(targets())))}; there are: {' '.join(targets())}")
    rows, bad = [], []
    if os.path.exists(words[0]):
        with open(words[0], encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]

    def take(name, seconds):
        row = run(name, seconds)
        rows.append(row)
        bad.extend(row["ours_in"])
        with open(words[0], "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        print(f"{name}: {row['cpu_s']:.0f} s, {row['executions']} executions, {row['features']} features, {row['ours']} faults of ours, "
              f"{row['library']} in libraries{''.join(chr(10) + '  ' + p for p in row['ours_in'])}", flush=True)

    if "seconds" in given:
        for name in names:
            take(name, int(given["seconds"]))
    elif "table" not in given:
        end = time.time() + 60 * float(given.get("minutes", "1e9"))
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
        while time.time() < end and not stopped:
            part = {n: sum(r["cpu_s"] for r in rows if r["target"] == n) / budget(n) for n in names}
            due = sorted((p, n not in HEAVY, n) for n, p in part.items() if p < 1)
            if not due:
                break
            take(due[0][2], int(min(float(given.get("slice", "300")), max(20, end - time.time()))))
    table(rows, names)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
