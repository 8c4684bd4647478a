#!/usr/bin/env python3
"""Draws training logs as SVG: losses, outputs and learning rates over iterations.

    scripts/plot_log.py OUT.svg LOG [LOG...] [--fields=loss,accuracy] [--average=N]

A LOG is what `cortado train` or Caffe writes on stderr, or a file of --metrics. Without --fields everything that
the first log has is drawn, one panel a field; TEST values are dotted. Several logs are curves of one panel.
"""
import json
import math
import re
import sys

NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)"
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, GAP = 760, 240, 70, 30, 20, 40


def from_text(lines):
    """{(field, phase): [(iteration, value)]} of a log for people."""
    series, iteration = {}, None

    def put(field, phase, value):
        series.setdefault((field, phase), []).append((iteration, float(value)))

    for line in lines:
        at = re.search(r"Iteration (\d+)", line)
        if at:
            iteration = int(at.group(1))
            loss = re.search(r", loss = " + NUMBER, line)
            if loss:
                put("loss", "train", loss.group(1))
            rate = re.search(r", lr = " + NUMBER, line)
            if rate:
                put("lr", "train", rate.group(1))
        output = re.search(r"(Train|Test) net output #\d+: (\S+) = " + NUMBER, line)
        if output and iteration is not None:
            phase, field, value = output.groups()
            if phase == "Test" or field != "loss":
                put(field, phase.lower(), value)
    return series


def from_metrics(lines):
    """The same of the JSON lines of --metrics."""
    series = {}
    for line in lines:
        event = json.loads(line)
        phase = {"train": "train", "test": "test"}.get(event.get("event"))
        if phase is None or "iter" not in event:
            continue
        flat = {**event, **event.get("outputs", {})}
        for field, value in flat.items():
            if field not in ("iter", "event", "net", "time", "epoch", "n") and isinstance(value, (int, float)):
                series.setdefault((field, phase), []).append((event["iter"], float(value)))
    return series


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    is_json = bool(lines) and lines[0].startswith("{")
    series = from_metrics(lines) if is_json else from_text(lines)
    if not series:
        sys.exit(f"{path}: no iterations in it")
    return series


def smooth(points, n):
    out, window = [], []
    for x, y in points:
        window = (window + [y])[-n:]
        out.append((x, sum(window) / len(window)))
    return out


def ticks(low, high):
    step = 10 ** math.floor(math.log10((high - low) or 1))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if (high - low) / s <= 6)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def panel(field, curves, top):
    """One field's axes and curves; curves: [(label, phase, points)]."""
    points = [p for _, _, curve in curves for p in curve if math.isfinite(p[1])]
    if not points:
        return []
    x0, x1 = min(x for x, _ in points), max(x for x, _ in points)
    y0, y1 = min(y for _, y in points), max(y for _, y in points)
    x1, y0, y1 = max(x1, x0 + 1), (y0 if y1 > y0 else y0 - 0.5), (y1 if y1 > y0 else y1 + 0.5)

    def place(x, y):
        return LEFT + (x - x0) / (x1 - x0) * WIDTH, top + HEIGHT - (y - y0) / (y1 - y0) * HEIGHT

    out = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escaped(field)}</text>',
           f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for x in ticks(x0, x1):
        at, _ = place(x, y0)
        out.append(f'<text x="{at:.1f}" y="{top + HEIGHT + 14}" text-anchor="middle">{x:g}</text>')
    for y in ticks(y0, y1):
        _, at = place(x0, y)
        out.append(f'<path d="M{LEFT} {at:.1f}h{WIDTH}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for k, (label, phase, curve) in enumerate(curves):
        good = [place(x, y) for x, y in curve if math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in good)
        dots = ' stroke-dasharray="4 3"' if phase == "test" else ""
        colour = COLOURS[k % len(COLOURS)]
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{dots}><title>{escaped(label)}</title></polyline>')
        out.append(f'<text x="{LEFT + WIDTH - 6}" y="{top + 14 + 13 * k}" text-anchor="end" fill="{colour}">'
                   f"{escaped(label)}</text>")
    return out


def main(argv):
    options = dict(a[2:].split("=", 1) for a in argv if a.startswith("--") and "=" in a)
    files = [a for a in argv if not a.startswith("--")]
    if len(files) < 2 or set(options) - {"fields", "average"}:
        sys.exit(__doc__)
    logs = [(path, read(path)) for path in files[1:]]
    fields = options["fields"].split(",") if "fields" in options else list(dict.fromkeys(f for f, _ in logs[0][1]))
    unknown = [f for f in fields if not any(f == g for _, series in logs for g, _ in series)]
    if unknown:
        sys.exit(f"no such field: {', '.join(unknown)}; there are {', '.join(dict.fromkeys(f for f, _ in logs[0][1]))}")
    body = []
    for k, field in enumerate(fields):
        curves = [(f"{path} {phase}" if len(logs) > 1 else phase, phase,
                   smooth(points, int(options.get("average", 1)) if phase == "train" else 1))
                  for path, series in logs for (f, phase), points in series.items() if f == field]
        body += panel(field, curves, TOP + k * (HEIGHT + GAP + TOP))
    height = len(fields) * (HEIGHT + GAP + TOP) + TOP
    with open(files[0], "w", encoding="utf-8") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
                'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
                + "\n".join(body) + "\n</svg>\n")


if __name__ == "__main__":
    main(sys.argv[1:])
