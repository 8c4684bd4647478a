#!/usr/bin/env python3
"""Writes framework/text/unicode_table.c: what splitting and normalising of texts must know of Unicode.

    scripts/make_unicode_table.py              writes the table
    scripts/make_unicode_table.py --check      exits 1 where the table would become another

Categories and decompositions come from the package unicodedata2 16.0.0 of PyPI: tiktoken 0.14 and
tokenizers 0.23 have Unicode 16, too. Lower case comes from Python's str.lower(). Where Python's
Unicode is older (15.1 in 3.13), the names of new capital letters tell their small ones.

tokenizers cleans, strips and splits as BERT does by the categories of Unicode 8, in which later
characters have none. Which those are comes from Perl: what was assigned in 8.0 stays so.
"""
import os
import subprocess
import sys

try:
    import unicodedata2 as ucd
except ImportError:
    sys.exit("make_unicode_table.py: needs unicodedata2==16.0.0, of PyPI")

VERSION = "16.0.0"
END = 0x110000
BLOCK = 128
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
              "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
NEW_CAPITALS = ("LATIN CAPITAL ", "GARAY CAPITAL ")  # those of Unicode 15 and 16
HANGUL = range(0xAC00, 0xD7A4)  # composed and taken apart by arithmetic
HEAD = """/* Made by scripts/make_unicode_table.py of Unicode %s: change that instead. */
#include "framework/text/unicode.h"

/* clang-format off */
"""


def is_surrogate(c):
    return 0xD800 <= c < 0xE000


def lower_of(c):
    """The small form of c, as code points; c itself where there is none."""
    low = chr(c).lower()
    name = ucd.name(chr(c), "")
    if low == chr(c) and name.startswith(NEW_CAPITALS):
        try:
            low = ucd.lookup(name.replace(" CAPITAL ", " SMALL "))
        except KeyError:
            pass
    return [ord(x) for x in low]


def rows(items, per_row):
    for i in range(0, len(items), per_row):
        yield "    " + " ".join(items[i:i + per_row])


def categories(out):
    """Two stages: the block of a code point, then a letter 'a' + category for each of its points."""
    blocks, index = {}, []
    for start in range(0, END, BLOCK):
        text = "".join(chr(ord("a") + CATEGORIES.index(ucd.category(chr(c)))) for c in range(start, start + BLOCK))
        index.append(blocks.setdefault(text, len(blocks)))
    assert len(blocks) < 65536
    out.append("const uint16_t ct_unicode_block[%d] = {" % len(index))
    out += rows(["%d," % i for i in index], 16)
    out.append("};\n")
    out.append("const char ct_unicode_category_of[] =")
    for text in blocks:
        for i in range(0, BLOCK, 64):
            out.append('    "%s"' % text[i:i + 64])
    out[-1] += ";\n"


def decompositions(out):
    """Whole ones (NFD), and the pairs that NFC puts together again."""
    whole, pairs = [], []
    for c in range(END):
        if is_surrogate(c) or c in HANGUL:
            continue
        nfd = ucd.normalize("NFD", chr(c))
        if nfd != chr(c):
            whole.append((c, [ord(x) for x in nfd]))
        one = ucd.decomposition(chr(c))
        if one and not one.startswith("<") and len(one.split()) == 2 and ucd.normalize("NFC", chr(c)) == chr(c):
            pairs.append(tuple(int(x, 16) for x in one.split()) + (c,))
    assert max(len(d) for _, d in whole) <= 4
    out.append("const ct_unicode_decomposition ct_unicode_decompositions[] = {")
    out += rows(["{ 0x%X, %d, { %s } }," % (c, len(d), ", ".join("0x%X" % x for x in d)) for c, d in whole], 2)
    out.append("};\nconst int ct_unicode_n_decomposition = %d;\n" % len(whole))
    out.append("const uint32_t ct_unicode_pairs[][3] = {")
    out += rows(["{ 0x%X, 0x%X, 0x%X }," % p for p in sorted(pairs)], 3)
    out.append("};\nconst int ct_unicode_n_pair = %d;\n" % len(pairs))


def combining(out):
    """Ranges of one combining class that is not 0."""
    ranges = []
    for c in range(END):
        k = ucd.combining(chr(c))
        if k == 0:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == k:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, k])
    out.append("const uint32_t ct_unicode_combining[][3] = {")
    out += rows(["{ 0x%X, 0x%X, %d }," % tuple(r) for r in ranges], 4)
    out.append("};\nconst int ct_unicode_n_combining = %d;\n" % len(ranges))


def newer(out):
    """Ranges of characters that came after Unicode 8; what is not assigned at all may be among them."""
    perl = r'for (0 .. 0x10FFFF) { print "$_\n" if !($_ >= 0xD800 && $_ < 0xE000) && chr($_) =~ /\p{Present_In: 8.0}/ }'
    old = set(map(int, subprocess.run(["perl", "-e", perl], check=True, capture_output=True, text=True).stdout.split()))
    ranges, goes_on = [], False
    for c in range(END):
        if c in old or is_surrogate(c) or ucd.category(chr(c)) == "Co":
            goes_on = False
        elif ucd.category(chr(c)) != "Cn":
            if goes_on:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
            goes_on = True
    out.append("const uint32_t ct_unicode_newer[][2] = {")
    out += rows(["{ 0x%X, 0x%X }," % tuple(r) for r in ranges], 4)
    out.append("};\nconst int ct_unicode_n_newer = %d;\n" % len(ranges))


def lower(out):
    pairs = []
    for c in range(END):
        low = [c] if is_surrogate(c) else lower_of(c)
        if low != [c]:
            assert len(low) == 1 or (c == 0x130 and low == [0x69, 0x307])
            pairs.append((c, low[0]))
    out.append("const uint32_t ct_unicode_lower_pairs[][2] = {")
    out += rows(["{ 0x%X, 0x%X }," % p for p in pairs], 4)
    out.append("};\nconst int ct_unicode_n_lower_pair = %d;" % len(pairs))


def main():
    if ucd.unidata_version != VERSION:
        sys.exit("make_unicode_table.py: unicodedata2 has Unicode %s, needed is %s" % (ucd.unidata_version, VERSION))
    out = [HEAD % VERSION]
    categories(out)
    decompositions(out)
    combining(out)
    newer(out)
    lower(out)
    text = "\n".join(out) + "\n"
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "framework", "text", "unicode_table.c")
    if "--check" in sys.argv[1:]:
        with open(path, encoding="ascii") as f:
            if f.read() != text:
                sys.exit("framework/text/unicode_table.c is not what scripts/make_unicode_table.py writes")
    else:
        with open(path, "w", encoding="ascii") as f:
            f.write(text)


main()
