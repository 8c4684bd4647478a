"""Drives the page at / of cortado serve in a real headless browser, by the DevTools protocol over its websocket, with
Python's standard library alone: types, clicks, drops files, and compares what it reads with what the API says.
Usage: page.py BROWSER ADDRESS embedding KEY | text | chat | classes FILE BAD-FILE"""
import json, sys, urllib.request

from devtools import Page, tab

browser, address, case = sys.argv[1:4]
failed = []


def check(name, good, why=""):
    print("ok %s_%s" % (case, name) if good else "not ok %s_%s\n    %s" % (case, name, str(why)[:2000]))
    if not good:
        failed.append(name)


class Form(Page):
    def text(self, name):
        return self.eval("document.getElementById('%s').textContent" % name)

    def middle(self, name):
        return self.eval("(r => ({x: r.x + r.width / 2, y: r.y + r.height / 2}))((e => (e.scrollIntoView({block: 'center'}), "
                         "e.getBoundingClientRect()))(document.getElementById('%s')))" % name)

    def click(self, name):
        at = self.middle(name)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def type(self, name, text):
        """Over what stands there."""
        self.click(name)
        assert self.eval("document.activeElement.id") == name
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, modifiers=2, key="a", code="KeyA", windowsVirtualKeyCode=65,
                 commands=["selectAll"] if kind == "keyDown" else [])
        self("Input.dispatchKeyEvent", type="keyDown", key="Delete", code="Delete", windowsVirtualKeyCode=46)
        self("Input.dispatchKeyEvent", type="keyUp", key="Delete", code="Delete", windowsVirtualKeyCode=46)
        for part in text.split("\n") if len(text) < 100 else []:
            for c in part:
                self("Input.dispatchKeyEvent", type="char", text=c)
        if len(text) >= 100:
            self("Input.insertText", text=text)
        assert self.eval("document.getElementById('%s').value" % name) == text, name

    def drop(self, name, file):
        data = {"items": [], "files": [file], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self("Input.dispatchDragEvent", type=kind, data=data, **self.middle(name))

    def done(self):
        return self.wait("!document.getElementById('go').disabled")


def api(path, body, key=None):
    r = urllib.request.Request("http://%s/%s" % (address, path), None if body is None else json.dumps(body).encode())
    if key is not None:
        r.add_header("Authorization", "Bearer " + key)
    with urllib.request.urlopen(r, timeout=60) as f:
        return json.load(f)


def embedding(page, key):
    model = api("v1/models", None, key)["data"][0]["id"]
    texts = ["A cup of coffee.", "Ein Glas Tee, bitte: föhn €"]
    page.type("a", texts[0])
    page.type("b", texts[1])
    page.click("go")
    page.done()
    check("no_key", page.text("error").startswith("401: no key"), page.text("error"))
    page.type("key", "wrong")
    page.click("go")
    page.done()
    check("wrong_key", page.text("error").startswith("401: the key"), page.text("error"))
    page.type("key", key)
    page.click("go")
    page.wait("document.getElementById('out').textContent !== ''")
    page.done()
    a, b = [d["embedding"] for d in api("v1/embeddings", {"model": model, "input": texts}, key)["data"]]
    cosine = sum(x * y for x, y in zip(a, b))
    got = page.text("out")
    check("cosine", got.startswith("cosine ") and abs(float(got[7:]) - cosine) < 1e-4, (got, cosine))
    check("no_error", page.text("error") == "", page.text("error"))
    page.type("a", "x" * 5000)
    page.click("go")
    page.wait("document.getElementById('error').textContent !== ''")
    check("too_long", page.text("error").startswith("422: "), page.text("error"))


def watch(page, name):
    """How often a text grows, from now on."""
    page.eval("window.grown = 0; new MutationObserver(all => { window.grown += all.length; }).observe(document.getElementById('%s'), "
              "{childList: true, subtree: true, characterData: true})" % name)


def text(page):
    model = api("v1/models", None)["data"][0]["id"]
    prompt = "The quick brown <b>föx</b>"
    page.type("a", prompt)
    page.type("most", "30")
    page.type("temperature", "0")
    watch(page, "out")
    page.click("go")
    page.wait("document.getElementById('note').textContent !== ''")
    page.done()
    wanted = api("v1/completions", {"model": model, "prompt": prompt, "max_tokens": 30, "temperature": 0})["choices"][0]["text"]
    check("text", page.text("out") == prompt + wanted and wanted != "", (page.text("out"), wanted))
    check("as_text", page.eval("document.querySelectorAll('#out b').length") == 1)  # what was typed is no element
    check("in_events", page.eval("window.grown") > 3, page.eval("window.grown"))
    page.type("most", "100000")
    page.click("go")
    page.wait("document.getElementById('error').textContent !== ''")
    check("too_many", page.text("error").startswith("422: the prompt has"), page.text("error"))
    # a long one, stopped with what it has
    page.type("most", "15000")
    page.click("go")
    page.wait("document.querySelector('#out b') && document.querySelector('#out b').textContent.length > 20")
    page.click("stop")
    check("stops", page.wait("document.getElementById('note').textContent === 'Stopped.'", 20))
    page.done()
    check("stopped_early", 20 < len(page.eval("document.querySelector('#out b').textContent")) < 14000)
    check("stopped_quietly", page.text("error") == "", page.text("error"))


def chat(page):
    model = api("v1/models", None)["data"][0]["id"]
    said = []
    page.type("most", "12")
    page.type("temperature", "0")
    for n, words in enumerate(["The quick", "and then?"]):
        said.append({"role": "user", "content": words})
        page.type("a", words)
        page.click("go")
        page.wait("document.querySelectorAll('#talk p').length === %d" % (2 * n + 2))
        page.wait("document.getElementById('note').textContent !== ''")
        page.done()
        reply = api("v1/chat/completions", {"model": model, "messages": said, "max_tokens": 12, "temperature": 0})
        said.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
    got = page.eval("[...document.querySelectorAll('#talk p')].map(p => p.textContent)")
    check("talk", got == [m["content"] for m in said], (got, said, page.text("error")))
    check("emptied", page.eval("document.getElementById('a').value") == "")


def classes(page, file, bad):
    boundary = "page"
    body = ("--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n" % boundary).encode() \
        + open(file, "rb").read() + ("\r\n--%s--\r\n" % boundary).encode()
    r = urllib.request.Request("http://%s/classify" % address, body)
    r.add_header("Content-Type", "multipart/form-data; boundary=" + boundary)
    with urllib.request.urlopen(r, timeout=60) as f:
        wanted = json.load(f)["pictures"][0]["classes"]
    rows = "[...document.querySelectorAll('#classes tr')].map(r => [...r.cells].map(c => c.textContent))"
    for name in ("dropped", "chosen"):
        if name == "dropped":
            page.drop("drop", file)
        else:
            node = page("DOM.querySelector", nodeId=page("DOM.getDocument")["root"]["nodeId"], selector="#file")["nodeId"]
            page("DOM.setFileInputFiles", nodeId=node, files=[file])
        page.wait("document.getElementById('note').textContent !== '' || document.getElementById('error').textContent !== ''")
        got = page.eval(rows)
        check(name, len(got) == len(wanted) > 0
              and all(g[0] == w.get("label", "class %d" % w["class"])
                      and abs(float(g[1]) - w.get("probability", w.get("score"))) < 1e-3 for g, w in zip(got, wanted)),
              (got, wanted, page.text("error")))
        check(name + "_seen", page.wait("document.getElementById('seen').naturalWidth > 0", 10))
        page.eval("document.getElementById('note').textContent = ''")
    page.drop("drop", bad)
    page.wait("document.getElementById('error').textContent !== ''")
    check("no_picture", page.text("error").startswith("4") and page.eval(rows) == [], page.text("error"))


with tab(browser, Form) as page:
    page("Page.navigate", url="http://%s/" % address)
    page.wait("document.readyState === 'complete' && location.host !== ''")
    check("opens", page.eval("server.makes") == case, page.eval("document.body.textContent"))
    globals()[case](page, *sys.argv[4:])
    check("no_exceptions", page.wrong == [], page.wrong)
    check("nothing_outside", page.eval(
        "new Promise(done => { document.addEventListener('securitypolicyviolation', e => done(e.violatedDirective)); "
        "fetch('http://127.0.0.2:1/').catch(() => 0); setTimeout(() => done('none'), 5000); })") == "connect-src")
sys.exit(1 if failed else 0)
