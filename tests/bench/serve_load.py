#!/usr/bin/env python3
"""Rows on `cortado serve` under load, each with its verdict.

    tests/bench/serve_load.py --rows=overhead,saturation,poisson,overload,rss,gap,packed,million --results=FILE
    tests/bench/serve_load.py --rows=overhead --short

Servers are real ones, on a socket in the file system (--tcp: on the loopback). The client is http_load, one thread in C; what
share of a core it took is printed with each row. A row that stands in --results is not run again, so a long run goes on where
it ended. --short runs each row for seconds, to see that it works: its verdicts count for nothing. Nothing else may run meanwhile.

  overhead    a tiny net, one client: p50 of a request at most 0.3 ms
  saturation  tokens/s of a server with more clients than it can serve, over those of packed passes without a server: 0.97
  poisson     lengths 2 to 100, 0.9 of what padded batches reach: p50 and p99 of packed ones at most 0.8 of the padded ones'
  overload    5 times what the server can do: what is answered in time at least 0.95 of its best, p99 of accepted requests
              within the deadline, p99 of 429 at most 10 ms
  rss         100 000 mixed lengths: at most 1 MiB more than after a tenth of them
  gap         a 500-token prompt arrives while a text grows: no token waits longer than twice a chunk's time
  packed      20 requests of 2 to 100 tokens: packed at least 1.75 times padded, and 0.95 of the tokens/s of 10 x 100
  million     1 000 000 requests: all answered, by a server that grows by at most 1 MiB after a tenth of them

--net is the net of embeddings (models/minilm/deploy.prototxt), of --weights or as fillers make them; that of `packed` is
--packed_net (models/bert_base/deploy.prototxt), that of `gap` --texts (models/gpt2/deploy.prototxt).
"""
import argparse
import base64
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TINY = """name: "Tiny"
layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 128 } shape { dim: 1 dim: 128 } varies: true } }
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte" embed_param { input_dim: 256 num_output: 24 bias_term: false } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "x" position_param { max_length: 128 } }
layer { name: "qkv" type: "InnerProduct" bottom: "x" top: "qkv" inner_product_param { num_output: 72 axis: 2 } }
layer { name: "attn" type: "Attention" bottom: "qkv" bottom: "mask" top: "attn" attention_param { num_heads: 2 } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "attn" top: "y" }
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }
"""


def resident_kib(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


class Bench:
    def __init__(self, o, work):
        self.o, self.work, self.seen = o, work, {}

    def run(self, command, **more):
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self.work, **more)
        if ran.returncode:
            sys.exit("%s: exit code %d: %s" % (" ".join(command), ran.returncode, ran.stderr[-2000:]))
        return ran.stdout

    def net(self, name):
        """The net's file and its weights; those of fillers are a training step's with rate 0."""
        if name in self.seen:
            return self.seen[name]
        path = os.path.join(self.work, "tiny.prototxt") if name == "tiny" else os.path.abspath(name)
        if name == "tiny":
            with open(path, "w") as f:
                f.write(TINY)
        if self.o.weights and name == self.o.net:
            weights = os.path.abspath(self.o.weights)
        else:
            weights = self.make_weights(path, "w%d" % len(self.seen))
        self.seen[name] = (path, weights)
        return self.seen[name]

    def make_weights(self, path, to):
        with open(path) as f:
            text = f.read()
        last = re.findall(r'top: "(\w+)"', text)[-1]
        text = re.sub(r"(embed|inner_product|position)_param \{", r'\1_param { weight_filler { type: "gaussian" std: 0.05 }', text)
        text = re.sub(r"dim: 1 dim: \d+ \}", "dim: 1 dim: 8 }", text)
        with open(os.path.join(self.work, to + ".prototxt"), "w") as f:
            f.write(text + 'layer { name: "loss" type: "Reduction" bottom: "%s" top: "loss" loss_weight: 1 }\n' % last)
        with open(os.path.join(self.work, to + "_solver.prototxt"), "w") as f:
            f.write('net: "%s.prototxt" type: "SGD" base_lr: 0 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "%s" random_seed: 1\n' % (to, to))
        self.run([self.o.cortado, "train", "--solver=%s_solver.prototxt" % to, "--log=error"])
        os.remove(os.path.join(self.work, to + "_iter_1.solverstate.h5"))
        return os.path.join(self.work, to + "_iter_1.caffemodel.h5")

    def load(self, server, **settings):
        return json.loads(self.run([self.o.load, server.at, "m"] + ["%s=%s" % s for s in settings.items()]))


