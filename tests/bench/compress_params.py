#!/usr/bin/env python3
"""A net whose parameters say how they are compressed.

    compress_params.py NET.prototxt AUTO.csv NAME NODES "FIELDS"

AUTO.csv has rows net,nodes,parameter,codec,exchange, a parameter as `layer[index]`. To each layer of NET
that has some, `param { compress { } }` is added, with FIELDS besides codec and exchange; codecs that
keep nothing back (bf16, fp16) take none of them but min_bytes and warmup_iter.
"""
import csv
import re
import sys


def choices(path, net, nodes):
    """{layer: {index: (codec, exchange)}}"""
    out = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            if row["net"] == net and row["nodes"] == nodes and row["parameter"]:
                layer, index = re.fullmatch(r"(.*)\[(\d+)\]", row["parameter"]).groups()
                out.setdefault(layer, {})[int(index)] = (row["codec"], row["exchange"])
    return out


def message(codec, exchange, fields):
    if codec in ("bf16", "fp16"):
        fields = " ".join(re.findall(r"(?:min_bytes|warmup_iter|local_clip): \S+", fields))
    elif codec in ("topk", "redsync"):
        fields += " exchange: " + exchange.upper()
    return "param { compress { type: %s %s } }" % (codec.upper(), fields)


def main(net, table, name, nodes, fields):
    chosen = choices(table, name, nodes)
    with open(net) as f:
        layers = re.split(r"^(?=layer\s*\{)", f.read(), flags=re.M)
    for k, text in enumerate(layers):
        layer = re.search(r'name:\s*"([^"]*)"', text).group(1)
        if not text.startswith("layer") or layer not in chosen:
            continue
        if re.search(r"\bparam\s*\{", text):
            sys.exit("%s: layer %s has a param already" % (net, layer))
        mine = chosen.pop(layer)
        lines = ["  " + message(*mine[i], fields) if i in mine else "  param { }" for i in range(max(mine) + 1)]
        head, body = text.split("\n", 1) if "\n" in text else (text, "}")
        layers[k] = head + "\n" + "\n".join(lines) + "\n" + body
    if chosen:
        sys.exit("%s: no layer %s" % (net, ", ".join(chosen)))
    sys.stdout.write("".join(layers))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
