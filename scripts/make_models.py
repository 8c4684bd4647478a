#!/usr/bin/env python3
"""Writes models/: train_val, deploy, solver and README of the nets that scripts/nets describes.

Each net is a function that emits layers in order. lenet, quick and lstm are written by hand; only their README is not.
    scripts/make_models.py            writes models/
    scripts/make_models.py --check    fails where files differ from what it would write
    scripts/make_models.py --public=DIR  writes the deploy nets of scripts/nets/public.py there, and counts
    scripts/make_models.py --counts   prints NAME and the learned parameters that its deploy net must have
"""
import os
import sys
import textwrap

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from nets import classic, compact, dense, inception_v3, public, residual, words  # noqa: E402
from nets.cards import CARDS  # noqa: E402
from nets.solvers import SHORT, SOLVERS  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
NOTE = "# Made by scripts/make_models.py; change it there."
NETS = (
    classic.alexnet, classic.alexnet_bn, classic.caffenet, classic.cifar10_full, classic.googlenet, classic.vgg16,
    classic.vgg16_cifar, classic.vgg19, compact.densenet121, compact.mobilenet_v1, compact.mobilenet_v2,
    compact.squeezenet, dense.fcn8s, dense.ssd300, inception_v3.inception_v3, residual.resnet20, residual.resnet44, residual.resnet50,
    residual.resnet101, residual.resnet152, residual.senet50, words.lstm_large, words.lstm_medium,
)
BY_HAND = {
    "lenet": "Caffe's form of LeNet: LeCun et al., \"Gradient-based learning applied to document recognition\", 1998.",
    "quick": "Caffe's cifar10_quick.",
    "lstm": "Zaremba et al., \"Recurrent neural network regularization\", 2014: the small model, 200 units.",
}


def wrap(text, later=""):
    """Lines of at most 100 characters, as scripts/check_docs.sh wants them; `later` begins all but the first."""
    return textwrap.wrap(text, 100, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)


def readme(name, source):
    title, count, published, data, notes = CARDS[name]
    text = [f"# {title}", "", *wrap(source), "", "| | |", "|---|---|",
            "| learned parameters, deploy net | " + f"{count:,}".replace(",", " ") + " |", f"| published | {published} |", "",
            f"    cortado check --solver=models/{name}/solver.prototxt",
            f"    mpirun -np N cortado train --solver=models/{name}/solver.prototxt", ""]
    for note in filter(None, [data, *notes]):
        text += wrap(f"* {note[0].upper() + note[1:]}{'' if note.endswith('.') else '.'}", "  ")
    return "\n".join(text) + "\n"


def index():
    text = ["# Models", "", *wrap(
                "Made by `scripts/make_models.py` from `scripts/nets`, but for lenet, quick and lstm. `train_val` and `deploy` nets and "
                "`solver`; each folder's README says more."), "",
            "| folder | net | learned parameters | published |", "|---|---|---|---|"]
    for name in sorted([make.__name__ for make in NETS] + list(BY_HAND)):
        title, count, published, *_ = CARDS[name]
        text.append(f"| [{name}]({name}/README.md) | {title} | " + f"{count:,}".replace(",", " ") + f" | {published} |")
    text += ["", *wrap(
        "`tests/cli/test_models.sh` counts the parameters; `tests/models_fall.sh NAME...` trains any of them for 20 iterations on one "
        "batch, and its loss must fall (the small ones in `make test`, all in `make test-long`).")]
    return "\n".join(text) + "\n"


def files():
    yield os.path.join(ROOT, "README.md"), index()
    for make in NETS:
        name, net = make.__name__, make()
        folder = os.path.join(ROOT, name)
        head = [NOTE, f"# {make.__doc__}"]
        yield os.path.join(folder, "train_val.prototxt"), "\n".join(head + net.text()) + "\n"
        yield os.path.join(folder, "deploy.prototxt"), "\n".join(head + net.deploy()) + "\n"
        for solver, settings in {"solver.prototxt": SOLVERS[name], **SHORT.get(name, {})}.items():
            yield os.path.join(folder, solver), (
                f'{NOTE}\nnet: "train_val.prototxt"\n{settings}snapshot_prefix: "{name}"\nsolver_mode: CPU\n')
        yield os.path.join(folder, "README.md"), readme(name, make.__doc__)
    for name, source in BY_HAND.items():
        yield os.path.join(ROOT, name, "README.md"), readme(name, source)


def differs(path, text):
    try:
        with open(path, encoding="ascii") as f:
            same = f.read() == text
    except OSError:
        same = False
    if not same:
        print(f"{os.path.relpath(path)} is not what make_models.py writes", file=sys.stderr)
    return not same


def write_public(folder):
    with open(os.path.join(folder, "counts"), "w", encoding="ascii") as counts:
        for name, (make, count) in public.NETS.items():
            with open(os.path.join(folder, name + ".prototxt"), "w", encoding="ascii") as f:
                f.write("\n".join(make().deploy()) + "\n")
            counts.write(f"{name} {count}\n")
    return 0


def write_models():
    for path, text in files():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    return 0


def write_counts():
    for name in [make.__name__ for make in NETS] + list(BY_HAND):
        print(name, CARDS[name][1])
    return 0


def main(arguments):
    if not arguments:
        return write_models()
    if arguments == ["--check"]:
        return int(any([differs(path, text) for path, text in files()]))
    if arguments == ["--counts"]:
        return write_counts()
    if len(arguments) == 1 and arguments[0].startswith("--public="):
        return write_public(arguments[0].split("=", 1)[1])
    print(__doc__.strip(), file=sys.stderr)
    return 0 if arguments in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
