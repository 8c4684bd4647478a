"""The project's pages as a site, in a real headless browser: a search finds the page that has the word, what it finds opens, and
nothing is asked of other servers. Usage: site.py BROWSER ADDRESS"""
import sys
import urllib.parse

from devtools import Page, tab

browser, address = sys.argv[1:3]
failed = []


def check(name, good, why=""):
    print("ok %s" % name if good else "not ok %s\n    %s" % (name, str(why)[:2000]))
    if not good:
        failed.append(name)


def find(page, words):
    """Addresses of what a search finds."""
    page("Page.navigate", url="http://%s/search.html?q=%s" % (address, urllib.parse.quote(words)))
    page.wait("document.readyState === 'complete' && !document.getElementById('mkdocs-search-results').textContent.includes('Searching')")
    return page.eval("[...document.querySelectorAll('#mkdocs-search-results h3 a')].map(a => a.href)")


ELSEWHERE = "performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin))"

with tab(browser, Page) as page:
    for word, wanted in ("oktopk", "docs/compression.html"), ("max_batch_tokens", "docs/serving.html"), ("1F1B", "docs/planning.html"):
        found = find(page, word)
        check("finds_" + word, any(wanted in a for a in found), found)
    check("finds_nothing", find(page, "qzxwv") == [])
    check("nothing_from_elsewhere", page.eval(ELSEWHERE) == [], page.eval(ELSEWHERE))
    page("Page.navigate", url="http://%s/index.html" % address)
    page.wait("document.readyState === 'complete' && document.querySelectorAll('.wy-menu a').length > 30")
    check("opens", "Cortado" in page.eval("document.querySelector('h1').textContent"))
    check("nothing_from_elsewhere_here", page.eval(ELSEWHERE) == [], page.eval(ELSEWHERE))
sys.exit(1 if failed else 0)
