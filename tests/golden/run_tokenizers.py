#!/usr/bin/env python3
"""Compares our tokenizers with Hugging Face's tokenizers, tiktoken and gguf, of PyPI.

    run_tokenizers.py CORTADO CORPUS... [--seed=N] [--rounds=N]

Trains small vocabularies on the corpus and on made-up Unicode, in the current folder, writes them as
tokenizer.json, files of ranks and GGUF files, and has both programs encode the same texts. Prints
"ok NAME" or "not ok NAME" a case, with the first place where ids differ; exits 1 after a difference.
"""
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import tiktoken
import tiktoken_ext.openai_public as openai_public
from gguf import GGUFWriter, TokenType
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        trainers)
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits, Sequence, Split

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
END = "<|endoftext|>"
PARTS = ("train", "valid", "test")  # the texts that one call converts

failed = False


def say(name, why=None):
    global failed
    failed = failed or why is not None
    print(("ok " if why is None else "not ok ") + name, flush=True)
    if why is not None:
        print("    " + why, flush=True)


# ---- texts

EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "\U0001F1E9\U0001F1EA",
         "\U0001F600", "\u26A0"]
BLANKS = [" ", "  ", "    ", "\n", "\r\n", "\n\n", " \n ", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028",
          "\v", "\f", "\r", " \t \n"]
SHORT = ["'s", "'S", "'t", "'LL", "'ll", "'re", "'Re", "'VE", "'m", "'d", "'\u017f", "'x", "''", "' s", "don't", "WE'LL",
         "\u2019s", "'\u017fx"]
ODD = ["\ufeff", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\u200b", "\u200d", "\u202e", "\u00ad", "\u2060", "\x00",
       "\x1b[0m", "\x7f", "\x80", "\x9f", "\\ud83d\\ude00", "\u00c3\u00a9", "\u00ed\u00a0\u0080", "\U000e0067", "\ufe0f\u20e3",
       "1\ufe0f\u20e3", "\U0001F3F4\U000e0067\U000e007f", "\u0d4d\u200d", "\u1100\u1161\u11a8", "\u0301", "\U0001F3FD"]
RANGES = [(0x41, 0x5a), (0x61, 0x7a), (0x61, 0x7a), (0x30, 0x39), (0x21, 0x2f), (0x3a, 0x40), (0x5b, 0x60), (0x7b, 0x7e),
          (0xa1, 0xff), (0x100, 0x24f), (0x1c4, 0x1cc), (0x250, 0x2ff), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x591, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f), (0xe01, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1fff),
          (0x2010, 0x205f), (0x2070, 0x218f), (0x2190, 0x23ff), (0x2460, 0x24ff), (0x3040, 0x30ff), (0x3400, 0x34ff),
          (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xe0ff), (0xf900, 0xfaff), (0xfb00, 0xfb06), (0xff01, 0xff5e),
          (0x1d400, 0x1d7ff), (0x1f300, 0x1f64f), (0x20000, 0x2a6df)]


