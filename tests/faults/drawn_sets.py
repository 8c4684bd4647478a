"""Data sets that feed.py draws: written by the libraries that their users have, and what each sample becomes by the rules of docs/data.md.

Each sample's values tell which one it is. HDF5, LMDB and WebP files are made by the libraries that CORTADO is linked with.
"""
import array
import ctypes
import math
import os
import random
import re
import struct
import subprocess
import sys
import zlib

import job


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def library(name, must=True):
    """A library that the program has; None: it has it not."""
    said = subprocess.run(["ldd", job.CORTADO], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(rf"lib{name}\S* => (\S+)", said)
    if must and not found:
        sys.exit(f"{job.CORTADO} is not linked with lib{name}")
    return ctypes.CDLL(found.group(1)) if found else None


# ---- HDF5

H5_TYPES = {"B": "U8LE", "b": "I8LE", "H": "U16LE", "h": "I16BE", "i": "I32LE", "q": "I64LE", "f": "F32LE", "d": "F64BE"}


class Hdf5:
    def __init__(self):
        self.lib = library("hdf5")
        for name in ("H5Fcreate", "H5Fopen", "H5Screate_simple", "H5Dcreate2", "H5Dopen2", "H5Dget_space", "H5Pcreate"):
            getattr(self.lib, name).restype = ctypes.c_int64
        for name in ("H5Sget_simple_extent_dims", "H5Pset_chunk", "H5Pset_deflate", "H5Pclose", "H5Sclose", "H5Dclose", "H5Fclose"):
            getattr(self.lib, name).argtypes = {"H5Sget_simple_extent_dims": [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p],
                                                "H5Pset_chunk": [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p],
                                                "H5Pset_deflate": [ctypes.c_int64, ctypes.c_uint]}.get(name, [ctypes.c_int64])
        i64, p, s, u = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
        self.lib.H5Fcreate.argtypes, self.lib.H5Fopen.argtypes = [s, u, i64, i64], [s, u, i64]
        self.lib.H5Screate_simple.argtypes, self.lib.H5Pcreate.argtypes = [ctypes.c_int, p, p], [i64]
        self.lib.H5Dcreate2.argtypes, self.lib.H5Dopen2.argtypes, self.lib.H5Dget_space.argtypes = [i64, s, i64, i64, i64, i64, i64], [i64, s, i64], [i64]
        self.lib.H5Dread.argtypes = self.lib.H5Dwrite.argtypes = [i64, i64, i64, i64, i64, p]
        self.lib.H5open()

    def kind(self, name):
        return ctypes.c_int64.in_dll(self.lib, name).value

    def file_type(self, code):
        name = H5_TYPES[code]
        return self.kind(f"H5T_{'IEEE' if name[0] == 'F' else 'STD'}_{name}_g")

    def memory_type(self, code):
        name = {"B": "UINT8", "b": "INT8", "H": "UINT16", "h": "INT16", "i": "INT32", "q": "INT64", "f": "FLOAT", "d": "DOUBLE"}[code]
        return self.kind(f"H5T_NATIVE_{name}_g")

    def write(self, path, sets):
        """sets: name: (code, shape, values, rows of a chunk or 0)."""
        lib = self.lib
        f = lib.H5Fcreate(path.encode(), 2, 0, 0)
        for name, (code, shape, values, rows) in sets.items():
            dims = (ctypes.c_uint64 * len(shape))(*shape)
            space, plist = lib.H5Screate_simple(len(shape), dims, None), 0
            if rows and shape[0]:
                plist = lib.H5Pcreate(self.kind("H5P_CLS_DATASET_CREATE_ID_g"))
                lib.H5Pset_chunk(plist, len(shape), (ctypes.c_uint64 * len(shape))(min(rows, shape[0]), *shape[1:]))
                lib.H5Pset_deflate(plist, 3)
            data = array.array(code, values)
            d = lib.H5Dcreate2(f, name.encode(), self.file_type(code), space, 0, plist, 0)
            if d < 0 or lib.H5Dwrite(d, self.memory_type(code), 0, 0, 0, data.buffer_info()[0] if data else None) < 0:
                raise OSError(path)
            lib.H5Dclose(d)
            lib.H5Sclose(space)
            if plist:
                lib.H5Pclose(plist)
        lib.H5Fclose(f)

    def read(self, path, name):
        """Shape and floats."""
        lib = self.lib
        f = lib.H5Fopen(path.encode(), 0, 0)
        d = lib.H5Dopen2(f, name.encode(), 0) if f >= 0 else -1
        if d < 0:
            raise OSError(f"{path}: {name}")
        space = lib.H5Dget_space(d)
        dims = (ctypes.c_uint64 * 8)()
        shape = list(dims[:lib.H5Sget_simple_extent_dims(space, dims, None)])
        data = array.array("f", bytes(4 * math.prod(shape)))
        wrong = data and lib.H5Dread(d, self.kind("H5T_NATIVE_FLOAT_g"), 0, 0, 0, data.buffer_info()[0]) < 0
        for close, at in ((lib.H5Sclose, space), (lib.H5Dclose, d), (lib.H5Fclose, f)):
            close(at)
        if wrong:
            raise OSError(path)
        return shape, data


# ---- LMDB

class Val(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p)]


