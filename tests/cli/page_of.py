"""What stands in a page of `cortado report`: its headings, tables and charts, by Python's own parser."""
import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.text = open(path, encoding="utf-8").read()
        self.stack, self.headings, self.tables, self.titles, self.charts, self.images = [], [], [], [], [], []
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

    def alone(self):
        """It asks for nothing from elsewhere, and runs no program."""
        for tag in ("script", "link", "iframe", "object", "embed", "base", "form"):
            assert tag not in self.elements, tag
        outside = [u for u in re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", self.text) if not u.startswith("data:")]
        assert outside == [], outside
        assert "default-src 'none'" in self.text
