#!/usr/bin/env python3
"""Files made to hurt, through the program: sizes that no file can have, deep nests, endless strings, bombs, very many names, names
twice or elsewhere.

Usage: tests/fuzz/hostile.py [--sample] [--only=KIND,KIND] [--loose] [--keep]

Each must end with exit code 2 or 3, with one line of an error, which names the file, in less than 2 s of the processor, in less
than 1 GiB. --sample leaves out what takes long to write. --keep leaves the folder. CORTADO names the program; it writes nothing
but a temporary folder of TMPDIR. Prints "ok NAME" or "not ok NAME"; exits with 1 where anything was not.
"""
import gzip
import json
import os
import resource
import shlex
import struct
import sys
import tempfile
import threading
import zlib

from protobuf_wire import field, varint

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORTADO = os.environ.get("CORTADO", os.path.join(ROOT, "cortado"))
MOST_S, MOST_KB, GUARD_S = 2.0, 1 << 20, 60
DEEP, MANY, ENDLESS = 100000, 100000, 10**9
SIZES = {"2_31": 1 << 31, "2_63": 1 << 63, "below_2_63": (1 << 63) - 1, "negative": -1}
CASES = []  # kind, name, file, what writes it, commands
NET = ('input: "x" input_shape { dim: 2 dim: 3 }\n'
       'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }\n')


def case(kind, name, file, content, *commands, slow=False, names=None):
    """names: what the line names, where it is not the file: one that the file leads to."""
    CASES.append((kind, name, file, content, commands, slow, names or os.path.basename(file)))


def is_sample(name, command, slow):
    return not slow and command.split()[0] not in ("train", "time") and \
        any(word in name for word in ("deep", "twice", "elsewhere", "so_many"))