def write_lmdb(path, records, one_file):
    """records: key: bytes."""
    lib = library("lmdb")
    env, txn, dbi = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
    if not one_file:
        os.mkdir(path)
    calls = [lib.mdb_env_create(ctypes.byref(env)), lib.mdb_env_set_mapsize(env, ctypes.c_size_t(1 << 26)),
             lib.mdb_env_open(env, path.encode(), 0x10000 | (0x4000 if one_file else 0), 0o644),
             lib.mdb_txn_begin(env, None, 0, ctypes.byref(txn)), lib.mdb_dbi_open(txn, None, 0, ctypes.byref(dbi))]
    for key, value in records.items():
        k, v = Val(len(key), key), Val(len(value), value)
        calls.append(lib.mdb_put(txn, dbi, ctypes.byref(k), ctypes.byref(v), 0))
    calls.append(lib.mdb_txn_commit(txn))
    lib.mdb_env_close(env)
    if any(calls):
        raise OSError(f"{path}: {calls}")


def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """Of a message: a whole number or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def datum(shape, label, data=None, floats=None, encoded=False, packed=True):
    """A Datum; a label None: it has none. encoded: its sizes may be missing."""
    out = b"" if shape is None else b"".join(field(i + 1, s) for i, s in enumerate(shape))
    if data is not None:
        out += field(4, data)
    if label is not None:
        out += field(5, label)
    if floats is not None:
        values = [struct.pack("<f", v) for v in floats]
        out += field(6, b"".join(values)) if packed else b"".join(varint(6 << 3 | 5) + v for v in values)
    return out + (field(7, 1) if encoded else b"")


def mean_file(path, shape, values):
    """Caffe's BlobProto."""
    with open(path, "wb") as f:
        f.write(b"".join(field(i + 1, s) for i, s in enumerate((1, *shape))) + field(5, struct.pack(f"<{len(values)}f", *values)))


# ---- images: planes of red, green, blue, or one of grey

def png(planes, h, w, draw):
    """PNG of some kind with these pixels."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    grey, kind = len(planes) == 1, draw.choice(("plain", "plain", "alpha", "16 bits", "palette"))
    pixels = [tuple(p[i] for p in planes) for i in range(h * w)]
    table = sorted(set(pixels))
    if kind == "palette" and (len(table) > 256 or grey):
        kind = "plain"
    depth, color, extra = (16 if kind == "16 bits" else 8), (0 if grey else 2), b""
    if kind == "alpha":
        color += 4
        rows = [b"".join(bytes(p) + bytes([draw.randrange(256)]) for p in pixels[y * w:y * w + w]) for y in range(h)]
    elif kind == "16 bits":
        rows = [b"".join(bytes((v, draw.randrange(256))) for p in pixels[y * w:y * w + w] for v in p) for y in range(h)]
    elif kind == "palette":
        color, extra = 3, chunk(b"PLTE", b"".join(bytes(p) for p in table))
        rows = [bytes(table.index(p) for p in pixels[y * w:y * w + w]) for y in range(h)]
    else:
        rows = [b"".join(bytes(p) for p in pixels[y * w:y * w + w]) for y in range(h)]
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, 0)) + extra +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b""))


def tiff(planes, h, w, draw):
    order = draw.choice("<>")
    n = len(planes)
    data = bytes(p[i] for i in range(h * w) for p in planes)
    tags = [(256, 4, w), (257, 4, h), (258, 3, 8), (259, 3, 1), (262, 3, 2 if n == 3 else 1), (273, 4, 8), (277, 3, n), (278, 4, h), (279, 4, len(data))]
    at = 8 + len(data) + len(data) % 2
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", at) + data + b"\0" * (len(data) % 2)
    out += struct.pack(order + "H", len(tags))
    behind = b""
    for tag, kind, value in tags:
        if tag == 258 and n == 3:
            out += struct.pack(order + "HHII", tag, kind, 3, at + 2 + 12 * len(tags) + 4)
            behind = struct.pack(order + "HHH", 8, 8, 8)
        else:
            out += struct.pack(order + ("HHIHH" if kind == 3 else "HHII"), tag, kind, 1, value, *((0,) if kind == 3 else ()))
    return out + struct.pack(order + "I", 0) + behind


def webp(planes, h, w, _draw):
    lib = library("webp")
    pixels = bytes(p[i] for i in range(h * w) for p in (planes if len(planes) == 3 else planes * 3))
    out = ctypes.c_void_p()
    lib.WebPEncodeLosslessRGB.restype = ctypes.c_size_t
    n = lib.WebPEncodeLosslessRGB(pixels, w, h, 3 * w, ctypes.byref(out))
    made = ctypes.string_at(out, n)
    lib.WebPFree(out)
    return made


def decoded(planes, color, webp_grey=False):
    """Planes as the program has them, and by how much they may differ. color: "color", "gray" or "" (as they are)."""
    if color == "gray" and (len(planes) == 3 or webp_grey):
        rgb = planes if len(planes) == 3 else planes * 3
        return [[round(0.299 * r + 0.587 * g + 0.114 * b) for r, g, b in zip(*rgb)]], 1
    if len(planes) == 1 and (color == "color" or webp_grey):
        return planes * 3, 0
    return planes[::-1], 0


def linear(planes, h, w, to_h, to_w):
    """OpenCV's INTER_LINEAR of bytes, as tests/golden/opencv_linear.py has it."""
    if (h, w) == (to_h, to_w):
        return planes

    def axis(n_in, n_out, is_x):
        out = []
        for i in range(n_out):
            at = f32((i + 0.5) * (1.0 / (n_out / n_in)) - 0.5)
            low = math.floor(at)
            part = f32(at - low)
            if is_x and (low < 0 or low >= n_in - 1):
                part, low = 0.0, min(max(low, 0), n_in - 1)
            high = low + 1
            out.append((min(max(low, 0), n_in - 1), min(max(high, 0), n_in - 1), round(f32(1 - part) * 2048), round(part * 2048)))
        return out
    xs, ys, made = axis(w, to_w, True), axis(h, to_h, False), []
    for p in planes:
        rows = [[p[y * w + a] * u + p[y * w + b] * v for a, b, u, v in xs] for y in range(h)]
        made.append([(((v0 * (rows[a][x] >> 4)) >> 16) + ((v1 * (rows[b][x] >> 4)) >> 16) + 2) >> 2
                     for a, b, v0, v1 in ys for x in range(to_w)])
    return made


