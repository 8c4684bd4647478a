#!/usr/bin/env python3
"""Checks every net and solver below a folder, and says which would run: `cortado check` on each.

    scripts/check_folder.py FOLDER... [--data-shape=[WORD:]C,H,W]... [--failed=FILE] [--cortado=./cortado]

A file is a .prototxt or .pt; one with a learning rate or its policy is a solver. Files are checked from within
FOLDER, as paths in Caffe's examples are given from the top of its sources. Sets that are not there have samples
of the shapes given, tried one after the other, 3,227,227 without; with WORD, of files with the word in their path.
What fails goes to FILE with its error; the reasons are counted, most frequent first, with numbers left out.
Ends with 1 where anything failed.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

SOLVER = re.compile(r"\b(base_lr|lr_policy)\s*:")


def files_in(folder):
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".prototxt", ".pt")):
                yield os.path.relpath(os.path.join(path, name), folder)


def first_error(log):
    """The text of the first error, without the log's own time and place."""
    for line in log.splitlines():
        found = re.match(r"[EF]\d+ \S+ +\d+ \S+\] (.*)", line)
        if found:
            return found.group(1)
    return "no error was logged"


def check(cortado, folder, file, shapes):
    """(exit code, error)"""
    with open(os.path.join(folder, file), encoding="utf-8", errors="replace") as f:
        option = "--solver" if SOLVER.search(f.read()) else "--model"
    command = [cortado, "check", f"{option}={file}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 2 and "data_shape" in done.stderr:
        for shape in shapes:
            given = command + [f"--data-shape={shape}"]
            done = subprocess.run(given, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                break
    return done.returncode, "" if done.returncode == 0 else first_error(done.stderr)


def reason(error):
    """What two errors of the same kind share."""
    error = re.sub(r"^\S+?:\d+(:\d+)?: ", "", error)
    error = re.sub(r"^.*: No such file or directory$", "No such file or directory", error)
    error = re.sub(r'layer "[^"]*"', "layer", error)
    return re.sub(r"\d+", "N", error)[:160]


def shapes_of(file, shapes):
    """Those with a word of the path first."""
    found = [shape.rpartition(":") for shape in shapes]
    found = [(word, numbers) for word, _, numbers in found if word in file]
    found.sort(key=lambda pair: not pair[0])
    return [numbers for _, numbers in found] or ["3,227,227"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+")
    parser.add_argument("--data-shape", action="append", default=[])
    parser.add_argument("--failed")
    parser.add_argument("--cortado", default="cortado")
    options = parser.parse_args()
    cortado = os.path.abspath(options.cortado)
    if not os.access(cortado, os.X_OK):
        sys.exit(f"{cortado} is no program: build it, or name it with --cortado=")
    passed, reasons, failed = 0, collections.Counter(), []
    for folder in options.folder:
        if not os.path.isdir(folder):
            sys.exit(f"{folder} is no folder")
        for file in files_in(folder):
            code, error = check(cortado, folder, file, shapes_of(file, options.data_shape))
            if code == 0:
                passed += 1
                continue
            reasons[reason(error)] += 1
            failed.append(f"{os.path.join(folder, file)}\t{code}\t{error}\n")
    if options.failed:
        with open(options.failed, "w", encoding="utf-8") as out:
            out.writelines(failed)
    print(f"{passed} of {passed + len(failed)} files pass")
    for text, count in reasons.most_common():
        print(f"{count:5d}  {text}")
    sys.exit(1 if failed else 0)


main()