def fill(path, head=b"", tail=b"", size=ENDLESS, byte=b"a"):
    """A file of `size` bytes."""
    with open(path, "wb") as f:
        f.write(head)
        block = byte * (1 << 20)
        for _ in range((size - len(head) - len(tail)) // len(block)):
            f.write(block)
        f.write(tail)


def late(make):
    """What takes long to make is made when its turn comes."""
    def write(path):
        with open(path, "wb") as f:
            f.write(make())
    return write


# ---- the wire of protobuf
def nest(number, depth, inner=b"", beside=b""):
    """Messages inside of messages, made from the inside; beside: what each has, too."""
    parts, length, tag = [], len(inner), varint(number << 3 | 2)
    for _ in range(depth):
        head = beside + tag + varint(length)
        parts.append(head)
        length += len(head)
    return b"".join(reversed(parts)) + inner


def blob(shape, values):
    return field(7, field(1, b"".join(varint(d) for d in shape))) + field(5, struct.pack(f"<{len(values)}f", *values))


def caffemodel(shape, values=(1.0, 2.0)):
    return field(1, "n") + field(100, field(1, "ip") + field(2, "InnerProduct") + field(7, blob(shape, values)))


# ---- prototxt: nets, solvers, and what else is written so
def prototxts():
    net = ("check --model={}", "plan --model={} --limits=10,10", "convert net --from={} --to=made --force", "time --model={}", "test --model={} --weights=w")
    deep = {"deep_repeat": 'repeat { count: 1 bottom: "a" top: "a" ' * DEEP, "deep_layer": "layer { " * DEEP, "deep_unknown": "a { " * DEEP,
            "deep_brackets": "layer [" * DEEP, "deep_state": "state { " * DEEP}
    for name, text in deep.items():
        case("prototxt", name, "net.prototxt", text, *net)
        case("solver", name, "solver.prototxt", "net_param { " + text, "check --solver={}", "train --solver={}")
    for name, size in SIZES.items():
        if name != "2_31":  # check says what so many take
            case("prototxt", "outputs_" + name, "net.prototxt", NET.replace("num_output: 2", f"num_output: {size}"), *net[:2])
        case("prototxt", "dim_" + name, "net.prototxt", NET.replace("dim: 2 dim: 3", f"dim: {size} dim: {size}"), *net[:2])
        case("prototxt", "repeat_" + name, "net.prototxt",
             NET + f'repeat {{ count: {size} bottom: "y" top: "y" layer {{ name: "r" type: "ReLU" bottom: "y" top: "y" }} }}\n', *net[:2])
        case("solver", "iter_" + name, "solver.prototxt", f'net: "good.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: {size}\n' +
             ("" if size < 0 or size > 1 << 62 else "iter_size: -1\n"), "check --solver={}", "train --solver={}")
        case("machine", "level_" + name, "machine.prototxt",
             f'level {{ name: "node" size: {size} latency_us: 1 bandwidth_gbs: 1 }} level {{ name: "all" size: {size} latency_us: 1 bandwidth_gbs: 1 }}',
             "check --model=good.prototxt --nodes=4 --ranks=4 --machine={}")
        case("parallel", "ranks_" + name, "plan.prototxt", f'ranks: {size} global_batch: 2 stage {{ first: "ip" last: "ip" rank: 0 }}',
             "check --model=good.prototxt --parallel={}")
    case("prototxt", "many_repeats", "net.prototxt", NET + 'repeat { count: 100000 bottom: "y" top: "y" ' * 8 +
         'layer { name: "r" type: "ReLU" bottom: "y" top: "y" } ' + "}" * 8, *net[:2])
    case("prototxt", "name_twice", "net.prototxt", NET + NET[NET.index("layer"):], *net[:2])
    case("prototxt", "endless_string", "net.prototxt", lambda p: fill(p, b'name: "', b'"\n'), *net[:2], slow=True)
    case("solver", "endless_string", "solver.prototxt", lambda p: fill(p, b'net: "', b'"\n'), "check --solver={}", slow=True)
    case("prototxt", "long_string", "net.prototxt", lambda p: fill(p, b'name: "', b'\n', 1 << 24), *net[:2])
    case("machine", "deep", "machine.prototxt", "level { " * DEEP, "check --model=good.prototxt --nodes=4 --ranks=4 --machine={}")
    case("machine", "endless_string", "machine.prototxt", lambda p: fill(p, b'name: "', b'"\n'),
         "check --model=good.prototxt --nodes=4 --ranks=4 --machine={}", slow=True)
    case("parallel", "deep", "plan.prototxt", "stage { " * DEEP, "check --model=good.prototxt --parallel={}")
    case("sweep", "deep", "a.sweep", "vary { " * DEEP, "sweep {} --to=sweeps")
    case("sweep", "many", "a.sweep", 'solver: "solver" metric: "a" ' + 'vary { field: "base_lr" from: 1 to: 2 steps: 2000000000 }' * 2, "sweep {} --to=sweeps")


# ---- weights
def npy(shape, data=b"", dtype="<f4", head=None):
    text = head if head is not None else "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (dtype, ", ".join(map(str, shape)))
    text = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def zipped(entries, sizes=None, method=0):
    """A zip of (name, bytes); sizes: what the directory says in place of the truth."""
    body, directory = b"", b""
    for name, data in entries:
        name = name.encode()
        packed = data
        if method == 8:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = packer.compress(data) + packer.flush()
        size = sizes if sizes is not None else len(data)
        large = size >= 0xFFFFFFFF or size < 0
        extra = struct.pack("<HHQQ", 1, 16, size & (1 << 64) - 1, len(packed)) if large else b""
        short = (0xFFFFFFFF, 0xFFFFFFFF) if large else (len(packed), size)
        common = struct.pack("<HHHHHIIIHH", 45, 0, method, 0, 0, zlib.crc32(data), *short, len(name), len(extra))
        directory += b"PK\x01\x02" + struct.pack("<H", 45) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name + extra
        body += b"PK\x03\x04" + common + name + extra + packed
    return body + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)