def any_character(r):
    while True:
        c = r.randrange(1, 0x110000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def piece(r):
    kind = r.randrange(21)
    if kind < 9:
        low, high = r.choice(RANGES)
        return "".join(chr(r.randint(low, high)) for _ in range(r.choice((1, 1, 2, 3, 5, 9))))
    if kind < 12:
        return r.choice(BLANKS)
    if kind < 14:
        return r.choice(SHORT)
    if kind == 14:
        return r.choice(EMOJI) * r.randint(1, 3)
    if kind == 15:
        return "".join(r.choice("0123456789") for _ in range(r.randint(1, 9)))
    if kind == 16:
        return r.choice("aeioucnuAEO") + "".join(chr(r.randint(0x300, 0x345)) for _ in range(r.randint(1, 4)))
    if kind == 17:
        return r.choice(("Hello", "HELLO", "hELLO", "iPhone", "naïve", "straße", "ΣΊΣΥΦΟΣ", "İstanbul", "한국어", "العربية",
                         "日本語", "</s>", "[CLS]", "<|end", "///", "...", "!?\n\n", "//\r\n"))
    if kind == 18:  # controls, marks without a letter, what looks like other encodings or halves of characters
        return r.choice(ODD) * r.randint(1, 2)
    return any_character(r)


def made_up(r, n):
    return "".join(piece(r) for _ in range(n))


def old_enough(text):
    """Of BERT's rules Hugging Face has the characters of Unicode 8: those of 3.2 that are as they were."""
    old = unicodedata.ucd_3_2_0
    return "".join(c for c in text if old.category(c) == unicodedata.category(c) != "Cn")


def numbers(rule):
    """Characters that a rule of tokenizers, which sets numbers apart, takes for such."""
    found = set()
    for block in range(0x1000, 0x20000, 0x100):  # no newer ones lie elsewhere
        text = "".join(chr(c) + "a" for c in range(block, block + 0x100) if not 0xD800 <= c < 0xE000)
        found |= {p for p, _ in rule.pre_tokenize_str(text) if len(p) == 1}
    return found - {"a"}


# Their patterns have Unicode 16, as we do; Digits has the Unicode of the compiler that built the package.
NEWER = numbers(Digits(individual_digits=True)) ^ numbers(Split(Regex(r"\p{N}"), "isolated"))


def settled(text):
    return "".join(c for c in text if c not in NEWER)


def long_ones(r):
    return ("x" * 30000 + " " + "ab" * 20000 + "\n" + "7" * 999 + " " * 5000 + "y" + "\n" * 500 + "\t" * 300 + "z"
            + "é" * 3000 + "-" * 4000 + "汉" * 2000 + made_up(r, 3) + " " * 77)


# ---- ours

class Case:
    """A vocabulary, the options that read it, and the other program's ids of a text."""

    def __init__(self, name, file, ids, options=(), only=None, decodes=True, end=None):
        self.name, self.file, self.ids, self.options = name, file, ids, list(options)
        self.only, self.decodes, self.end = only or (lambda text: text), decodes, end

    def joined(self):
        """A case whose texts may be one: between END each is a text of its own. None: there is no END."""
        return self.end and Case(self.name, self.file, self.end, self.options + ["--special"] * (
            "--special" not in self.options), self.only, self.decodes)


def run(cortado, *arguments, **env):
    p = subprocess.run([cortado, "convert"] + list(arguments), capture_output=True, text=True,
                       env={**os.environ, **env}, check=False)
    if p.returncode != 0:
        raise RuntimeError(p.stderr.strip().split("\n")[-1])


def ours(cortado, case, texts, **env):
    """Ids of up to three texts, and what they decode to."""
    for folder in ("in", "out"):
        shutil.rmtree(folder, ignore_errors=True)
    os.mkdir("in")
    for part, text in zip(PARTS, texts):
        with open("in/%s.txt" % part, "wb") as f:
            f.write(text.encode())
    run(cortado, "text", "--from=in", "--to=out", "--tokenizer=" + case.file, *case.options, **env)
    ids, back = [], []
    for part, text in zip(PARTS, texts):
        ids.append(np.fromfile("out/%s.bin" % part, dtype="<u2").tolist())
        if case.decodes and part == PARTS[0]:
            pattern = [o for o in case.options if o.startswith("--pattern")]
            run(cortado, "tokens", "--from=out/%s.bin" % part, "--to=out/%s.txt" % part, "--tokenizer=" + case.file,
                *pattern)
            with open("out/%s.txt" % part, "rb") as f:
                back.append(f.read())
        else:
            back.append(None)
    return ids, back


def difference(text, got, want):
    k = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return "ids differ from token %d on: ours %s, theirs %s; text of %d characters, %r" % (
        k, got[k:k + 6], want[k:k + 6], len(text), text if len(text) < 60 else text[:60])


def compare(cortado, case, texts, what, **env):
    texts = [t for t in map(case.only, texts) if t != "" and case.ids(t)]  # without a token there is no text
    why = None
    for i in range(0, len(texts), 3):
        some = texts[i:i + 3]
        ids, back = ours(cortado, case, some, **env)
        for text, got, decoded in zip(some, ids, back):
            want = case.ids(text)
            if got != want:
                why = difference(text, got, want)
            elif decoded is not None and decoded != text.encode():
                why = "%r comes back as %r" % (text[:60], decoded[:60])
        if why is not None:
            break
    say("%s_%s" % (case.name, what), why)


# ---- vocabularies

def bpe(pre_tokenizer, corpus, normalizer=None, added=(), size=1200, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, initial_alphabet=ByteLevel.alphabet(),
                                                      show_progress=False))
    t.add_special_tokens([END])
    t.add_tokens(list(added))
    return t


