#!/usr/bin/env python3
"""Writes tests/golden/numpy.npz: arrays as NumPy itself packs them: deflated, in doubles, the first
index fastest, a scalar; "ip1/0" [i][j] = 10 i + j + 0.5.

Usage: tests/golden/make_numpy_golden.py      (needs NumPy)
"""
import os
import numpy as np

a = np.add.outer(10.0 * np.arange(4), np.arange(3)) + 0.5
np.savez_compressed(os.path.join(os.path.dirname(__file__), "numpy.npz"),
                    **{"ip1/0": np.asfortranarray(a), "ip1/1": np.arange(4, dtype=np.float32),
                       "deep/er/0": np.float32(7).reshape(()), "other": np.arange(3)})