# ---- sets

class Sample:
    """values: of field 0, of shape c x h x w; rest: of the other tops, a list for each. within: by how much a decoded value may differ."""

    def __init__(self, shape, values, rest, within=0):
        self.shape, self.values, self.rest, self.within, self.broken = shape, values, rest, within, False


class Set:
    """kind, n, samples in the set's order; type and fields of a layer; tops; sources that are files of their own."""

    def __init__(self, kind):
        self.kind, self.samples, self.type, self.tops = kind, [], "Data", ["data", "label"]
        self.field, self.words, self.color, self.stripes = "data_param", "", "", 0
        self.threads = self.shuffles = self.skips = True  # what the layer has fields for
        self.skip_broken, self.encoded = 0, False

    @property
    def n(self):
        return len(self.samples)


def planes_of(draw, channels, h, w):
    return [list(draw.randbytes(h * w)) for _ in range(channels)]


def draw_sizes(draw, n, one):
    """Shapes of n pictures: all alike, or not."""
    h, w = draw.randrange(4, 13), draw.randrange(4, 13)
    if one:
        return [(h, w)] * n
    return [(h * 5, w * 4) if draw.random() < 0.06 else (h + draw.randrange(4), w + draw.randrange(4)) for _ in range(n)]


def image_file(draw, planes, h, w):
    """Name's end and bytes."""
    kind = draw.choice([("png", png), ("png", png), ("tif", tiff)] + ([("webp", webp)] if library("webp", must=False) else []))
    return kind[0], kind[1](planes, h, w, draw)


def flat(planes):
    return [v for p in planes for v in p]


