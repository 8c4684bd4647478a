#!/usr/bin/env python3
"""Links between the project's own pages: files that are not there, headings that no page has.

    check_links.py [ROOT]     a line for each, and exit code 1; "N links" where all is well
"""
import glob
import os
import re
import sys

PAGES = ["*.md", "docs/**/*.md", "models/*.md", "models/*/README.md", "packaging/*.md"]


def anchor(heading):
    """As the usual viewers of Markdown make it of a heading's text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.lstrip("#").strip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def lines_of(page):
    """Without blocks of code, where '#' begins a comment."""
    fenced = False
    with open(page, encoding="utf-8") as f:
        for line in f:
            fenced ^= line.startswith("```")
            if not fenced and not line.startswith("    "):
                yield line


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    pages = sorted(p for pattern in PAGES for p in glob.glob(pattern, recursive=True))
    anchors = {p: {anchor(line) for line in lines_of(p) if re.match("#+ ", line)} for p in pages}
    n, wrong = 0, 0
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", "".join(lines_of(page))):
            if re.match("[a-z]+:", target):
                continue
            path, _, name = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            n += 1
            if not os.path.exists(file):
                print(f"{page}: {target}: there is no {file}")
                wrong += 1
            elif name and file in anchors and name not in anchors[file]:
                print(f"{page}: {target}: {file} has no such heading")
                wrong += 1
    print(f"{n} links" if wrong == 0 else f"{wrong} of {n} links lead nowhere")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