def safetensors(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def gguf(tensors=0, keys=0, body=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors & (1 << 64) - 1, keys & (1 << 64) - 1) + body


def weights():
    use = ("convert model --from={} --to=made.h5 --force", "test --model=good.prototxt --weights={} --iterations=1",
           "convert model --from={}")
    last, repeat = use[:1], field(1, 1) + field(3, "a") + field(4, "b")
    for name, size in SIZES.items():
        case("caffemodel", "shape_" + name, "w.caffemodel", caffemodel([size, size]), *use)
        case("caffemodel", "length_" + name, "w.caffemodel", varint(100 << 3 | 2) + varint(size), *use)
        case("npz", "shape_" + name, "w.npz", zipped([("ip/0.npy", npy([size]))]), *use)
        case("npz", "shapes_" + name, "w.npz", zipped([("ip/0.npy", npy([size, size]))]), *use)
        case("npz", "entry_" + name, "w.npz", zipped([("ip/0.npy", npy([2], bytes(8)))], sizes=size), *use)
        case("safetensors", "head_" + name, "w.safetensors", struct.pack("<Q", size & (1 << 64) - 1) + b"{}", *use)
        case("safetensors", "shape_" + name, "w.safetensors", safetensors({"a": dict(dtype="F32", shape=[size, size], data_offsets=[0, 8])}, bytes(8)), *use)
        case("safetensors", "offset_" + name, "w.safetensors", safetensors({"a": dict(dtype="F32", shape=[2], data_offsets=[size, size + 8])}, bytes(8)), *use)
        case("gguf", "tensors_" + name, "w.gguf", gguf(size, 0), *use)
        case("gguf", "keys_" + name, "w.gguf", gguf(0, size), *use)
        case("gguf", "text_" + name, "w.gguf", gguf(0, 1, struct.pack("<Q", size & (1 << 64) - 1) + b"key"), *use)
        case("gguf", "shape_" + name, "w.gguf", gguf(1, 0, struct.pack("<Q1sI2QIQ", 1, b"a", 2, size & (1 << 64) - 1, size & (1 << 64) - 1, 0, 0) + bytes(64)), *use)
        case("gguf", "offset_" + name, "w.gguf", gguf(1, 0, struct.pack("<Q1sI1QIQ", 1, b"a", 1, 2, 0, size & (1 << 64) - 1) + bytes(64)), *use)
        case("gguf", "list_" + name, "w.gguf", gguf(0, 1, struct.pack("<Q1sIIQ", 1, b"k", 9, 4, size & (1 << 64) - 1)), *use)
    case("caffemodel", "deep_repeats", "w.caffemodel", nest(20002, 1, nest(5, DEEP, repeat, repeat)) + caffemodel([2]), *use, "convert net --from={} --to=made --force")
    case("caffemodel", "many_layers", "w.caffemodel", late(lambda: field(100, b"") * 3000000), *last)
    case("caffemodel", "endless_string", "w.caffemodel", lambda p: fill(p, b"\x0a" + varint(ENDLESS - 6)), *last, slow=True)
    case("npz", "bomb", "w.npz", late(lambda: zipped([("ip/0.npy", npy([2], bytes(1 << 28)))], method=8)), *use)
    case("npz", "bomb_that_lies", "w.npz", late(lambda: zipped([("ip/0.npy", npy([2], bytes(1 << 28)))], sizes=136, method=8)), *use)
    case("npz", "bomb_of_a_head", "w.npz", late(lambda: zipped([("ip/0.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFF0) + b" " * (1 << 24))], method=8)), *use)
    case("npz", "name_twice", "w.npz", zipped([("ip/0.npy", npy([2], bytes(8)))] * 2), *use)
    case("npz", "deep_head", "w.npz", zipped([("ip/0.npy", npy([], head="(" * 60000))]), *use)
    case("npz", "many_axes", "w.npz", zipped([("ip/0.npy", npy([1] * 20000))]), *use)
    case("safetensors", "deep", "w.safetensors", safetensors(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"), *use)
    case("safetensors", "name_twice", "w.safetensors",
         safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)), *use)
    case("safetensors", "overlap", "w.safetensors", safetensors({n: dict(dtype="F32", shape=[2], data_offsets=[0, 8]) for n in "ab"}, bytes(8)), *use)
    case("safetensors", "many_axes", "w.safetensors", safetensors({"a": dict(dtype="F32", shape=[1] * 100000, data_offsets=[0, 4])}, bytes(4)), *use)
    case("safetensors", "endless_head", "w.safetensors", lambda p: fill(p, struct.pack("<Q", ENDLESS - 8) + b'{"', b'"'), *use, slow=True)
    case("safetensors", "name_elsewhere", "w.safetensors", safetensors({"../../x": dict(dtype="F32", shape=[2], data_offsets=[0, 8])}, bytes(8)), *last)
    for name, file in (("elsewhere", "../../etc/passwd"), ("absolute", "/etc/passwd"), ("itself", "model.safetensors.index.json"), ("dots", "..")):
        case("index", name, "model.safetensors.index.json", json.dumps(dict(weight_map={"a": file})), *use)
    case("index", "deep", "model.safetensors.index.json", '{"weight_map":' + "[" * DEEP, *use)
    case("index", "endless_string", "model.safetensors.index.json", lambda p: fill(p, b'{"weight_map":{"', b'":1}}'), *last, slow=True)
    case("gguf", "name_twice", "w.gguf", gguf(2, 0, struct.pack("<Q1sI1QIQ", 1, b"a", 1, 2, 0, 0) * 2 + bytes(128)), *use)
    case("gguf", "many_axes", "w.gguf", gguf(1, 0, struct.pack("<Q1sI", 1, b"a", 0xFFFFFFFF) + bytes(64)), *use)
    case("gguf", "deep_lists", "w.gguf", gguf(0, 1, struct.pack("<Q1sI", 1, b"k", 9) + struct.pack("<IQ", 9, 1) * DEEP), *use)
    case("gguf", "alignment", "w.gguf", gguf(1, 1, struct.pack("<Q17sII", 17, b"general.alignment", 4, 0) + struct.pack("<Q1sI1QIQ", 1, b"a", 1, 2, 0, 0)), *use)


# ---- Caffe's solver states, means
def states():
    train = "train --solver=solver --snapshot={}"
    for name, size in SIZES.items():
        case("solverstate", "shape_" + name, "s.solverstate", field(1, 3) + field(3, blob([size, size], [1.0])), train)
        case("solverstate", "iter_" + name, "s.solverstate", field(1, size), train)
        case("solverstate", "length_" + name, "s.solverstate", field(1, 3) + varint(3 << 3 | 2) + varint(size), train)
        case("mean", "shape_" + name, "mean.binaryproto", b"".join(field(i + 1, size) for i in range(4)) + field(5, bytes(8)),
             "train --solver=mean_solver")
    case("solverstate", "many_histories", "s.solverstate", late(lambda: field(1, 3) + field(3, b"") * 1000000), train)
    for name, net in (("zero", "/dev/zero"), ("tty", "/dev/stdin"), ("folder", "/"), ("long", "a" * 1000000)):
        case("solverstate", "weights_are_" + name, "s.solverstate", field(1, 3) + field(2, net) + field(3, blob([2, 3], [1.0] * 6)) + field(3, blob([2], [1.0, 1.0])), train,
             names=net if len(net) < 20 else None)
    case("mean", "endless", "mean.binaryproto", lambda p: fill(p, b"\x2a" + varint(ENDLESS - 6)), "train --solver=mean_solver", slow=True)


# ---- images
def png(width, height, data=b"", kind=2, chunks=b""):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)) + chunks + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def jpeg_frame(height, width, scans=0):
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03\x01\x11\x00\x02\x11\x00\x03\x11\x00"
    tables = b"\xff\xdb\x00\x43\x00" + b"\x01" * 64 + b"\xff\xc4\x00\x14\x00\x01" + bytes(15) + b"\x00" + b"\xff\xc4\x00\x14\x10\x01" + bytes(15) + b"\x00"
    scan = b"\xff\xda\x00\x0c\x03\x01\x00\x02\x00\x03\x00\x00\x00\x00\x00"
    return b"\xff\xd8" + tables + frame + scan * scans + b"\xff\xd9"


def tiff(width, height, more=(), data=b"\0" * 8):
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, len(data)), *more]
    at = 8 + len(data)
    return b"II*\0" + struct.pack("<I", at) + data + struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *t) for t in sorted(tags)) + struct.pack("<I", 0)


