"""What commands.py draws from: small files of every kind, made once by the program itself, and odd things in their place."""
import json
import os
import random
import struct
import sys
import zlib

import job

NET = """name: "Tiny"
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.00390625 }
  data_param { source: "data/train_lmdb" backend: LMDB batch_size: 4 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.00390625 }
  data_param { source: "data/test_lmdb" backend: LMDB batch_size: 4 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 5 stride: 4 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """net: "net.prototxt" test_iter: 2 test_interval: 4 base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 4 display: 1
snapshot: 2 snapshot_prefix: "s" solver_mode: CPU random_seed: 7
"""
WORDS = """name: "Words" %s
layer { name: "wte" type: "Embed" bottom: "tokens" top: "x" param { name: "wte" }
  embed_param { input_dim: 259 num_output: 8 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv"
  inner_product_param { num_output: 24 axis: 2 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "attn" type: "Attention" bottom: "qkv" top: "attn" attention_param { num_heads: 2 causal: true } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "y" }
layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" param { name: "wte" }
  inner_product_param { num_output: 259 axis: 2 bias_term: false } }
"""
READS = 'layer { name: "data" type: "TokenData" top: "tokens" top: "next" token_data_param { source: "text.bin" batch_size: 2 seq_len: 16 vocabulary: 259 } }'
ASKED = 'layer { name: "in" type: "Input" top: "tokens" input_param { shape { dim: 1 dim: 64 } } }'
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }\n'
TEXTS = {
    "net.prototxt": NET, "solver.prototxt": SOLVER,
    "words.prototxt": WORDS % READS + LOSS, "words_deploy.prototxt": WORDS % ASKED,
    "words_solver.prototxt": 'net: "words.prototxt" type: "Adam" base_lr: 0.01 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "wt" random_seed: 3\n',
    "old_net.prototxt": 'name: "Old" input: "data" input_dim: 1 input_dim: 1 input_dim: 28 input_dim: 28\n'
                        'layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip" inner_product_param { num_output: 3 } }\n',
    "grid.sweep": 'solver: "solver.prototxt" metric: "accuracy" at_once: 1\nvary { field: "base_lr" value: "0.01" value: "0.02" }\n',
    "chain.json": json.dumps({"strategies": 1, "limit": 15, "in_flight": 1, "blocks": [
        {"time_s": [1], "again_s": [0.5], "weight": [1], "kept": [4], "input": [1]}] * 2, "reshard_s": [None, [[0.25]]]}),
    "pipeline.json": json.dumps({"time_s": [[1, 2, 3], [1, 2, 3]], "cut_s": [[10, 0.5, 0]], "data_s": [[5, 0, 0], [0, 0, 4]],
                                 "micro_batches": 3}),
    "keys.txt": "a-key\nanother\n",
    "labels.txt": "".join(f"class {i}\n" for i in range(10)),
    "labelmap.txt": "background\nred\ngreen\n",
    "images.txt": "a/1.png 0\na/2.png 0\nb/1.png 1\n",
    "annotated.txt": "a/1.png 1.xml\na/2.png 1.xml\n",
    "1.xml": "<annotation><size><width>8</width><height>8</height><depth>3</depth></size><object><name>red</name>"
             "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></object></annotation>\n",
    "h5_list.txt": "data5/train.h5\n",
}
MADE = (  # by these, in this order
    "convert digits --to=data --count=60 --seed=3", "convert digits --to=data5 --backend=hdf5 --count=40",
    "train --solver=solver.prototxt --run=run --trace=trace.json --trace_iterations=1-2",
    "train --solver=solver.prototxt --metrics=m.jsonl",
    "convert model --from=s_iter_4.caffemodel.h5 --to=w.caffemodel", "convert model --from=w.caffemodel --to=w.npz",
    "convert net --from=net.prototxt --to=deploy.prototxt --deploy",
    "convert model --from=w.caffemodel --net=deploy.prototxt --to=w.onnx",
    "convert mean --from=data/train_lmdb --to=mean.binaryproto",
    "convert text --from=text.txt --to=text.bin --tokenizer=bytes",
    "convert text --from=text.txt --to=bpe.bin --tokenizer=tokenizer.json --train_bpe=270",
    "convert text --from=book --to=bookset",
    "train --solver=words_solver.prototxt",
    "plan --model=net.prototxt --ranks=2 --limits=300,15 --fix=data --out=two.plan",
    "time --model=net.prototxt --iterations=3 --limits=false --json=profile.json",
    "plan --model=net.prototxt --ranks=2 --limits=300,15 --fix=tensor=2 --out=tensor.plan",
    "check --model=net.prototxt --parallel=tensor.plan --phase=TEST --machine=ethernet_100g --json=pass.json --limits=300,15",
    "scale --machine=daint --nodes=2 --model=net.prototxt --profile=profile.json --kind=modelled --no_bench --out=study",
    "sweep grid.sweep --to=swept",
)
FILES = {  # kind: a file of it
    "solver": "solver.prototxt", "net": "net.prototxt", "deploy": "deploy.prototxt", "old net": "old_net.prototxt",
    "weights": "s_iter_4.caffemodel.h5", "caffemodel": "w.caffemodel", "npz": "w.npz", "onnx": "w.onnx", "state": "s_iter_4.solverstate.h5",
    "words": "words.prototxt", "words deploy": "words_deploy.prototxt", "words weights": "wt_iter_2.caffemodel.h5",
    "tokenizer": "tokenizer.json", "tokens": "text.bin", "text": "text.txt", "vocabulary": "bookset/vocabulary.txt",
    "lmdb": "data/train_lmdb", "h5": "data5/train.h5", "h5 list": "h5_list.txt", "sets": "data", "mean": "mean.binaryproto",
    "plan": "two.plan", "tensor plan": "tensor.plan", "machine": "machine.prototxt", "profile": "profile.json", "pass": "pass.json", "trace": "trace.json",
    "run": "run", "metrics": "m.jsonl", "sweep": "grid.sweep", "chain": "chain.json", "pipeline": "pipeline.json", "study": "study",
    "keys": "keys.txt", "labels": "labels.txt", "labelmap": "labelmap.txt", "list": "images.txt", "annotated": "annotated.txt",
    "picture": "a/1.png", "pictures": "a", "classes": "classes", "mnist": "mnist", "cifar": "cifar", "book": "book", "here": ".",
}


def png(draw, height, width):
    """A picture of noise, in three channels."""
    rows = b"".join(b"\0" + draw.randbytes(3 * width) for _ in range(height))
    text = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        text += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return text


def write(path, data):
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def make(folder):
    """All files of FILES, in a folder."""
    draw = random.Random(1)
    here = os.getcwd()
    os.makedirs(folder)
    os.chdir(folder)
    for name, text in TEXTS.items():
        write(name, text)
    words = " ".join(draw.choice("the cat sat on a mat and ran off with its hat".split()) for _ in range(300))
    for name in ("text.txt", "book/train.txt", "book/valid.txt"):
        write(name, words + "\n")
    for name in ("a/1", "a/2", "b/1", "classes/red/1", "classes/red/2", "classes/blue/1"):
        write(name + ".png", png(draw, 8, 8))
    for part in ("train", "t10k"):
        write(f"mnist/{part}-images-idx3-ubyte", struct.pack(">IIII", 2051, 3, 28, 28) + draw.randbytes(3 * 784))
        write(f"mnist/{part}-labels-idx1-ubyte", struct.pack(">II", 2049, 3) + bytes((1, 2, 3)))
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        write(f"cifar/{name}.bin", b"".join(bytes((k,)) + draw.randbytes(3072) for k in range(3)))
    with open(os.path.join(job.ROOT, "topology", "machines", "daint.prototxt"), "rb") as f:
        write("machine.prototxt", f.read())
    os.chdir(here)
    for command in MADE:
        code, out = job.run([job.CORTADO, *command.split()], folder)
        if code != 0:
            sys.exit(f"{command}: {code}\n{out}")
    for kind, name in FILES.items():
        if not os.path.exists(os.path.join(folder, name)):
            sys.exit(f"no file of kind {kind}: {name}")
