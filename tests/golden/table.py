#!/usr/bin/env python3
"""Makes docs/layers-golden.md: how far every layer is from independent implementations.

Usage, in the root:
    CORTADO_GOLDEN=$PWD/golden.txt make test-unit T=layer_ && CORTADO_GOLDEN=$PWD/golden.txt make test-unit T=kernels
    CORTADO=./cortado tests/golden/against_caffe.py path/to/caffe --table > caffe.txt
    tests/golden/table.py golden.txt caffe.txt > docs/layers-golden.md
"""
import sys

HEAD = """# Layers beside other implementations

Made by `tests/golden/table.py`, which says how; not edited. Every number is the largest |ours -
theirs| / (1 + |theirs|) over all values of all cases.

* **PyTorch**: inputs, results and gradients of bottoms and parameters, computed by PyTorch in
  double from definitions written down in `tests/golden/make_*.py`, and kept; `make test` compares
  with them, in place too where a layer may be. *Allowed* is the largest bound of the type's cases,
  derived in the tests from the number of roundings that an element passes, in units of 2^-24; the
  test of a case uses its own.
* **Caffe**: `tests/golden/against_caffe.py` runs the same step of training in Caffe (BVLC's, of
  2020, CPU) and here, and compares what both leave in their `.caffemodel`s: tops, gradients of
  bottoms, gradients of parameters, running statistics. Values of losses come from logs of 6 digits.
  {n} cases, all within what is allowed, which is again roundings times 2^-24 (Caffe sums in float).

Beside that `tests/unit/layers/types/test_layer_every.c` compares the gradients of every type with differences,
over axes of 1 and of primes, and demands the same bits of 1 and 3 threads (of plain convolutions:
the same up to the order of sums); a type that is in the table of layers and in none of its rows
fails. `tests/unit/layers/types/test_layer_ranks.c` compares 1 to 4 unequal ranks with one.

| layer | PyTorch: forward | gradients | allowed | Caffe: cases | forward | gradients | allowed |
|---|---|---|---|---|---|---|---|
"""
# what stands in no row, and where it is tested instead
ELSEWHERE = """
Without a row: Data, HDF5Data, ImageData, TextData, WindowData, MemoryData, Input, DummyData and
HDF5Output have no gradient and copy values (`test_data_layers`, `test_data_text`,
`test_layer_structure`); Silence gives zeros; Reorder changes the order in memory
(`test_layer_blocked`). Stochastic pooling in TRAIN and Dropout in TRAIN draw their own numbers:
their definition is tested in `test_layer_structure` and `test_layer_dropout`. Against Caffe only
what Caffe has: no fork's layers, and not its Filter, which stands beside NumPy instead of PyTorch
(`make_filter_golden.py`); its Python layers are refused here.
"""


def number(v):
    return "0" if v == 0 else "%.1e" % v


def main():
    rows = {}
    with open(sys.argv[1], encoding="ascii") as f:
        for line in f:
            kind, side, error, bound = line.split()
            row = rows.setdefault(kind, {"FORWARD": None, "BACKWARD": None, "bound": 0.0, "caffe": ["", "", "", ""]})
            row[side] = max(row[side] or 0.0, float(error))
            row["bound"] = max(row["bound"], float(bound))
    cases = 0
    with open(sys.argv[2], encoding="ascii") as f:
        for line in f:
            if not line.startswith("| "):
                continue
            parts = [v.strip() for v in line.strip().strip("|").split("|")]
            row = rows.setdefault(parts[0], {"FORWARD": None, "BACKWARD": None, "bound": None, "caffe": None})
            row["caffe"] = [parts[1]] + [number(float(v)) if v else "" for v in parts[2:5]]
            cases += int(parts[1])
    print(HEAD.replace("{n}", str(cases)), end="")
    for kind, r in sorted(rows.items(), key=lambda v: v[0].lower()):
        cells = [number(r[k]) if r[k] is not None else "" for k in ("FORWARD", "BACKWARD", "bound")]
        print("| %s |" % " | ".join([kind] + cells + r["caffe"]))
    print(ELSEWHERE, end="")


main()
