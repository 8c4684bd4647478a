#!/usr/bin/env python3
"""All that was tried of faults, in one table: a line for each file of results.

Usage: tests/faults/table.py RESULTS...

RESULTS are the files that the other programs of tests/faults have written; a line is called as its file, without .jsonl. What went wrong
stands below. Exits with 1 where anything did.
"""
import os
import sys

import job


def read_all(paths):
    rows = []
    for path in paths:
        kept = job.Results(path).rows
        if not kept:
            sys.exit(f"{path}: no results")
        name = os.path.basename(path).removesuffix(".jsonl")
        rows += [{**r, "file": name} for r in kept]
    return rows


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(job.table(read_all(sys.argv[1:]), "file"))
