#!/usr/bin/env python3
"""Writes filter_golden.h: Filter by NumPy's selection with a mask, and the gradient that puts the rows back, in
rows of the table that tests/unit/layers/types/test_layer_cases.c reads.

Usage: tests/golden/make_filter_golden.py > tests/golden/filter_golden.h     (needs NumPy)
"""
import numpy as np

random = np.random.default_rng(23)
arrays, rows = [], []


def rand(*shape):
    return random.standard_normal(shape).astype(np.float32).astype(np.float64)  # exact in f32


def emit(a):
    arrays.append("static const double f%d[] = { %s };" % (len(arrays), ", ".join("%.9g" % v for v in a.flat) or "0"))
    return "f%d" % (len(arrays) - 1)


def row(items):
    return "{ %s }" % (", ".join(items) or "0")


def shape_of(a):
    return "{ %d, { %s } }" % (a.ndim, ", ".join(map(str, a.shape)))


def case(selector, *bottoms):
    chosen = selector.reshape(-1) != 0
    tops = [b[chosen] for b in bottoms]
    dy = [rand(*t.shape) for t in tops]
    dx = []
    for b, d in zip(bottoms, dy):
        dx.append(np.zeros(b.shape))
        dx[-1][chosen] = d
    rows.append('    { "Filter", "", CT_TRAIN, %d, %d, 0, 1,\n      %s, %s, %s,\n      %s, %s, %s, { 0 }, { 0 } },'
                % (len(bottoms) + 1, len(bottoms), row(map(shape_of, bottoms + (selector,))),
                   row(map(emit, bottoms + (selector,))), row([emit(d) for d in dx] + ["NULL"]),
                   row(map(shape_of, tops)), row(map(emit, tops)), row(map(emit, dy))))


case(np.array([1., 0, 0, 1, 1]), rand(5, 2, 3))
case(np.array([0., -2, 0.5, 0, 0, 3, 0]).reshape(7, 1, 1, 1), rand(7, 3, 1, 5), rand(7))
case(np.zeros(3), rand(3, 4))
case(np.ones((3, 1)), rand(3, 4), rand(3, 1, 2), rand(3))
case(np.array([0., 1]), rand(2, 1))

print("/* Written by tests/golden/make_filter_golden.py. */")
print("/* clang-format off */")
print("\n".join(arrays))
print("static const golden_case filter_golden[] = {")
print("\n".join(rows))
print("};\n/* clang-format on */")
