#!/usr/bin/env python3
"""Tables and plots of the rows that convergence.sh has left.

    convergence_table.py [ROWS] [--write PAGE] [--plots FOLDER]

ROWS is docs/results/convergence. Without options the tables go to the output; --write puts them
between the two marks of PAGE (docs/results/2026-11-23-convergence.md) in place of what is there, and
touches nothing else; --plots writes a page of `cortado report` for each net, with accuracy or
perplexity over iterations.

A codec is compared with dense from the same seeds, ranks and iterations: accuracy by the difference
in points, perplexity by the ratio.
"""
import csv
import json
import os
import subprocess
import sys

BATCH = {"lenet": 64, "quick": 100, "ptb": 20, "resnet20": 128}
BOUND = {"lenet": 0.2, "quick": 0.5, "ptb": 1.5, "resnet20": 0.5}  # points, perplexity in percent
SEEDS = {"ptb": 2, "resnet20": 2}  # others 3
MARKS = ("<!-- tables -->", "<!-- end of tables -->")


def base(net):
    return net.split("_")[0]


def read(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def groups(runs):
    """{(net, iterations, ranks): {name: {seed: row}}}, in the order of the rows."""
    out = {}
    for r in runs:
        key = (r["net"], int(r["iterations"]), int(r["ranks"]))
        out.setdefault(key, {}).setdefault(r["name"], {})[int(r["seed"])] = r
    return out


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def is_perplexity(net):
    return net == "ptb"


def shown(net, value):
    return float(value) if is_perplexity(net) else 100 * float(value)


def better_by(net, value, dense):
    """Points, or percent, that value is better than dense."""
    value, dense = shown(net, value), shown(net, dense)
    return 100 * (1 - value / dense) if is_perplexity(net) else value - dense


def spread(pairs):
    """What the mean is uncertain by."""
    n, m = len(pairs), mean(pairs)
    return (sum((x - m) ** 2 for x in pairs) / (n - 1) / n) ** 0.5


def line(net, name, runs, dense):
    value = {s: shown(net, r["value"]) for s, r in runs.items()}
    first = next(iter(runs.values()))
    pairs = [better_by(net, runs[s]["value"], dense[s]["value"]) for s in value if s in dense]
    cells = [name, first["compression"].replace(";", ",") or "none", str(len(value)),
             "%.2f (%.2f to %.2f)" % (mean(value.values()), min(value.values()), max(value.values()))]
    bound, seeds = BOUND[base(net)], SEEDS.get(base(net), 3)
    verdict = ""
    if bound is not None and name != "dense" and pairs:
        verdict = "within" if mean(pairs) >= -bound else "**misses**"
    if name != "dense" and len(pairs) < seeds:
        verdict = "%d of %d seeds" % (len(pairs), seeds)
    against = "" if name == "dense" or not pairs else "%+.2f" % mean(pairs)
    if against and len(pairs) > 1:
        against += " ± %.2f" % spread(pairs)
    density = {r["density"] for r in runs.values()} - {""}
    cells += [against, verdict, ", ".join(sorted(density)),
              "%.1f" % (1e-3 * mean(float(r["bytes_sent"]) for r in runs.values()))]
    return "| " + " | ".join(cells) + " |"


def tables(runs):
    out = []
    for (net, iterations, ranks), names in sorted(groups(runs).items()):
        bound = BOUND[base(net)]
        unit = "perplexity" if is_perplexity(net) else "accuracy, %"
        limit = "no bound" if bound is None else "%.1f %s" % (bound, "%" if is_perplexity(net) else "points")
        out.append("\n**%s**, %d iterations, %d ranks, global batch %d:\n" % (net, iterations, ranks, BATCH[base(net)]))
        out.append("| | `--compression` | seeds | %s: mean (least to most) | better than dense by, %s | %s | density, %% "
                   "| kB sent a step and rank |" % (unit, "%" if is_perplexity(net) else "points", limit))
        out.append("|---|---|---|---|---|---|---|---|")
        order = sorted(names, key=lambda n: (n != "dense", n != "redsync", n))
        out += [line(net, n, names[n], names.get("dense", {})) for n in order]
    return "\n".join(out) + "\n"


def plot(folder, key, names, curves):
    """A page of `cortado report`, a run for each codec: what tests gave, the mean over seeds."""
    net, _, ranks = key
    stem = os.path.join(folder, "%s_%d_%d" % key)
    field = "perplexity" if is_perplexity(net) else "accuracy, %"
    files = []
    os.makedirs(stem, exist_ok=True)
    for name, runs in sorted(names.items(), key=lambda n: (n[0] != "dense", n[0])):
        points = {}
        for c in curves:
            if c["net"] == net and c["name"] == name and int(c["ranks"]) == ranks and int(c["seed"]) in runs:
                points.setdefault(int(c["iteration"]), []).append(shown(net, c["value"]))
        files.append(os.path.join(stem, name))
        with open(files[-1], "w") as f:
            for i, v in sorted(points.items()):
                if i > 0:
                    f.write(json.dumps({"event": "test", "iter": i, "outputs": {field: mean(v)}}) + "\n")
    subprocess.run([os.environ.get("CORTADO", "cortado"), "report", *files, "--to=" + stem + ".html"], check=True)


def write(page, text):
    with open(page) as f:
        whole = f.read()
    headings = [x for x in whole.splitlines() if x.startswith("## ")]
    twice = sorted({h for h in headings if headings.count(h) > 1})
    if twice:
        sys.exit("%s has these more than once: %s" % (page, ", ".join(twice)))
    before, rest = whole.split(MARKS[0] + "\n")
    after = rest.split(MARKS[1])[1]
    with open(page, "w") as f:
        f.write(before + MARKS[0] + "\n" + text + "\n" + MARKS[1] + after)


def main(argv):
    rows = os.path.join(os.path.dirname(__file__), "../../docs/results/convergence")
    options = {a: b for a, b in zip(argv, argv[1:]) if a.startswith("--")}
    if argv and not argv[0].startswith("--"):
        rows = argv[0]
    runs, curves = read(os.path.join(rows, "runs.csv")), read(os.path.join(rows, "curves.csv"))
    if "--write" in options:
        write(options["--write"], tables(runs))
    if "--plots" in options:
        os.makedirs(options["--plots"], exist_ok=True)
        for key, names in groups(runs).items():
            plot(options["--plots"], key, names, curves)
    if not options:
        print(tables(runs))


if __name__ == "__main__":
    main(sys.argv[1:])