def images():
    use = ("convert images --list=list_of_one --root=./ --to=made_lmdb --force", "convert images --list=list_of_one --root=./ --to=made_lmdb --force --encoded",
           "convert images --list=list_of_one --root=./ --to=made_lmdb --force --resize=8x8", "predict --model=deploy.prototxt --weights=good.npz {}")
    row = b"\0" * 30001
    flat = zlib.compress(row * 300, 9)
    case("image", "png_sides", "picture", png(0x7FFFFFFF, 0x7FFFFFFF, flat), *use)
    case("image", "png_wide", "picture", png(0x7FFFFFFF, 1, flat), *use)
    case("image", "png_no_side", "picture", png(0, 5, flat), *use)
    case("image", "png_bomb", "picture", png(30000, 30000, zlib.compress(bytes(90001), 9) * 9), *use)
    case("image", "png_bomb_below_the_limit", "picture", png(11000, 11000, flat), *use)
    def with_text():
        text = b"zTXta\0\0" + zlib.compress(bytes(1 << 26), 9)
        return png(2, 2, zlib.compress(bytes(14)), chunks=struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)))[:-12]
    case("image", "png_text_bomb", "picture", late(with_text), *use)
    case("image", "jpeg_sides", "picture", jpeg_frame(65500, 65500, 1), *use)
    case("image", "jpeg_scans", "picture", jpeg_frame(4000, 4000, 10000), *use)
    case("image", "jpeg_cut", "picture", jpeg_frame(16000, 16000, 1)[:-20], *use)
    case("image", "webp_sides", "picture", b"RIFF\xff\xff\xff\x7fWEBPVP8L\xff\xff\xff\x7f\x2f\xff\xff\xff\x0f", *use)
    case("image", "tiff_sides", "picture", tiff(0xFFFFFFFF, 0xFFFFFFFF), *use)
    case("image", "tiff_large", "picture", tiff(16000, 8000), *use)
    case("image", "tiff_count", "picture", tiff(4, 2, [(320, 3, 0xFFFFFFFF, 8)])[:60], *use)
    case("image", "exif_loop", "picture", jpeg_frame(10, 10)[:2] + b"\xff\xe1\xff\xffExif\0\0II*\0\xff\xff\xff\xff" + bytes(99), *use)
    case("list", "no_label", "list_of_one", "a\n" * 100000, use[0])
    case("list", "label_2_63", "list_of_one", "picture 9223372036854775808\n", use[0])
    case("list", "nul", "list_of_one", b"picture\0 1\n", use[0])
    case("list", "endless_line", "list_of_one", lambda p: fill(p, b"a", b"\n"), use[0], slow=True)
    case("windows", "count_2_31", "windows.txt", "# 0\npicture\n3\n8\n8\n2147483648\n1 0.5 0 0 3 3\n", "train --solver=window_solver")
    case("windows", "sizes_2_63", "windows.txt", "# 0\npicture\n3\n9223372036854775808\n-1\n1\n1 0.5 0 0 3 3\n", "train --solver=window_solver")


