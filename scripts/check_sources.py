#!/usr/bin/env python3
"""Sources that comments and pages of the documentation name, and that are not there.

    check_sources.py [ROOT]     a line for each, and exit code 1; "N sources" where all is well

Looks at comments of C, CUDA, shell and make, and at pages; reports of a day (docs/results,
docs/studies, CHANGELOG.md) say what was there then. A name with a folder must be the end of a path.
"""
import os
import re
import sys

# not ours, or made: MPI's header, Caffe's script, the build's, a test cluster's, a project's name
ALLOWED = {"llm.c", "mpi.h", "parse_log.sh", "build_info.h", "DIR/env.sh"}
ANY = re.compile(r"[XYZ](_[a-z]+)?\.\w+$")  # stands for any source
ENDS = ("c", "h", "cu", "cuh", "sh")
NAMED = re.compile(r"(?<![\w./*<>{}$-])((?:[\w-]+/)*[A-Za-z_][\w-]*\.(?:%s))(?![\w/(])"
                   % "|".join(ENDS))
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)', re.S)
UNREAD = ("CHANGELOG.md", "docs/results/", "docs/studies/", "tests/golden/")


def files():
    for folder, below, names in os.walk("."):
        folder = os.path.normpath(folder)
        below[:] = [d for d in below if not d.startswith(".") and d != "build"]
        for name in names:
            yield os.path.normpath(os.path.join(folder, name))


def texts(path):
    """Pairs of a line's number and text that may name sources."""
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    if path.endswith((".c", ".h", ".cu", ".cuh")):
        for comment in COMMENT.finditer(text):
            if comment.group(1) is not None:
                first = text.count("\n", 0, comment.start(1)) + 1
                yield from enumerate(comment.group(1).split("\n"), first)
    elif path.endswith(".md"):
        yield from enumerate(text.split("\n"), 1)
    elif path.endswith((".sh", ".mk", "Makefile")):
        for i, line in enumerate(text.split("\n"), 1):
            comment = re.search(r"(^|\s)#(.*)", re.sub(r"'[^']*'|\"[^\"]*\"", "''", line))
            if comment:
                yield i, comment.group(2)


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    paths = sorted(files())
    there = set()
    for path in paths:
        parts = path.split(os.sep)
        there.update("/".join(parts[i:]) for i in range(len(parts)))
    n, wrong = 0, 0
    for path in paths:
        for line, text in () if path.startswith(UNREAD) else texts(path):
            for name in NAMED.findall(text):
                n += 1
                if name in there or name in ALLOWED or ANY.match(name):
                    continue
                print(f"{path}:{line}: there is no {name}")
                wrong += 1
    print(f"{wrong} of {n} sources that are named are not there" if wrong else f"{n} sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