class Server:
    def __init__(self, bench, net, *options):
        model, weights = bench.net(net)
        self.n = Server.n = getattr(Server, "n", 0) + 1
        listen = "127.0.0.1:0" if bench.o.tcp else "unix:" + os.path.join(bench.work, "s%d" % self.n)
        self.log = open(os.path.join(bench.work, "log%d" % self.n), "w+")
        self.process = subprocess.Popen([bench.o.cortado, "serve", "--model=" + model, "--weights=" + weights, "--name=m",
                                         "--listen=" + listen, *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if " at " not in line:
            self.process.wait()
            self.log.seek(0)
            sys.exit("cortado serve: " + self.log.read()[-2000:])
        self.at = line.split(" at ")[1].strip()
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.terminate()
        code = self.process.wait(120)
        if code and why[0] is None:
            sys.exit("cortado serve ended with %d" % code)

    def connect(self):
        if not self.at.startswith("unix:"):
            return http.client.HTTPConnection(self.at, timeout=600)
        c = http.client.HTTPConnection("x", timeout=600)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(600)
        c.sock.connect(self.at[5:])
        return c

    def metrics(self):
        c = self.connect()
        c.request("GET", "/metrics")
        lines = [line.rsplit(" ", 1) for line in c.getresponse().read().decode().split("\n") if line.startswith("cortado")]
        c.close()
        return {name: float(value) for name, value in lines}


def median(values):
    return statistics.median(values)


def took(result):
    return result["status"].get("200", {"p50_ms": float("nan"), "p99_ms": float("nan"), "n": 0})


# ---- rows: each gives what it measured, and what must hold

def overhead(b):
    with Server(b, "tiny") as s:
        b.load(s, requests=200)
        before = s.metrics()
        r = b.load(s, requests=1000 if b.o.short else 50000, most=64)
        after = s.metrics()
    of_net = [after[k] - before[k] for k in ('cortado_replica_busy_seconds_total{replica="0"}', "cortado_batches_total")]
    return {"p50_ms": took(r)["p50_ms"], "p99_ms": took(r)["p99_ms"], "net_ms": 1e3 * of_net[0] / of_net[1],
            "client_share": r["client_share"]}, {"p50_ms <= 0.3": took(r)["p50_ms"] <= 0.3}


def packed_tokens_s(b, net, tokens):
    """Of passes of about so many tokens, of lengths from 2 to 100, without a server."""
    n = max(2, min(40, round(tokens / 51)))
    lengths = "+".join(str(round(2 + 98 * i / (n - 1))) for i in range(n))
    model, weights = b.net(net)
    rows = b.run([b.o.cortado, "bench", "serve", "--model=" + model, "--weights=" + weights, "--shapes=" + lengths,
                  "--repeat=%d" % (5 if b.o.short else 40), "--log=error", "--json"])
    row = json.loads(rows.split("\n")[0])
    return 1e3 * row["all_tokens"] / row["ms"], row["all_tokens"]


def saturation(b):
    ratios, shares, each, alone = [], [], [], []
    with Server(b, b.o.net, "--max_queue=1000") as s:
        size = 918 # until the server's own batches are known
        for _ in range(1 if b.o.short else 11):
            first, _ = packed_tokens_s(b, b.o.net, size)
            b.load(s, clients=64, seconds=2, least=2, most=100)
            before = s.metrics()
            r = b.load(s, clients=64, seconds=5 if b.o.short else 12, least=2, most=100, ids=256)
            batches = s.metrics()["cortado_batches_total"] - before["cortado_batches_total"]
            tokens = s.metrics()["cortado_batch_tokens_total"] - before["cortado_batch_tokens_total"]
            size = tokens / batches
            second, packed = packed_tokens_s(b, b.o.net, size)
            each.append(r["tokens"] / r["seconds"])
            alone.append((first + second) / 2) # a process of passes alone is slow or fast as a whole
            shares.append(r["client_share"])
            ratios.append(each[-1] / alone[-1])
    return {"tokens_s": median(each), "packed_tokens_s": median(alone), "batch_tokens": tokens / batches, "packed_batch_tokens": packed,
            "ratio": median(ratios), "ratios": ratios, "client_share": max(shares)}, {"ratio >= 0.97": median(ratios) >= 0.97}


def poisson(b):
    result = {"PACKED": [], "PADDED": []}
    seconds = 5 if b.o.short else 60
    options = ("--max_queue=10000",)
    with Server(b, b.o.net, "--batching=PADDED", *options) as padded, Server(b, b.o.net, *options) as packed:
        most = b.load(padded, clients=256, seconds=seconds, least=2, most=100)
        rate = 0.9 * most["status"]["200"]["n"] / most["seconds"]
        for k in range(1 if b.o.short else 3):
            for kind, server in (("PADDED", padded), ("PACKED", packed)):
                result[kind].append(b.load(server, clients=4000, rate=rate, seconds=seconds, least=2, most=100, seed=k + 2))
    values = {"requests_s": rate, "client_share": max(r["client_share"] for all_r in result.values() for r in all_r)}
    for q in ("p50_ms", "p99_ms"):
        for kind, all_r in result.items():
            values[kind.lower() + "_" + q] = median([took(r)[q] for r in all_r])
        values["ratio_" + q] = values["packed_" + q] / values["padded_" + q]
    refused = sum(r["requests"] - took(r)["n"] for all_r in result.values() for r in all_r)
    return values, {"p50 <= 0.8 of padded": values["ratio_p50_ms"] <= 0.8, "p99 <= 0.8 of padded": values["ratio_p99_ms"] <= 0.8,
                    "all answered": refused == 0}


def overload(b):
    seconds, ms = (5, 2000) if b.o.short else (60, 1000)
    with Server(b, b.o.net, "--deadline_ms=%d" % ms) as s:
        b.load(s, clients=32, seconds=2, least=2, most=100)
        best = b.load(s, clients=32, seconds=seconds / 2, least=2, most=100, deadline_ms=ms)
        rate = best["in_time"] / best["seconds"]
        r = b.load(s, clients=4000, rate=5 * rate, seconds=seconds, least=2, most=100, deadline_ms=ms, seed=2)
    refused = r["status"].get("429", {"p50_ms": float("nan"), "p99_ms": float("nan"), "n": 0})
    lost = {status: t["n"] for status, t in r["status"].items() if status not in ("200", "429")}
    values = {"requests_s": rate, "deadline_ms": ms, "goodput": r["in_time"] / r["seconds"] / rate, "accepted_p99_ms": took(r)["p99_ms"],
              "refused": refused["n"], "refused_p50_ms": refused["p50_ms"], "refused_p99_ms": refused["p99_ms"], "others": lost,
              "late_p99_ms": r["late_p99_ms"], "client_share": r["client_share"]}
    return values, {"goodput >= 0.95": values["goodput"] >= 0.95, "p99 of accepted <= deadline": values["accepted_p99_ms"] <= ms,
                    "p99 of 429 <= 10 ms": refused["p99_ms"] <= 10, "nothing else": not lost}


def grows(b, net, requests, clients):
    """By how much a server's memory grows after a tenth of the requests."""
    with Server(b, net, "--max_queue=1000") as s:
        first = b.load(s, clients=clients, requests=requests // 10, least=1, most=100)
        kib = resident_kib(s.pid)
        rest = [b.load(s, clients=clients, requests=requests - requests // 10, least=1, most=100, seed=2)]
        grown = resident_kib(s.pid) - kib
    answered = sum(took(r)["n"] for r in [first] + rest)
    return {"requests": requests, "answered": answered, "grown_kib": grown, "resident_kib": kib + grown,
            "requests_s": rest[0]["requests"] / rest[0]["seconds"], "p50_ms": took(rest[0])["p50_ms"], "p99_ms": took(rest[0])["p99_ms"],
            "client_share": rest[0]["client_share"]}, {"all answered": answered == requests, "at most 1 MiB more": grown <= 1024}


def rss(b):
    return grows(b, b.o.net, 300 if b.o.short else 100000, 16)


def million(b):
    return grows(b, "tiny", 20000 if b.o.short else 1000000, 16)


def stream_times(server, prompt, most, at=None, then=None):
    """When the events of a text came, and how many tokens each has; then() is called when there are `at` of them."""
    c, times = server.connect(), []
    c.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": prompt, "max_tokens": most, "stream": True, "seed": 1,
                                                     "logprobs": 1}))
    r = c.getresponse()
    if r.status != 200:
        sys.exit("a completion: %d: %s" % (r.status, r.read()))
    for line in r:
        if line.startswith(b"data: {"):
            logprobs = json.loads(line[6:])["choices"][0]["logprobs"]
            times.append((time.monotonic(), len(logprobs["tokens"]) if logprobs else 0))
            if len(times) == at:
                then()
    c.close()
    return times


def gap(b):
    gaps, alone, threads = [], [], []
    model, weights = b.net(b.o.texts)
    tokenizer = os.path.join(b.work, "letters")
    # nearly all tokens are whole characters, which come by themselves
    words = [bytes([k]) for k in range(256)] + [bytes([32 + i, 32 + k]) for i in range(95) for k in range(95)]
    with open(tokenizer, "w") as f:
        f.writelines("%s %d\n" % (base64.b64encode(word).decode(), rank) for rank, word in enumerate(words))
    # the server's costs are those that --check tells of
    options = ["--tokenizer=" + tokenizer, "--pattern=gpt2", "--plan=" + os.path.join(b.work, "costs")]
    prompt = [7919 * i % len(words) for i in range(500)]

    def arrives(s, k):
        thread = threading.Thread(target=stream_times, args=(s, [k] + prompt[1:], 1))
        threads.append(thread)
        thread.start()

    check = json.loads(b.run([b.o.cortado, "serve", "--model=" + model, "--weights=" + weights, "--check", "--json", "--log=error"] + options))
    with Server(b, b.o.texts, *options) as s:
        stream_times(s, "a b c", 8)
        for k in range(2 if b.o.short else 9):
            most = 30 if b.o.short else 60
            times = stream_times(s, "once more, %d" % k, most, 10, lambda k=k: arrives(s, k))
            threads.pop().join()
            between = [later - t for (t, _), (later, n) in zip(times, times[1:]) if n == 1]
            alone.append(median(between))
            gaps.append(max(between))
    return {"gap_ms": 1e3 * median(gaps), "longest_ms": 1e3 * max(gaps), "step_ms": 1e3 * median(alone), "chunk_tokens": check["budget_tokens"],
            "chunk_ms": 1e3 * check["budget_s"]}, {"gap <= 2 chunks": median(gaps) <= 2 * check["budget_s"]}


def packed(b):
    model = os.path.abspath(b.o.packed_net)
    lines = b.run([b.o.cortado, "bench", "serve", "--model=" + model, "--shapes=mix20,10x100,mix20,10x100", "--log=error", "--json",
                   "--repeat=%d" % (3 if b.o.short else 20)]).split()
    mixed, padded, full = [[json.loads(line)["ms"] for line in lines[k::3]] for k in range(3)]
    mixed, padded, full = median(mixed), median(padded), median(full)
    values = {"packed_ms": mixed, "padded_ms": padded, "full_ms": full, "over_padded": padded / mixed,
              "of_full": (1070 / mixed) / (1000 / full)}
    return values, {"padded / packed >= 1.75": values["over_padded"] >= 1.75, "tokens/s >= 0.95 of 10 x 100": values["of_full"] >= 0.95}


ROWS = {f.__name__: f for f in (overhead, saturation, poisson, overload, rss, gap, packed, million)}


def show(name, row):
    print("%s%s" % (name, " (short: counts for nothing)" if row["short"] else ""))
    for key, value in row["values"].items():
        print("  %-22s %s" % (key, "%.4g" % value if isinstance(value, float) else value))
    for what, good in row["verdict"].items():
        print("  %-6s %s" % ("yes" if good else "NO", what))
    sys.stdout.flush()


def read_results(path):
    done = {}
    if path and os.path.exists(path):
        with open(path) as f:
            done = {row["row"]: row for row in map(json.loads, f) if not row["short"]}
    return done


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", default=",".join(ROWS))
    p.add_argument("--results", help="a file of JSON lines; a row that it has is not run again")
    p.add_argument("--short", action="store_true")
    p.add_argument("--tcp", action="store_true", help="on the loopback in place of a socket in the file system")
    p.add_argument("--net", default=os.path.join(ROOT, "models/minilm/deploy.prototxt"))
    p.add_argument("--weights", help="of --net")
    p.add_argument("--packed_net", default=os.path.join(ROOT, "models/bert_base/deploy.prototxt"))
    p.add_argument("--texts", default=os.path.join(ROOT, "models/gpt2/deploy.prototxt"))
    p.add_argument("--cortado", default=os.path.join(ROOT, "cortado"))
    p.add_argument("--load", default=os.path.join(ROOT, "build/mpicc/tests/bench/http_load"), help="make bench builds it")
    o = p.parse_args()
    o.cortado, o.load = os.path.abspath(o.cortado), os.path.abspath(o.load)
    wanted = o.rows.split(",")
    for name in wanted:
        if name not in ROWS:
            sys.exit("--rows: %s: expected some of %s" % (name, ",".join(ROWS)))
    done = read_results(o.results)
    with tempfile.TemporaryDirectory(prefix="cortado-load.") as work:
        b = Bench(o, work)
        for name in wanted:
            if name not in done:
                values, verdict = ROWS[name](b)
                done[name] = {"row": name, "short": o.short, "values": values, "verdict": verdict}
                if o.results:
                    with open(o.results, "a") as f:
                        f.write(json.dumps(done[name]) + "\n")
            show(name, done[name])
    sys.exit(0 if all(all(done[name]["verdict"].values()) for name in wanted) else 1)


if __name__ == "__main__":
    main()