# ---- data
def idx(kind, *dims):
    return struct.pack(">I", kind) + b"".join(struct.pack(">I", d & 0xFFFFFFFF) for d in dims)


def records():
    use = "convert mnist --from=mnist --to=made --force"
    good = "mnist/train-labels-idx1-ubyte"
    for name, size in (("2_31", 1 << 31), ("most", 0xFFFFFFFF), ("zero", 0)):
        case("mnist", "images_" + name, "mnist/train-images-idx3-ubyte", idx(0x803, size, 2, 3), use)
        case("mnist", "rows_" + name, "mnist/train-images-idx3-ubyte", idx(0x803, 2, size, size), use)
        case("mnist", "labels_" + name, good, idx(0x801, size), use)
    case("mnist", "bomb", "mnist/t10k-images-idx3-ubyte", late(lambda: gzip.compress(idx(0x803, 2, 2, 3) + bytes(1 << 28))), use)
    case("mnist", "gzip_cut", "mnist/t10k-images-idx3-ubyte", gzip.compress(idx(0x803, 2, 2, 3) + bytes(1000))[:25], use)
    case("cifar10", "bomb", "cifar/data_batch_1.bin.gz", late(lambda: gzip.compress(bytes((1 << 28) + 1))), "convert cifar10 --from=cifar --to=made --force")
    case("lmdb", "not_one", "db/data.mdb", bytes(8192), "convert mean --from=db --to=made --force")
    with open(os.path.join(ROOT, "tests/fuzz/corpus/small.mdb"), "rb") as f:
        whole = f.read()
    for name, at, n in (("depth", 94, 2), ("records", 120, 8), ("root", 128, 7), ("last", 136, 7)):  # of the pages of 256 bytes that say where all is
        head = bytearray(whole)
        for page in (0, 256):
            head[page + at:page + at + n] = b"\xff" * n
        case("lmdb", "forged_" + name, "db/data.mdb", bytes(head), "convert mean --from=db --to=made --force", names="db")


# ---- texts, tokenizers
def texts():
    use = ("convert text --from=text.txt --to=made.bin --tokenizer={} --force",)
    deep = "[" * DEEP
    case("tokenizer", "deep", "tokenizer.json", '{"model":' + deep, *use)
    case("tokenizer", "deep_normalizers", "tokenizer.json", '{"normalizer":' + '{"type":"Sequence","normalizers":[' * 2000 + "]}" * 2000 + ',"model":{}}', *use)
    case("tokenizer", "name_twice", "tokenizer.json", '{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}', *use)
    case("tokenizer", "id_2_63", "tokenizer.json", '{"model":{"type":"BPE","vocab":{"a":9223372036854775807},"merges":[]}}', *use)
    case("tokenizer", "id_2_31", "tokenizer.json", '{"model":{"type":"BPE","vocab":{"a":2147483648},"merges":[]}}', *use)
    case("tokenizer", "id_negative", "tokenizer.json", '{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}', *use)
    case("tokenizer", "endless_string", "tokenizer.json", lambda p: fill(p, b'{"model":"', b'"}'), *use, slow=True)
    case("ranks", "rank_2_63", "ranks.tiktoken", "YQ== 9223372036854775808\n", use[0] + " --pattern=gpt2")
    case("ranks", "twice", "ranks.tiktoken", "YQ== 0\nYQ== 1\n", use[0] + " --pattern=gpt2")
    case("vocabulary", "word_twice", "words.txt", "the\nthe\n<eos>\n", "convert text --from=text.txt --to=made.h5 --vocabulary={} --force")
    case("vocabulary", "endless_word", "words.txt", lambda p: fill(p, b"a", b"\n"), "convert text --from=text.txt --to=made.h5 --vocabulary={} --force", slow=True)
    case("text", "nul", "book.txt", b"a\0b\n", "convert text --from={} --to=made.h5 --force")


