#!/usr/bin/env python3
"""Writes a GPT whose sums over ranks hide: Kraken's narrow transformers side by side, and their rivals.

Usage: scripts/nets/kraken.py --kind=standard|parallel|ladder|kraken --to=DIR [--like=gpt_char] [--ways=4]
                              [--ranks=N] [--width=N] [--blocks=N] [--heads=N] [--tokens=N] [--seq_len=N] [--batch=N]

DIR gets train_val.prototxt, deploy.prototxt and solver.prototxt. With --ranks it also gets deploy_parallel.prototxt, by which
so many ranks answer together, and, for the kind kraken, parallel.prototxt, by which they train: they deal out the ways, or
heads and what lies between products. --like names the GPT of models/ whose shape, data
and solver the net has; the options behind it change one number of the shape. docs/hidden-sums.md has the formulas.
"""
import argparse
import os
import sys

if __package__ in (None, ""):
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "nets"
    import nets  # noqa: F401

from .language import SHAPES, Gpt, gpt  # noqa: E402
from .solvers import SOLVERS  # noqa: E402

NUMBERS = ("width", "blocks", "heads", "tokens", "seq_len", "batch")
ALIKE = 0.02  # of the standard net's parameters: how far a net may be from them


def parameters(shape, ways=1):
    """Learned ones of the standard net, or of `ways` narrow ones with one table of tokens."""
    d, inner = shape.width, shape.inner or 4 * shape.width
    block = 4 * d * (d + 1) + 2 * d * inner + inner + d + 4 * d  # attention's products, the two others, two norms
    return (shape.tokens + shape.seq_len + 2) * d + shape.blocks * ways * block


def standard(shape, _):
    """As GPT-2: two sums a block, each waited for at once."""
    return gpt(shape)


def parallel(shape, _):
    """Attention and products read one norm, and their sum is one (Chowdhery et al., "PaLM", 2022)."""
    net = Gpt(shape, 2 * shape.blocks)
    with net.repeat(shape.blocks, "h%d_", "x", "x"):
        normed = net.norm("ln1", "x", 1e-5)
        net.layer("sum", "Eltwise", ["x", net.attend(normed), net.feed(normed)], ["x"])
    return net.end("x")


def ladder(shape, _):
    """Each branch reads the residual without the branch before it, whose sum travels meanwhile (Zhang et al.,
    "Ladder-residual", arXiv 2501.06589)."""
    net = Gpt(shape, 2 * shape.blocks)
    residual, late = "x", None  # `late`: the branch that the residual has not got yet
    for block in range(shape.blocks):
        at = f"h{block}_"
        for norm, branch in (("ln1", net.attend), ("ln2", net.feed)):
            new = branch(net.norm(f"{at}{norm}", residual, 1e-5), at)
            if late:
                residual = net.eltwise(f"{at}{norm}_sum", residual, late)
            late = new
    return net.end(net.eltwise("sum_f", residual, late))


