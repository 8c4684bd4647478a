"""A page of `cortado report` in a real headless browser: what is drawn where it can be seen, light and dark, wide and
narrow, and that nothing but the file is asked for. Usage: report_page.py BROWSER FILE NAME"""
import os, sys

from devtools import Page, tab

browser, file, case = sys.argv[1:4]
failed = []


def check(name, good, why=""):
    print("ok %s_%s" % (case, name) if good else "not ok %s_%s\n    %s" % (case, name, str(why)[:2000]))
    if not good:
        failed.append(name)


# texts of a chart that reach out of it, by the numbers of the chart and the text
OUTSIDE = """[...document.querySelectorAll('svg.chart')].flatMap((s, i) => { const r = s.getBoundingClientRect();
  return [...s.querySelectorAll('text')].filter(t => { const q = t.getBoundingClientRect();
    return q.left < r.left - 1 || q.right > r.right + 1 || q.top < r.top - 1 || q.bottom > r.bottom + 1; })
    .map(t => [i, t.textContent]); })"""
# entries of keys and labels of ticks that lie over one another, in one chart
OVER = """[...document.querySelectorAll('svg.chart')].flatMap((s, i) => {
  const all = [...s.querySelectorAll('text')].filter(t => t.getAttribute('font-size') !== '10')
    .map(t => [t.textContent, t.getBoundingClientRect()]);
  return all.flatMap(([a, p], k) => all.slice(k + 1).filter(([b, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3).map(([b]) => [i, a, b])); })"""
STYLE = "getComputedStyle(document.querySelector('%s')).%s"

with tab(browser, Page) as page:
    page("Network.enable")
    page("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    page("Page.navigate", url="file://" + os.path.abspath(file))
    check("opens", page.wait("document.readyState === 'complete' && document.querySelectorAll('svg.chart').length > 0"))
    charts = page.eval("[...document.querySelectorAll('svg.chart')].map(s => [s.getBoundingClientRect().width, "
                       "s.getBoundingClientRect().height, s.querySelector('title').textContent])")
    check("charts", len(charts) >= 5 and all(w > 300 and h > 100 for w, h, _ in charts), charts)
    check("in_sight", page.eval(OUTSIDE) == [], page.eval(OUTSIDE))
    check("apart", page.eval(OVER) == [], page.eval(OVER))
    lengths = page.eval("[...document.querySelectorAll('svg.chart path[fill=none]')].map(p => p.getTotalLength())")
    check("curves", any(l > 100 for l in lengths), lengths)
    tips = page.eval("[...document.querySelectorAll('svg.chart :is(circle, rect, path) > title')].map(t => t.textContent)")
    check("tips", all(tips) and len(tips) > 3, tips)
    pictures = page.eval("[...document.images].map(i => [i.complete, i.naturalWidth, i.alt])")
    check("pictures", all(done and width > 0 and alt for done, width, alt in pictures), pictures)
    check("as_text", page.eval("document.querySelectorAll('script, b, i, iframe').length") == 0)
    light = page.eval(STYLE % (".chart .paper", "fill")), page.eval(STYLE % ("body", "backgroundColor"))
    page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = page.eval(STYLE % (".chart .paper", "fill")), page.eval(STYLE % ("body", "backgroundColor"))
    ink = page.eval(STYLE % (".chart text", "fill"))
    check("light_and_dark", light == ("rgb(255, 255, 255)",) * 2 and dark == ("rgb(22, 24, 28)",) * 2
          and ink == "rgb(220, 220, 220)", (light, dark, ink))
    page("Emulation.setDeviceMetricsOverride", width=380, height=700, deviceScaleFactor=2, mobile=True)
    width = page.eval("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    check("narrow", width[0] <= width[1], width)
    outside = [u for u in page.requests if not u.startswith(("file://" + os.path.abspath(file), "data:"))]
    check("alone", page.requests and outside == [], outside)
    check("nothing_wrong", page.wrong == [], page.wrong)
sys.exit(1 if failed else 0)
