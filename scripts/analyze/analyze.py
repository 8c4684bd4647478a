#!/usr/bin/env python3
"""Static analysis of sources by gcc (-fanalyzer), cppcheck and clang-tidy: right where none of them says anything new.

Usage: scripts/analyze/analyze.py --cc=COMPILER --flags=FLAGS [--tools=gcc,cppcheck,clang-tidy] FILES…
FLAGS: what the files are compiled with.

What is known to be no mistake stands in scripts/analyze/known.txt, with the reason: tool, file, kind, message, why; separated by
tabs. Lines of it that nothing matches any more are errors, too. What the tools are not asked for stands in LEFT_OUT and .clang-tidy.
Exits with 1 where there is something new, with 2 where a tool is missing.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Finding = collections.namedtuple("Finding", "tool file kind message place")
# of gcc's: it is made for C without OpenMP, and version 12 follows values through a call alone, not through what a call fills
LEFT_OUT = {
    "malloc-leak": "what is stored through a pointer of the caller's counts as lost; the address sanitizer looks for leaks in tests",
    "file-leak": "likewise",
    "use-of-uninitialized-value": "a loop that fills an array may have no turn for it; cppcheck and clang look for the same",
    "shift-count-overflow": "lanes of vectors count as bits",
}
GCC = re.compile(r"^(?P<file>[^:\s]+):(?P<line>\d+):\d+: (?:warning|error): (?P<message>.*?)(?: \[CWE-\d+\])? \[-W(?:error=)?analyzer-(?P<kind>[\w-]+)\]$")
TIDY = re.compile(r"^(?P<file>[^:\s]+):(?P<line>\d+):\d+: (?:warning|error): (?P<message>.*) \[(?P<kind>[\w.-]+)(?:,-warnings-as-errors)?\]$")
CPPCHECK = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): (?P<kind>\w+): (?P<message>.*)$")


def findings(tool, pattern, text, unit=None):
    """What a text says. What is said of a header counts as the source's, `unit`, that includes it: it depends on what that passes."""
    for line in text.splitlines():
        m = pattern.match(line)
        if m:
            file = os.path.relpath(os.path.join(ROOT, m["file"]), ROOT)
            message = re.sub(r" at line \d+", "", m["message"])  # a line of known.txt outlives lines of code
            place = f"{file}:{m['line']}"
            if unit is not None and file != unit:
                file, place = unit, f"{unit}, {place}"
            yield Finding(tool, file, m["kind"], message, place)


def run(command):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout


def gcc(cc, flags, file):
    out = [f"-Wno-analyzer-{kind}" for kind in LEFT_OUT]
    return findings("gcc", GCC, run([*cc, *flags, "-Wno-unknown-pragmas", "-O1", "-fno-openmp", "-fanalyzer", *out, "-c", "-o", os.devnull, file]), file)


def in_pragma(found):
    """Whether a pragma of OpenMP reads the variable whose value nothing else reads: clang-tidy runs without OpenMP."""
    name = re.match(r"Value stored to '(\w+)'", found.message) if found.kind == "clang-analyzer-deadcode.DeadStores" else None
    pragmas = re.findall(r"^ *#pragma omp (?:.*\\\n)*.*", (ROOT / found.file).read_text(), re.M) if name else []
    return any(re.search(rf"\b{name[1]}\b", line) for line in pragmas)


def tidy(flags, file):
    deep = ["-Xclang", "-analyzer-inline-max-stack-depth", "-Xclang", "10"]  # with 5 it does not see that cut() of gguf.c always fails
    return (f for f in findings("clang-tidy", TIDY, run(["clang-tidy", "--quiet", file, "--", *deep, *flags]), file) if not in_pragma(f))


def cppcheck(flags, files):
    ours = [f for f in flags if f.startswith("-D") or f == "-I."]
    command = ["cppcheck", f"-j{os.cpu_count()}", "-q", "--enable=warning,performance", "--std=c11", "--library=posix",
               f"--library={HERE / 'jansson.cfg'}", "--template={file}:{line}: {id}: {message}", *ours, *files]
    return findings("cppcheck", CPPCHECK, run(command))


def known():
    lines = [l for l in (HERE / "known.txt").read_text().splitlines() if l and not l.startswith("#")]
    for line in lines:
        if line.count("\t") != 4 or not line.split("\t")[4].strip():
            raise SystemExit(f"known.txt: five parts between tabs are wanted, the last says why: {line}")
    return {tuple(line.split("\t")[:4]) for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cc", type=shlex.split, required=True)
    parser.add_argument("--flags", type=shlex.split, required=True)
    parser.add_argument("--tools", type=lambda text: text.split(","), default=["gcc", "cppcheck", "clang-tidy"])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    for tool in ("cppcheck", "clang-tidy"):
        if tool in args.tools and shutil.which(tool) is None:
            print(f"make analyze needs {tool}: apt-get install cppcheck clang-tidy", file=sys.stderr)
            return 2
    flags = [f for f in args.flags if f not in ("-MMD", "-MP")]
    seen = list(cppcheck(flags, args.files)) if "cppcheck" in args.tools else []
    by_file = {"gcc": lambda f: gcc(args.cc, flags, f), "clang-tidy": lambda f: tidy(flags, f)}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for tool in set(args.tools) & set(by_file):
            for found in pool.map(lambda f: list(by_file[tool](f)), args.files):
                seen += found
    told = {k for k in known() if k[0] in args.tools and k[1] in args.files}
    new = sorted({f for f in seen if f[:4] not in told})
    gone = sorted(told - {f[:4] for f in seen})
    for f in new:
        print(f"{f.place}: {f.tool}: {f.message} [{f.kind}]")
    for f in gone:
        print(f"scripts/analyze/known.txt: nothing matches any more: {' '.join(f)}")
    print(f"{len(args.files)} files: {len(new)} new, {len({f[:4] for f in seen}) - len({f[:4] for f in new})} known, {len(gone)} gone")
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