def as_strings(file):
    """Merges as "a b", as older programs wrote them."""
    with open(file, encoding="utf-8") as f:
        j = json.load(f)
    j["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in j["model"]["merges"]]
    with open(file, "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False)


def ids_of(t, special):
    """Ids of a text, in which names of special tokens are such or text."""
    def ids(text):
        t.encode_special_tokens = not special
        return t.encode(text, add_special_tokens=False).ids
    return ids


def of_json(name, t, special=False, strings=False, **more):
    file = name + ".json"
    t.save(file)
    if strings:
        as_strings(file)
    return Case(name, file, ids_of(t, special), ["--special"] if special else [],
                end=ids_of(t, True) if t.token_to_id(END) else None, **more)


def byte_of_character():
    """Of GPT-2's alphabet, by what its decoder makes of a character."""
    table = {}
    for b in range(256):
        c = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(bytes([b]).decode("latin-1"))
        text = "".join(p for p, _ in c)
        for character, byte in zip(text, bytes([b]).decode("latin-1").encode()):
            table[character] = byte
    for b in range(256):  # bytes that no character of Latin-1 has in UTF-8, in the alphabet's order
        if b not in table.values():
            table[next(c for c in sorted(ByteLevel.alphabet()) if c not in table)] = b
    return table


def of_ranks(name, t):
    """The vocabulary of a trained tokenizer, in its order, as a file of ranks."""
    table = byte_of_character()
    words = sorted(((i, w) for w, i in t.get_vocab(with_added_tokens=False).items()))
    ranks = {bytes(table[c] for c in w): i for i, w in words}
    assert len(ranks) == len(words)
    with open(name + ".tiktoken", "wb") as f:
        for token, rank in ranks.items():
            f.write(base64.b64encode(token) + b" %d\n" % rank)
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    pattern = openai_public.r50k_pat_str if name == "gpt2" else getattr(openai_public, name + "_base")()["pat_str"]
    e = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return Case("ranks_" + name, name + ".tiktoken", e.encode_ordinary, ["--pattern=" + name])


def of_gguf(name, t, pre):
    """t's vocabulary as llama.cpp has it."""
    w = GGUFWriter(name + ".gguf", "llama")
    vocab = {i: word for word, i in t.get_vocab().items()}
    special = {i for i, a in t.get_added_tokens_decoder().items() if a.special}
    model = json.loads(t.to_str())["model"]
    n = max(vocab) + 1
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list([vocab[i] for i in range(n)])
    w.add_token_types([TokenType.CONTROL if i in special else TokenType.NORMAL for i in range(n)])
    w.add_token_merges([" ".join(m) for m in model["merges"]])
    w.add_eos_token_id(t.token_to_id(END))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return Case("gguf_" + name, name + ".gguf", ids_of(t, False), only=settled, end=ids_of(t, True))


def word_piece(corpus, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer, t.decoder = BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    return t


def of_bert_gguf(t, ids):
    w = GGUFWriter("bert.gguf", "bert")
    vocab = {i: word for word, i in t.get_vocab().items()}
    special = set(t.get_added_tokens_decoder())
    w.add_tokenizer_model("bert")
    w.add_token_list([word if i in special else word[2:] if word.startswith("##") else "\u2581" + word
                      for i, word in sorted(vocab.items())])
    w.add_token_types([TokenType.CONTROL if i in special else TokenType.NORMAL for i in sorted(vocab)])
    w.add_unk_token_id(t.token_to_id("[UNK]"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return Case("gguf_bert", "bert.gguf", ids, only=lambda text: short_words(old_enough(text)), decodes=False)


def short_words(text):
    """llama.cpp's file does not say how long a word may be."""
    return " ".join(w[:8] for w in text.split(" "))


def cases(corpus):
    bytes_only = ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = ByteLevel(add_prefix_space=False)
    split = lambda regex: Sequence([Split(Regex(regex), "isolated"), bytes_only])
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    t = {"gpt2": bpe(gpt2, corpus), "llama3": bpe(split(LLAMA3), corpus, ignore_merges=True),
         "o200k": bpe(split(openai_public.o200k_base()["pat_str"]), corpus),
         "smollm": bpe(Sequence([Digits(individual_digits=True), gpt2]), corpus)}
    added = [AddedToken("<a>", lstrip=True), AddedToken("<b>", rstrip=True), AddedToken("word", single_word=True),
             AddedToken("   "), AddedToken("<ab>", special=True), AddedToken("<"), AddedToken("naïve", normalized=True),
             AddedToken("naïveté", normalized=False)]
    yield of_json("gpt2", t["gpt2"], strings=True)
    yield of_json("gpt2_special", t["gpt2"], special=True)
    yield of_json("llama3", t["llama3"])
    yield of_json("cl100k", bpe(split(CL100K), corpus))
    yield of_json("qwen2", bpe(split(LLAMA3.replace("{1,3}", "")), corpus, normalizers.NFC()), decodes=False)
    yield of_json("o200k", t["o200k"])
    yield of_json("smollm", t["smollm"], only=settled)
    yield of_json("prefix", bpe(Sequence([Digits(), ByteLevel(add_prefix_space=True)]), corpus), only=settled,
                  decodes=False)
    yield of_json("nfd_lower", bpe(gpt2, corpus, normalizers.Sequence(
        [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])), only=old_enough, decodes=False)
    yield of_json("added", bpe(gpt2, corpus, normalizers.NFC(), added), special=True, decodes=False)
    yield of_json("added_text", bpe(gpt2, corpus, normalizers.NFC(), added), decodes=False)
    for name in ("gpt2", "cl100k", "o200k"):
        yield of_ranks(name, t["gpt2" if name == "gpt2" else "llama3" if name == "cl100k" else "o200k"])
    for name, pre in (("smollm", "smollm"), ("llama3", "llama-bpe"), ("gpt2", "gpt-2")):
        yield of_gguf(name, t[name], pre)
    low, cased = word_piece(corpus, True), word_piece(corpus, False)
    yield of_json("bert", low, only=old_enough, decodes=False)
    yield of_json("bert_cased", cased, only=old_enough, decodes=False)
    yield of_bert_gguf(low, ids_of(low, False))


# ---- what we train

def trained(cortado, text, n):
    with open("corpus.txt", "wb") as f:
        f.write(text.encode())
    run(cortado, "text", "--from=corpus.txt", "--train_bpe=%d" % n, "--tokenizer=trained.json", "--to=corpus.bin")
    want = bpe(ByteLevel(add_prefix_space=False), [text], size=n - 1)
    with open("trained.json", encoding="utf-8") as f:
        got = json.load(f)
    merges = [m.split(" ") for m in got["model"]["merges"]]
    theirs = json.loads(want.to_str())["model"]["merges"]
    k = next((i for i, (a, b) in enumerate(zip(merges, theirs)) if a != b), min(len(merges), len(theirs)))
    say("trained_merges", None if merges == theirs else "from merge %d on: ours %s, theirs %s" % (
        k, merges[k:k + 3], theirs[k:k + 3]))
    same_ids("trained_loads", Tokenizer.from_file("trained.json"), "corpus.bin", text)
    text = text.replace("\0", "")  # which is no character of a text
    with open("corpus.txt", "wb") as f:
        f.write(text.encode())
    run(cortado, "text", "--from=corpus.txt", "--tokenizer=char", "--to=char.bin")
    same_ids("characters_load", Tokenizer.from_file("tokenizer.json"), "char.bin", text)


def same_ids(name, t, file, text):
    t.encode_special_tokens = True
    want, got = t.encode(text).ids, np.fromfile(file, dtype="<u2").tolist()
    say(name, None if got == want and t.decode(got) == text else difference(text, got, want))


def main():
    cortado = sys.argv[1]
    option = {a.split("=")[0]: int(a.split("=")[1]) for a in sys.argv[2:] if a.startswith("--")}
    r, rounds = random.Random(option.get("--seed", 3)), option.get("--rounds", 3)
    corpus = ""
    for file in (a for a in sys.argv[2:] if not a.startswith("--")):
        with open(file, encoding="utf-8") as f:
            corpus += f.read()
    corpus += made_up(r, 6000)
    ends = ["", " ", "\n", "  \n  ", "\n \n", "a \n", "\r\n", "'", "' ", "\u0301", "\u0301\u0301A", "ひA", "ひABc", "A\u0301",
            " \u0301a", "12345", "x\t", "_a_B", "ǅabǅ", "ʰAʰ", "A's", "a'LLx", "/\n/\r", "the word swords word", "<a> <b> <ab>",
            "  <a>  <b>  ", "nai\u0308ve naïveté", "  <|endoftext|>x <|endoftext|>", "[CLS] [MASK]x", "\u0000\u0001"]
    for case in cases([corpus[i:i + 4000] for i in range(0, len(corpus), 4000)]):
        try:
            compare(cortado, case, [corpus[:60000]], "corpus")
            compare(cortado, case, [made_up(r, 2500) for _ in range(rounds)], "made_up")
            joined = case.joined()
            compare(cortado, joined or case, [END.join(ends)] if joined else ends, "ends")
            compare(cortado, case, [long_ones(r)], "long")
        except RuntimeError as e:
            say(case.name, str(e))
    large = (corpus + "\nEnd\n") * (1 + 2000000 // len(corpus))
    compare(cortado, next(cases([corpus])), [large], "3_threads", OMP_NUM_THREADS="3")
    trained(cortado, corpus, 900)
    sys.exit(1 if failed else 0)


main()
