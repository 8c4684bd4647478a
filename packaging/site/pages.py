#!/usr/bin/env python3
"""The folder of pages that mkdocs reads: each page of the project at its place, and the files that they name.

    pages.py TO          in the top folder of the sources; exit code 1 where a guide stands in no menu
"""
import glob
import os
import re
import shutil
import sys

PAGES = ["*.md", "docs/**/*.md", "models/README.md", "models/*/README.md", "packaging/*.md"]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def staged(page, to):
    """The page's text. Files that it names are copied; a folder has no page, so its name alone stays."""
    def link(found):
        words, target = found.groups()
        path = target.partition("#")[0]
        if not path or re.match("[a-z]+:", target):
            return found.group()
        file = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if os.path.isdir(file):
            readme = os.path.join(path, "README.md")
            return "[%s](%s)" % (words, readme) if os.path.isfile(os.path.join(file, "README.md")) else words
        if not file.endswith(".md"):
            os.makedirs(os.path.dirname(os.path.join(to, file)), exist_ok=True)
            shutil.copyfile(file, os.path.join(to, file))
        return found.group()

    with open(page, encoding="utf-8") as f:
        return LINK.sub(link, f.read())


def main():
    to = sys.argv[1]
    shutil.rmtree(to, ignore_errors=True)
    for page in sorted({p for pattern in PAGES for p in glob.glob(pattern, recursive=True)}):
        os.makedirs(os.path.dirname(os.path.join(to, page)), exist_ok=True)
        with open(os.path.join(to, page), "w", encoding="utf-8") as f:
            f.write(staged(page, to))
    with open(os.path.join(os.path.dirname(__file__), "mkdocs.yml"), encoding="utf-8") as f:
        menu = f.read()
    missing = [page for page in sorted(glob.glob("docs/*.md")) if "- %s\n" % page not in menu]
    if missing:
        sys.exit("packaging/site/mkdocs.yml: nav has no %s" % ", ".join(missing))


if __name__ == "__main__":
    main()
