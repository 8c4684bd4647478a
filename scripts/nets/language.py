"""Transformers: models of language that predict the next token, or tokens that are hidden."""
from typing import NamedTuple

from .net import Net

LETTERS, BYTE_PAIRS, SMOL, PIECES = 128, 50257, 49152, 30522
MASK = 103  # BERT's [MASK]


class Transformer(Net):
    """Values are N x T x C: N sequences of T tokens. Layers have the names that framework/snapshot/lm_table.c maps."""

    def __init__(self, name, tokens, seq_len, width, std, drop=0.0):
        super().__init__(name, f'type: "gaussian" std: {std}', lr2=False)
        self.tokens, self.seq_len, self.width, self.std, self.drop = tokens, seq_len, width, std, drop

    def token_data(self, folder, batch, test_batch, tops, more=""):
        for phase, part, size in (("TRAIN", "train", batch), ("TEST", "valid", test_batch)):
            self.layer("data", "TokenData", [], tops, f"include {{ phase: {phase} }}",
                       f'token_data_param {{ source: "data/{folder}/{part}.bin" batch_size: {size}'
                       f" seq_len: {self.seq_len} vocabulary: {self.tokens}{more} }}")
        self.input = [("tokens", (1, self.seq_len))]
        self.varies = True

    def embed(self, top="wte"):
        return self.layer("wte", "Embed", ["tokens"], [top], 'param { name: "wte" }', self.table(self.tokens))

    def table(self, rows):
        return (f"embed_param {{ input_dim: {rows} num_output: {self.width} bias_term: false"
                f" weight_filler {{ {self.weight} }} }}")

    def position(self, bottom, rows, top):
        return self.layer("wpe", "Position", [bottom], [top],
                          f"position_param {{ max_length: {rows} weight_filler {{ {self.weight} }} }}")

    def linear(self, name, bottom, out, std=None, bias=True):
        weight = f'type: "gaussian" std: {std}' if std else self.weight
        return self.layer(name, "InnerProduct", [bottom], [name],
                          f"inner_product_param {{ num_output: {out} axis: 2{'' if bias else ' bias_term: false'}"
                          f" weight_filler {{ {weight} }} }}")

    def head(self, bottom, bias=False):
        """The table of tokens a second time."""
        return self.layer("head", "InnerProduct", [bottom], ["head"], 'param { name: "wte" }',
                          f"inner_product_param {{ num_output: {self.tokens} axis: 2{'' if bias else ' bias_term: false'} }}")

    def norm(self, name, bottom, eps, kind="LayerNorm", top=None):
        field = "layer_norm_param" if kind == "LayerNorm" else "rms_norm_param"
        return self.layer(name, kind, [bottom], [top or name], f"{field} {{ eps: {eps} }}")

    def attention(self, bottom, heads, more="", segments=(), way=""):
        drop = f" dropout: {self.drop}" if self.drop else ""
        return self.layer(f"{way}attn", "Attention", [bottom, *segments], [f"{way}attn"],
                          f"attention_param {{ num_heads: {heads}{more}{drop} }}")

    def masked_attention(self, bottom, heads):
        """Windows of training are full; a deploy net has a mask."""
        for where, segments in (("train", []), ("deploy", ["mask"])):
            self.where = where
            top = self.attention(bottom, heads, segments=segments)
        self.where = ""
        return top

    def dropped(self, name, blob):
        return self.dropout(name, blob, self.drop) if self.drop else blob

    def gelu(self, name, blob, tanh=False):
        return self.layer(name, "GELU", [blob], [blob], *(["gelu_param { approximate: TANH }"] if tanh else []))

    def token_loss(self, bottom, ignored=False):
        """The mean over the tokens that are asked for."""
        more = ["loss_param { ignore_label: -1 }"] if ignored else []
        self.layer("loss", "SoftmaxWithLoss", [bottom, "next"], ["loss"], "softmax_param { axis: 2 }", *more)


