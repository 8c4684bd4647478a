"""What commands.py knows of options: for each one that the program says it takes, values that are right and values that are wrong.

A kind is one of File, Out, Count, Real, Choice, Flag, Words. Each draws a right value (right()) and a wrong one with what must come of it
(wrong()): 2, "refused" (2 or 3) or None, where both ends are right.
"""
import os
import re

import drawn_files

OTHER_THAN_COUNTS = ("-1", "5x", "5 ", " 5", "1e400", "nan", "inf", "+3", "9223372036854775808", "99999999999999999999", "0x10", "1e3", "3.5", "--", "\t5")
OTHER_THAN_NUMBERS = ("5x", "5 ", " 5", "1e400", "-1e400", "nan", "inf", "-inf", "1,5", "1e", "e5", "--5", "0x10", "1_0")
BIG = ("2147483648", "4294967298", "9223372036854775807")


def odd_names(draw, name):
    """A name that no one would choose, by which the same file may be called."""
    folder, base = os.path.split(name)
    odd = draw.choice(("a b ", "new\nline ", "\x1b[31m", "\udcff\udcfe", "\u00e4\u20ac", "tab\t", "-", "--x=", "%s%n", "'\"", "$(x)", "c" * 200, "\x7f", "\u009b31m"))
    return os.path.join(folder, odd + base)


def no_file(draw, name):
    """A path where nothing can be read, and what it is."""
    return draw.choice(("nothere", "nothere/" + os.path.basename(name), "labels.txt/below", "/dev/null", "n" * 300, "n" * 5000, "fifo", "new\nline",
                        "\x1b[31mred", "\udcff\udcfe", "a folder", "locked" + os.path.splitext(name)[1], "loop", " ", ".", "/", "empty" + os.path.splitext(name)[1]))


class File:
    def __init__(self, *kinds, many=False, also=(), loose=False, words=()):
        self.kinds, self.many, self.also, self.loose, self.words = kinds, many, also, loose, words

    def right(self, draw):
        if self.also and (not self.kinds or draw.random() < 0.4):
            return draw.choice(self.also)
        return drawn_files.FILES[draw.choice(self.kinds)]

    def wrong(self, draw):
        if self.words and draw.random() < 0.5:
            return draw.choice(self.words), "refused"
        if draw.random() < 0.5:
            kind = draw.choice([k for k in drawn_files.FILES if k not in self.kinds])
            return drawn_files.FILES[kind], None
        name = no_file(draw, self.right(draw))
        return name, None if self.loose or name.startswith("empty") else "refused"


class Out:
    def __init__(self, *ends, folder=False):
        self.ends, self.folder = ends, folder

    def right(self, draw):
        name = "out" + draw.choice(self.ends or ("",))
        return odd_names(draw, name) if draw.random() < 0.25 else draw.choice((name, "b/" + name, "./" + name))

    def wrong(self, draw):
        end = draw.choice(self.ends or ("",))
        bad = ["labels.txt/out" + end, "n" * 300 + end, "n" * 5000 + end, "/proc/out" + end, "loop/out" + end]
        if not self.folder:
            bad += ["a folder", "nothere/out" + end, ".", "/"]
        return draw.choice(bad), "refused"


class Count:
    """most: a larger one must be refused; work: that much is to do, so large ones are not tried."""

    def __init__(self, *right, work=False, wide=False, maybe=()):
        self.values, self.work, self.wide, self.maybe = right, work, wide, maybe

    def right(self, draw):
        return str(draw.choice(self.values))

    def wrong(self, draw):
        if draw.random() < 0.7:
            return draw.choice(OTHER_THAN_COUNTS), 2
        if self.work:
            return "0", None
        value = draw.choice(("0", *BIG))
        return value, None if self.wide or value == "0" else "small"


class Real:
    def __init__(self, *right, bad=("-1",)):
        self.values, self.bad = right, bad

    def right(self, draw):
        return str(draw.choice(self.values))

    def wrong(self, draw):
        return draw.choice((*OTHER_THAN_NUMBERS, *self.bad)), 2