# ---- JSON: profiles, chains, pipelines, what runs leave
def notes():
    deep = "[" * DEEP
    forms = {"chain": ("chain.json", "plan --chain={}"), "pipeline": ("pipeline.json", "plan --pipeline={}"),
             "profile": ("profile.json", "check --model=good.prototxt --nodes=4 --ranks=4 --machine=daint --profile={}"), "metrics": ("metrics.jsonl", "report {} --to=made.html")}
    for kind, (file, command) in forms.items():
        case(kind, "deep", file, '{"a":' + deep + "\n", command)
        case(kind, "deep_objects", file, '{"a":' * DEEP + "\n", command)
        case(kind, "endless_string", file, lambda p: fill(p, b'{"a":"', b'"}\n'), command, slow=True)
        case(kind, "no_utf8", file, b'{"a":"\xff\xfe"}\n', command)
    for name, size in SIZES.items():
        case("chain", "memory_" + name, "chain.json", json.dumps(dict(stages=size, memory=size, chain=[dict(u_f=size, w_a=size)])), "plan --chain={}")
        case("metrics", "iter_" + name, "metrics.jsonl", '{"event":"train","iter":"%d"}\n' % size, "report {} --to=made.html")
    case("engine_plan", "endless_line", "engine.plan", lambda p: fill(p, b"cortado plan 1\n", b"\n"), "train --solver=solver --plan={}", slow=True)
    case("engine_plan", "cut", "engine.plan", "cortado plan 1\nmachine \"a\" avx2 threads 9999999999999999999 version \"1\"\n", "train --solver=solver --plan={}")
    case("topology", "deep", "topology.conf", "SwitchName=a Switches=a\n", "info --topology={} --limits=false")
    case("topology", "hosts_2_63", "topology.conf", "SwitchName=a Nodes=n[0-9223372036854775807]\n", "info --topology={} --limits=false")
    case("topology", "hosts_nested", "topology.conf", "SwitchName=a Nodes=" + "n[0-99999]" * 6 + "\n", "info --topology={} --limits=false")
    case("topology", "endless_line", "topology.conf", lambda p: fill(p, b"SwitchName=a Nodes=n1", b"\n"), "info --topology={} --limits=false", slow=True)
    case("class_names", "nul", "classes.txt", b"a\0b\n", "serve --model=deploy.prototxt --weights=good.npz --name=n --labels={} --check")
    case("annotation", "deep", "a.xml", "<annotation>" + "<object>" * DEEP, "convert annotated --list=boxes_list --root=./ --to=made_lmdb --force")
    case("annotation", "sizes", "a.xml", "<annotation><object><name>a</name><bndbox><xmin>1e300</xmin><ymin>-1</ymin><xmax>nan</xmax><ymax>3</ymax></bndbox></object></annotation>",
         "convert annotated --list=boxes_list --root=./ --to=made_lmdb --force")
    case("annotation", "entities", "a.xml", '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>',
         "convert annotated --list=boxes_list --root=./ --to=made_lmdb --force")
    case("annotation", "endless_string", "a.xml", lambda p: fill(p, b"<annotation><object><name>", b"</name>"),
         "convert annotated --list=boxes_list --root=./ --to=made_lmdb --force", slow=True)


# ---- ONNX
def onnx():
    use = ("convert net --from={} --to=made.prototxt --force",)

    def model(graph):
        return field(1, 8) + field(7, graph) + field(8, field(2, 13))

    def tensor(dims, more=b""):
        return field(1, b"".join(varint(d) for d in dims)) + field(2, 1) + field(8, "w") + more
    case("onnx", "deep_attributes", "net.onnx", model(nest(1, 1, nest(5, 1, nest(6, 1, nest(1, DEEP))))), *use)
    graph = b""
    for name, size in SIZES.items():
        case("onnx", "dims_" + name, "net.onnx", model(field(5, tensor([size, size], field(9, bytes(8))))), *use)
        case("onnx", "length_" + name, "net.onnx", varint(7 << 3 | 2) + varint(size), *use)
    for name, where in (("elsewhere", "../../etc/passwd"), ("absolute", "/etc/passwd"), ("dots", "..")):
        outside = field(13, field(1, "location") + field(2, where)) + field(14, 1)
        node = field(1, field(1, "x") + field(1, "w") + field(2, "y") + field(4, "Add"))
        shape = field(2, field(1, field(1, 1) + field(2, field(1, field(1, 2)))))
        graph = node + field(5, tensor([2], outside)) + field(11, field(1, "x") + shape) + field(12, field(1, "y") + shape)
        case("onnx", "data_" + name, "net.onnx", model(graph), *use)
    case("onnx", "endless_string", "net.onnx", lambda p: fill(p, b"\x12" + varint(ENDLESS - 6)), *use, slow=True)


