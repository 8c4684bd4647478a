#!/usr/bin/env python3
"""Which tests notice a mistake: makes small mistakes in sources, and runs the tests that touch them.

Usage: tests/mutate/mutate.py RESULTS [--each=5] [--seed=1] [--only=PART] [--tree=FOLDER] [--quick] [--again]
       tests/mutate/mutate.py RESULTS --table

tests/mutate/list.txt has a line for each source: its path, and its tests as kind:name (unit:cost, mpi:outer, cli:train); those
behind | run for mistakes that the others do not find, and not with --quick: a run without it goes on with those. Of each source
--each mistakes are drawn by the seed: an operator, a bound, a constant, a condition, a statement left out. Each is built and
tested in FOLDER, a clone of this checkout's HEAD (build/mutate), never here. A mistake is `found` where a test fails or goes on
for longer than ten times what it takes without and 20 s; `not built` ones are no mistakes and are not counted; others `survive`.
RESULTS has a JSON line for each; those that stand there are not made again. Survivors that change nothing a program can see are
told of in tests/mutate/explained.txt: path, the line, the mistake, why; separated by tabs. --again draws none, and makes those once
more that survived and that nobody explained, as far as their lines are still there; the last one counts. --table prints counts by
source and every survivor that nobody explained. Exits with 1 where there is one.
"""
import collections
import json
import os
import random
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# of clang-format's spacing: a binary operator has a space on both sides
SWAPS = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " && ": " || ", " || ": " && ", " += ": " -= ", " -= ": " += ",
}
NUMBER = re.compile(r"(?<![\w.\"'%])(\d+)(?![\w.\"'])")
CONDITION = re.compile(r"^(\s*(?:\} else )?if \()(.*)(\) (?:\{|return.*;|continue;|break;))$")
STATEMENT = re.compile(r"^\s+(?!return|break|continue|goto|case|default|free\(|ct_\w*(?:destroy|close|release|free)\w*\()"
                       r"[A-Za-z_*(][\w\[\]().>*-]*(?: [-+*/|&^]?= .*|\(.*\)|\+\+|--);$")
DECLARATION = re.compile(r"^\s+(?:const |static |struct |enum |unsigned )*[A-Za-z_]\w* \**[A-Za-z_]\w*(?:\[.*\])?(?: = .*|, .*)?;$")


def code_lines(text):
    """Numbers of the lines that are code: no comments, preprocessor, strings across, declarations outside functions."""
    inside = False
    for n, line in enumerate(text.split("\n")):
        bare = line.strip()
        if bare.startswith("/*"):
            inside = "*/" not in bare
            continue
        if inside:
            inside = "*/" not in bare
            continue
        if line.startswith("    ") and not bare.startswith(("#", "//", "CT_INFO", "CT_WARN", "ct_text_add", "printf", "snprintf", "\"")):
            yield n, line.split("/*")[0].rstrip()


