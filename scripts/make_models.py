#!/usr/bin/env python3
"""Writes models/: train_val, deploy, solver and README of the nets that scripts/nets describes.

Each net is a function that emits layers in order. lenet, quick and lstm are written by hand; only their README is not.
git keeps the READMEs, not the nets: `make` writes those. models/.made lists what it wrote, with SHA-256 sums.
    scripts/make_models.py            writes the nets and the READMEs
    scripts/make_models.py --nets     writes the nets alone: what `make` runs
    scripts/make_models.py --check    fails where files differ from what it would write
    scripts/make_models.py --public=DIR  writes the deploy nets of scripts/nets/public.py there, and counts
    scripts/make_models.py --counts   prints NAME and the learned parameters that its deploy net must have
"""
import hashlib
import os
import sys
import textwrap

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from nets import classic, compact, dense, inception_v3, language, public, residual, words  # noqa: E402
from nets.cards import CARDS  # noqa: E402
from nets.solvers import SHORT, SOLVERS  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
LIST = os.path.join(ROOT, ".made")
NOTE = "# Made by scripts/make_models.py; change it there."
NETS = (
    classic.alexnet, classic.alexnet_bn, classic.caffenet, classic.cifar10_full, classic.googlenet, classic.vgg16,
    classic.vgg16_cifar, classic.vgg19, compact.densenet121, compact.mobilenet_v1, compact.mobilenet_v2,
    compact.squeezenet, dense.fcn8s, dense.ssd300, inception_v3.inception_v3, residual.resnet20, residual.resnet44, residual.resnet50,
    residual.resnet101, residual.resnet152, residual.senet50, words.lstm_large, words.lstm_medium,
    language.bert_base, language.bert_mini, language.gpt2, language.gpt2_medium, language.gpt2_large, language.gpt2_xl, language.gpt_char,
    language.llama_135m, language.minilm,
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
    text = ["# Models", "", "Each folder holds the nets `train_val.prototxt` and `deploy.prototxt`, and `solver.prototxt`.",
            "`make` writes them with `scripts/make_models.py` from `scripts/nets`. Those of lenet, quick and lstm",
            "are written by hand. Each folder's README says more.", "",
            "| folder | net | learned parameters | published |", "|---|---|---|---|"]
    for name in sorted([make.__name__ for make in NETS] + list(BY_HAND)):
        title, count, published, *_ = CARDS[name]
        text.append(f"| [{name}]({name}/README.md) | {title} | " + f"{count:,}".replace(",", " ") + f" | {published} |")
    text += ["", *wrap(
        "`tests/cli/test_models.sh` counts the parameters; `tests/models_fall.sh NAME...` trains any of them for 20 iterations on one "
        "batch, and its loss must fall (the small ones in `make test`, all in `make test-long`).")]
    return "\n".join(text) + "\n"


def nets():
    """Path and text of each net and solver."""
    for make in NETS:
        name, net = make.__name__, make()
        folder = os.path.join(ROOT, name)
        head = [NOTE, f"# {make.__doc__}"]
        yield os.path.join(folder, "train_val.prototxt"), "\n".join(head + net.text()) + "\n"
        yield os.path.join(folder, "deploy.prototxt"), "\n".join(head + net.deploy()) + "\n"
        for solver, settings in {"solver.prototxt": SOLVERS[name], **SHORT.get(name, {})}.items():
            yield os.path.join(folder, solver), (
                f'{NOTE}\nnet: "train_val.prototxt"\n{settings}snapshot_prefix: "{name}"\nsolver_mode: CPU\n')


def pages():
    """Path and text of each README."""
    yield os.path.join(ROOT, "README.md"), index()
    for name, source in [(make.__name__, make.__doc__) for make in NETS] + list(BY_HAND.items()):
        yield os.path.join(ROOT, name, "README.md"), readme(name, source)


def content(path):
    """Of a file; None where there is none."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def digest(data):
    return hashlib.sha256(data).hexdigest()


def differs(path, text):
    same = content(path) == text.encode("ascii")
    if not same:
        print(f"{os.path.relpath(path)} is not what make_models.py writes", file=sys.stderr)
    return not same


def write_whole(path, text):
    """The file has all of the text, or is as it was."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as f:
            f.write(text)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


def listed():
    """Path and sum of each net that the last run wrote."""
    lines = (content(LIST) or b"").decode("ascii", "replace").splitlines()
    return {os.path.join(ROOT, words[1]): words[0] for words in map(str.split, lines) if len(words) == 2}


def set_aside(path):
    os.replace(path, path + "~")
    print(f"{os.path.relpath(path)} was changed by hand: now in {os.path.basename(path)}~", file=sys.stderr)


def write_nets():
    """A net that somebody changed by hand stays until its text here changes, and is then set aside."""
    made = {path: text.encode("ascii") for path, text in nets()}  # all of them, before the first is written
    last = listed()
    for path, text in made.items():
        there = content(path)
        if there == text:
            continue
        if there is not None and digest(there) != last.get(path):
            if digest(text) == last.get(path):
                continue
            set_aside(path)
        write_whole(path, text)
    for path in last.keys() - made.keys():
        there = content(path)
        if there is not None and digest(there) == last[path]:
            os.remove(path)
    write_whole(LIST, "".join(f"{digest(text)}  {os.path.relpath(path, ROOT)}\n" for path, text in made.items()).encode("ascii"))


def write_pages():
    for path, text in pages():
        if content(path) != text.encode("ascii"):
            write_whole(path, text.encode("ascii"))


def write_public(folder):
    with open(os.path.join(folder, "counts"), "w", encoding="ascii") as counts:
        for name, (make, count) in public.NETS.items():
            with open(os.path.join(folder, name + ".prototxt"), "w", encoding="ascii") as f:
                f.write("\n".join(make().deploy()) + "\n")
            counts.write(f"{name} {count}\n")
    return 0


def write_models(with_pages):
    try:
        write_nets()
        if with_pages:
            write_pages()
    except OSError as error:
        print(f"make_models.py: {error.filename or ROOT}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def write_counts():
    for name in [make.__name__ for make in NETS] + list(BY_HAND):
        print(name, CARDS[name][1])
    return 0


def main(arguments):
    if arguments in ([], ["--nets"]):
        return write_models(with_pages=not arguments)
    if arguments == ["--check"]:
        return int(any([differs(path, text) for path, text in [*nets(), *pages()]]))
    if arguments == ["--counts"]:
        return write_counts()
    if len(arguments) == 1 and arguments[0].startswith("--public="):
        return write_public(arguments[0].split("=", 1)[1])
    print(__doc__.strip(), file=sys.stderr)
    return 0 if arguments in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
