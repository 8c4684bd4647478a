"""Whether a step moved weights as far as another, but for gradients rounded to bf16 (to 2^-8 of each):
START is before both, A and B are after. MICRO, where sums of two micro-batches are rounded, is after the
first of them alone, whose gradient was rounded, too, and counts half. Usage: moved.py START A B [MICRO]
"""
import sys

from npz import tensors

start, a, b = (tensors(f) for f in sys.argv[1:4])
micro = tensors(sys.argv[4]) if len(sys.argv) > 4 else start
assert start.keys() == a.keys() == b.keys() == micro.keys() and len(a) == 4, sorted(a)
differ = 0
for name, s in start.items():
    for s0, x, y, m in zip(s, a[name], b[name], micro[name]):
        # roundings of f32: the gradient's multiples and the weight, of both
        limit = 2**-8 * 1.01 * (abs(x - s0) + abs(m - s0) / 2) + 2**-22 * max(abs(s0), abs(x))
        assert abs(y - x) <= limit, (name, s0, x, y, limit)
        differ += x != y
print(differ, "differ")
sys.exit(differ == 0)