class Choice:
    def __init__(self, words):
        self.words = words.split("|")

    def right(self, draw):
        return draw.choice(self.words)

    def wrong(self, draw):
        word = draw.choice(self.words)
        wrong = draw.choice((word + "x", word[:-1], " " + word, word + " ", word + "|", "|", "|".join(self.words), word.swapcase(), word * 2000, "\n" + word,
                             word + "\x1b[1m"))
        return wrong, None if wrong in self.words else 2


class Flag:
    def right(self, draw):
        return draw.choice((None, None, "true", "false", "yes", "0"))

    def wrong(self, draw):
        return draw.choice(("maybe", "TRUE", "2", " true", "truex", "-")), 2


class Words:
    """Right and wrong ones; text: all is taken."""

    def __init__(self, *right, bad=(), text=False):
        self.words, self.bad, self.text = right, bad, text

    def right(self, draw):
        return draw.choice(self.words)

    def wrong(self, draw):
        if self.bad and draw.random() < 0.75:
            return draw.choice(self.bad), 2
        word = draw.choice(self.words)
        return draw.choice((word + "\n", word + ",", "," + word, word + "\x07", word[:-1] + "\udcff", (word * 3000)[:30000], " ", ",", "\n", "=")), None


SET = Words("base_lr=0.02", "momentum=0.5", "batch_size=2", "max_iter=3", "comm.bucket_mb=1", "layer[ip].inner_product_param.num_output=11", bad=(
    "base_lr", "=5", "base_lr=", "base_lr=5x", "base_lr=nan", "base_ler=1", "layer[nope].name=x", "batch_size=0", "batch_size=5x", "batch_size=-1",
    "batch_size= 5", "max_iter=-1", "max_iter=1e400", "max_iter=9223372036854775808", "layer[ip]=3", "layer[ip", "layer[].name=x", "layer[ip].x=1",
    "layer[ip].inner_product_param.num_output=99999999999", "[", "a\nb=1", "base_lr=0.1\nmomentum=7x", "comm.bucket_mb=x", "comm=1", "base_lr.x=1", "max_iter=3.5",
    "base_lr=0.01 momentum: 5x", "test_iter=x", "comm.allreduce=ring ring", "random_seed=1e3"))
COMPRESSION = Words("none", "bf16", "topk:density=0.1", "redsync:density=0.01,exchange=allgather", bad=(
    "zip", "topk:densty=1", "topk:density=5x", "topk:density=2", "topk:density=-1", "topk:density=nan", ":", "topk:density", "topk:=1", "topk:density=0.1,,",
    "topk density", "bf16:density=0.1x", "top\nk"))
ALLREDUCE = Words("auto", "ring", "tree", "tree<64K,rhd<4M,hier", bad=("rong", "tree<", "<4K", "tree<64K", "tree<64X,ring", ",", "ring,tree", "tree<4M,rhd<64K,hier",
                                                                       "tree<-1,ring", "tree<99999999999999999999,ring", "ring "))
TOPOLOGY = Words("auto", "1x1", "1x1", bad=("0x1", "1x", "x", "nowhere", "-1x2", "1x1x", "1x 1", "slurm:nothere", "99999999999x1", "1x0", "labels.txt", ".", "fifo",
                                             "slurm:", "1X1", "1x1 "))
MACHINE = Words("daint", "ethernet_100g", "machine.prototxt", bad=("diant", "nothere.prototxt", "labels.txt", ".", "fifo", "loop", "/dev/null", "daint ", "two:", "torus:0x4",
                                                                   "torus:4xx", "torus:", "torus:99999x99999", "n" * 5000))
SHAPE = Words("1x28x28", "data:1x28x28", bad=("1x2x", "0x0x0", "axb", "1x-2x3", "data:", ":1x2x3", "1x28x28x", "1x99999999999999999999x2", "1x28x28 ", " 1x28x28",
                                             "data:1x28x28,", "1xx28", "x"))
