"""The steps of a forward that ranks share, a line each: compute, begin or wait, and the layer.

Usage: steps_of.py FILE [profile]

FILE is a trace (its first iteration on rank 0), what `cortado time --phase=TEST --json` wrote (its member "pass", or with
`profile` its list "forward"), or any other with "steps".
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    data = json.load(f)
if "traceEvents" in data:
    names = {"forward": "compute", "begin sum": "begin", "wait for sum": "wait"}
    spans = [e for e in data["traceEvents"] if e["ph"] == "X" and e["pid"] == 0 and e["args"]["iteration"] == 0]
    steps = [(names[e["args"]["kind"]], e["name"]) for e in sorted(spans, key=lambda e: e["ts"]) if e["args"]["kind"] in names]
elif len(sys.argv) > 2:
    names = {"forward": "compute", "sum_begin": "begin", "sum_wait": "wait"}
    steps = [(names[s["kind"]], data["layers"][s["layer"]]["name"]) for s in data["forward"]]
else:
    steps = [(s["step"], s["layer"]) for s in data.get("pass", data)["steps"]]
for step, layer in steps:
    print(step, layer)
