"""Whether two .npz files have tensors as close as the order of f32 sums allows: the largest difference
of a tensor over its largest value, at most LIMIT. Usage: near.py A B LIMIT TENSORS
"""
import sys

from npz import tensors

a, b, limit, many = tensors(sys.argv[1]), tensors(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
assert a.keys() == b.keys() and len(a) == many, (sorted(a), sorted(b))
worst = 0
for name, x in a.items():
    y = b[name]
    assert len(x) == len(y), name
    worst = max(worst, max(abs(p - q) for p, q in zip(x, y)) / max(map(abs, x)))
print("largest difference", worst)
sys.exit(worst > limit)