LIMITS = Words("300,15", "1e3,20.5", bad=("300", "300,", "a,b", "-1,2", "0,0", "1,2,3", "nan,1", "1,inf", "300;15", "1e400,1", ",", "300, 15x"))
SPAN = Words("1-2", "0-3", bad=("2-1", "1", "-", "a-b", "1-2x", "1-", "-1-2", "1--2", "1-99999999999999999999", "1-2-3", "1- 2"))
PATTERN = Words("gpt2", "llama3", bad=("gpt3", "GPT2", "gpt2 ", "gpt2x"))
SIZES = Words("1K", "4,64", bad=("1K,", "x", "1Q", "-4", "4K,,8", "99999999999999999999", "1KK", "4 K", "0", ","))
PLACEMENT = Words("block", "random:3", "cyclic", bad=("random:", "random:x", "ring", "random:-1", "random:3x", "block,cyclic"))
WEIGHTS = File("weights", "caffemodel", "npz", loose=False)
GPU_WORDS = ("0", "all")
STAGES = Words("one", "one,two")
OUT_JSON = Out(".json")
THREADS, SEED = Count(1, 2), Count(0, 1, 12, wide=True)
START = Count(0, 600, wide=True)
SERVED_PARALLEL = File("tensor plan", also=("tensor:1",), words=("tensor:x", "tensor:0", "tensor:", "tensor:-1", "tensor:1x", "tensor:99999999999999999999"))