def draw_lmdb(draw, folder, n):
    """Records by LMDB's own library."""
    s = Set("lmdb " + draw.choice(("raw", "raw", "floats", "encoded", "encoded")))
    one, same_channels = draw.random() < 0.6, True
    s.one_size = one
    s.encoded = s.kind.endswith("encoded")
    channels = draw.choice((1, 3, 3) if s.encoded else (1, 2, 3, 4))
    if s.encoded:
        s.color = draw.choice(("", "color", "gray"))
        same_channels = s.color == ""
    made = []
    for h, w in draw_sizes(draw, n, one):
        c = channels if same_channels else draw.choice((1, 3))
        planes, label = planes_of(draw, c, h, w), 3 * len(made) - 2
        if s.encoded:
            end, data = image_file(draw, planes, h, w)
            got, within = decoded(planes, s.color, end == "webp")
            if end == "webp" and c == 1 and s.color == "":  # it has three channels
                data, (got, within) = png(planes, h, w, draw), decoded(planes, s.color)
            made.append((datum((c, h, w) if draw.random() < 0.5 else None, label, data=data, encoded=True),
                         Sample((len(got), h, w), flat(got), [[label]], within)))
        elif s.kind.endswith("floats"):
            values = [v / 4 - 20 for v in flat(planes)]
            made.append((datum((c, h, w), label, floats=values, packed=draw.random() < 0.5), Sample((c, h, w), values, [[label]])))
        else:
            made.append((datum((c, h, w), label, data=bytes(flat(planes))), Sample((c, h, w), flat(planes), [[label]])))
    if s.encoded and n > 4 and draw.random() < 0.3:
        s.skip_broken = draw.randrange(1, 4)
        for i in draw.sample(range(n), draw.randrange(1, s.skip_broken + 1)):
            if i > 0:
                made[i][1].broken = True
                made[i] = (datum(None, 1, data=b"\x89PNG\r\n\x1a\nnothing of the kind", encoded=True), made[i][1])
    keys = sorted(f"{draw.randrange(10 ** 6):06d}_{i}".encode() for i in range(n))
    one_file = draw.random() < 0.3
    write_lmdb(os.path.join(folder, "set"), {k: record for k, (record, _) in draw.sample(list(zip(keys, made)), n)}, one_file)
    s.samples = [sample for _, sample in made]
    s.words = 'source: "../set" backend: LMDB'
    return s


def draw_hdf5(draw, folder, n, memory=False):
    h5 = Hdf5()
    s = Set("memory" if memory else "hdf5")
    s.type, s.field, s.threads, s.skips = ("MemoryData", "memory_data_param", False, False) if memory else ("HDF5Data", "hdf5_data_param", False, False)
    s.one_size = True
    code = draw.choice("Bf" if memory else "BBBbhHiqfd")
    lows = {"b": -128, "h": -9000, "i": -(1 << 23), "q": -(1 << 23), "f": -1000, "d": -1000}
    c, h, w = draw.choice((1, 3)), draw.randrange(3, 9), draw.randrange(3, 9)
    plain = not memory and draw.random() < 0.2
    values = [[draw.randrange(lows.get(code, 0), {"B": 256, "b": 128, "H": 65536, "h": 9000}.get(code, 1 << 23 if code in "iq" else 1000))
               for _ in range(c * h * w)] for _ in range(n)]
    width = 1 if memory else draw.choice((1, 1, 3))
    labels = [[draw.randrange(100) for _ in range(width)] for _ in range(n)]
    if not memory and draw.random() < 0.3:
        s.tops.append("more")
    s.plain = plain
    s.samples = [Sample((c * h * w,) if plain else (c, h, w), v, [list(l)] + ([[i]] if "more" in s.tops else []))
                 for i, (v, l) in enumerate(zip(values, labels))]
    cuts = sorted(draw.randrange(n + 1) for _ in range(0 if memory else draw.choice((0, 0, 1, 3))))
    names, label_code, chunk = [], draw.choice("fiBd"), draw.choice((0, 0, 3))
    for k, (a, b) in enumerate(zip([0] + cuts, cuts + [n])):
        if a == b:
            continue
        names.append(f"part{k}.h5")
        data = {"data": (code, (b - a, c * h * w) if plain else (b - a, c, h, w), flat(values[a:b]), chunk),
                "label": (label_code, (b - a, width) if width > 1 or draw.random() < 0.3 and not memory else (b - a,), flat(labels[a:b]), 0)}
        if width == 1:
            data["label"] = (label_code, (b - a,), flat(labels[a:b]), 0)
        if "more" in s.tops:
            data["more"] = ("i", (b - a,), range(a, b), 0)
        h5.write(os.path.join(folder, names[-1]), data)
    if len(names) == 1 and draw.random() < 0.5 or memory:
        s.words = f'source: "../{names[0]}"'
    else:
        with open(os.path.join(folder, "list.txt"), "w", encoding="ascii") as f:
            f.write("".join(name + "\n" for name in names))  # from the list's folder
        s.words = 'source: "../list.txt"'
    if memory:
        s.words += f" channels: {c} height: {h} width: {w}"
        s.shuffles = False
    return s


