#!/usr/bin/env python3
"""Ids of made-up Unicode lines by MiniLM's tokenizer (BERT's WordPiece), beside those of transformers.

    run_minilm_lines.py CORTADO --folder=FOLDER [--lines=10000] [--points] [--write=FILE]
    run_minilm_lines.py CORTADO --golden=FILE

FOLDER has the published tokenizer.json; transformers reads it, too. Lines are of all planes: words of many scripts, combining
marks, CJK, emoji, controls, blanks, what no character is; --points: each code point, inside a word and alone. --write keeps some of them with their ids, and of the vocabulary what
they need: the longest piece that fits is among it, so the ids are the same. --golden compares with such a file, and needs
Python alone. Prints "ok NAME", or "not ok NAME" with the first lines that differ; exits 1 after a difference.
"""
import argparse
import array
import json
import os
import random
import subprocess
import sys
import tempfile

MARK = "zqzqzqzqzq"  # stands between lines, and in none of them
SCRIPTS = [(0x21, 0x7e), (0xa1, 0xff), (0x100, 0x24f), (0x250, 0x2af), (0x370, 0x3ff), (0x400, 0x52f), (0x531, 0x58a), (0x5d0, 0x5f4),
           (0x620, 0x6ff), (0x700, 0x7bf), (0x900, 0x97f), (0x980, 0xdff), (0xe01, 0xe5b), (0xf00, 0xfff), (0x10a0, 0x10ff), (0x1100, 0x11ff),
           (0x1200, 0x137f), (0x13a0, 0x13fd), (0x1780, 0x17dd), (0x1e00, 0x1eff), (0x1f00, 0x1fff), (0x2c00, 0x2d2d), (0xa640, 0xa69f),
           (0xa720, 0xa7ff), (0xac00, 0xd7a3), (0xfb00, 0xfb4f), (0xff01, 0xff9f), (0x10400, 0x1044f), (0x1d400, 0x1d7ff)]
CJK = [(0x3041, 0x30ff), (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xf900, 0xfaff), (0x20000, 0x2a6df), (0x2a700, 0x2b81f), (0x2f800, 0x2fa1f),
       (0x30000, 0x3134f)]
MARKS = [(0x300, 0x36f), (0x483, 0x489), (0x591, 0x5c7), (0x64b, 0x65f), (0x93c, 0x94d), (0xe31, 0xe3a), (0x1ab0, 0x1aff), (0x20d0, 0x20f0),
         (0x302a, 0x302f), (0x3099, 0x309a), (0xfe20, 0xfe2f), (0x1d165, 0x1d172)]
SIGNS = [(0x2000, 0x206f), (0x2070, 0x20bf), (0x2100, 0x218b), (0x2190, 0x2bff), (0x3000, 0x303f), (0x3200, 0x33ff), (0xfe30, 0xfe6f)]
EMOJI = [(0x1f300, 0x1f64f), (0x1f680, 0x1f6ff), (0x1f900, 0x1faff), (0x1f1e6, 0x1f1ff), (0x1f3fb, 0x1f3ff)]
CONTROLS = [(0x0, 0x20), (0x7f, 0xa0), (0xad, 0xad), (0x600, 0x605), (0x180e, 0x180e), (0x200b, 0x200f), (0x2028, 0x202f), (0x2060, 0x206f),
            (0xfe00, 0xfe0f), (0xfeff, 0xfeff), (0xfff0, 0xffff), (0xe000, 0xf8ff), (0xe0000, 0xe01ef), (0xfdd0, 0xfdef)]
WORDS = ("the A cup of Coffee tea Glass unbelievable tokenization internationalisation naïve café Straße STRASSE İstanbul ıslak Ångström "
         "Œuvre résumé RÉSUMÉ piñata Ελλάδα ΣΊΣΥΦΟΣ Москва Ёлка ёлка Київ 日本語 東京都 한국어 العَرَبِيَّة עִבְרִית हिन्दी ไทย "
         "don't we'll U.S.A. 3.14 1,000 x2 C++ a_b e-mail http://x.y/z?q=1 #tag @me $5 50% ½ ² Ⅷ ﬁne ｆｕｌｌ").split()
# characters that Unicode 8 did not have, or had otherwise: BERT's categories are those of then
NEWER = ["cup%sful %s a%s" % (c, c, c) for c in "\u1abf\u1acc\u2e43\u2e5d\u0890\U00013430\U0001e000\u166d\u1734\u1885\ua9bd\U000111c9\U0001171e"]


def any_of(r, ranges):
    low, high = r.choice(ranges)
    return chr(r.randint(low, high))


def any_character(r):
    while True:
        c = r.randrange(0x110000)
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def piece(r):
    kind = r.randrange(12)
    if kind < 3:
        return r.choice(WORDS)
    if kind < 5:
        low, high = r.choice(SCRIPTS)
        return "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 8)))
    if kind == 5:
        return "".join(any_of(r, CJK) for _ in range(r.randint(1, 5)))
    if kind == 6:
        return r.choice("aeiouAEOcnszкиあか한א") + "".join(any_of(r, MARKS) for _ in range(r.randint(1, 4)))
    if kind == 7:
        return "".join(any_of(r, EMOJI) + r.choice(("", "\u200d", "\ufe0f")) for _ in range(r.randint(1, 4)))
    if kind == 8:
        return any_of(r, CONTROLS) * r.randint(1, 2)
    if kind == 9:
        return any_of(r, SIGNS)
    if kind == 10:
        return "".join(any_character(r) for _ in range(r.randint(1, 3)))
    return r.choice("abcdefghijklmnopqrstuvwxyz") * r.choice((2, 5, 99, 100, 101))