ANY = {  # option: its rule in every verb that has none of its own below; those of choices and flags come from --help
    "log": None, "set": SET, "compression": COMPRESSION, "allreduce": ALLREDUCE, "topology": TOPOLOGY, "machine": MACHINE, "data_shape": SHAPE, "limits": LIMITS,
    "trace_iterations": SPAN, "pattern": PATTERN, "placement": PLACEMENT, "solver": File("solver"), "model": File("net"), "weights": WEIGHTS, "json": OUT_JSON,
    "trace": Out(".json"), "metrics": Out(".jsonl"), "tensorboard": Out("", folder=True), "csv": Out(".csv"), "plot": Out(".svg"), "dot": Out(".dot"),
    "report": Out(".json"), "seed": SEED, "threads": THREADS, "start_seconds": START, "level": Count(0, 1), "stage": STAGES, "global_batch_size": Count(4, 8),
    "iterations": Count(1, 2, work=True), "gpu": Words(*GPU_WORDS, bad=("x", "-1", "0x", "99999999999", "all ")), "memory_data": File("h5", "h5 list"),
    "stage_dir": Out("", folder=True), "parallel": File("plan"), "run": File("run"), "to": Out(".h5"), "max_tokens": Count(1, 5, work=True),
    "temperature": Real(0, 0.5, bad=("-1",)), "top_p": Real(0.5, 1, bad=("-1", "2", "0")), "prompt": Words("the cat", "\u00e4 \u20ac", text=True),
    "tokenizer": File("tokenizer", also=("bytes",)), "from": File("sets"), "profile": File("profile"), "images_per_s": Real(100, 2.5, bad=("0", "-1")),
    "ranks": Count(1, 2), "nodes": Count(1, 2), "ranks_per_node": Count(1, 2), "repeat": Count(1, 2, work=True), "plan": Out(".plan"), "blobs": Words(
        "ip", "conv,ip", bad=("nope", "ip,,conv", "ip,nope", "ip conv", "ip,")), "files": File("picture", "pictures"), "name": Words("tiny", bad=("a/b", "\udcff")),
    "force": None, "shards": Count(1, 2, maybe=(0,)), "stripe": Count(1, 7), "mean": Out(".binaryproto"), "root": File("here"), "list": File("list"),
    "labels": File("labels", loose=True),
}
OWN = {  # of one verb
    "new from": File(also=("quick", "lenet", "./model"), words=("qick", "nothere/model", "..", "len\net")), "new data": File("sets"), "new to": Out("", folder=True),
    "new tokenizer": File("tokenizer", also=("bytes",), loose=True), "new weights": File("weights", "npz", loose=True),
    "train snapshot": File("state", also=("auto",)), "train stage": Out("", folder=True), "train plan": Out(".plan"), "train run": Out("", folder=True),
    "train iterations": Count(2, 3, work=True),
    "find_rate from": Real("1e-5", 0.1, bad=("0", "-1")), "find_rate to": Real(1, 0.5, bad=("0", "-1")), "find_rate iterations": Count(10, 12, work=True),
    "sweep sweep": File("sweep"), "sweep to": Out("", folder=True), "sweep only": Count(1, 2), "sweep job_array": Out(".sh"), "report runs": File("run", "metrics"),
    "report to": Out(".html"), "generate model": File("words deploy"), "generate weights": File("words weights"), "generate set": Words(
        "layer[qkv].inner_product_param.num_output=24", bad=SET.bad), "serve model": File("deploy"), "serve listen": Words(
        "127.0.0.1:0", "unix:sock", bad=(":", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "unix:", "127.0.0.1:-1", "127.0.0.1:0x", "1.2.3:0", "[::1", "n\n:0")),
    "serve api_key_file": File("keys", loose=True), "serve max_queue": Count(1, 256), "serve max_batch_tokens": Words("AUTO", "64", bad=("auto", "0", "-1", "5x", "1e3", "")),
    "serve kv_mb": Count(1, 8), "serve max_wait_ms": Real(0, 2.5), "serve deadline_ms": Real(1000, bad=("-1",)), "serve watchdog_seconds": Count(0, 300),
    "serve parallel": SERVED_PARALLEL, "time dump_batches": Out(".npz"), "time roofline": Out(".svg"), "time stage": STAGES,
    "plan chain": File("chain"), "plan pipeline": File("pipeline"), "plan memory_gib": Real(1, 0.5, bad=("0", "-1")), "plan largest": Words("layers", bad=("layer", "LAYERS", "5")),
    "plan tiers": Words("device,host", "device,host,file", bad=("device", "host", "file,device", "device,hots", "device,host,", ",")), "plan usable": Real(
        0.9, 1, bad=("0", "-1", "1.5")), "plan state_bytes": Count(4, 12), "plan top": Count(1, 3), "plan out": Out(".plan"), "plan fix": Words(
        "data", "tensor=1", "stages=1", "micro_batches=1", bad=("data=2", "tensor=x", "tensor=", "stages=0", "fish", "tensor=-1", "tensor=2x", "tensor", "=2",
                                                                "stages=99999999999999999999")),
    "info data": File("lmdb", "h5"), "info picture": Out(".png"), "info topology": Words("daint", "machine.prototxt", bad=MACHINE.bad[:-1]), "info manual": Words(
        "train", "cortado", bad=("trian", "TRAIN", "train ", "--")),
    "bench comm sizes": SIZES, "bench comm algorithm": Words("all", "ring", "tree,ring", bad=("rong", "ring,", "ring,,tree", "all,ring", ",", "RING")),
    "bench comm algorithms": Words("all", "ring", bad=("rong", "ring,", ",")), "bench comm fit": Out(".prototxt"),
    "bench codec count": Count(1000, work=True), "bench codec density": Real(0.01, 1, bad=("0", "-1", "2")), "bench serve model": File("deploy"),
    "bench serve shapes": Words("2", "1", bad=("0", "x", "2x", "-1", "1,,2", "1x", "x4", "99999999999", "1,")), "bench serve scores": Out(".txt"), "bench serve pass": Out(".json"),
    "bench serve parallel": SERVED_PARALLEL,
    "scale net": Words("resnet20", bad=("resnet21", "../x", "")), "scale nodes": Words("1", "1,2", "1,2,...,8", bad=(
        "0", "1,,2", "a", "1,2,...", "...,4", "2x", "-1", "1,99999999999999999999", "1,2,...,5x", ",", "1 2")), "scale ranks": Words("1", bad=(
            "0", "1,,2", "a", "1x", "-1", ",", "99999999999999999999")), "scale mode": Words("weak", "strong", "weak,strong", bad=("weka", "weak,", "weak,weka", ",", "WEAK")),
    "scale kind": Words("modelled", bad=("modeled", "modelled,", ",", "modelled,x")), "scale sizes": SIZES, "scale repeats": Count(1, work=True),
    "scale batch": Count(4, 8), "scale global_batch": Count(8), "scale ablate": Words("flat", "hier", "overlap-off", "compression=bf16", "allreduce=ring", bad=(
        "falt", "flat,", "compression=", "compression=zip", "allreduce=rong", "set=", "set=base_ler=1", "read=", "placement=x", ",")),
    "scale launcher": Words("mpirun --oversubscribe -np {ranks}", text=True), "scale jitter_seed": Count(1, 5, wide=True), "scale read": Words(
        "bytes=100,node=1", bad=("bytes", "bytes=x", "fish=1", "bytes=1,,", "bytes=-1", "bytes=nan", "node=1x", ",")), "scale simulate_to": Count(0, 1024),
    "scale warmup": Count(1, work=True), "scale jobs": Count(1, 2), "scale memory_gib": Count(1, 4), "scale limit": Count(60, wide=True), "scale out": Out("", folder=True),
    "scale report": File("study"), "scale question": Words("Is it fast?", text=True), "scale note": Words("shared", text=True),
    "simulate bench": SIZES, "simulate nodes": Count(1, 2), "simulate pass": File("pass"), "simulate batch": Count(4), "simulate warmup": Count(1, work=True),
    "simulate jitter_seed": Count(1, wide=True), "simulate algorithm": Words("all", "ring", bad=("rong",)),
    "convert mnist from": File("mnist"), "convert mnist to": Out("", folder=True), "convert cifar10 from": File("cifar"), "convert cifar10 to": Out("", folder=True),
    "convert images from": File("classes"), "convert images to": Out("", folder=True), "convert images validation": Real(0.3, 0.5, bad=("-1", "1", "2")),
    "convert images resize": Words("8x8", "5x7", bad=("8", "8x", "x8", "0x8", "8x8x8", "-1x3", "8 x 8", "99999999999x1", "8x8 ", " 8x8", "+8x8", "8x+8", "8x 8")),
    "convert images skip_broken": Count(0, 1, wide=True), "convert annotated list": File("annotated"), "convert annotated from": File("book"),
    "convert annotated labelmap": File("labelmap", loose=True), "convert annotated to": Out("", folder=True),
    "convert text from": File("text", loose=True), "convert text to": Out(".bin", folder=True), "convert text train_bpe": Count(260, 270), "convert text vocabulary": File("vocabulary", loose=True),
    "convert text words": Count(5, 10), "convert text tokenizer": File("tokenizer", also=("bytes", "char"), loose=True), "convert tokens from": File("tokens"),
    "convert tokens to": Out(".txt"), "convert model from": File("weights", "caffemodel", "npz"), "convert model to": Out(".caffemodel", ".h5", ".npz", ".safetensors"),
    "convert model net": File("deploy", "net"), "convert mean from": File("lmdb"), "convert mean to": Out(".binaryproto"), "convert net from": File("net", "old net", "deploy"),
    "convert net to": Out(".prototxt"), "convert net weights_to": Out(".npz"), "convert net sizes": Words("batch:2", bad=("batch", "batch:", "batch:x", ":2", "batch:2,,", "batch:-1")),
    "convert solver from": File("solver"), "convert solver to": Out(".prototxt"), "convert digits to": Out("", folder=True), "convert digits count": Count(20, 30, work=True),
}
BASES = {  # verb: command lines that are right
    "new": ("--from=quick --data=data --to=out",),
    "train": ("--solver=solver.prototxt --overwrite", "--solver=solver.prototxt --overwrite", "--solver=words_solver.prototxt --overwrite"),
    "find_rate": ("--solver=solver.prototxt --iterations=10",), "sweep": ("grid.sweep --to=out", "grid.sweep --to=swept", "grid.sweep --to=swept --table"),
    "test": ("--model=net.prototxt --weights=s_iter_4.caffemodel.h5 --iterations=1", "--run=run", "--model=net.prototxt --weights=w.npz --report=out.json"),
    "predict": ("--run=run a/1.png", "--model=deploy.prototxt --weights=w.npz a b/1.png --format=json",
                "--model=words_deploy.prototxt --weights=wt_iter_2.caffemodel.h5 --tokenizer=bytes --prompt=the --max_tokens=4"),
    "report": ("run --to=out.html", "run m.jsonl --to=out.html"),
    "extract": ("--model=net.prototxt --weights=w.caffemodel --blobs=ip --to=out.h5 --iterations=1",),
    "generate": ("--model=words_deploy.prototxt --weights=wt_iter_2.caffemodel.h5 --tokenizer=bytes --prompt=the --max_tokens=4",),
    "serve": ("--model=deploy.prototxt --weights=w.npz --check", "--model=words_deploy.prototxt --weights=wt_iter_2.caffemodel.h5 --tokenizer=bytes --kv_mb=8 --check"),
    "time": ("--model=net.prototxt --iterations=1 --limits=false", "--solver=solver.prototxt --iterations=1 --limits=false", "--model=net.prototxt --data --iterations=2"),
    "check": ("--model=net.prototxt", "--solver=solver.prototxt", "--model=net.prototxt --parallel=two.plan --limits=300,15 --machine=ethernet_100g"),
    "plan": ("--model=net.prototxt --ranks=2 --limits=300,15", "--solver=solver.prototxt --ranks=2 --limits=300,15", "--chain=chain.json", "--pipeline=pipeline.json"),
    "info": ("--limits=false", "--layers", "--topology=daint", "--data=data/train_lmdb", "--manual=train", "--completion=zsh", "--data=data/train_lmdb --picture=out.png"),
    "bench comm": ("--sizes=1K --algorithm=ring --repeat=1",), "bench codec": ("--count=1000 --repeat=1",),
    "bench serve": ("--model=deploy.prototxt --weights=w.npz --shapes=1 --repeat=1",),
    "scale": ("--machine=daint --nodes=1,2 --model=net.prototxt --profile=profile.json --kind=modelled --no_bench --out=out", "--report=study"),
    "simulate": ("--machine=daint --nodes=2 --bench=1K",),
    "convert mnist": ("--from=mnist --to=out",), "convert cifar10": ("--from=cifar --to=out",),
    "convert images": ("--from=classes --to=out", "--list=images.txt --to=out", "--list=images.txt --root=. --to=out --resize=8x8"),
    "convert annotated": ("--list=annotated.txt --to=out",),
    "convert text": ("--from=text.txt --to=out.bin --tokenizer=bytes", "--from=book --to=out", "--from=text.txt --to=out.bin --tokenizer=out.json --train_bpe=260"),
    "convert tokens": ("--from=text.bin --to=out.txt --tokenizer=bytes",), "convert model": ("--from=w.npz --to=out.h5", "--from=w.npz", "--from=w.npz --net=deploy.prototxt --to=out.onnx"),
    "convert mean": ("--from=data/train_lmdb --to=out.binaryproto",), "convert net": ("--from=old_net.prototxt --to=out.prototxt", "--from=net.prototxt --to=out.prototxt --deploy",
                                                                                   "--from=w.onnx --to=out.prototxt --weights_to=out.npz"),
    "convert solver": ("--from=solver.prototxt --to=out.prototxt",), "convert digits": ("--to=out --count=20",),
}
REST = {"sweep": "sweep", "predict": "files", "report": "runs"}  # options that may stand without their names
IN_JOB = ("train", "find_rate", "test", "predict", "extract", "generate", "time", "bench comm")  # that MPI starts for


