"""Average precision by numpy, beside what DetectionEvaluate and the solver's test say.

detection.py make          found.h5: made-up detections and true boxes of 24 samples
detection.py same LOG VERSION [DIFFICULT]   whether the log of a test has their mean average precision
detection.py pictures      train and test pictures with coloured rectangles, annotations, lists, a label map
"""
import re, sys

import numpy as np

N, FOUND, TRUTH, CLASSES = 24, 12, 5, 4


def boxes(by, n):
    a = by.uniform(0, 0.7, (n, 2))
    return np.concatenate([a, a + by.uniform(0.1, 0.3, (n, 2))], 1)


def arrays():
    by = np.random.default_rng(3)
    found, truth = -np.ones((N, FOUND, 7), np.float32), -np.ones((N, TRUTH, 8), np.float32)
    for i in range(N):
        n = by.integers(0, TRUTH + 1)
        truth[i, :n, 0], truth[i, :n, 1], truth[i, :n, 2] = 0, by.integers(1, CLASSES - 1, n), 0  # none of the last class
        truth[i, :n, 3:7], truth[i, :n, 7] = boxes(by, n), by.random(n) < 0.25
        m = by.integers(0, FOUND + 1)
        found[i, :m, 0], found[i, :m, 1] = 0, by.integers(1, CLASSES, m)
        found[i, :m, 2] = np.round(by.random(m), 1)  # many are equal
        found[i, :m, 3:7] = boxes(by, m)
        for k in range(min(n, m)):  # some are near a true box, and some near the same one
            t = truth[i, by.integers(0, n)]
            found[i, k, 1], found[i, k, 3:7] = t[1], t[3:7] + by.uniform(-0.06, 0.06, 4)
    return found, truth


def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def mean_precision(version, difficult):
    found, truth = (a.astype(float) for a in arrays())
    areas = []
    for c in range(1, CLASSES):
        judged, n = [], 0
        for i in range(N):
            true = [t for t in truth[i] if t[0] >= 0 and t[1] == c]
            n += sum(1 for t in true if difficult or not t[7])
            taken = set()
            mine = sorted((f for f in found[i] if f[0] >= 0 and f[1] == c), key=lambda f: -f[2])
            for f in mine:
                values = [overlap(np.clip(f[3:7], 0, 1), t[3:7]) for t in true]
                k = int(np.argmax(values)) if values else -1
                right = k >= 0 and values[k] >= 0.5
                if right and not difficult and true[k][7]:
                    continue
                judged.append((f[2], right and k not in taken))
                if right:
                    taken.add(k)
        if n == 0:
            continue
        judged.sort(key=lambda j: (-j[0], j[1]))  # of equal scores the wrong ones first
        right = np.array([j[1] for j in judged], float)
        recall, precision = right.cumsum() / n, right.cumsum() / np.arange(1, len(right) + 1)
        steps = np.diff(np.concatenate([[0], recall]))
        best = np.maximum.accumulate(precision[::-1])[::-1]
        areas.append({
            "11point": np.mean([max([p for r, p in zip(recall, precision) if r >= k / 10], default=0) for k in range(11)]),
            "MaxIntegral": (steps * best).sum(),
            "Integral": (steps * precision).sum()}[version])
    return np.mean(areas)


def pictures():
    import os
    from PIL import Image, ImageDraw
    colours = {"red": (220, 40, 30), "green": (30, 200, 60)}
    by = np.random.default_rng(5)
    os.makedirs("pictures")
    for name, n in ("train", 96), ("test", 24):
        lines = []
        for i in range(n):
            image = Image.fromarray(by.integers(0, 70, (64, 64, 3)).astype(np.uint8))
            draw, xml = ImageDraw.Draw(image), "<annotation>"
            for k, (label, colour) in enumerate(colours.items()):
                if by.random() < 0.3 and k:
                    continue
                w, h = by.integers(16, 28, 2)
                x, y = by.integers(0, 32 - min(w, 31)) + 32 * k, by.integers(0, 64 - h)
                w = min(w, 64 - x)
                draw.rectangle((x, y, x + w - 1, y + h - 1), fill=colour)
                xml += f"<object><name>{label}</name><bndbox><xmin>{x}</xmin><ymin>{y}</ymin>"
                xml += f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            image.save(f"pictures/{name}{i}.png")
            open(f"pictures/{name}{i}.xml", "w").write(xml + "</annotation>")
            lines.append(f"pictures/{name}{i}.png pictures/{name}{i}.xml\n")
        open(f"{name}.list", "w").writelines(lines)
    open("labelmap.prototxt", "w").write("".join(f'item {{ name: "{n}" label: {k} }}\n' for k, n in enumerate(["none", *colours])))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        import h5py
        with h5py.File("found.h5", "w") as f:
            f["found"], f["truth"] = arrays()
    elif sys.argv[1] == "pictures":
        pictures()
    else:
        want = mean_precision(sys.argv[3], len(sys.argv) < 5)
        got = [float(v) for v in re.findall(r"eval = ([-0-9.e]+)", open(sys.argv[2]).read())]
        assert got and all(abs(v - want) < 2e-6 for v in got), (got, want)
        assert 0.05 < want < 0.95, want