def narrow(shape, ways):
    """The shape of each of `ways` transformers: narrower by the root of their number, in multiples of 8. What lies
    between the two products makes up for the parameters that are then missing, or too many."""
    width = max(8, 8 * round(shape.width / ways ** 0.5 / 8))
    head = shape.width // shape.heads
    heads = min((h for h in range(1, width + 1) if width % h == 0), key=lambda h: (abs(width // h - head), h))
    wanted = parameters(shape)
    small = shape._replace(width=width, heads=heads)
    small = min((small._replace(inner=inner) for inner in range(8, 8 * shape.width + 1, 8)),
                key=lambda s: abs(parameters(s, ways) - wanted))
    found = parameters(small, ways)
    if abs(found - wanted) > ALIKE * wanted:
        sys.exit(f"kraken.py: {ways} ways of width {width} have {found} parameters at the nearest, the standard net "
                 f"{wanted}: more than {ALIKE:.0%} apart; take a wider net, or fewer ways")
    return small


def sum_of(net, name, blobs):
    return net.eltwise(name, *blobs) if len(blobs) > 1 else blobs[0]


def kraken(shape, ways):
    """Side by side, one sum a block, which travels while the next attention reads what is not summed yet (Prabhakar
    et al., "Kraken", arXiv 2408.07802)."""
    shape = narrow(shape, ways)
    net = Gpt(shape, 2 * shape.blocks * ways)
    share = f"eltwise_param {{ coeff: {1 / ways:.9g} coeff: 1 coeff: 1 }}"
    read, total = ["x"] * ways, "x"
    for block in range(shape.blocks):
        if block > 0:
            total = sum_of(net, f"h{block}_sum", read)
        branch = [net.attend(net.norm(f"h{block}_w{i}_ln1", read[i], 1e-5), f"h{block}_w{i}_") for i in range(ways)]
        for i in range(ways):
            at = f"h{block}_w{i}_"
            middle = net.eltwise(f"{at}middle", total, branch[i])
            fed = net.feed(net.norm(f"{at}ln2", middle, 1e-5), at)
            read[i] = net.layer(f"{at}y", "Eltwise", [total, branch[i], fed], [f"{at}y"], share)
    return net.end(sum_of(net, "sum_f", read))


KINDS = {make.__name__: make for make in (standard, parallel, ladder, kraken)}


def options(words):
    parser = argparse.ArgumentParser(prog="kraken.py", description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--to", required=True, metavar="DIR")
    parser.add_argument("--like", choices=SHAPES, default="gpt_char")
    parser.add_argument("--ways", type=int, default=4)
    parser.add_argument("--ranks", type=int)
    for number in NUMBERS:
        parser.add_argument(f"--{number}", type=int)
    given = parser.parse_args(words)
    for name in ("ways", "ranks", *NUMBERS):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    changed = {name: getattr(given, name) for name in NUMBERS if getattr(given, name)}
    shape = SHAPES[given.like]._replace(**changed)
    if given.batch:
        shape = shape._replace(test_batch=given.batch)
    if shape.width % shape.heads:
        parser.error(f"--heads must divide the width: {shape.width} by {shape.heads}")
    if given.ranks and given.kind == "kraken" and given.ranks > given.ways:
        parser.error(f"--ranks deals out the ways of --kind=kraken: 1 to {given.ways}")
    if given.ranks and given.kind != "kraken" and shape.heads % given.ranks:
        parser.error(f"--ranks must divide the heads: {shape.heads} by {given.ranks}")
    return given, shape


def on_ranks(ranks, batch, first, last, entries):
    """A parallel file. Layers without an entry go with what they read."""
    yield f"ranks: {ranks} global_batch: {batch}"
    yield f'stage {{ first: "{first}" last: "{last}" ' + " ".join(f"rank: {r}" for r in range(ranks)) + f" tensor: {ranks}"
    for name, split in entries:
        yield f'  layer {{ name: "{name}" split: {split} }}'
    yield "}"


def dealt(ranks, ways):
    return [(f"h0_w{i}_ln1", f"ONE part: {i * ranks // ways}") for i in range(ways)]


def to_train(ranks, ways, batch):
    entries = [("wte", "INPUT"), ("head", "OUTPUT"), ("loss", "OUTPUT"), *dealt(ranks, ways)]
    return on_ranks(ranks, batch, "wte", "loss", entries)


def to_answer(kind, ranks, ways, blocks):
    """Of the deploy net. Sequences side by side are one row of tokens, so no layer goes by samples."""
    entries = [(name, "REPLICATE") for name in ("input", "wte", "wpe", "ln_f", "head")]
    if kind == "kraken":
        entries += dealt(ranks, ways)
    else:
        shared = (("attn_qkv", "OUTPUT"), ("attn", "HEADS"), ("attn_proj", "INPUT"), ("fc", "OUTPUT"), ("proj", "INPUT"))
        entries += [(f"h{block}_{name}", split) for block in range(blocks) for name, split in shared]
    return on_ranks(ranks, 1, "input", "head", entries)


def main(words):
    given, shape = options(words)
    net = KINDS[given.kind](shape, given.ways)
    title = f"{given.kind}, {given.ways} ways" if given.kind == "kraken" else given.kind
    said = " ".join(f"--{name}={value}" for name, value in vars(given).items() if value and name != "to")
    head = [f"# {shape.name} as {title}: scripts/nets/kraken.py {said}"]
    os.makedirs(given.to, exist_ok=True)
    files = {
            "train_val": head + net.text(), "deploy": head + net.deploy(),
            "solver": head + ['net: "train_val.prototxt"', SOLVERS[given.like].rstrip("\n"), f'snapshot_prefix: "{given.kind}"',
                              "solver_mode: CPU"]}
    if given.ranks:
        files["deploy_parallel"] = head + list(to_answer(given.kind, given.ranks, given.ways, shape.blocks))
    if given.ranks and given.kind == "kraken":
        files["parallel"] = head + list(to_train(given.ranks, given.ways, shape.batch))
    for name, lines in files.items():
        with open(os.path.join(given.to, f"{name}.prototxt"), "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