def make_lines(n):
    """Some characters of each plane alone and inside a word; then mixtures."""
    r, lines = random.Random(20), list(NEWER)
    for plane in range(17):
        first = 0x10000 * plane
        lines += ["a%sb %s" % (c, c) for c in (chr(first + r.randrange(0xd800)) for _ in range(20))]
    while len(lines) < n:
        lines.append("".join(piece(r) + r.choice(("", " ", " ", "  ", "\t", "\u00a0", "\u3000")) for _ in range(r.randint(1, 9))))
    return lines[:n]


def make_points():
    return ["a%sb %s" % (chr(c), chr(c)) for c in range(0x110000) if not 0xd800 <= c < 0xe000]


def ours(cortado, tokenizer, lines):
    """The ids of each line: all are one text, cut at the ids of MARK."""
    with tempfile.TemporaryDirectory() as work:
        def ids(text, name):
            with open(os.path.join(work, name + ".txt"), "w", newline="") as f:
                f.write(text)
            ran = subprocess.run([cortado, "convert", "text", "--from=%s.txt" % name, "--to=%s.bin" % name, "--tokenizer=" + tokenizer,
                                  "--log=error"], cwd=work, capture_output=True, text=True)
            if ran.returncode:
                sys.exit("cortado convert text: exit code %d: %s" % (ran.returncode, ran.stderr[-1000:]))
            found = array.array("H")
            with open(os.path.join(work, name + ".bin"), "rb") as f:
                found.frombytes(f.read())
            return found.tolist()

        mark, all_ids = ids(MARK, "mark"), ids("".join("%s\n%s\n" % (line, MARK) for line in lines), "all")
    rows, at, n = [], 0, len(mark)
    for i in range(len(all_ids) - n + 1):
        if i >= at and all_ids[i:i + n] == mark:
            rows.append(all_ids[at:i])
            at = i + n
    return rows


def say(name, lines, mine, theirs):
    bad = [k for k in range(len(lines)) if k >= len(mine) or mine[k] != theirs[k]]
    good = not bad and len(mine) == len(theirs)
    print("%sok %s" % ("" if good else "not ", name))
    if not good:
        print("    %d of %d lines differ, %d came back" % (len(bad), len(lines), len(mine)))
    for k in bad[:5]:
        print("    line %d %s: %s, expected %s" % (k, ascii(lines[k]), mine[k] if k < len(mine) else None, theirs[k]))
    sys.exit(0 if good else 1)


def keep(path, lines, theirs, vocabulary):
    """Of all kinds of lines some, and the pieces that they and MARK are made of."""
    which = list(range(0, 13)) + list(range(13, 353, 4)) + list(range(353, 700))
    which = [k for k in which if k < len(lines) and len(lines[k]) < 80]
    name = {i: word for word, i in vocabulary.items()}
    used = sorted({i for k in which for i in theirs[k]} | {vocabulary[t] for t in ("[UNK]", "[CLS]", "[SEP]", "z") if t in vocabulary} |
                  {i for word, i in vocabulary.items() if word.startswith(("zq", "##q", "##z")) and len(word) < 4})
    new = {i: k for k, i in enumerate(used)}
    with open(path, "w") as f:
        json.dump({"vocabulary": [name[i] for i in used], "lines": [lines[k] for k in which],
                   "ids": [[new[i] for i in theirs[k]] for k in which]}, f, separators=(",", ":"))
        f.write("\n")


def golden_tokenizer(path, vocabulary):
    with open(path, "w") as f:
        json.dump({"version": "1.0", "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                                    "strip_accents": None, "lowercase": True},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "added_tokens": [],
                   "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                             "vocab": {word: i for i, word in enumerate(vocabulary)}}}, f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cortado")
    p.add_argument("--folder")
    p.add_argument("--lines", type=int, default=10000)
    p.add_argument("--points", action="store_true")
    p.add_argument("--write")
    p.add_argument("--golden")
    o = p.parse_args()
    cortado = os.path.abspath(o.cortado)
    if o.golden:
        with open(o.golden) as f:
            golden = json.load(f)
        with tempfile.TemporaryDirectory() as work:
            tokenizer = os.path.join(work, "tokenizer.json")
            golden_tokenizer(tokenizer, golden["vocabulary"])
            mine = ours(cortado, tokenizer, golden["lines"])
        say("minilm_golden", golden["lines"], mine, golden["ids"])
    from transformers import AutoTokenizer
    t, lines = AutoTokenizer.from_pretrained(o.folder), make_points() if o.points else make_lines(o.lines)
    theirs = t(lines, add_special_tokens=False)["input_ids"]
    if o.write:
        keep(o.write, lines, theirs, t.get_vocab())
    say("minilm_%d_%s" % (len(lines), "points" if o.points else "lines"), lines, ours(cortado, os.path.join(os.path.abspath(o.folder), "tokenizer.json"), lines), theirs)


if __name__ == "__main__":
    main()