class Shape(NamedTuple):
    """What makes a GPT; `batch` and `test_batch` in sequences of `seq_len` tokens."""
    name: str
    folder: str
    tokens: int
    seq_len: int
    width: int
    blocks: int
    heads: int
    batch: int
    test_batch: int
    tokenizer: bool = False
    inner: int = 0  # between the two products; 0: four times the width


SHAPES = {
    "gpt_char": Shape("GPT-char", "warandpeace", LETTERS, 256, 384, 6, 6, 16, 16, True),
    "gpt2": Shape("GPT-2-124M", "gpt2", BYTE_PAIRS, 1024, 768, 12, 12, 4, 4),
    "gpt2_medium": Shape("GPT-2-355M", "gpt2", BYTE_PAIRS, 1024, 1024, 24, 16, 2, 4),
    "gpt2_large": Shape("GPT-2-774M", "gpt2", BYTE_PAIRS, 1024, 1280, 36, 20, 1, 1),
    "gpt2_xl": Shape("GPT-2-1.5B", "gpt2", BYTE_PAIRS, 1024, 1600, 48, 25, 1, 1),
}


class Gpt(Transformer):
    """Radford et al. 2019, but for what a block does. Layers that end a branch start smaller by the root of the
    number of branches that the net adds up."""

    def __init__(self, shape, branches):
        super().__init__(shape.name, shape.tokens, shape.seq_len, shape.width, 0.02)
        self.shape, self.last = shape, f"{0.02 / branches ** 0.5:.6f}"
        tokenizer = f' tokenizer: "data/{shape.folder}/tokenizer.json"' if shape.tokenizer else ""
        self.token_data(shape.folder, shape.batch, shape.test_batch, ["tokens", "next"], tokenizer)
        self.position(self.embed(), shape.seq_len, "x")

    def attend(self, normed, way=""):
        """What attention adds to the residual."""
        qkv = self.linear(f"{way}attn_qkv", normed, 3 * self.width)
        attn = self.attention(qkv, self.shape.heads, more=" causal: true", way=way)
        return self.linear(f"{way}attn_proj", attn, self.width, std=self.last)

    def feed(self, normed, way=""):
        """What the two products with a function between add to the residual."""
        width = self.shape.inner or 4 * self.width
        inner = self.gelu(f"{way}gelu", self.linear(f"{way}fc", normed, width), tanh=True)
        return self.linear(f"{way}proj", inner, self.width, std=self.last)

    def end(self, x):
        self.token_loss(self.head(self.norm("ln_f", x, 1e-5)))
        return self


def gpt(shape):
    """A residual that attention and then the products add to, each after a norm of it."""
    net = Gpt(shape, 2 * shape.blocks)
    with net.repeat(shape.blocks, "h%d_", "x", "x"):
        middle = net.eltwise("sum1", "x", net.attend(net.norm("ln1", "x", 1e-5)))
        net.layer("sum2", "Eltwise", [middle, net.feed(net.norm("ln2", middle, 1e-5))], ["x"])
    return net.end("x")


def gpt_char():
    """A small GPT on characters, of the size of nanoGPT's first example."""
    return gpt(SHAPES["gpt_char"])


def gpt2():
    """Radford et al., "Language models are unsupervised multitask learners", 2019: GPT-2 small."""
    return gpt(SHAPES["gpt2"])


def gpt2_medium():
    """Radford et al., "Language models are unsupervised multitask learners", 2019: GPT-2 medium."""
    return gpt(SHAPES["gpt2_medium"])


def gpt2_large():
    """Radford et al., "Language models are unsupervised multitask learners", 2019: GPT-2 large."""
    return gpt(SHAPES["gpt2_large"])


def gpt2_xl():
    """Radford et al., "Language models are unsupervised multitask learners", 2019: GPT-2 XL."""
    return gpt(SHAPES["gpt2_xl"])


