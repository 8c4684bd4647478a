"""Average precision by numpy, beside what DetectionEvaluate and the solver's test say.

detection.py make          found.h5: made-up detections and true boxes of 24 samples
detection.py same LOG VERSION [DIFFICULT]   whether the log of a test has their mean average precision
detection.py report FILE.json [DIFFICULT]   whether a report has that of each class, and what it counts
detection.py boxes          whether predict says the boxes of the blob in HOW.h5, on pictures resized so, as JSON and CSV
detection.py drawn PAGE.html ALL.json    whether a page has the true boxes, and those that predict says
detection.py pictures      train and test pictures with coloured rectangles, annotations, lists, a label map; some of odd sizes
"""
import json, re, sys

import numpy as np

N, FOUND, TRUTH, CLASSES = 24, 12, 5, 4
ODD = [(64, 64), (100, 50), (48, 80), (130, 61), (64, 95)]  # widths and heights


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


def of_classes(difficult):
    """Of each class true boxes, detections that count, those that are right; areas by version, and the best precision at recalls."""
    found, truth = (a.astype(float) for a in arrays())
    classes = []
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
        judged.sort(key=lambda j: (-j[0], j[1]))  # of equal scores the wrong ones first
        right = np.array([j[1] for j in judged], float)
        if n == 0:
            classes.append((0, len(judged), right.sum(), None, [0] * 11))
            continue
        recall, precision = right.cumsum() / n, right.cumsum() / np.arange(1, len(right) + 1)
        steps = np.diff(np.concatenate([[0], recall]))
        best = np.maximum.accumulate(precision[::-1])[::-1]
        points = [max([p for r, p in zip(recall, precision) if r >= k / 10], default=0) for k in range(11)]
        areas = {"11point": np.mean(points), "MaxIntegral": (steps * best).sum(), "Integral": (steps * precision).sum()}
        classes.append((n, len(judged), right.sum(), areas, points))
    return classes


def mean_precision(version, difficult):
    return np.mean([c[3][version] for c in of_classes(difficult) if c[3]])


def report(file, difficult):
    r, classes = json.load(open(file)), of_classes(difficult)
    assert r["classes"] == ["1", "2", "3"] and r["samples"] == N, r
    for k, (n, judged, right, areas, points) in enumerate(classes):
        assert (r["boxes"][k], r["detections"][k], r["right"][k]) == (n, judged, right), (k, n, judged, right, r)
        assert np.abs(np.array(r["precision_at_recall"][k]) - points).max() < 1e-5, (k, r["precision_at_recall"][k], points)
        for v, got in r["average_precision"].items():
            assert (got[k] is None) if areas is None else abs(got[k] - areas[v]) < 1e-6, (v, k, got, areas)
    for v, got in r["mean_average_precision"].items():
        assert abs(got - mean_precision(v, difficult)) < 1e-6, (v, got)
    assert len(r["mean_average_precision"]) == 3 and sum(c[0] for c in classes) > 20


