"""What stands in a page of `cortado report`: its headings, tables and charts, by Python's own parser."""
import base64
import re
import struct
import zlib
from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


def png(data):
    """Width, height and rows of bytes of a PNG of 8 bits RGB without filters, by RFC 2083."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    at, packed = 8, b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body), name
        if name == b"IHDR":
            width, height, *kind = struct.unpack(">IIBBBBB", body)
            assert kind == [8, 2, 0, 0, 0], kind
        if name == b"IDAT":
            packed += body
        at += 12 + size
    assert name == b"IEND", name
    raw, row = zlib.decompress(packed), 3 * width + 1
    assert len(raw) == row * height
    return width, height, [raw[y * row + 1 : (y + 1) * row] for y in range(height)]


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.text = open(path, encoding="utf-8").read()
        self.stack, self.headings, self.tables, self.titles, self.charts, self.images = [], [], [], [], [], []
        self.figures = []  # the text of each, a line a part
        self.elements, self.new = set(), False
        self.feed(self.text)
        self.close()
        assert self.stack == [], "not closed: %s" % self.stack

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        a = dict(attributes)
        if tag == "table":
            self.tables.append((a.get("id") or a.get("class"), []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        if tag == "img":
            self.images.append(a["src"])
        if tag == "figure":
            self.figures.append("")
        if tag == "br" and "figure" in self.stack:
            self.figures[-1] += "\n"
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append("")
        if tag == "title":
            self.titles.append("")
            self.new = "svg" in self.stack and self.stack[-1] == "svg"
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):  # of SVG
        self.elements.add(tag)

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, (tag, self.stack)
        self.stack.pop()
        if tag == "title" and self.new:
            self.charts.append(self.titles[-1])
            self.new = False

    def handle_data(self, data):
        at = self.stack[-1] if self.stack else ""
        if at in ("td", "th"):
            self.tables[-1][1][-1][-1] += data
        if "figure" in self.stack:
            self.figures[-1] += data
        if at == "title":
            self.titles[-1] += data
        if re.fullmatch("h[1-6]", at):
            self.headings[-1] += data

    def rows(self, name):
        """The bodies of all tables of that name, one behind the other."""
        return [r for n, rows in self.tables if n == name for r in rows[1:]]

    def table(self, name):
        """{first cell: the others} of a table, its head too."""
        rows = [rows for n, rows in self.tables if n == name]
        assert len(rows) == 1, (name, [n for n, _ in self.tables])
        return {r[0]: r[1:] for r in rows[0]}

    def pictures(self):
        """[(width, height, rows of pixels)] of all images."""
        return [png(base64.b64decode(i.split(",", 1)[1])) for i in self.images]

    def alone(self):
        """It asks for nothing from elsewhere, and runs no program."""
        for tag in ("script", "link", "iframe", "object", "embed", "base", "form"):
            assert tag not in self.elements, tag
        outside = [u for u in re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", self.text) if not u.startswith("data:")]
        assert outside == [], outside
        assert "default-src 'none'" in self.text
