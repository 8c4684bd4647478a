#!/usr/bin/env python3
"""Tables and plots of the rows that convergence.sh has left.

    convergence_table.py [ROWS] [--write PAGE] [--plots FOLDER]

ROWS is docs/convergence. Without options the tables go to the output; --write puts them between the
two marks of PAGE (docs/convergence.md); --plots draws accuracy against iterations and against
modelled time (gnuplot; its scripts stay there).

A codec is compared with dense from the same seeds, ranks and iterations. Modelled time: what a step
computes on one host of 2 cores for its share of the batch (docs/performance.md: images a second of
the whole step), and the bytes that a rank sends at 1 Gbit/s, nothing hidden, no latency.
"""
import csv
import os
import subprocess
import sys

IMAGES_PER_S = {"lenet": 11387, "quick": 3056}
BATCH = {"lenet": 64, "quick": 100}
BOUND = {"lenet": 0.2, "quick": 0.5}
RATE = 1e9 / 8
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


def line(name, runs, dense, bound):
    value = {s: 100 * float(r["value"]) for s, r in runs.items()}
    first = next(iter(runs.values()))
    pairs = [value[s] - 100 * float(dense[s]["value"]) for s in value if s in dense]
    cells = [name, first["compression"].replace(";", ",") or "none", str(len(value)),
             "%.2f (%.2f to %.2f)" % (mean(value.values()), min(value.values()), max(value.values()))]
    if name == "dense" or not pairs:
        cells += ["", ""]
    else:
        difference = mean(pairs)
        verdict = "within" if difference >= -bound else "**misses**"
        if len(pairs) < 3:
            verdict = "%d of 3 seeds" % len(pairs)
        cells += ["%+.2f" % difference, verdict]
    density = {r["density"] for r in runs.values()} - {""}
    cells += [", ".join(sorted(density)), "%.1f" % (1e-3 * mean(float(r["bytes_sent"]) for r in runs.values()))]
    return "| " + " | ".join(cells) + " |"


def tables(runs):
    out = []
    for (net, iterations, ranks), names in sorted(groups(runs).items()):
        out.append("\n**%s**, %d iterations, %d ranks, global batch %d:\n" % (net, iterations, ranks, BATCH[base(net)]))
        out.append("| | `--compression` | seeds | accuracy, %%: mean (least to most) | against dense | "
                   "%.1f points | density, %% | kB sent a step and rank |" % BOUND[base(net)])
        out.append("|---|---|---|---|---|---|---|---|")
        order = sorted(names, key=lambda n: (n != "dense", n != "redsync", n))
        out += [line(n, names[n], names.get("dense", {}), BOUND[base(net)]) for n in order]
    return "\n".join(out) + "\n"


def step_s(net, ranks, sent):
    return BATCH[base(net)] / ranks / IMAGES_PER_S[base(net)] + sent / RATE


def plot(folder, key, names, curves):
    net, iterations, ranks = key
    data, by_iteration, by_time = [], [], []
    for k, (name, runs) in enumerate(sorted(names.items(), key=lambda n: (n[0] != "dense", n[0]))):
        points = {}
        for c in curves:
            if c["net"] == net and c["name"] == name and int(c["ranks"]) == ranks and int(c["seed"]) in runs:
                points.setdefault(int(c["iteration"]), []).append(100 * float(c["value"]))
        step = step_s(net, ranks, mean(float(r["bytes_sent"]) for r in runs.values()))
        data.append("$d%d << EOD\n%s\nEOD\n" % (k, "\n".join(
            "%d %g %.3f" % (i, i * step, mean(v)) for i, v in sorted(points.items()) if i > 0)))
        title = name.replace("_", " ")
        by_iteration.append("$d%d using 1:3 with linespoints title '%s'" % (k, title))
        by_time.append("$d%d using 2:3 with linespoints title '%s'" % (k, title))
    stem = os.path.join(folder, "%s_%d_%d" % key)
    with open(stem + ".gp", "w") as f:
        f.write("set terminal svg size 1200,480 dynamic\nset output '%s.svg'\n" % stem)
        f.write("".join(data) + "set key bottom right\nset ylabel 'accuracy, %'\nset grid\n")
        f.write("set multiplot layout 1,2 title '%s, %d ranks: mean over seeds'\n" % (net.replace("_", " "), ranks))
        f.write("set xlabel 'iterations'\nplot " + ", ".join(by_iteration) + "\n")
        f.write("set xlabel 'MODELLED seconds, 1 Gbit/s, nothing hidden'\nplot " + ", ".join(by_time) + "\n")
    subprocess.run(["gnuplot", stem + ".gp"], check=True)


def write(page, text):
    with open(page) as f:
        whole = f.read()
    before, rest = whole.split(MARKS[0] + "\n")
    after = rest.split(MARKS[1])[1]
    with open(page, "w") as f:
        f.write(before + MARKS[0] + "\n" + text + "\n" + MARKS[1] + after)


def main(argv):
    rows = os.path.join(os.path.dirname(__file__), "../../docs/convergence")
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
