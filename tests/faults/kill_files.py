#!/usr/bin/env python3
"""Kills commands at each call on the files that they write, and gives the same commands once more.

Usage: tests/faults/kill_files.py RESULTS [--most=N] [--modes=NAME,NAME] [--calls=PATTERN]
       tests/faults/kill_files.py RESULTS --table

The modes are those of disk.py that write no sets (kills.py has these), some of them over what an earlier command left, and those of
MODES. faults.c lists the calls of one process on files below "out". Then the command runs again and again, and SIGKILL ends that
process before one of the calls, which is behind the one before. A mode takes --most of them, evenly spread (all without), of the calls
"NAME FILE" that --calls finds. Behind a kill
 * a final name has what an undisturbed command leaves there, or what was there before, byte for byte; logs and metrics have whole
   lines but for the last one,
 * the same command ends with 0, or, where the work was done already, with 2 and an error that says what is there; then it ends with 0
   where it is told to write over that,
 * and leaves what it leaves undisturbed, and no temporary file. A training has the same weights' checksum.
"""
import json
import os
import re
import sys

import disk
import job

TRAIN, ELSEWHERE = disk.TRAIN, disk.ELSEWHERE
DIGITS = [job.CORTADO, "convert", "digits", "--to=out/d", "--count=200"]
OTHER_DIGITS = [*DIGITS, "--seed=4"]
MODES = {  # name: ranks, the rank that is killed, solver (None: no training), command
    **{name: mode for name, mode in disk.MODES.items() if "elsewhere" in (mode[2] or ELSEWHERE) or name == "run folder"},
    "digits by force": (1, 0, None, [*DIGITS, "--seed=3", "--force"]),
    "digits in shards by force": (1, 0, None, [*DIGITS, "--seed=3", "--shards=2", "--force"]),
    "digits in HDF5 by force": (1, 0, None, [*DIGITS, "--seed=3", "--backend=hdf5", "--force"]),
    "stage": (1, 0, ELSEWHERE, [*TRAIN, "--stage=out"]),
    "stage of 2 ranks": (2, 0, ELSEWHERE, [*TRAIN, "--stage=out"]),
    "trace": (1, 0, ELSEWHERE, [*TRAIN, "--trace=out/t.json"]),
    "metrics that go on": (1, 0, ELSEWHERE, [*TRAIN, "--metrics=out/m.jsonl", "--snapshot=auto"]),
    "run folder that goes on": (1, 0, "", [*TRAIN, "--run=out/run", "--snapshot=auto"]),
}
BEFORE = {  # what has run in the folder already
    "digits by force": OTHER_DIGITS,
    "digits in shards by force": [*OTHER_DIGITS, "--shards=3"],
    "digits in HDF5 by force": [*OTHER_DIGITS, "--backend=hdf5"],
}
LINES = re.compile(r"\.jsonl$|\.txt$")
OF_A_RUN = re.compile(r"\.jsonl$|\.txt$|\.csv$|\.json$|\.html$|\.plan$|tfevents|\.prototxt$|\.h5$")  # times, paths, versions of sets


def losses(folder):
    """Of each file of metrics its iterations, with their losses."""
    found = {}
    for path, _, names in os.walk(os.path.join(folder, "out")):
        for name in names:
            if name.endswith(".jsonl"):
                with open(os.path.join(path, name), encoding="utf-8") as f:
                    rows = [json.loads(line) for line in f]
                found[name] = [(row["iter"], row["loss"]) for row in rows if row["event"] == "train"]
    return found


class Mode(disk.Mode):
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.ranks, self.rank, self.solver, self.command = MODES[name]

    def folder(self):
        path = super().folder()
        if self.name in BEFORE:
            code, out = job.run(BEFORE[self.name], path)
            if code != 0:
                sys.exit(out)
        return path

    def same(self, name, was, found):
        """Whether a file may have these bytes. Where they are not alike in each run, only that it is there counts."""
        return found == was or (None not in (was, found) and (self.solver is not None or name.endswith(".plan"))
                                and OF_A_RUN.search(name) is not None)

    def look(self, folder, before, files):
        """What a kill must not leave."""
        wrong = []
        for name, found in disk.contents(folder).items():
            if not disk.is_temporary(name) and found != before.get(name) and not self.same(name, files.get(name), found):
                wrong.append(f"other bytes under {name}")
            if LINES.search(name):
                with open(os.path.join(folder, name), "rb") as f:
                    lines = f.read().split(b"\n")[:-1]
                wrong += [f"{name}: {line[:40]}" for line in lines if name.endswith("l") and not is_json(line)]
        return wrong

    def again(self, folder, files, checksum):
        """What goes wrong when the command is given once more."""
        code, out = job.run(job.launch(self.ranks, self.command), folder)
        said = " ".join(job.errors(out))
        if code == 2 and re.search("exists|there already|earlier run", said):
            code, out = job.run(job.launch(self.ranks, [*self.command, "--force" if self.solver is None else "--overwrite"]), folder)
        if code != 0:
            return [f"exit code {code} of the next: {out[-300:]}"]
        left = disk.contents(folder)
        wrong = [f"the next leaves {name} as it should not be" for name in files if not self.same(name, files[name], left.get(name))]
        wrong += [f"the next leaves {name}" for name in left.keys() - files.keys()]
        if checksum and job.checksum(out) != checksum:
            wrong.append("another checksum")
        return wrong

    def reference(self):
        """That of disk.py, and the losses."""
        return *super().reference(), losses(os.path.join(self.work.path, "job"))

    def kill(self, number, files, checksum, rows):
        """The exit code, and what went wrong."""
        folder = self.folder()
        before = disk.contents(folder)
        code, out = self.run(folder, f"{number} kill")
        if code not in (-9, 137):
            return code, f"not killed: {out[-300:]}"
        wrong = self.look(folder, before, files) + self.again(folder, files, checksum)
        left = losses(folder)
        if "go on" in self.name or "goes on" in self.name:  # rows behind the last set stand there twice: the later ones count
            left = {name: sorted(dict(of).items()) for name, of in left.items()}
        if left != rows:
            wrong.append(f"other losses: {left}")
        return code, "; ".join(wrong)


def is_json(line):
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def try_all(results, options, folder):
    work = disk.prepare(folder)
    for name in options["modes"].split(",") if "modes" in options else MODES:
        mode = Mode(name, work)
        calls, *rest = mode.reference()
        calls = [call for call in calls if re.search(options.get("calls", ""), disk.words(call))]
        most = min(len(calls), int(options.get("most", len(calls))))
        for k in range(most):
            call = calls[k * len(calls) // most]
            case = f"{name}, call {call[0]} ({disk.words(call)})"
            if not results.has(f"kill: {name}", case):
                results.add(f"kill: {name}", case, [137], *mode.kill(call[0], *rest))


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"most", "modes", "calls"}, try_all)
