#!/usr/bin/env python3
"""Asks `cortado serve` for as many answers as one likes, while clients misbehave and the server is stopped for moments.

Usage: tests/faults/soak_serve.py RESULTS [--requests=1000000] [--every=0.2] [--seed=1] [--load=PROGRAM]
       tests/faults/soak_serve.py RESULTS --table

The requests are those of tests/bench/http_load.c (--load: build/mpicc/tests/bench/http_load, which make bench builds), 16 clients without
a pause, in pieces of PIECE; a row is a piece. Beside them, every --every seconds on average, something befalls the server, by chance:
 * half: a client that goes in the middle of its request; * garbage: one that sends bytes that are no HTTP, and goes;
 * slow: a request whose bytes come one a moment;        * gone: one that asks, and goes before its answer;
 * huge: a body longer than is allowed;                  * deep: JSON with 10 000 brackets;
 * wrong: a request for what there is not;               * pause: SIGSTOP, and SIGCONT within half a second.
Right is a piece whose requests were all answered with 200, during which each of Checker's requests had the bits of its first answer, in
which what was wrong had a status from 400 to 499 or a closed connection, and after which the server has no more than GROWTH_KIB more
resident, and no more files open, than after the first piece. At the end it ends with 0 on SIGTERM.
"""
import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import job

sys.path.insert(0, os.path.join(job.ROOT, "tests", "bench"))
import serve_load  # noqa: E402

PIECE, CLIENTS, GROWTH_KIB = 50000, 16, 1024
KINDS = ("half", "garbage", "slow", "gone", "huge", "deep", "wrong", "pause")
BODY = json.dumps({"model": "m", "input": [3, 1, 4, 1, 5]})


def request(body, path="/v1/embeddings", length=None):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n{body}".encode()


class Trouble(threading.Thread):
    """What befalls the server, until stop is set. wrong: what it answered that it must not."""

    def __init__(self, server, every, seed):
        super().__init__(daemon=True)
        self.server, self.every, self.draw = server, every, random.Random(seed)
        self.stop, self.count, self.wrong = threading.Event(), dict.fromkeys(KINDS, 0), []

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        s.connect(self.server.at[5:])
        return s

    def status(self, sent):
        """What answers these bytes; 0: the connection was closed."""
        with self.connect() as s:
            try:
                s.sendall(sent)
                s.shutdown(socket.SHUT_WR)
                line = s.recv(4096).split(b"\r\n")[0].split()
            except (BrokenPipeError, ConnectionResetError):
                return 0
        return int(line[1]) if len(line) > 1 and line[0].startswith(b"HTTP/") else 0

    def befall(self, kind):
        whole = request(BODY)
        if kind == "huge":
            return self.status(request("x" * 1000, length=1 << 40))
        if kind == "deep":
            return self.status(request('{"model": "m", "input": ' + "[" * 10000))
        if kind == "wrong":
            return self.status(self.draw.choice((request(BODY, "/v1/nothing"), request("{}"), request(BODY.replace('"m"', '"other"')),
                                                 request(BODY.replace("3", "-3")), request(BODY.replace("3", "99999")))))
        if kind == "pause":
            os.kill(self.server.pid, signal.SIGSTOP)
            time.sleep(self.draw.uniform(0.0, 0.5))
            os.kill(self.server.pid, signal.SIGCONT)
            return 0
        with self.connect() as s:
            if kind != "slow":
                s.sendall({"half": whole[:self.draw.randrange(1, len(whole) - 1)], "gone": whole,
                           "garbage": self.draw.randbytes(self.draw.randrange(1, 2000))}[kind])
                return 0
            for byte in whole[:30]:  # slow
                s.sendall(bytes([byte]))
                time.sleep(0.02)
        return 0

    def run(self):
        while not self.stop.wait(self.draw.expovariate(1 / self.every)):
            kind = self.draw.choice(KINDS)
            try:
                status = self.befall(kind)
            except OSError as error:
                self.wrong.append(f"{kind}: {error}")
                continue
            self.count[kind] += 1
            if status != 0 and not 400 <= status < 500:
                self.wrong.append(f"{kind} is answered with {status}")


class Checker(threading.Thread):
    """Asks the same again and again; each answer must be the first one's."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stop, self.first, self.asked, self.wrong = server, threading.Event(), None, 0, []

    def run(self):
        while not self.stop.wait(0.01):
            try:
                c = self.server.connect()
                c.request("POST", "/v1/embeddings", BODY)
                reply = c.getresponse()
                answer = json.loads(reply.read())["data"]
                c.close()
            except (OSError, KeyError, ValueError) as error:
                self.wrong.append(f"no answer: {error!r}")
                continue
            self.asked += 1
            self.first = self.first or answer
            if answer != self.first:
                self.wrong.append("another answer")


def holds(pid):
    """KiB resident, and files open."""
    return serve_load.resident_kib(pid), len(os.listdir(f"/proc/{pid}/fd"))


def try_all(results, options, folder):
    load = os.path.abspath(options.get("load", os.path.join(job.ROOT, "build/mpicc/tests/bench/http_load")))
    bench = serve_load.Bench(argparse.Namespace(cortado=os.path.abspath(job.CORTADO), load=load, tcp=False, weights=None, net=None), folder)
    seed, every = int(options.get("seed", "1")), float(options.get("every", "0.2"))
    pieces = max(1, int(options.get("requests", "1000000")) // PIECE)
    first = sum(r["class"] == "requests" for r in results.rows)
    if first >= pieces:
        return
    server = serve_load.Server(bench, "tiny", "--deterministic")
    checker, before = Checker(server), None
    checker.start()
    for k in range(first, pieces):
        trouble = Trouble(server, every, 1000003 * seed + k)
        trouble.start()
        ran = subprocess.run([load, server.at, "m", f"clients={CLIENTS}", f"requests={PIECE}", "seconds=600", f"seed={seed + k}"], capture_output=True,
                             text=True, check=False)
        trouble.stop.set()
        trouble.join()
        time.sleep(1.0)  # slow clients that go are seen
        status = {s: v["n"] for s, v in json.loads(ran.stdout)["status"].items()} if ran.returncode == 0 else {}
        wrong = trouble.wrong[:3] + checker.wrong[:3]
        checker.wrong.clear()
        if status != {"200": PIECE}:
            wrong.append(f"statuses {status} {ran.stderr[-300:]}")
        now = holds(server.pid)
        before = before or now
        if now[0] - before[0] > GROWTH_KIB or now[1] > before[1] + CLIENTS:
            wrong.append(f"{before} KiB and files after the first piece, {now} now")
        befell = ", ".join(f"{kind} {n}" for kind, n in trouble.count.items())
        results.add("requests", f"seed {seed}, {PIECE}, piece {k}", [200], 200 if status == {"200": PIECE} else "others", "; ".join(wrong),
                    f"{befell}; {checker.asked} checked so far; {now[0]} KiB, {now[1]} files")
    checker.stop.set()
    checker.join()
    server.process.terminate()
    code = server.process.wait(60)
    results.add("end", f"seed {seed}, from piece {first}", [0], code, "" if code == 0 else f"exit code {code}")


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"requests", "every", "seed", "load"}, try_all)