def draw_images(draw, folder, n):
    s = Set("images")
    s.type, s.field = "ImageData", "image_data_param"
    s.color = draw.choice(("color", "color", "gray"))
    resize = draw.random() < 0.5
    s.one_size = resize or draw.random() < 0.5
    to = (draw.randrange(3, 14), draw.randrange(3, 14))
    root = draw.random() < 0.6
    os.mkdir(os.path.join(folder, "pictures"))
    lines = []
    for i, (h, w) in enumerate(draw_sizes(draw, n, s.one_size and not resize)):
        planes, label = planes_of(draw, draw.choice((1, 3)), h, w), i
        end, data = image_file(draw, planes, h, w)
        got, within = decoded(planes, s.color, end == "webp")
        if resize:
            got, (h, w) = linear(got, h, w, *to), to
        name = f"{draw.choice(('a', 'b b', 'c'))} {i}.{end}"
        with open(os.path.join(folder, "pictures", name), "wb") as f:
            f.write(data)
        lines.append(("" if root else "../pictures/") + f"{name} {label}\n")
        s.samples.append(Sample((len(got), h, w), flat(got), [[label]], 2 * within if resize else within))
    if n > 4 and draw.random() < 0.25:
        s.skip_broken = draw.randrange(1, 4)
        for i in draw.sample(range(1, n), min(s.skip_broken, n - 1)):
            s.samples[i].broken = True
            lines[i] = "nowhere.png 7\n"
    with open(os.path.join(folder, "list.txt"), "w", encoding="ascii") as f:
        f.writelines(lines)
    s.words = f'source: "../list.txt" is_color: {"true" if s.color == "color" else "false"}'
    if root:
        s.words += ' root_folder: "../pictures/"'
    if resize:
        s.words += f" new_height: {to[0]} new_width: {to[1]}"
    s.color = ""  # no field of transform_param says it
    return s


def draw_converted(draw, folder, n):
    """idx files, CIFAR-10's batches, or pictures, by `cortado convert`; in shards, too."""
    what = draw.choice(("mnist", "cifar10", "images"))
    s = Set("convert " + what)
    s.one_size = True
    backend = draw.choice(("lmdb", "lmdb", "hdf5"))
    command = [job.CORTADO, "convert", what]
    shape = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}.get(what, (3, draw.randrange(4, 12), draw.randrange(4, 12)))
    planes = [planes_of(draw, *shape) for _ in range(n)]
    labels = [draw.randrange(10) for _ in range(n)]
    raw = os.path.join(folder, "raw")
    os.mkdir(raw)

    def put(name, data):
        with open(os.path.join(raw, name), "wb") as f:
            f.write(data)
    if what == "mnist":
        for part in ("train", "t10k"):
            put(f"{part}-images-idx3-ubyte", struct.pack(">IIII", 2051, n, 28, 28) + b"".join(bytes(p[0]) for p in planes))
            put(f"{part}-labels-idx1-ubyte", struct.pack(">II", 2049, n) + bytes(labels))
        command += ["--from=raw", "--to=made"]
    elif what == "cifar10":
        cut = n // 2
        for name, a, b in (("data_batch_1.bin", 0, cut), ("data_batch_2.bin", cut, n), ("test_batch.bin", 0, n)):
            put(name, b"".join(bytes([labels[i]]) + bytes(flat(planes[i])) for i in range(a, b)))
        command += ["--from=raw", "--to=made"]
    else:
        s.encoded = backend == "lmdb" and draw.random() < 0.5
        for i, p in enumerate(planes):
            put(f"{i}.png", png(p, *shape[1:], draw))
        with open(os.path.join(folder, "raw.txt"), "w", encoding="ascii") as f:
            f.writelines(f"{i}.png {label}\n" for i, label in enumerate(labels))
        command += ["--list=raw.txt", "--root=raw/", "--to=made" + (".h5" if backend == "hdf5" else "")] + (["--encoded"] if s.encoded else [])
        planes = [p[::-1] for p in planes]
    command.append(f"--backend={backend}")
    if backend == "lmdb" and draw.random() < 0.5:
        command += [f"--shards={draw.randrange(1, 5)}", f"--stripe={draw.randrange(1, 9)}"]
        s.stripes = max(1, n // int(command[-1].split("=")[1]))
    s.notes = " ".join(command[2:])
    code, out = job.run(command, folder)
    if code != 0:
        raise RuntimeError(f"{' '.join(command)}: {code}: {job.errors(out) or out[-300:]}")
    s.samples = [Sample(shape, flat(p), [[label]]) for p, label in zip(planes, labels)]
    made = "../made" + ("" if what == "images" else "/train_lmdb") if backend == "lmdb" else "../made.h5" if what == "images" else "../made/train.h5"
    s.words = f'source: "{made}"'
    if backend == "lmdb":
        s.words += " backend: LMDB"
    else:
        s.type, s.field, s.threads, s.skips = "HDF5Data", "hdf5_data_param", False, False
    return s


def draw_tokens(draw, folder, n):
    """Files as nanoGPT and llm.c have them."""
    s = Set("tokens")
    s.type, s.field, s.threads, s.shuffles, s.skips, s.one_size = "TokenData", "token_data_param", False, False, False, True
    length, words = draw.randrange(2, 10), draw.choice((300, 50257))
    s.tops = ["data", "label", "places", "parts"][:draw.choice((2, 2, 4))]
    ids = [draw.randrange(1, words) for _ in range(n * length + draw.randrange(1, length + 1))]
    end = draw.choice((None, 0))
    if end is not None:
        ids = [0 if draw.random() < 0.2 else v for v in ids]
    with open(os.path.join(folder, "text.bin"), "wb") as f:
        if draw.random() < 0.5:
            f.write(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253))
        f.write(array.array("H", ids).tobytes())
    for w in range(n):
        window = ids[w * length:w * length + length]
        places, parts, place, part = [], [], 0, 0
        for v in window:
            places.append(place)
            parts.append(part)
            place += 1
            if end is not None and v == end:
                place, part = 0, part + 1
        s.samples.append(Sample((length,), window, [ids[w * length + 1:w * length + length + 1], places, parts][:len(s.tops) - 1]))
    s.words = f'source: "../text.bin" seq_len: {length} vocabulary: {words}' + (f" end_token: {end}" if end is not None else "")
    if draw.random() < 0.3 and len(s.tops) == 2:
        s.mask = words - 1
        s.words += f" mask_ratio: 0.3 mask_token: {s.mask}"
    return s


