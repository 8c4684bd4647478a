"""What a trace of `bench serve --parallel` says of the sums of a pass.

Usage: sums_of.py TRACE

Prints a line a sum of rank 0's first traced pass, in the order in which they are waited for: its layer, and the
layers of type Attention and InnerProduct that ran on while it travelled.
"""
import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        spans = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X" and e["pid"] == 0 and e["args"]["iteration"] == 0]
    spans.sort(key=lambda e: e["ts"])
    begun = {}
    for at, e in enumerate(spans):
        kind, layer = e["args"]["kind"], e["name"]
        if kind == "begin sum":
            begun[layer] = at
        elif kind == "wait for sum":
            between = spans[begun.pop(layer) + 1:at]
            print(layer, *[s["name"] for s in between if s["args"].get("type") in ("Attention", "InnerProduct")])
    if begun:
        sys.exit(f"nobody waits for {sorted(begun)}")


main()
