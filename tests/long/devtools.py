"""A real headless browser, Chromium or Chrome, driven by the DevTools protocol over its websocket, with Python's
standard library alone."""
import base64, contextlib, json, os, socket, struct, subprocess, sys, tempfile, time, urllib.request


class Socket:
    """A client's side of RFC 6455: whole texts, masked as clients must."""

    def __init__(self, url):
        host, path = url[len("ws://"):].split("/", 1)
        name, port = host.rsplit(":", 1)
        self.s = socket.create_connection((name, int(port)), timeout=60)
        self.s.sendall(("GET /%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n"
                        % (path, host, base64.b64encode(os.urandom(16)).decode())).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.s.recv(1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def send(self, text):
        data = text.encode()
        n = len(data)
        size = struct.pack(">B", 128 | n) if n < 126 else \
            struct.pack(">BH", 128 | 126, n) if n < 65536 else struct.pack(">BQ", 128 | 127, n)
        mask = os.urandom(4)
        self.s.sendall(b"\x81" + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def take(self, n):
        data = b""
        while len(data) < n:
            some = self.s.recv(n - len(data))
            assert some, "the browser is gone"
            data += some
        return data

    def receive(self):
        text = b""
        while True:
            first, n = self.take(2)
            n = struct.unpack(">H", self.take(2))[0] if n == 126 else struct.unpack(">Q", self.take(8))[0] if n == 127 else n
            data = self.take(n)
            if first & 15 in (0, 1):
                text += data
                if first & 128:
                    return text.decode()


class Page:
    def __init__(self, url):
        self.socket, self.n, self.wrong, self.requests = Socket(url), 0, [], []

    def __call__(self, method, **params):
        self.n += 1
        self.socket.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            j = json.loads(self.socket.receive())
            if j.get("method") == "Runtime.exceptionThrown":
                self.wrong.append(j["params"])
            if j.get("method") == "Network.requestWillBeSent":
                self.requests.append(j["params"]["request"]["url"])
            if j.get("method") == "Log.entryAdded" and j["params"]["entry"]["level"] in ("warning", "error") \
                    and j["params"]["entry"]["source"] != "network":  # those are replies with errors, which are asked for
                self.wrong.append(j["params"])
            if j.get("id") == self.n:
                assert "error" not in j, (method, j)
                return j["result"]

    def eval(self, script):
        r = self("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in r, r
        return r["result"].get("value")

    def wait(self, script, seconds=60):
        until = time.time() + seconds
        while time.time() < until:
            if self.eval(script):
                return True
            time.sleep(0.02)
        return False


@contextlib.contextmanager
def tab(browser, kind=Page):
    """An empty tab of a browser that ends with it."""
    if not os.access(browser, os.X_OK):
        sys.exit("%s: no browser is there" % browser)
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    program = subprocess.Popen([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                "--no-first-run", "--remote-debugging-port=0", "--user-data-dir=" + folder.name, "about:blank"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = os.path.join(folder.name, "DevToolsActivePort")
        until = time.time() + 60
        while not (os.path.exists(port) and open(port).read().count("\n")) and time.time() < until and program.poll() is None:
            time.sleep(0.1)
        if not os.path.exists(port):
            sys.exit("%s does not start: no DevToolsActivePort" % browser)
        at = open(port).read().split("\n")[0]
        new = urllib.request.Request("http://127.0.0.1:%s/json/new?about:blank" % at, method="PUT")
        with urllib.request.urlopen(new, timeout=60) as f:
            page = kind(json.load(f)["webSocketDebuggerUrl"])
        for domain in ("Page", "Runtime", "Log", "DOM"):
            page(domain + ".enable")
        yield page
    finally:
        program.kill()
        program.wait()