def llama(name, folder, tokens, seq_len, width, inner, blocks, heads, kv_heads, base, std, batch):
    """Touvron et al. 2023, with shared keys and values (Ainslie et al. 2023) and a head that is the table of tokens."""
    net = Transformer(name, tokens, seq_len, width, std)
    net.token_data(folder, batch, batch, ["tokens", "next"])
    net.embed(top="x")
    with net.repeat(blocks, "h%d_", "x", "x"):
        packed = width + 2 * width // heads * kv_heads
        qkv = net.linear("qkv", net.norm("norm1", "x", 1e-5, "RMSNorm"), packed, bias=False)
        attn = net.attention(qkv, heads, more=f" num_kv_heads: {kv_heads} causal: true rope {{ base: {base} }}")
        middle = net.eltwise("sum1", "x", net.linear("attn_proj", attn, width, bias=False))
        both = net.linear("gate_up", net.norm("norm2", middle, 1e-5, "RMSNorm"), 2 * inner, bias=False)
        gated = net.layer("swiglu", "SwiGLU", [both], ["swiglu"])
        net.layer("sum2", "Eltwise", [middle, net.linear("down", gated, width, bias=False)], ["x"])
    net.token_loss(net.head(net.norm("norm_f", "x", 1e-5, "RMSNorm")))
    return net


def llama_135m():
    """Ben Allal et al., "SmolLM2: When Smol goes big", 2025: the shape of SmolLM2-135M, a small Llama."""
    return llama("Llama-135M", "smollm", SMOL, 2048, 576, 1536, 30, 9, 3, 100000, 0.041667, 1)


def bert(name, width, blocks, heads, batch, gives="scores", tokens=PIECES, places=512, drop=0.1):
    """Devlin et al. 2019, without the prediction of the next sentence. A mask of 0 and 1 says which tokens of a
    deploy net there are: those with 1 see each other alone. It gives scores of tokens, `states` of the last block, or
    an `embedding`."""
    net = Transformer(name, tokens, places, width, 0.02, drop)
    net.token_data("bert", batch, batch, ["tokens", "next"], f" mask_ratio: 0.15 mask_token: {MASK}")
    net.input = [(top, (1, places)) for top in ("tokens", "types", "mask")]
    net.where = "train"
    net.layer("types", "Power", ["tokens"], ["types"], "power_param { scale: 0 }")
    net.where = ""
    words = net.eltwise("words", net.embed(), net.layer("wtt", "Embed", ["types"], ["wtt"], net.table(2)))
    net.norm("ln_emb", net.position(words, places, "placed"), 1e-12, top="x")
    net.dropped("drop_emb", "x")
    with net.repeat(blocks, "h%d_", "x", "x"):
        attn = net.masked_attention(net.linear("qkv", "x", 3 * width), heads)
        branch = net.dropped("drop1", net.linear("attn_proj", attn, width))
        middle = net.norm("ln1", net.eltwise("sum1", "x", branch), 1e-12)
        inner = net.gelu("gelu", net.linear("fc", middle, 4 * width))
        branch = net.dropped("drop2", net.linear("proj", inner, width))
        net.norm("ln2", net.eltwise("sum2", middle, branch), 1e-12, top="x")
    if gives == "embedding":
        net.where = "deploy"
        net.layer("row", "Reshape", ["mask"], ["row"], "reshape_param { shape { dim: 0 dim: 1 dim: -1 } }")
        net.layer("pool", "MatMul", ["row", "x"], ["pool"])
        net.layer("embedding", "Normalize", ["pool"], ["embedding"])
    if gives != "scores":
        net.where = "train"
    dense = net.gelu("mlm_gelu", net.linear("mlm_dense", "x", width))
    net.token_loss(net.head(net.norm("mlm_ln", dense, 1e-12), bias=True), ignored=True)
    return net


def bert_mini():
    """Turc et al., "Well-read students learn better", 2019: BERT mini."""
    return bert("BERT-mini", 256, 4, 4, 16)


def bert_base():
    """Devlin et al., "BERT: Pre-training of deep bidirectional transformers", 2019: BERT base."""
    return bert("BERT-base", 768, 12, 12, 8, gives="states")


def minilm():
    """Wang et al., "MiniLM", 2020, as sentence-transformers' all-MiniLM-L6-v2 takes it: means of tokens of length 1."""
    return bert("MiniLM-L6", 384, 6, 12, 8, gives="embedding")
