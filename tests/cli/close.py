"""Whether two files of numbers are as near each other as LIMIT times the largest of the first.

Usage: close.py A B LIMIT COUNT
"""
import sys

with open(sys.argv[1], encoding="ascii") as f, open(sys.argv[2], encoding="ascii") as g:
    a, b = [float(x) for x in f.read().split()], [float(x) for x in g.read().split()]
assert len(a) == len(b) == int(sys.argv[4]), (len(a), len(b))
most = max(map(abs, a))
worst = max(abs(x - y) for x, y in zip(a, b)) / most
print("largest difference", worst, "of", most)
sys.exit(not (most > 0 and worst <= float(sys.argv[3])))
