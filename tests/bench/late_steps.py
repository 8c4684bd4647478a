#!/usr/bin/env python3
"""What sending everything that was left behind does, on a quadratic that is curved along one direction.

    late_steps.py [RATE_TIMES_CURVATURE ...]      0.03 0.1 0.3 1

3000 elements; the direction has the squares of normal numbers with their signs, so that some elements stand
out; momentum 0.9, density 1 %, momentum masked, a little noise, 400 steps from distance 1. Each cell: the
farthest, and the farthest of the last 50 steps. Dense SGD is stable up to 2 (1 + momentum) = 3.8.
"""
import math
import random
import sys

N, STEPS, DENSITY, MOMENTUM, NOISE = 3000, 400, 0.01, 0.9, 0.01


def run(a, every, share_of):
    """share_of(|U|, |V|): how much of V a dense step sends; None: all steps are dense."""
    rnd = random.Random(1)
    e = [math.copysign(v * v, v) for v in (rnd.gauss(0, 1) for _ in range(N))]
    length = math.sqrt(sum(v * v for v in e))
    e = [v / length for v in e]
    w, u, v, most, last = e[:], [0.0] * N, [0.0] * N, 0.0, 0.0
    masks, share_of = share_of if share_of else (False, None)
    for step in range(STEPS):
        x = sum(p * q for p, q in zip(e, w))
        if not abs(x) < 1e6:
            return "over 10^6"
        most = max(most, abs(x))
        last = max(last, abs(x)) if step >= STEPS - 50 else 0.0
        dense = share_of and every and (step + 1) % every == 0
        if dense and masks == "before":
            u = [0.0] * N
        u = [MOMENTUM * p + a * x * q + NOISE * rnd.gauss(0, 1) / math.sqrt(N) for p, q in zip(u, e)]
        if not share_of:
            w = [p - q for p, q in zip(w, u)]
        elif dense:
            kept = math.sqrt(sum(q * q for q in v))
            share = share_of(math.sqrt(sum(q * q for q in u)), kept) if kept > 0 else 1.0
            w = [p - q - share * r for p, q, r in zip(w, u, v)]
            v = [(1 - share) * r for r in v]
            if masks == "after":
                u = [0.0] * N
        else:
            v = [p + q for p, q in zip(v, u)]
            for i in sorted(range(N), key=lambda i: -abs(v[i]))[:int(DENSITY * N)]:
                w[i] -= v[i]
                u[i] = v[i] = 0.0
    return f"{most:.2g}, {last:.1g}"


def main():
    everything = lambda u, v: 1.0
    limited = lambda u, v: min(1.0, u / v)
    print("rate x curvature | dense | sparse alone | every 6th: all of V | and U masked | limited |"
          " every 24th: all of V | and U masked | limited")
    for a in [float(v) for v in sys.argv[1:]] or [0.03, 0.1, 0.3, 1.0]:
        cells = [run(a, 0, None), run(a, 0, (False, everything))]
        for every in (6, 24):
            cells += [run(a, every, way) for way in ((False, everything), ("after", everything), ("before", limited))]
        print(f"{a} | " + " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