def read(program):
    """{verb: {option: its kind}} of what the program says that it takes. Ends where one has no rule, or where help and completion differ."""
    said = program("info", "--completion=bash")
    taken = {}
    for verb, options in re.findall(r"^    '([a-z0-9_ ]+)'\) options='(.*?)' ;;$", said, re.M):
        names = {word.strip("-=") for word in options.split()} - {"help"}
        told = dict(re.findall(r"^  --([a-z0-9_]+)(?:\[?=(.*?)\]?)?$", program(*verb.split(), "--help"), re.M))
        if names != set(told):
            raise SystemExit(f"{verb}: help and completion differ in {names ^ set(told)}")
        taken[verb] = {name: kind(verb, name, told[name]) for name in told}
        if verb not in BASES:
            raise SystemExit(f"{verb}: no command line that is right")
    if set(taken) != set(BASES):
        raise SystemExit(f"verbs differ: {set(taken) ^ set(BASES)}")
    return taken


def kind(verb, name, value):
    own = OWN.get(f"{verb} {name}")
    if own is not None:
        return own
    if value == "":
        return Flag()
    if "|" in value and not set(value.split("|")) & {"FILE", "DIR", "DIRS", "NAME", "SPEC", "ID", "N", "MODEL"} and ":" not in value:
        return Choice(value)
    if ANY.get(name) is None:
        raise SystemExit(f"{verb} --{name}={value}: no rule for its values")
    return ANY[name]
