"""Whether the scores of several ranks in bf16 are as near to those in f32 as one rank's in bf16 are.

Usage: roundings.py F32 BF16 RANKS_BF16 N_RANK COUNT

Roundings are independent, so their squares add up. Beside its sum over the ranks a branch of a block rounds at least four
values (the norm, two products, and what lies between them), as one rank does. One rank rounds the sum once, N ranks their
N parts and then the sum. The parts are as large as the sum, or smaller: (4 + N + 1) / (4 + 1) of the square. It is of many
numbers, so 1.5 times that is far from chance.
"""
import sys


def read(path):
    with open(path, encoding="ascii") as f:
        return [float(x) for x in f.read().split()]


exact, one, ranks = map(read, sys.argv[1:4])
n_rank, count = map(int, sys.argv[4:])
assert len(exact) == len(one) == len(ranks) == count, (len(exact), len(one), len(ranks))
theirs = sum((x - y) ** 2 for x, y in zip(exact, ranks))
alone = sum((x - y) ** 2 for x, y in zip(exact, one))
print("of one rank's error", theirs / alone)
sys.exit(not 0 < theirs <= 1.5 * (5 + n_rank) / 5 * alone)