# ---- so many names that who looks for each in a list takes minutes
def many():
    def each(form, n=MANY):
        return late(lambda: "".join(form.replace("#", str(i)) for i in range(n)).encode())

    def behind(make, end, head=""):
        def write(path):
            make(path)
            with open(path, "rb") as f:
                body = f.read()
            with open(path, "wb") as f:
                f.write(head.encode() + body + (end if isinstance(end, bytes) else end.encode()))
        return write
    bad = 'layer { name: "z" type: "No" bottom: "x0" top: "z" }\n'
    net = ("check --model={}",)
    case("prototxt", "so_many_inputs", "net.prototxt", behind(each('input: "x#" input_shape { dim: 1 }\n'), bad), *net)
    case("prototxt", "so_many_tops", "net.prototxt",
         behind(each('top: "x#" '), "input_param { shape { dim: 1 } } }\n" + bad, 'layer { name: "a" type: "Input" '), *net)
    case("prototxt", "so_many_layers", "net.prototxt",
         behind(each('layer { name: "l#" type: "ReLU" bottom: "x0" top: "y#" }\n', MANY // 2), bad, 'input: "x0" input_shape { dim: 1 }\n'), *net)
    case("solver", "so_many_nets", "solver.prototxt", behind(each('test_net: "good.prototxt" '), "", 'net: "good.prototxt" base_lr: 1 lr_policy: "fixed" '),
         "check --solver={}")
    case("sweep", "so_many_fields", "a.sweep", behind(each('vary { field: "layer[#].a" value: "1" }\n'), 'vary { field: "layer[7].a" value: "1" }\n',
                                                      'solver: "solver" metric: "a" '), "sweep {} --to=sweeps")
    levels = "".join(f'level {{ name: "{n}" latency_us: 1 bandwidth_gbs: 1 }} ' for n in ("node", "switch", "machine"))
    case("machine", "so_many_switches", "machine.prototxt", behind(each('switch { name: "s#" nodes: "n#" }\n'), 'switch { name: "s7" nodes: "n" }\n', 'name: "m" ' + levels),
         "check --model=good.prototxt --nodes=4 --ranks=4 --machine={}")
    conf = "info --topology=slurm:{} --limits=false"
    case("topology", "so_many_switches", "topology.conf", behind(each("SwitchName=s# Nodes=n#\n"), "SwitchName=s7 Nodes=n\n"), conf)
    case("topology", "so_many_pairs", "topology.conf", behind(each("SwitchName=s# Nodes=n#\nSwitchName=t# Switches=s#\n", MANY // 2), "SwitchName=z Nodes=n7\n"), conf)
    case("topology", "so_many_levels", "topology.conf",
         late(lambda: "".join(f"SwitchName=s{i} Switches=s{i + 1}\n" for i in range(MANY)).encode() + f"SwitchName=s{MANY} Nodes=n\n".encode()), conf)
    case("engine_plan", "so_many_rows", "engine.plan", behind(each("k# | a 1\n"), f"end {MANY}\n", 'cortado plan 1\nmachine "a" avx2 threads 2 version "1"\n'),
         "train --solver=solver --plan={}")
    box = "<object><name>c#</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>1</xmax><ymax>1</ymax></bndbox></object>"
    case("annotation", "so_many_classes", "a.xml",
         behind(each(box, 60000), box.replace("<xmin>0", "<xmin>9").replace("<xmax>1", "<xmax>10") + "</annotation>", "<annotation>"),
         "convert annotated --list=boxes_list --root=./ --to=made_lmdb --force")
    use = "convert model --from={}"
    case("caffemodel", "so_many_names", "w.caffemodel",
         late(lambda: b"".join(field(100, field(1, f"l{i}") + field(7, blob([1], [1.0]))) for i in range(MANY))), use)
    case("safetensors", "so_many_names", "w.safetensors",
         late(lambda: safetensors({f"l{i}/0": dict(dtype="F32", shape=[1], data_offsets=[4 * i, 4 * i + 4]) for i in range(MANY)}, bytes(4 * MANY))), use)
    case("npz", "so_many_names", "w.npz", late(lambda: zipped([(f"l{i}/0.npy", npy([1], bytes(4))) for i in range(60000)] + [("l/0.npy", npy([3], bytes(4)))])), use)


def good_files():
    """What stands beside the files of cases."""
    def put(path, data):
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
    put("good.prototxt", NET)
    put("solver", 'net: "train.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 4 display: 1 snapshot_prefix: "made"\n')
    loss = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }\n' \
           'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "l" top: "loss" }\n'
    put("train.prototxt", 'layer { name: "in" type: "DummyData" top: "x" top: "l" dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }\n' + loss)
    for name, layer in (("mean", 'type: "ImageData" image_data_param { source: "good_list" root_folder: "./" batch_size: 1 } transform_param { mean_file: "mean.binaryproto" }'),
                        ("window", 'type: "WindowData" window_data_param { source: "windows.txt" batch_size: 1 fg_fraction: 0.5 } transform_param { crop_size: 4 }')):
        put(name + "_solver", f'net: "{name}.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 4 snapshot_prefix: "made"\n')
        put(name + ".prototxt", f'layer {{ name: "in" {layer} top: "x" top: "l" }}\n' + loss)
    put("deploy.prototxt", NET.replace("dim: 2 dim: 3", "dim: 1 dim: 3 dim: 2 dim: 2"))
    put("good.npz", zipped([("ip/0.npy", npy([2, 12], bytes(96))), ("ip/1.npy", npy([2], bytes(8)))]))
    put("picture_good", png(2, 2, zlib.compress(bytes(14))))
    put("good_list", "picture_good 0\n")
    put("list_of_one", "picture 0\n")
    put("boxes_list", "picture_good a.xml\n")
    put("text.txt", "a text\n")
    for which, n in (("train", 2), ("t10k", 2)):
        put(f"mnist/{which}-images-idx3-ubyte", idx(0x803, n, 2, 3) + bytes(6 * n))
        put(f"mnist/{which}-labels-idx1-ubyte", idx(0x801, n) + bytes(n))
    put("cifar/test_batch.bin", bytes(3073))
    return put


def run(command):
    """Exit code, output, seconds of the processor, KiB."""
    argv = [CORTADO, *shlex.split(command)]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(write, 1)
        os.dup2(write, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (GUARD_S, GUARD_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", CORTADO_OVERWRITE="true")
        os.execv(CORTADO, argv)
    os.close(write)
    guard = threading.Timer(4 * GUARD_S, os.kill, (child, 9))
    guard.start()
    with os.fdopen(read, errors="replace") as f:
        out = f.read()
    _, status, used = os.wait4(child, 0)
    guard.cancel()
    return os.waitstatus_to_exitcode(status), out, used.ru_utime + used.ru_stime, used.ru_maxrss


def look(command, file, names, loose):
    """What is wrong; "": nothing."""
    code, out, seconds, kib = run(command.replace("{}", file))
    errors = [line for line in out.splitlines() if line.startswith("E")]
    wrong = []
    if code not in (2, 3):
        wrong.append(f"exit code {code}")
    if len(errors) != 1:
        wrong.append(f"{len(errors)} lines of errors")
    elif names not in errors[0]:
        wrong.append(f"the line does not name {names}")
    if seconds >= MOST_S and not loose:
        wrong.append(f"{seconds:.1f} s")
    if kib >= MOST_KB and not loose:
        wrong.append(f"{kib >> 10} MiB")
    return "; ".join(wrong) + (": " + "\n    ".join(out.splitlines()[-3:])[:600] if wrong else "")


def main(argv):
    given = dict((a[2:].split("=", 1) + [""])[:2] for a in argv if a.startswith("--"))
    if set(given) - {"sample", "only", "loose", "keep"} or len(given) != len(argv):
        sys.exit(__doc__)
    for add in (prototxts, weights, states, images, records, texts, notes, onnx, many):
        add()
    folder = tempfile.mkdtemp(prefix="cortado-hostile.")
    os.chdir(folder)
    put, bad, n = good_files(), 0, 0
    for kind, name, file, content, commands, slow, names in CASES:
        if ("only" in given and kind not in given["only"].split(",")) or ("sample" in given and not is_sample(name, commands[0], slow)):
            continue
        before = None
        if os.path.exists(file):
            with open(file, "rb") as f:
                before = f.read()
        if callable(content):
            content(file)
        else:
            put(file, content)
        for command in commands[:1] if "sample" in given else commands:
            wrong = look(command, file, names, "loose" in given)
            n, bad = n + 1, bad + bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {kind}_{name}_{command.split()[0]}_{command.split()[1].split('=')[0].strip('-{}') or 'file'}" +
                  (f"\n    {command}: {wrong}" if wrong else ""), flush=True)
        os.unlink(file)
        if before is not None:
            put(file, before)
    print(f"{n} runs, {bad} of them not as they should be")
    if "keep" not in given:
        import shutil
        os.chdir("/")
        shutil.rmtree(folder)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
