"""Nets of tokens drawn by chance for answers.py, with tokenizers, and what their reference engines give, one text at a time."""
import array
import codecs
import ctypes
import itertools
import json
import math
import os
import random
import re
import struct
import zlib

import forward
import net_worker

GOLDEN = os.path.join(net_worker.job.ROOT, "tests", "golden", "chat", "tokenizer.json")
PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
ALPHABET = "abcdefghijklmnopqrstuvwxyzSTA .,!\n09<|>é日€"
codecs.register_error("each", lambda e: ("\ufffd", e.start + 1))


def shown(data):
    """Bytes as JSON has them: each that is no UTF-8 is one U+FFFD."""
    return bytes(data).decode("utf-8", "each")


# ---- tokenizers: `file` is what --tokenizer gets; encode, and the bytes of an id

class Bytes:
    file, end, special, exact = "bytes", -1, {}, True
    size = 256

    def write(self, folder):
        pass

    def encode(self, text):
        return list(text.encode())

    def bytes_of(self, i):
        return bytes([i])

    def decode(self, ids):
        return b"".join(self.bytes_of(i) for i in ids)


class Bpe(Bytes):
    """The 256 bytes and 30 merges of tests/golden/chat, with the special tokens of chats."""

    def __init__(self, draw):
        with open(GOLDEN, encoding="utf-8") as f:
            self.text = f.read()
        whole = json.loads(self.text)
        keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
        self.char = {b: chr(b) for b in keep}
        self.char.update({b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in keep)})
        byte = {c: b for b, c in self.char.items()}
        self.vocabulary = whole["model"]["vocab"]
        self.rank = {tuple(m): i for i, m in enumerate(whole["model"]["merges"])}
        self.special = {a["content"]: a["id"] for a in whole["added_tokens"]}
        self.bytes = {i: bytes(byte[c] for c in w) for w, i in self.vocabulary.items()}
        self.bytes.update({i: w.encode() for w, i in self.special.items()})
        self.file, self.size, self.end = "tokenizer.json", len(self.bytes), self.special["<|endoftext|>"]

    def write(self, folder):
        with open(os.path.join(folder, self.file), "w", encoding="utf-8") as f:
            f.write(self.text)

    def encode(self, text):
        ids = []
        for piece in PIECES.findall(text):
            w = [self.char[b] for b in piece.encode()]
            while len(w) > 1:
                rank, at = min((self.rank.get(p, math.inf), i) for i, p in enumerate(zip(w, w[1:])))
                if rank == math.inf:
                    break
                w[at:at + 2] = [w[at] + w[at + 1]]
            ids += [self.vocabulary[x] for x in w]
        return ids

    def bytes_of(self, i):
        return self.bytes[i]

    def chat(self, template, messages):
        """Ids of a chat, as the template's Jinja text in tests/golden/chat/chats.json has them."""
        s, ids = self.special, []
        if template == "LLAMA3":
            ids.append(s["<|begin_of_text|>"])
        text = ""
        for role, content in messages:
            if template == "CHATML":
                ids += [*self.encode(text), s["<|im_start|>"], *self.encode(f"{role}\n{content}"), s["<|im_end|>"]]
                text = "\n"
            elif template == "LLAMA3":
                ids += [s["<|start_header_id|>"], *self.encode(role), s["<|end_header_id|>"], *self.encode("\n\n" + content.strip(" \t\n\v\f\r")), s["<|eot_id|>"]]
            else:
                ids += [*self.encode(text + f"<|{role}|>\n{content}"), self.end]
                text = "\n"
        if template == "CHATML":
            return [*ids, *self.encode(text), s["<|im_start|>"], *self.encode("assistant\n")]
        if template == "LLAMA3":
            return [*ids, s["<|start_header_id|>"], *self.encode("assistant"), s["<|end_header_id|>"], *self.encode("\n\n")]
        return [*ids, *self.encode(text + "<|assistant|>\n")]

    def chat_end(self, template):
        return {"CHATML": self.special["<|im_end|>"], "LLAMA3": self.special["<|eot_id|>"]}.get(template, -1)