def in_pixels(corner, width, height, how):
    """Corners on an input of 64 x 64 in pixels of a picture that became it so."""
    x = np.array(corner, float).reshape(2, 2) * 64
    if how == "pad":  # the longer side is 64, borders of one size are around
        scale = 64 / max(width, height)
        x = (x - (64 - scale * np.array([width, height])) / 2) / scale
    elif how == "crop":  # the shorter side is 80, cut off to whole pixels, and the middle is taken
        size = np.array([80 * width // min(width, height), 80 * height // min(width, height)])
        x = (x + (size - 64) // 2) / size * [width, height]
    else:
        x = x / 64 * [width, height]
    return np.clip(x, 0, [width, height]).reshape(4)


def said(how):
    """Whether HOW.json, and HOW.csv, have the boxes of HOW.h5; how many there are."""
    import csv, h5py, os
    with h5py.File(how + ".h5") as f:
        rows = np.array(f["found"]).reshape(-1, 7)
    want = {f"files/odd{i}.png": [] for i in range(len(ODD))}
    for r in rows[rows[:, 0] >= 0]:
        i = int(r[0])
        want[f"files/odd{i}.png"].append((["none", "red", "green"][int(r[1])], r[2], in_pixels(r[3:], *ODD[i], how)))
    said = json.load(open(how + ".json"))
    assert said["classes"] == ["red", "green"] and [p["file"] for p in said["predictions"]] == sorted(want), said
    for p in said["predictions"]:
        assert all(a["probability"] >= b["probability"] for a, b in zip(p["boxes"], p["boxes"][1:])), p
        boxes = sorted(p["boxes"], key=lambda b: b["class"])  # then as before: the surest first
        mine = sorted(want[p["file"]], key=lambda b: (b[0], -b[1]))
        assert len(boxes) == len(mine), (p, mine)
        for b, (name, score, corner) in zip(boxes, mine):
            got = [b[k] for k in ("probability", "xmin", "ymin", "xmax", "ymax")]
            assert b["class"] == name and np.abs(got - np.array([score, *corner])).max() < 1e-3, (p["file"], b, name, score, corner)
    if os.path.exists(how + ".csv"):
        flat = [[p["file"], *b.values()] for p in said["predictions"] for b in p["boxes"]]
        lines = list(csv.reader(open(how + ".csv")))
        assert lines[0] == ["file", "class", "probability", "xmin", "ymin", "xmax", "ymax"] and len(lines) == len(flat) + 1, lines
        for line, box in zip(lines[1:], flat):
            assert line[:2] == box[:2] and [float(v) for v in line[2:]] == box[2:], (line, box)
    return sum(len(v) for v in want.values())


def drawn(page, all_json):
    """Whether the page shows each second picture of the test, in tiles of 192 x 192, with true boxes on the left and found ones right."""
    import xml.etree.ElementTree as et
    from page_of import Page
    p = Page(page)
    found = {f["file"]: [b for b in f["boxes"] if b["probability"] >= 0.5] for f in json.load(open(all_json))["predictions"]}
    frames = {"red": (0x3C, 0xB4, 0x4B), "green": (0x43, 0x63, 0xD8)}
    assert len(p.figures) == 12, p.figures
    for i, (text, (width, height, rows)) in enumerate(zip(p.figures, p.pictures())):
        pixel = np.array([list(r) for r in rows]).reshape(height, width, 3)
        true = [(o.find("name").text, *(float(v.text) for v in o.find("bndbox"))) for o in et.parse(f"pictures/test{2 * i}.xml").iter("object")]
        said = [(b["class"], b["xmin"], b["ymin"], b["xmax"], b["ymax"]) for b in found[f"pictures/test{2 * i}.png"]]
        assert width == 2 * 194 + 2 and text.split("\n")[1] == f"{len(true)} true, {len(said)} found", (width, text, true, said)
        for left, boxes in (2, true), (196, said):
            for name, x0, y0, x1, y1 in boxes:  # the lower edge, its middle and its ends
                y = round(2 + 3 * y1) - 1
                for x in round(left + 3 * x0), round(left + 1.5 * (x0 + x1)), round(left + 3 * x1) - 1:
                    near = pixel[y - 1:y + 2, x - 1:x + 2].reshape(-1, 3)
                    assert (near == frames[name]).all(1).any(), (i, name, left, x, y, near)


def pictures():
    import os
    from PIL import Image, ImageDraw
    colours = {"red": (220, 40, 30), "green": (30, 200, 60)}
    by = np.random.default_rng(5)
    os.makedirs("pictures")
    os.makedirs("files")
    for name, n in ("train", 96), ("test", 24), ("odd", len(ODD)):
        lines, folder = [], "files" if name == "odd" else "pictures"
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
            if name == "odd":
                image, xml = image.resize(ODD[i]), "<annotation>"
            image.save(f"{folder}/{name}{i}.png")
            open(f"pictures/{name}{i}.xml", "w").write(xml + "</annotation>")
            lines.append(f"{folder}/{name}{i}.png pictures/{name}{i}.xml\n")
        open(f"{name}.list", "w").writelines(lines)
    open("labelmap.prototxt", "w").write("".join(f'item {{ name: "{n}" label: {k} }}\n' for k, n in enumerate(["none", *colours])))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        import h5py
        with h5py.File("found.h5", "w") as f:
            f["found"], f["truth"] = arrays()
    elif sys.argv[1] == "pictures":
        pictures()
    elif sys.argv[1] == "boxes":
        counts = [said(how) for how in ("warp", "pad", "crop")]
        assert min(counts) > 5, counts
    elif sys.argv[1] == "drawn":
        drawn(*sys.argv[2:])
    elif sys.argv[1] == "report":
        report(sys.argv[2], len(sys.argv) < 4)
    else:
        want = mean_precision(sys.argv[3], len(sys.argv) < 5)
        got = [float(v) for v in re.findall(r"eval = ([-0-9.e]+)", open(sys.argv[2]).read())]
        assert got and all(abs(v - want) < 2e-6 for v in got), (got, want)
        assert 0.05 < want < 0.95, want