def places(text):
    """Every mistake that could be made: (line number, the new line, what was done)."""
    for n, line in code_lines(text):
        quoted = [(m.start(), m.end()) for m in re.finditer(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', line)]

        def outside(at):
            return not any(a <= at < b for a, b in quoted)

        for old, new in SWAPS.items():
            at = line.find(old)
            while at >= 0:
                # "* " behind a type is a pointer, "- " or "+ " of a number alone has no space before
                if outside(at):
                    yield n, line[:at] + new + line[at + len(old):], f"{old.strip()} to {new.strip()} at {at}"
                at = line.find(old, at + 1)
        for m in NUMBER.finditer(line):
            if outside(m.start()) and not DECLARATION.match(line):
                value = int(m.group(1))
                yield n, line[:m.start()] + str(value + 1) + line[m.end():], f"{value} to {value + 1} at {m.start()}"
        m = CONDITION.match(line)
        if m:
            yield n, f"{m.group(1)}!({m.group(2)}){m.group(3)}", "condition turned"
        if STATEMENT.match(line) and not DECLARATION.match(line):
            yield n, re.match(r"\s*", line).group() + ";", "statement left out"


def read_list():
    with open(os.path.join(HERE, "list.txt"), encoding="utf-8") as f:
        for line in f:
            first, _, later = line.split("#")[0].partition("|")
            words = first.split()
            if words:
                yield words[0].rstrip(":"), [[w.split(":") for w in part] for part in (words[1:], later.split())]


def run_tests(tree, tests, limit):
    """None where all pass, else the test that did not; and the seconds."""
    start = time.monotonic()
    for kind, name in tests:
        command = ["make", "-s", f"T={name}", f"test-{kind}"]
        left = None if limit is None else max(1.0, limit - (time.monotonic() - start))
        # a group of its own, so that ranks and children go with it; 16 GB, so that a lost bound does not take the machine
        with subprocess.Popen(["sh", "-c", 'ulimit -v 16000000; exec "$@"', "sh", *command], cwd=tree, start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
            try:
                p.communicate(timeout=left)
                code = p.returncode
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, 9)
                p.communicate()
                code = "too long"
        if code != 0:
            return f"{kind}:{name}" + (" (too long)" if code == "too long" else ""), time.monotonic() - start
    return None, time.monotonic() - start


def build(tree):
    """Whether the library and the program compile."""
    return subprocess.run(["make", "-s", "all"], cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def load(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return list({(r["path"], r["line"], r["what"]): r for r in rows}.values())


def clone(tree):
    if not os.path.exists(tree):
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    subprocess.run(["git", "fetch", "-q", "origin"], cwd=tree, check=True)
    subprocess.run(["git", "checkout", "-q", "-f", head], cwd=tree, check=True)


def time_of(tree, path, tests):
    """Seconds without a mistake, with what is to be built; ends the program where a test fails then."""
    broken, seconds = run_tests(tree, tests, None)
    if broken:
        sys.exit(f"{path}: {broken} fails without a mistake")
    return seconds


def draw(path, text, rows, given, n_group):
    """What is to be made of a source. Its own draw: another source, or more of them, changes nothing here."""
    lines, made = text.split("\n"), {(r["path"], r["line"], r["what"]): r for r in rows}
    named = [((path, lines[p[0]].strip(), p[2]), p) for p in places(text)]
    if "again" in given:
        explained = read_explained()
        return [p for key, p in named if key in made and made[key]["result"] == "survives" and key not in explained]
    random.Random(f"{given.get('seed', '1')} {path}").shuffle(named)
    done = {key for key, r in made.items() if r["result"] != "survives" or r["groups"] >= n_group}
    return [p for key, p in named[:int(given.get("each", 5))] if key not in done]


def try_source(tree, path, groups, todo, results):
    name = os.path.join(tree, path)
    with open(name, encoding="utf-8") as f:
        text = f.read()
    lines = text.split("\n")
    if not todo:
        return
    if not build(tree):
        sys.exit(f"{tree} does not build")
    seconds = [time_of(tree, path, tests) for tests in groups]
    for n, new, what in todo:
        try:
            with open(name, "w", encoding="utf-8") as f:
                f.write("\n".join(lines[:n] + [new] + lines[n + 1:]))
            result, by = "not built", None
            if build(tree):
                for tests, usual in zip(groups, seconds):
                    by = by or run_tests(tree, tests, 10 * usual + 20)[0]
                result = "found" if by else "survives"
        finally:
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
        row = {"path": path, "line": lines[n].strip(), "what": what, "result": result, "by": by, "groups": len(groups)}
        with open(results, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        print(f"{result:9} {path}:{n + 1}: {what}: {lines[n].strip()}", flush=True)


def read_explained():
    with open(os.path.join(HERE, "explained.txt"), encoding="utf-8") as f:
        return {tuple(line.rstrip("\n").split("\t")[:3]) for line in f if line.strip() and not line.startswith("#")}


def table(rows):
    explained = read_explained()
    count = collections.defaultdict(collections.Counter)
    open_ones = []
    for r in rows:
        result = r["result"]
        if result == "survives" and (r["path"], r["line"], r["what"]) in explained:
            result = "explained"
        elif result == "survives":
            open_ones.append(r)
        count[r["path"]][result] += 1
    total = collections.Counter()
    print("| source | made | found | explained | survive |\n|---|---|---|---|---|")
    for path, c in sorted(count.items()):
        total.update(c)
        print(f"| `{path}` | {c['found'] + c['explained'] + c['survives']} | {c['found']} | {c['explained']} | {c['survives']} |")
    made = total["found"] + total["explained"] + total["survives"]
    print(f"| all | {made} | {total['found']} | {total['explained']} | {total['survives']} |")
    for r in open_ones:
        print(f"survives: {r['path']}: {r['what']}: {r['line']}")
    return 1 if open_ones else 0


def main(argv):
    words = [a for a in argv if not a.startswith("--")]
    given = dict((a[2:].split("=", 1) + [""])[:2] for a in argv if a.startswith("--"))
    if len(words) != 1 or set(given) - {"each", "seed", "only", "tree", "table", "quick", "again"}:
        sys.exit(__doc__)
    rows = load(words[0])
    if "table" in given:
        sys.exit(table(rows))
    tree = os.path.abspath(given.get("tree", os.path.join(ROOT, "build", "mutate")))
    clone(tree)
    for path, groups in read_list():
        if given.get("only", "") not in path:
            continue
        groups = [tests for tests in (groups[:1] if "quick" in given else groups) if tests]
        with open(os.path.join(tree, path), encoding="utf-8") as f:
            todo = draw(path, f.read(), rows, given, len(groups))
        try_source(tree, path, groups, todo, words[0])


if __name__ == "__main__":
    main(sys.argv[1:])