class Char(Bytes):
    """A token a character of the alphabet; and, at times, ids that no text has."""

    def __init__(self, draw):
        self.words = sorted(ALPHABET)
        draw.shuffle(self.words)
        gap = draw.choice((0, 0, 3))
        self.id = {c: i + (gap if i > 9 else 0) for i, c in enumerate(self.words)}
        self.bytes = {i: c.encode() for c, i in self.id.items()}
        self.file, self.size = "char.json", max(self.bytes) + 1
        self.special, self.end = {}, -1
        if draw.random() < 0.5:
            self.end, self.special = self.size, {"<|endoftext|>": self.size}
            self.bytes[self.end] = b"<|endoftext|>"
            self.size += 1

    def write(self, folder):
        added = [{"id": i, "content": w, "special": True} for w, i in self.special.items()]
        with open(os.path.join(folder, self.file), "w", encoding="utf-8") as f:
            json.dump({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "decoder": {"type": "Fuse"},
                       "model": {"type": "BPE", "unk_token": None, "vocab": self.id, "merges": []}}, f)

    def encode(self, text):
        return [self.id[c] for c in text]

    def bytes_of(self, i):
        return self.bytes[i]


class Words(Bytes):
    """WordPiece: words of letters, and pieces of them; with [CLS] and [SEP] around texts, or without."""
    exact = False

    def __init__(self, draw):
        around = draw.random() < 0.5
        self.words = ["[UNK]"] + (["[CLS]", "[SEP]"] if around else [])
        self.special = {w: i for i, w in enumerate(self.words)}
        letters = "abcdefghi"
        self.words += [*letters, *("##" + c for c in letters), "abc", "##def", "ha", "bed", "##ed", "é"]
        self.id = {w: i for i, w in enumerate(self.words)}
        self.file, self.size, self.end, self.around = "words.json", len(self.words), 2 if around else -1, around
        if not around:
            del self.special["[UNK]"]

    def write(self, folder):
        added = [{"id": i, "content": w, "special": True} for w, i in self.special.items()]
        with open(os.path.join(folder, self.file), "w", encoding="utf-8") as f:
            json.dump({"version": "1.0", "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": False},
                       "pre_tokenizer": {"type": "BertPreTokenizer"}, "added_tokens": added,
                       "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                                 "vocab": self.id}}, f)

    def word(self, w):
        ids, at = [], 0
        while at < len(w):
            for end in range(len(w), at, -1):
                piece = ("##" if at else "") + w[at:end]
                if piece in self.id:
                    ids.append(self.id[piece])
                    at = end
                    break
            else:
                return [0]
        return ids

    def encode(self, text):
        ids = [i for w in re.findall(r"\w+|[^\w\s]", text) for i in self.word(w)]
        return [1, *ids, 2] if self.around else ids

    def bytes_of(self, i):
        return self.words[i].removeprefix("##").encode()

    def decode(self, ids):
        text = ""
        for i in ids:
            w = self.words[i]
            text += w[2:] if w.startswith("##") else (" " if text else "") + w
        return text.encode()


# ---- nets

def normal(draw, shape, std, middle=0.0):
    return shape, array.array("f", [draw.gauss(middle, std) for _ in range(math.prod(shape))])


class Net:
    """kind: texts (it scores the next token), embeddings (it pools), states (a row a token)."""

    def __init__(self, draw, kind):
        self.kind, self.lines, self.weights, self.terms, self.layers = kind, [], {}, 16, 0
        self.precision = "F32"
        if kind == "texts":
            self.tokenizer = draw.choice((Bytes, Bytes, Bpe, Bpe, Bpe, Char, Char, Words))
        else:
            self.tokenizer = draw.choice((Bytes, Words, Bpe))
        self.tokenizer = self.tokenizer() if self.tokenizer is Bytes else self.tokenizer(draw)
        if kind == "texts":
            self.tokenizer.around = False  # of texts that go on
        self.rows = self.tokenizer.size + draw.choice((0, 0, 0, 1, 7))  # more than the tokenizer has
        self.heads = draw.choice((1, 2, 2, 3, 4, 4, 6))
        self.groups = draw.choice([g for g in range(1, self.heads + 1) if self.heads % g == 0])
        self.size = draw.choice((2, 4, 6, 8, 8, 16, 24))
        self.c = self.heads * self.size
        self.most = draw.choice((24, 33, 64, 64, 96, 100, 128, 160))
        self.table = draw.random() < 0.5
        self.wpe = 'type: SINUSOIDAL' if not self.table and draw.random() < 0.2 else ""
        if self.c < 8:
            self.size, self.c = self.size * 4, self.c * 4
        self.inner = self.c  # of all heads
        self.wide = kind == "texts" and draw.random() < 0.3  # a MiB of keys and values has few tokens
        if self.wide:
            self.heads, self.groups, self.size, self.c = 4, draw.choice((4, 4, 2)), 64, draw.choice((16, 32))
            self.inner = 256
        self.make(draw)

    def weight(self, draw, name, k, shape, std, middle=0.0):
        self.weights[f"{name}/{k}"] = normal(draw, shape, std, middle)

    def layer(self, name, kind, bottoms, top, fields="", ref=None):
        self.layers += 1
        self.lines.append((f'layer {{ name: "{name}" type: "{kind}" ' + " ".join(f'bottom: "{b}"' for b in bottoms) + f' top: "{top}" {fields}', ref))
        return top

    def product(self, draw, name, x, wide, out, std=1.0, bias=True, more=""):
        self.weight(draw, name, 0, (out, wide), std / math.sqrt(wide))
        if bias:
            self.weight(draw, name, 1, (out,), 0.3)
        self.terms = max(self.terms, wide)
        return self.layer(name, "InnerProduct", [x], name, f"inner_product_param {{ num_output: {out} axis: 2{'' if bias else ' bias_term: false'} }} {more}", "ref")

    def norm(self, draw, name, x):
        self.weight(draw, name, 0, (self.c,), 0.2, 1.0)
        if self.normed == "LayerNorm":
            self.weight(draw, name, 1, (self.c,), 0.2)
        return self.layer(name, self.normed, [x], name)

    def block(self, draw, b, x):
        c, kv = self.c, self.groups * self.size
        y = self.norm(draw, f"b{b}n", x) if self.normed else x
        if draw.random() < 0.7:
            bottoms = [self.product(draw, f"b{b}qkv", y, c, self.inner + 2 * kv, 1.3)]
        else:
            bottoms = [self.product(draw, f"b{b}{w}", y, c, n, 1.3) for w, n in (("q", self.inner), ("k", kv), ("v", kv))]
        what = [f"num_heads: {self.heads}", f"num_kv_heads: {self.groups}" if self.groups != self.heads else "", "causal: true" if self.causal else "",
                f"window: {draw.choice((1, 5, 31, 32, 33, 40))}" if self.causal and draw.random() < 0.3 else "", "scale: 0.4" if draw.random() < 0.15 else ""]
        if self.rope and self.size % 2 == 0:
            dim = f"dim: {self.size // 4 * 2}" if self.size >= 4 and draw.random() < 0.3 else ""
            what.append("rope { " + dim + draw.choice(("", " interleaved: true", " base: 500")) + " }")
        a = self.layer(f"b{b}attn", "Attention", bottoms + (["mask"] if self.masked else []), f"b{b}attn",
                       "attention_param { " + " ".join(w for w in what if w) + " }", "reference")
        a = self.product(draw, f"b{b}proj", a, self.inner, c)
        x = self.layer(f"b{b}sum", "Eltwise", [x, a], f"b{b}sum")
        if draw.random() < 0.7:
            wide = draw.choice((c, 2 * c, 3 * c + 4)) // 2 * 2
            y = self.norm(draw, f"b{b}n2", x) if self.normed else x
            act = draw.choice(("GELU", "SwiGLU", "ReLU", "TanH"))
            y = self.product(draw, f"b{b}up", y, c, 2 * wide if act == "SwiGLU" else wide)
            y = self.layer(f"b{b}act", act, [y], y if act != "SwiGLU" and draw.random() < 0.5 else f"b{b}act", "", "ref" if act == "ReLU" else None)
            y = self.product(draw, f"b{b}down", y, wide, c)
            x = self.layer(f"b{b}sum2", "Eltwise", [x, y], f"b{b}sum2")
        return x

    def make(self, draw):
        self.causal = self.kind == "texts" or draw.random() < 0.3
        self.masked = self.kind == "embeddings" and not self.causal
        self.normed = draw.choice(("LayerNorm", "RMSNorm", "RMSNorm", ""))
        self.rope = not self.table and draw.random() < 0.8
        self.tied = self.kind == "texts" and draw.random() < 0.4
        share = 'param { name: "wte" }' if self.tied else ""
        self.weight(draw, "wte", 0, (self.rows, self.c), 1.0)
        x = self.layer("wte", "Embed", ["tokens"], "wte", f"embed_param {{ input_dim: {self.rows} num_output: {self.c} bias_term: false }} {share}")
        if self.table:
            self.weight(draw, "wpe", 0, (self.most, self.c), 0.7)
            x = self.layer("wpe", "Position", [x], "wpe", f"position_param {{ max_length: {self.most} }}")
        elif self.wpe:
            x = self.layer("wpe", "Position", [x], "wpe", f"position_param {{ {self.wpe} }}")
        for b in range(draw.choice((1, 2, 2, 3))):
            x = self.block(draw, b, x)
        if self.normed and draw.random() < 0.8:
            x = self.norm(draw, "nf", x)
        self.out = self.c
        if self.kind == "texts":
            self.out = self.rows
            fields = f"inner_product_param {{ num_output: {self.rows} axis: 2 bias_term: false }} {share}"
            self.layer("head", "InnerProduct", [x], "head", fields, "ref")
            if not self.tied:
                self.weight(draw, "head", 0, (self.rows, self.c), draw.choice((2.0, 4.0)) / math.sqrt(self.c))
            self.terms = max(self.terms, self.c)
        elif self.kind == "embeddings":
            self.lines.append(('layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } }', None))
            self.layer("pool", "MatMul", ["row", x], "pool", "", "ref")
            self.terms = max(self.terms, self.most)

    def text(self, ref=False, serve="", dim=None):
        tops = ["tokens"] + (["mask"] if self.kind == "embeddings" else [])
        shape = " ".join(f"shape {{ dim: 1 dim: {dim or self.most} }}" for _ in tops)
        lines = ['name: "m"', serve, "fuse: false" if ref else "",
                 'layer { name: "in" type: "Input" ' + " ".join(f'top: "{t}"' for t in tops) + f" input_param {{ {shape} varies: true }} }}"]
        for line, engine in self.lines:
            kernel = ' ct_kernel { forward: "%s" backward_data: "%s" backward_weight: "%s" }' % (engine, engine, engine) if ref and engine else ""
            lines.append(line + kernel + " }")
        return "\n".join(x for x in lines if x) + "\n"

    def write(self, folder, draw):
        """deploy.prototxt, w.npz, and three whose numbers are changed as rounding does; and the reference's net."""
        by = math.sqrt(self.terms) * 2.0 ** -24 if self.precision == "F32" else 2.0 ** -9 * math.sqrt(1 + self.layers)
        for name, text in (("deploy.prototxt", self.text(serve=self.serve)), ("ref.prototxt", self.text(ref=True, dim=8))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        forward.write_npz(os.path.join(folder, "w.npz"), self.weights)
        for i in range(3):
            forward.write_npz(os.path.join(folder, f"r{i}.npz"), {n: (s, forward.changed(draw, v, by)) for n, (s, v) in self.weights.items()})
        self.tokenizer.write(folder)

    serve = ""


# ---- nets of words

class List(Bytes):
    """A vocabulary, one word a line; lines end with <eos>."""
    file, exact = "words.txt", True

    def __init__(self, draw):
        letters = "abcdeéé日"
        self.words = sorted({"".join(draw.choice(letters) for _ in range(draw.choice((1, 2, 3)))) for _ in range(draw.choice((3, 20, 60)))})
        self.words += ["<eos>"] + ["<unk>"] * draw.choice((0, 1))
        draw.shuffle(self.words)
        self.id, self.size, self.line_end = {w: i for i, w in enumerate(self.words)}, len(self.words), self.words.index("<eos>")

    def write(self, folder):
        with open(os.path.join(folder, self.file), "w", encoding="utf-8") as f:
            f.write("\n".join(self.words) + "\n")

    def encode(self, text):
        ids = []
        for i, line in enumerate(text.split("\n")):
            ids += [self.line_end] * (i > 0) + [self.id[w] if w in self.id else self.id["<unk>"] for w in line.split(" ") if w]
        return ids

    def decode(self, ids):
        text = ""
        for i in ids:
            text += "\n" if i == self.line_end else self.words[i] if text[-1:] in ("", "\n") else " " + self.words[i]
        return text.encode()

    def behind(self, last, ids):
        """What follows the last word of a prompt."""
        return self.decode([last, *ids])[len(self.decode([last])):].decode()


class WordNet(Net):
    """LSTM and RNN layers over a list of words."""

    def __init__(self, draw):
        self.kind, self.lines, self.weights, self.terms, self.layers, self.precision = "lists", [], {}, 16, 0, "F32"
        self.tokenizer, self.most, self.c = List(draw), 30, draw.choice((1, 4, 8, 17))
        self.out = self.rows = self.tokenizer.size
        self.weight(draw, "embed", 0, (self.rows, self.c), 1.0)
        x, n = self.layer("embed", "Embed", ["words"], "embed", f"embed_param {{ input_dim: {self.rows} num_output: {self.c} bias_term: false }}"), self.c
        for i in range(draw.choice((1, 1, 2))):
            kind, h = draw.choice(("LSTM", "RNN")), draw.choice((1, 4, 8, 16, 19))
            gates = 4 * h if kind == "LSTM" else h
            shapes = [(gates, n), (gates,), (gates, h)] + ([(h, h), (h,)] if kind == "RNN" else [])
            for k, shape in enumerate(shapes):
                self.weight(draw, f"{kind}{i}", k, shape, 1.5 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.3)
            x, n = self.layer(f"{kind}{i}", kind, [x, "cont"], f"{kind}{i}", f"recurrent_param {{ num_output: {h} }}", "ref"), h
            self.terms = max(self.terms, n)
        self.product(draw, "score", x, n, self.rows, 4.0)
        self.softmax = draw.random() < 0.5

    def text(self, ref=False, serve="", dim=None):
        text = Net.text(self, ref=ref, dim=1).replace('top: "tokens" input_param { shape { dim: 1 dim: 1 }', 'top: "words" top: "cont" input_param '
                                                      "{ shape { dim: 4 dim: 1 } shape { dim: 4 dim: 1 }")
        if not ref:
            text = text.replace(" varies: true", "")
        return text + ('layer { name: "prob" type: "Softmax" bottom: "score" top: "prob" softmax_param { axis: 2 } }\n' if self.softmax and not ref else "")


# ---- nets of pictures

def png(width, height, channels, rows):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    lines = b"".join(b"\0" + bytes(rows[width * channels * y:width * channels * (y + 1)]) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


class Pictures(Net):
    """Convolutions, and classes of pictures."""

    def __init__(self, draw):
        self.kind, self.lines, self.weights, self.terms, self.layers, self.tokenizer = "pictures", [], {}, 16, 0, Bytes()
        self.precision = "F32"
        self.c, self.h, self.w = draw.choice((1, 3)), draw.choice((5, 8, 12)), draw.choice((5, 8, 12, 13))
        self.out = draw.choice((2, 5, 10, 33))
        self.margin = draw.choice((0, 0, 0, 1, 2, 5)) if self.h == self.w else 0
        self.scale, self.mean = draw.choice((1, 0.00390625, 0.02)), [draw.choice((0, 100, 127.5)) for _ in range(self.c)]
        if self.scale == 1:
            self.mean, self.scale = [128] * self.c, 0.01
        self.softmax, self.labels = draw.random() < 0.7, draw.random() < 0.5
        self.serve = "serve { transform_param { " + f"scale: {self.scale} " + " ".join(f"mean_value: {m}" for m in self.mean) \
            + (f" crop_size: {self.h}" if self.margin else "") + " }" + (' labels: "labels"' if self.labels else "") + " }"
        x, c, h, w = "data", self.c, self.h, self.w
        for i in range(draw.choice((1, 1, 2))):
            k, o = draw.choice((1, 3, 5)), draw.choice((3, 8, 16))
            self.weight(draw, f"conv{i}", 0, (o, c, k, k), 1.5 / math.sqrt(c * k * k))
            self.weight(draw, f"conv{i}", 1, (o,), 0.3)
            self.terms = max(self.terms, c * k * k * (64 * 64 if c >= 16 or o >= 16 else 1))  # Winograd's bound
            x = self.layer(f"conv{i}", "Convolution", [x], f"conv{i}", f"convolution_param {{ num_output: {o} kernel_size: {k} pad: {k // 2} }}", "ref")
            x = self.layer(f"act{i}", draw.choice(("ReLU", "TanH")), [x], x)
            c = o
            if draw.random() < 0.6:
                x = self.layer(f"pool{i}", "Pooling", [x], f"pool{i}", f"pooling_param {{ pool: {draw.choice(('MAX', 'AVE'))} kernel_size: 2 stride: 2 }}", "ref")
                h, w = (h + 1) // 2, (w + 1) // 2
        n = c * h * w
        self.weight(draw, "ip", 0, (self.out, n), 2 / math.sqrt(n))
        self.weight(draw, "ip", 1, (self.out,), 0.3)
        self.terms = max(self.terms, n)
        x = self.layer("ip", "InnerProduct", [x], "ip", f"inner_product_param {{ num_output: {self.out} }}", "ref")
        if self.softmax:
            self.layer("prob", "Softmax", [x], "prob")

    def text(self, ref=False, serve="", dim=None):
        kernel = ' ct_kernel { forward: "ref" backward_data: "ref" backward_weight: "ref" } }'
        lines = ['name: "m"', "" if ref else serve, "fuse: false" if ref else "",
                 f'layer {{ name: "in" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: {self.c} dim: {self.h} dim: {self.w} }} }} }}']
        lines += [line + (kernel if ref and engine else " }") for line, engine in self.lines]
        return "\n".join(x for x in lines if x) + "\n"

    def write(self, folder, draw):
        super().write(folder, draw)
        with open(os.path.join(folder, "labels"), "w", encoding="utf-8") as f:
            f.write("".join(f"kind {i}\n" for i in range(self.out)))

    def picture(self, draw):
        """A file, and what the net gets of it."""
        h, w, c = self.h + self.margin, self.w + self.margin, self.c
        rows = [draw.randrange(256) for _ in range(h * w * c)]
        top, data = self.margin // 2, []
        for k in range(c):  # blue comes first
            data += [(rows[((top + y) * w + top + x) * c + c - 1 - k] - self.mean[k]) * self.scale for y in range(self.h) for x in range(self.w)]
        return png(w, h, c, rows), data


# ---- the reference: one text at a time, by the plainest engines

class Reference:
    def __init__(self, folder, net, draw):
        self.worker, self.net, self.row, self.handle, self.lengths = net_worker.Worker(), net, {}, {}, {}
        self.worker.call("set_threads", 1)
        for name in ("w", "r0", "r1", "r2"):
            h = ctypes.c_void_p()
            self.worker.call("net_open", os.path.join(folder, "ref.prototxt").encode(), os.path.join(folder, name + ".npz").encode(), 1, ctypes.byref(h))
            self.handle[name] = h
        self.out = self.worker.outputs(self.handle["w"].value)[0]
        self.limit = self.derive(draw)

    def close(self):
        for h in self.handle.values():
            self.worker.lib.cortado_net_close(h)

    def run(self, name, ids):
        h = self.handle[name].value
        if self.net.kind == "pictures":
            self.worker.write(h, {"data": array.array("f", ids)})
            self.worker.call("net_forward", ctypes.c_void_p(h), None, None)
            return self.worker.blob(h, self.out)
        tops = ["tokens"] + (["mask"] if self.net.kind == "embeddings" else [])
        if self.net.kind == "lists":
            tops = ["words", "cont"]
        if self.lengths.get(name) != len(ids):
            self.worker.reshape(h, {t: (1, len(ids)) if self.net.kind != "lists" else (len(ids), 1) for t in tops})
            self.lengths[name] = len(ids)
        given = {"tokens": array.array("f", ids), "mask": array.array("f", [1.0] * len(ids)), "words": array.array("f", ids),
                 "cont": array.array("f", [0.0] + [1.0] * (len(ids) - 1))}
        self.worker.write(h, {t: given[t] for t in tops})
        self.worker.call("net_forward", ctypes.c_void_p(h), None, None)
        return self.worker.blob(h, self.out)

    def derive(self, draw):
        """By how much what comes out may differ: 4 times what changed weights change."""
        most = 0.0
        for k in range(3):
            if self.net.kind == "pictures":
                ids = self.net.picture(draw)[1]
            else:
                ids = [draw.randrange(self.net.tokenizer.size) for _ in range((1, self.net.most // 2, self.net.most)[k])]
            whole = self.run("w", ids)
            scale = max(abs(v) for v in whole)
            assert scale < 1e30, "scores of the reference"
            most = max(most, 4 * 2.0 ** -24 * scale, *(forward.difference(whole, self.run(r, ids)) for r in ("r0", "r1", "r2")))
        return 4 * most

    def rows(self, ids):
        whole, n = self.run("w", ids), self.net.out
        return [whole[i * n:(i + 1) * n] for i in range(len(whole) // n)]

    def fill(self, ids):
        """Scores behind each token of ids, of nets that look back alone."""
        if tuple(ids) not in self.row:
            for i, row in enumerate(self.rows(ids)):
                self.row[tuple(ids[:i + 1])] = row

    def scores(self, ids):
        self.fill(ids)
        return self.row[tuple(ids)]

    def known(self):
        """Ids that the tokenizer has."""
        t = self.net.tokenizer
        return [i for i in range(t.size) if not hasattr(t, "bytes") or i in t.bytes]


class Walk:
    """Follows a text of the server's, token by token: what may come next, and what came of it."""

    def __init__(self, ref, draws=None):
        self.ref, self.limit, self.known, self.draws = ref, ref.limit, ref.known(), draws

    def allowed(self, row, chosen, temperature, top_p):
        """Why a token cannot have been drawn."""
        best = max(row[i] for i in self.known)
        slack = 2 * self.limit
        if temperature == 0 or top_p == 0:
            return "" if row[chosen] >= best - slack else f"token {chosen} has score {row[chosen]:.6g}, the best {best:.6g}"
        weight = {i: math.exp((row[i] - best) / temperature) for i in self.known}
        if math.exp(min(0.0, (row[chosen] - best + slack) / temperature)) == 0:
            return f"token {chosen} has no probability"
        if top_p == 1:
            return ""
        all_of = sum(weight.values())
        before = sum(w for i, w in weight.items() if row[i] > row[chosen] + slack)
        if before * math.exp(-min(2 * slack / temperature, 700)) >= top_p * all_of * (1 + 1e-9):
            return f"token {chosen} is behind {before / all_of:.6f} of the probability, top_p is {top_p}"
        return ""

    def clear_best(self, row):
        """None: two are as good, within what rounding does."""
        best = max(self.known, key=lambda i: (row[i], -i))
        second = max((row[i] for i in self.known if i != best), default=-math.inf)
        return best if row[best] - second > 2 * self.limit else None

    def logprob(self, row, i):
        best = max(row[k] for k in self.known)
        return row[i] - best - math.log(sum(math.exp(row[k] - best) for k in self.known))

    def surprise(self, row, chosen, temperature, top_p):
        """How much less probable than in the mean the drawn token was; its variance; and what rounding may add to that mean. Scores
        that are off by `limit` change each probability by a factor of exp(2 limit / temperature) at most. None: more than a tenth."""
        by_rounding = math.expm1(min(2 * self.limit / temperature, 1.0))
        if by_rounding > 0.1:
            return None
        best = max(row[i] for i in self.known)
        w = sorted(((math.exp((row[i] - best) / temperature), i) for i in self.known), key=lambda p: (-p[0], p[1]))
        kept = w
        if top_p < 1:
            sums = list(itertools.accumulate(x for x, _ in w))
            kept = w[:1 + sum(s < top_p * sums[-1] for s in sums)]
        total = sum(x for x, _ in kept)
        p = {i: x / total for x, i in kept if x > 0}
        if chosen not in p:
            return None
        mean = -sum(v * math.log(v) for v in p.values())
        square = sum(v * math.log(v) ** 2 for v in p.values())
        square = max(0.0, square - mean * mean)
        return -math.log(p[chosen]) - mean, square, by_rounding * math.sqrt(square)