def draw_text(draw, folder, n):
    """Words, of which layers make columns: 2 n batches of one of each."""
    s = Set("text")
    s.type, s.field, s.threads, s.shuffles, s.skips, s.one_size = "TextData", "text_data_param", False, False, False, True
    s.tops, s.length = ["data", "label", "next"], draw.randrange(1, 8)
    words = [f"w{draw.randrange(30)}" for _ in range(2 * n * s.length + 25 * s.length + draw.randrange(20))]
    ends = {draw.randrange(len(words)) for _ in range(len(words) // 7)} | {len(words) - 1}
    with open(os.path.join(folder, "text.txt"), "w", encoding="ascii") as f:
        f.write("".join(w + ("\n" if i in ends else " ") for i, w in enumerate(words)))
    code, out = job.run([job.CORTADO, "convert", "text", "--from=text.txt", "--to=text.h5"], folder)
    if code != 0:
        raise RuntimeError(f"convert text: {code}: {job.errors(out) or out[-300:]}")
    shape, numbers = Hdf5().read(os.path.join(folder, "text.h5"), "vocabulary")
    names = {name: i for i, name in enumerate(bytes(int(v) for v in numbers).decode().split())}
    s.stream = [float(names[w]) for i, word in enumerate(words) for w in ([word, "<eos>"] if i in ends else [word])]
    s.samples = [Sample((s.length,), [0] * s.length, [])] * n  # there are none
    s.words = f'source: "../text.h5" steps: {s.length}'
    return s


def columns(s, step, batch):
    """What a step of text has: for each column the words, whether it goes on, and the words that follow."""
    long, t = (len(s.stream) - 1) // batch, s.length
    place = step % (long // t) * t
    out = []
    for c in range(batch):
        at = c * long + place
        out.append((s.stream[at:at + t], [float(place + i > 0) for i in range(t)], s.stream[at + 1:at + t + 1]))
    return out


def draw_windows(draw, folder, n):
    s = Set("windows")
    s.type, s.field, s.shuffles, s.skips, s.one_size = "WindowData", "window_data_param", False, False, True
    channels, side, s.share = draw.choice((1, 3)), draw.randrange(3, 9), draw.choice((0.25, 0.5, 0.0, 1.0, 0.34))
    root = draw.random() < 0.5
    lines, kinds = [], []
    for i in range(max(2, n // 4)):
        h, w = draw.randrange(8, 14), draw.randrange(8, 14)
        planes = planes_of(draw, channels, h, w)
        end, data = image_file(draw, planes, h, w)
        if channels == 1 and end == "webp":
            end, data = "png", png(planes, h, w, draw)
        with open(os.path.join(folder, f"{i}.{end}"), "wb") as f:
            f.write(data)
        got, boxes = decoded(planes, "color" if channels == 3 else "gray")[0], []
        for k in range(draw.randrange(3, 6)):
            x1, y1 = draw.randrange(w - 3), draw.randrange(h - 3)
            x2, y2 = draw.randrange(x1 + 2, w), draw.randrange(y1 + 2, h)
            overlap = (0.2, 0.9, 0.6)[k] if k < 3 else draw.choice((0.1, 0.55, 0.7, 1.0))
            label = draw.randrange(1, 20)
            boxes.append(f"{label} {overlap} {x1} {y1} {x2} {y2}\n")
            if 0.5 <= overlap < 0.6:
                continue  # neither of both
            part = [[p[y * w + x] for y in range(y1, y2 + 1) for x in range(x1, x2 + 1)] for p in got]
            s.samples.append(Sample((channels, side, side), flat(linear(part, y2 - y1 + 1, x2 - x1 + 1, side, side)), [[label if overlap >= 0.6 else 0]]))
            kinds.append(overlap >= 0.6)
        lines.append(f"# {i}\n{'' if root else '../'}{i}.{end}\n{channels} {h} {w}\n{len(boxes)}\n" + "".join(boxes))
    with open(os.path.join(folder, "windows.txt"), "w", encoding="ascii") as f:
        f.writelines(lines)
    s.crop, s.kinds = side, kinds
    s.words = f'source: "../windows.txt" fg_threshold: 0.6 bg_threshold: 0.5 fg_fraction: {s.share} cache_images: {draw.choice(("true", "false"))}'
    s.words += ' root_folder: "../"' if root else ""
    return s


def draw_annotated(draw, folder, n):
    """AnnotatedDatum records: pictures with boxes."""
    s = Set("annotated")
    s.type, s.tops, s.one_size, s.most = "AnnotatedData", ["data"], True, draw.randrange(3, 6)
    s.boxes, records, channels = [], {}, draw.choice((1, 3))
    for i, (h, w) in enumerate(draw_sizes(draw, n, True)):
        planes = planes_of(draw, channels, h, w)
        _, data = image_file(draw, planes, h, w)
        if channels == 1:
            data = png(planes, h, w, draw)
        boxes, groups = [], b""
        for _ in range(draw.randrange(s.most + 1)):
            left, top = draw.randrange(50) / 64, draw.randrange(50) / 64
            box = (draw.randrange(1, 9), draw.randrange(5), left, top, left + draw.randrange(1, 15) / 64, top + draw.randrange(1, 15) / 64, draw.choice((0, 1)))
            boxes.append(box)
            corners = b"".join(varint(k << 3 | 5) + struct.pack("<f", v) for k, v in enumerate(box[2:6], 1))
            groups += field(3, field(1, box[0]) + field(2, field(1, box[1]) + field(2, corners + field(6, box[6]))))
        records[f"{i:04d}".encode()] = field(1, datum(None, -1, data=data, encoded=True)) + field(2, 0) + groups
        got, _ = decoded(planes, "")
        s.samples.append(Sample((len(got), h, w), flat(got), []))
        s.boxes.append(boxes)
    write_lmdb(os.path.join(folder, "set"), records, False)
    s.words = 'source: "../set" backend: LMDB'
    s.beside = f" annotated_data_param {{ max_boxes: {s.most} }}"
    return s


def box_rows(s, t, sample, number, place):
    """What the second top has of a window of a sample: boxes move along, are cut off at its edges, and go where nothing is left."""
    top, left, mirrored = place
    _, h, w = s.samples[sample].shape
    ch, cw = t.crop or (h, w)
    rows = []
    for label, instance, x0, y0, x1, y1, hard in s.boxes[sample]:
        x0, x1 = (min(1.0, max(0.0, (x * w - left) / cw)) for x in (x0, x1))
        y0, y1 = (min(1.0, max(0.0, (y * h - top) / ch)) for y in (y0, y1))
        if x1 > x0 and y1 > y0:
            rows.append([number, label, instance, 1 - x1 if mirrored else x0, y0, 1 - x0 if mirrored else x1, y1, hard])
    return rows + [[-1.0] * 8] * (s.most - len(rows))


SETS = [draw_annotated, draw_text, draw_windows, draw_lmdb, draw_lmdb, draw_lmdb, draw_hdf5, draw_hdf5, draw_images, draw_images, draw_converted, draw_converted, draw_tokens,
        lambda draw, folder, n: draw_hdf5(draw, folder, n, memory=True)]


# ---- transforms

WILD = ["random_resized_crop { size: 5 }", "random_resized_crop { size: 4 test_resize: 6 area_min: 0.3 }", "rotate { degrees: 40 }",
        "color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }", "rand_augment { ops: 2 magnitude: 9 }", "lighting { std: 0.1 }",
        "affine { degrees: 10 translate: 0.2 scale_min: 0.7 scale_max: 1.3 shear: 10 }", "erase { probability: 0.5 }",
        "img_rand_resize_lower: 6 img_rand_resize_upper: 11", "random_resize_param { min_size: 6 max_size: 10 }",
        "random_aspect_ratio_param { min_area_ratio: 0.5 aspect_ratio_change: 0.7 }", "expand_param { prob: 0.5 max_expand_ratio: 3 }",
        "distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5 random_order_prob: 0.4 }",
        "resize_param { resize_mode: WARP height: 6 width: 7 interp_mode: LINEAR interp_mode: AREA interp_mode: CUBIC }",
        "noise_param { inverse: true erode: true saltpepper: true saltpepper_param { fraction: 0.2 value: 9 } }"]

class Transform:
    def __init__(self, draw, folder, s, phase):
        self.phase, self.words, self.crop, self.pad, self.mirror, self.scale = phase, [], None, 0, False, 1.0
        self.mean_value, self.mean, self.repeat, self.wild, self.mixes = [], None, 1, False, False
        if s.type in ("TokenData", "TextData"):
            return
        shapes = [x.shape for x in s.samples]
        pictures = len(shapes[0]) == 3
        if draw.random() < 0.5:
            self.scale = draw.choice((0.00390625, 0.017, 2.0, 1 / 255))
            self.words.append(f"scale: {self.scale!r}")
            self.scale = f32(self.scale)
        if s.skip_broken:
            self.words.append(f"skip_broken: {s.skip_broken}")
        if not pictures:
            return
        if s.color:
            self.words.append(f"force_{s.color}: true")
        least_h, least_w = min(x[1] for x in shapes), min(x[2] for x in shapes)
        if s.type == "WindowData":
            self.words.append(f"crop_size: {s.crop}")
        elif s.type == "MemoryData":
            pass
        elif draw.random() < 0.5 or not s.one_size:
            side = draw.randrange(2, min(least_h, least_w) + 1)
            self.crop = (side, side)
            self.words.append(f"crop_size: {side}")
            if phase == "TRAIN" and draw.random() < 0.2 and s.type != "AnnotatedData":
                self.pad = draw.randrange(1, side)
                self.words.append(f"pad: {self.pad}")
        elif draw.random() < 0.2:
            self.crop = (draw.randrange(2, least_h + 1), draw.randrange(2, least_w + 1))
            self.words.append(f"crop_h: {self.crop[0]} crop_w: {self.crop[1]}")
        if s.kind in ("lmdb raw", "lmdb encoded", "images") and draw.random() < 0.25:
            self.wild = True
            self.words += draw.sample(WILD, draw.choice((1, 1, 2, 3)))
            if "resized_crop" in " ".join(self.words):
                self.words = [w for w in self.words if not w.startswith(("crop", "pad"))]
            if s.kind == "images" and draw.random() < 0.3:
                self.mixes = True
                self.words += [draw.choice(("mixup { alpha: 0.4 }", "cutmix { alpha: 1 }", "mixup { alpha: 0.4 } cutmix { alpha: 1 }")), f"classes: {s.n}"]
        if draw.random() < 0.5:
            self.mirror = True
            self.words.append("mirror: true")
        channels = shapes[0][0]
        way = draw.random()
        if way < 0.4:
            self.mean_value = [draw.choice((104, 117.5, 33.25)) + c for c in range(draw.choice((1, channels)))]
            self.words += [f"mean_value: {v}" for v in self.mean_value]
        elif way < 0.6 and s.one_size and self.pad == 0 and s.type != "WindowData":
            self.mean = [draw.randrange(1024) / 4 for _ in s.samples[0].values]
            mean_file(os.path.join(folder, f"mean.{phase}"), shapes[0], self.mean)
            self.words.append(f'mean_file: "../mean.{phase}"')

    def text(self):
        return "transform_param { " + " ".join(self.words) + " }" if self.words else ""

    def out_shape(self, sample):
        return sample.shape if self.crop is None else (sample.shape[0], *self.crop)

    def value(self, sample, i):
        mean = self.mean[i] if self.mean else 0.0
        if self.mean_value:
            c = i // (sample.shape[1] * sample.shape[2])
            mean = self.mean_value[c if len(self.mean_value) > 1 else 0]
        return (sample.values[i] - mean) * self.scale

    def within(self, sample):
        """The difference and the product each round once."""
        most = max((abs(v) for v in sample.values), default=0) + 300
        rounds = self.scale != 1.0 or self.mean_value or self.mean
        return sample.within * abs(self.scale) + (most * abs(self.scale) * 2.0 ** -23 if rounds else 0)

    def windows(self, sample):
        """(values, top, left, mirrored) of all that may come of it."""
        values = [self.value(sample, i) for i in range(len(sample.values))]
        if len(sample.shape) != 3:
            return [(values, 0, 0, False)]
        c, h, w = sample.shape
        ch, cw = self.crop or (h, w)
        if self.phase == "TEST" or self.crop is None:
            places = [((h - ch) // 2, (w - cw) // 2)]
        else:
            places = [(y, x) for y in range(-self.pad, h - ch + self.pad + 1) for x in range(-self.pad, w - cw + self.pad + 1)]
        out = []
        for top, left in places:
            rows = [[values[(k * h + y) * w + x] if 0 <= y < h and 0 <= x < w else 0.0 for x in range(left, left + cw)]
                    for k in range(c) for y in range(top, top + ch)]
            out.append(([v for row in rows for v in row], top, left, False))
            if self.mirror:
                out.append(([v for row in rows for v in reversed(row)], top, left, True))
        return out
