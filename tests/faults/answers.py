#!/usr/bin/env python3
"""Draws nets, servers and requests, and compares each answer of `cortado serve` with what the net alone gives.

Usage: tests/faults/answers.py RESULTS [--cases=N] [--first=0] [--seed=1] [--requests=30] [--keep=FOLDER]
       tests/faults/answers.py RESULTS --table

A case draws a net of tokens (served_nets.py), starts a server of it with drawn options, on one rank or several, and sends drawn requests, several
at once: texts that go on, chats, embeddings, states; in between, what must be refused, and clients that go. Some of them come again, alone, with
events or without. What is compared:
 * texts: each token is the reference's best one, or may be drawn by temperature and top_p; where a text ends, and why; usage.
 * logprobs: those of the reference, and the best of them.        * same: a request that comes again has the same text.
 * draws: how probable the drawn tokens of a case are, all together.
 * rows: embeddings and states are those of the reference.        * refused: one JSON error of the status that is meant.
 * lists: nets of words, by generate and predict alone.
 * swap: after SIGHUP texts are those of the other weights, whatever the cache has.
 * generate, predict: the same text as the server's.              * end: nothing is held, nothing failed, 0.
The reference is the net with the engine "ref" in each layer, one text at a time, one thread, portable code. What comes out may differ by 4 times the
largest change of 3 nets whose weights are changed as sums round (forward.py). Where two tokens are as good within that, a text is compared up to there.
--keep has the folders of the cases that are wrong. job.py says what RESULTS and --table are. CORTADO_LIBRARY names the library
(build/mpicc/lib/libcortado.so, of `make library`).
"""
import base64
import http.client
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import job

os.environ["CORTADO_SIMD"] = "portable"  # of the reference, which runs in this process
import drawn_requests  # noqa: E402
import served_nets  # noqa: E402

START_S, ANSWER_S, SPREAD, GROWTH_MIB = 120, 120, 5.0, 12


class Reply:
    def __init__(self, status, data, headers):
        self.status, self.data, self.headers, self.wrong, self.broken = status, data, headers, "", False
        self.choices, self.usage, self.json = [], None, None
        if status == 200 and headers.get("content-type", "").startswith("text/event-stream"):
            self.read_events(data.decode())
            return
        try:
            self.json = json.loads(data)
        except ValueError:
            self.wrong = f"no JSON: {data[:200]!r}"
        if status == 200 and isinstance(self.json, dict) and "choices" in self.json:
            self.usage = self.json["usage"]
            for i, c in enumerate(self.json["choices"]):
                if c["index"] != i:
                    self.wrong = f"choice {i} has index {c['index']}"
                text = c["message"]["content"] if "message" in c else c["text"]
                self.choices.append({"text": text, "finish": c["finish_reason"], "logprobs": c["logprobs"]})

    def read_events(self, text):
        parts = text.split("\n\n")
        if parts[-1] != "" or len(parts) < 2 or not all(p.startswith("data: ") for p in parts[:-1]):
            self.wrong = f"events that are none: {text[-200:]!r}"
            return
        events = parts[:-1]
        if events[-1] != "data: [DONE]":
            last = json.loads(events[-1][6:])
            self.broken = "error" in last
            if not self.broken:
                self.wrong = f"no end of the events: {events[-1][:200]}"
            return
        events = [json.loads(e[6:]) for e in events[:-1]]
        if len({(e["id"], e["object"], e["model"]) for e in events}) != 1:
            self.wrong = "events of several ids"
        if events and not events[-1]["choices"]:
            self.usage = events.pop()["usage"]
        found = {}
        for e in events:
            for c in e["choices"]:
                own = found.setdefault(c["index"], {"text": "", "finish": None, "logprobs": None, "n": 0})
                if own["finish"] is not None:
                    self.wrong = f"an event behind the end of text {c['index']}"
                if "delta" in c and ("role" in c["delta"]) != (own["n"] == 0):
                    self.wrong = "the role is not in the first event alone"
                own["n"] += 1
                own["text"] += c["delta"].get("content", "") if "delta" in c else c["text"]
                own["finish"] = c["finish_reason"]
                if c["logprobs"] is not None:
                    own["logprobs"] = own["logprobs"] or {k: [] for k in c["logprobs"]}
                    for k, v in c["logprobs"].items():
                        if v is not None:
                            own["logprobs"][k] += v
        if sorted(found) != list(range(len(found))):
            self.wrong = f"events of texts {sorted(found)}"
        self.choices = [found[i] for i in sorted(found)]
        if any(c["finish"] is None for c in self.choices):
            self.wrong = "a text without an end"


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def of(env):
    """In front of a program: with the drawn kernels, not with those of the reference."""
    return [] if "CORTADO_SIMD" in env else ["env", "-u", "CORTADO_SIMD"]


class Server:
    def __init__(self, folder, ranks, options, env):
        self.at = None
        words = [job.CORTADO, "serve", "--model=deploy.prototxt", "--weights=w.npz", *options]
        self.job = job.Started(ranks, [*of(env), *([*job.MPIRUN, "-np", str(ranks)] if ranks > 1 else [])], shlex.join(words), folder, env)
        end = time.time() + START_S
        while self.job.process.poll() is None and time.time() < end and self.at is None:
            found = re.search(r"^m at (\S+)$", self.job.log(), re.M)
            self.at = found.group(1) if found else None
            time.sleep(0.02)
        self.key, self.folder, self.ranks = None, folder, ranks
        self.own, self.keeps, self.chunks = threading.local(), False, False

    def connect(self):
        if self.at.startswith("unix:"):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(ANSWER_S)
            s.connect(os.path.join(self.folder, self.at[5:]))
        else:
            host, port = self.at.rsplit(":", 1)
            s = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        return s

    def send(self, method, path, body=None, **headers):
        """On the connection of this thread, where it is there still; some bodies come in chunks."""
        c = getattr(self.own, "connection", None)
        if c is None or c.sock is None:
            c = http.client.HTTPConnection("x", timeout=ANSWER_S)
            c.sock = self.connect()
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        chunks = self.chunks and body and len(body) > 10 and len(body) % 3 == 0
        try:
            c.request(method, path, [body[:7], body[7:]] if chunks else body, headers, encode_chunked=bool(chunks))
            r = c.getresponse()
            reply = Reply(r.status, r.read(), {k.lower(): v for k, v in r.getheaders()})
        except BaseException:
            c.close()
            raise
        if not self.keeps or r.will_close:
            c.close()
        self.own.connection = c
        return reply

    def ask(self, ask):
        if isinstance(ask.body, bytes):
            return self.send("POST", ask.path, ask.body, **ask.head)
        return self.send("POST", ask.path, json.dumps(ask.body if ask.path.startswith("/v2") else dict({"model": "m"}, **ask.body)).encode())

    def metrics(self):
        reply = self.send("GET", "/metrics")
        lines = [line.rsplit(" ", 1) for line in reply.data.decode().split("\n") if line.startswith("cortado")]
        return {name: float(value) for name, value in lines}

    def end(self):
        """The exit code; a text: it does not end."""
        os.kill(self.job.pid(0), signal.SIGUSR1 if self.ranks > 1 else signal.SIGTERM)
        end = time.time() + 60
        while time.time() < end:
            code = self.job.process.poll()
            if code is not None:
                return code
            time.sleep(0.02)
        return "no end"


class Case(drawn_requests.Requests):
    def __init__(self, folder, seed, number, n_request):
        self.folder, self.draw, self.n_request = folder, random.Random(f"answers {seed} {number}"), n_request
        self.number, self.of_lists, self.server = number, number % 10 == 9, None
        self.rows, self.count, self.kind, self.lock = {}, {}, "", threading.Lock()
        self.spread, self.seeds, self.unclear, self.cached = [0.0, 0.0, 0.0], set(), 0, 0

    def say(self, group, wrong="", what=""):
        with self.lock:
            self.count[group] = self.count.get(group, 0) + 1
            self.rows.setdefault(group, [])
            if wrong:
                self.rows[group].append(f"{wrong} {what}"[:600])

    # ---- what is drawn

    def options(self):
        """Of the server: ranks, words, environment."""
        draw, net = self.draw, self.net
        self.ranks, self.deadline, self.queue, self.batch = draw.choice((1, 1, 1, 1, 1, 2, 2, 2, 3, 4)), None, 256, 4096
        words = [draw.choice(("--listen=127.0.0.1:0", "--listen=unix:sock"))]
        self.parallel = self.ranks in (2, 4) and net.kind != "pictures" and draw.random() < 0.6
        if self.parallel:
            words.append("--parallel=tensor:2")
        if self.with_tokenizer:
            words.append(f"--tokenizer={net.tokenizer.file}")
        self.kv = (1 if net.wide else draw.choice((1, 1, 1, 2, 16, None, None, None))) if net.kind == "texts" else 0
        if self.kv:
            words.append(f"--kv_mb={self.kv}")
        if draw.random() < 0.5:
            most = draw.choice((1, 2, 3, 7, 16, 33, 100, 1024, 4096, "AUTO"))
            self.batch = most if most != "AUTO" else 4096
            words.append(f"--max_batch_tokens={most}")
        if draw.random() < 0.2:
            self.queue = draw.choice((1, 2, 5, 40))
            words.append(f"--max_queue={self.queue}")
        if draw.random() < 0.25:
            words.append(f"--max_wait_ms={draw.choice((0.5, 3, 20))}")
        if draw.random() < 0.15:
            self.deadline = draw.choice((30, 300, 60000))
            words.append(f"--deadline_ms={self.deadline}")
        if net.precision != "F32":
            words.append("--precision=BF16")
        self.deterministic = draw.random() < 0.3
        if self.deterministic:
            words.append("--deterministic")
        if net.kind in ("embeddings", "states") and draw.random() < 0.3:
            words.append("--batching=PADDED")
        self.template = draw.choice(("CHATML", "LLAMA3", "ZEPHYR")) if self.with_tokenizer and isinstance(net.tokenizer, served_nets.Bpe) else None
        if self.template:
            words.append(f"--chat_template={self.template}")
        self.key = "a-key" if draw.random() < 0.15 else None
        if self.key:
            with open(os.path.join(self.folder, "keys"), "w", encoding="ascii") as f:
                f.write("# keys\nother\na-key\n")
            words.append("--api_key_file=keys")
        env = {"OMP_NUM_THREADS": str(draw.choice((1, 1, 2, 3))), "CORTADO_SIMD": draw.choice(("", "", "", "avx2", "portable"))}
        if not env["CORTADO_SIMD"]:
            del env["CORTADO_SIMD"]
        return self.ranks, words, env

    def judge_pictures(self, ask, reply):
        if not isinstance(reply, Reply):
            return self.say("pictures", reply, ask.path) if reply else None
        if ask.path.startswith("/v2"):
            out = reply.json["outputs"][0]
            found = [dict(enumerate(out["data"][k * self.net.out:(k + 1) * self.net.out])) for k in range(len(ask.prompts))]
            why = "" if out["shape"] == [len(ask.prompts), self.net.out] else f"shape {out['shape']}"
        else:
            name, why = "probability" if self.net.softmax else "score", ""
            found = [{c["class"]: c[name] for c in p["classes"]} for p in reply.json["pictures"]]
            for i, p in enumerate(reply.json["pictures"]):
                labels = all(c.get("label") == (f"kind {c['class']}" if self.net.labels else None) for c in p["classes"])
                if p["file"] not in (None, f"{i}.png") or len(p["classes"]) != ask.top or not labels:
                    why = f"{p}"
                if [c[name] for c in p["classes"]] != sorted((c[name] for c in p["classes"]), reverse=True):
                    why = f"order {p}"
        if len(found) != len(ask.prompts):
            why = f"{len(found)} of {len(ask.prompts)} pictures"
        for values, row in zip(ask.prompts, found):
            why = why or self.differs(self.ref.run("w", values), row)
        ask.found = found
        return self.say("pictures", why, ask.path)

    def differs(self, wanted, row):
        """Classes: the best ones, and what they have."""
        slack = 2 * self.ref.limit + 1e-6
        for c, v in row.items():
            if not abs(v - wanted[c]) <= slack:
                return f"class {c} has {v}, the reference {wanted[c]:.7g}, allowed {slack:.2g}"
        worst = min(row.values())
        missing = [c for c, v in enumerate(wanted) if c not in row and v > worst + 2 * slack]
        return f"class {missing[0]} is missing" if missing else ""

    # ---- what is sent

    def refuse(self, one):
        statuses, method, path, body = one[:4]
        try:
            reply = self.server.send(method, path, body, **(one[4] if len(one) > 4 else {}))
        except (OSError, http.client.HTTPException) as error:
            return self.say("refused", f"no answer: {error!r}", f"{method} {path} {body}")
        if reply.status == 429 and self.may_be_busy():
            return None
        why = "" if reply.status in statuses else f"status {reply.status}, expected {statuses}"
        error = reply.json.get("error") if isinstance(reply.json, dict) else None
        if not why and path.startswith("/v2"):
            why = "" if isinstance(error, str) and error else f"no error of /v2: {reply.data[:200]}"
        elif not why:
            good = isinstance(error, dict) and set(error) == {"message", "type", "param", "code"} and error["message"]
            why = "" if good else f"no error of OpenAI's form: {reply.data[:200]}"
        return self.say("refused", why, f"{method} {path} {(body or b'')[:200]} {reply.data[:200]}" if why else "")

    def may_be_busy(self):
        return self.queue < 256 or self.deadline in (30, 300)

    def go(self, ask):
        """A client that goes in the middle."""
        body = dict(ask.body, model="m", stream=self.draw_go.random() < 0.7, max_tokens=max(1, min(40, self.context - max(len(p) for p in ask.prompts))))
        if not body["stream"]:
            body.pop("stream_options", None)
        body.pop("max_completion_tokens", None)
        data = json.dumps(body).encode()
        head = f"POST {ask.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n" + (f"Authorization: Bearer {self.key}\r\n" if self.key else "") + "\r\n"
        try:
            with self.server.connect() as s:
                whole = head.encode() + data
                cut = self.draw_go.choice((len(whole), len(whole), len(whole), self.draw_go.randrange(len(whole))))
                s.sendall(whole[:cut])
                if cut == len(whole) and self.draw_go.random() < 0.6:
                    s.recv(self.draw_go.choice((1, 200, 1000)))
        except OSError as error:
            self.say("refused", f"a client that goes: {error!r}")

    def send(self, ask):
        """Until there is room, where the queue is short."""
        for _ in range(200):
            try:
                reply = self.server.ask(ask)
            except (OSError, http.client.HTTPException) as error:
                return f"no answer: {error!r}"
            if reply.status == 429 and self.may_be_busy():
                if "retry-after" not in reply.headers:
                    return "429 without Retry-After"
                if self.deadline in (30, 300):
                    return None
                time.sleep(0.05)
                continue
            if (reply.status == 504 or reply.broken) and self.deadline in (30, 300):
                return None
            if reply.wrong:
                return reply.wrong
            if reply.status != 200:
                return f"status {reply.status}: {reply.data[:300]}"
            if reply.broken:
                return "the events break off"
            return reply
        return None

    def side_by_side(self, jobs):
        todo = list(reversed(jobs))

        def client():
            while True:
                with self.lock:
                    if not todo:
                        return
                    work = todo.pop()
                work()
        threads = [threading.Thread(target=client, daemon=True) for _ in range(self.draw.choice((1, 2, 4, 8, 12)))]
        for t in threads:
            t.start()
        if self.hup:
            time.sleep(0.2)
            os.kill(self.server.job.pid(0), signal.SIGHUP)
        for t in threads:
            t.join(6 * ANSWER_S)

    # ---- what must come of it

    def ids_of(self, ask, choice):
        """Of a text with logprobs; None: nobody knows."""
        if choice["logprobs"] is None or not self.net.tokenizer.exact:
            return None
        if ask.chat:
            return [self.by_bytes[bytes(t["bytes"])] for t in choice["logprobs"]["content"]]
        return [self.by_bytes[self.unname(n)] for n in choice["logprobs"]["tokens"]]

    @staticmethod
    def unname(name):
        if name.startswith("bytes:\\x"):
            return bytes(int(h, 16) for h in name[8:].split("\\x"))
        return name.encode()

    def follow(self, ask, prompt, given, index):
        """The text, its end, how many tokens, and whether that is all of it; and why what was given cannot be."""
        temperature, top_p, t = ask.get("temperature", 1), ask.get("top_p", 1), self.net.tokenizer
        stops = [s.encode() for s in ([ask.body["stop"]] if isinstance(ask.get("stop"), str) else ask.get("stop", []))]
        most = ask.get("max_completion_tokens", ask.get("max_tokens", 16))
        most = min(most, self.context - len(prompt))
        ends = [t.end] + ([t.chat_end(self.template)] if ask.chat else [])
        made, data = [], b""
        if given:
            self.ref.fill(prompt + given)
        counts = given is not None and ask.drawn() and temperature > 0.01 and (ask.get("seed"), index, tuple(prompt)) not in self.seeds and ask.get("seed", 0) != 0
        if counts:
            self.seeds.add((ask.get("seed"), index, tuple(prompt)))
        while True:
            row = self.ref.scores(prompt + made)
            if given is None:
                chosen = self.walk.clear_best(row)
                if chosen is None:
                    return data, None, len(made), ""
            elif len(made) < len(given):
                chosen = given[len(made)]
            else:
                chosen = next((e for e in ends if e >= 0 and not self.walk.allowed(row, e, temperature, top_p)), None)
                if chosen is None:
                    return data, None, len(made), "it ends where no end token may come"
            why = self.walk.allowed(row, chosen, temperature, top_p) if given is not None else ""
            if why:
                return data, None, len(made), why
            if counts and (drawn := self.walk.surprise(row, chosen, temperature, top_p)):
                self.spread = [a + b for a, b in zip(self.spread, drawn)]
            if chosen in ends:
                return data, "stop", len(made), ""
            made.append(chosen)
            data = t.decode(made)
            found = [data.find(s) for s in stops if s in data]
            if found:
                return data[:min(found)], "stop", len(made), ""
            if len(made) == most:
                return data, "length", len(made), ""

    def judge_logprobs(self, ask, prompt, given, logprobs, cut):
        """cut: the bytes of the text."""
        wanted = ask.get("top_logprobs", 0) if ask.chat else ask.get("logprobs")
        slack, begins, data = 2 * self.ref.limit + 1e-6, [], b""
        for k, own in enumerate(given):
            row = self.ref.scores(prompt + given[:k])
            if ask.chat:
                c = logprobs["content"][k]
                told, top = c["logprob"], [(bytes(x["bytes"]), x["logprob"]) for x in c["top_logprobs"]]
                if c["token"] != served_nets.shown(c["bytes"]):
                    return f"token {k} is called {c['token']!r}"
            else:
                told, top = logprobs["token_logprobs"][k], [(self.unname(n), v) for n, v in logprobs["top_logprobs"][k].items()]
            if not abs(told - self.walk.logprob(row, own)) <= slack + 1e-7 * abs(told):
                return f"token {k} has logprob {told}, the reference {self.walk.logprob(row, own):.7g}, allowed {slack:.2g}"
            best = sorted((self.walk.logprob(row, i) for i in self.ref_known), reverse=True)[:wanted]
            if len(top) != len(best):
                return f"token {k} has {len(top)} alternatives, expected {len(best)}"
            for (name, v), b in zip(sorted(top, key=lambda x: -x[1]), best):
                if not abs(v - b) <= slack + 1e-7 * abs(v) or not abs(v - self.walk.logprob(row, self.by_bytes[name])) <= slack + 1e-7 * abs(v):
                    return f"token {k}: alternative {name} has {v}, the reference {self.walk.logprob(row, self.by_bytes[name]):.7g}, {b:.7g} there"
            begins.append(len(data))
            data += self.net.tokenizer.bytes_of(own)
        if not ask.chat and not ask.get("stream"):
            text, before = cut, [0]
            for c in served_nets.shown(text):  # where characters begin
                before.append(before[-1] + (len(c.encode()) if text[before[-1]:].startswith(c.encode()) else 1))
            offset = [sum(b < min(at, len(text)) for b in before[:-1]) for at in begins]
            if logprobs["text_offset"] != offset:
                return f"text_offset is {logprobs['text_offset']}, expected {offset}"
        return ""

    def judge(self, ask, reply):
        """Each text of a reply; fills ask.texts with what came again must have."""
        what = json.dumps(ask.body)[:400]
        if not isinstance(reply, Reply):
            return self.say("texts", reply, what) if reply else None
        if len(reply.choices) != len(ask.prompts):
            return self.say("texts", f"{len(reply.choices)} texts of {len(ask.prompts)} prompts", what)
        made, whole = 0, True
        for i, (prompt, c) in enumerate(zip(ask.prompts, reply.choices)):
            given = None
            try:
                given = self.ids_of(ask, c)
            except KeyError as e:
                self.say("logprobs", f"no token is called {e}", what)
            if given is None and ask.drawn():
                whole = False
                if not c["finish"]:
                    self.say("texts", "no end", what)
                continue
            data, finish, n, why = self.follow(ask, prompt, given, i)
            text = served_nets.shown(data)
            if not why and finish is None:
                self.unclear += 1
                whole = False
                cut = text[:-3]
                why = "" if c["text"].startswith(cut) else f"text {i} is {c['text']!r}, the net's begins with {cut!r}"
            elif not why:
                if (c["text"], c["finish"]) != (text, finish):
                    why = f"text {i} is {c['text']!r} ({c['finish']}), the net's {text!r} ({finish})"
                elif given is not None and len(given) != n:
                    why = f"text {i} has {len(given)} logprobs, {n} tokens"
            made += n
            self.say("texts", f"text {i}: {why}" if why else "", what)
            if given is not None and not why:
                self.say("logprobs", self.judge_logprobs(ask, prompt, given, c["logprobs"], data), what)
        u = reply.usage
        if (u is None) != (bool(ask.get("stream")) and not ask.get("stream_options", {}).get("include_usage")):
            self.say("texts", f"usage is {u}", what)
        elif u is not None:
            n = sum(len(p) for p in ask.prompts)
            good = u["prompt_tokens"] == n and u["total_tokens"] == n + u["completion_tokens"] and (not whole or u["completion_tokens"] == made)
            cached = u["prompt_tokens_details"]["cached_tokens"]
            self.cached += cached
            good = good and 0 <= cached <= sum((len(p) - 1) // 32 * 32 for p in ask.prompts)
            self.say("texts", "" if good else f"usage is {u}, expected {n} and {made}", what)
        return None

    def judge_rows(self, ask, reply):
        what = json.dumps(ask.body)[:300]
        if not isinstance(reply, Reply):
            return self.say("rows", reply, what) if reply else None
        if self.net.kind == "embeddings":
            found = []
            for k, d in enumerate(reply.json["data"]):
                e = d["embedding"]
                if isinstance(e, str) != (ask.get("encoding_format") == "base64") or d["index"] != k:
                    return self.say("rows", f"{str(d)[:200]}", what)
                found.append(list(struct.unpack(f"<{self.net.c}f", base64.b64decode(e))) if isinstance(e, str) else e)
            n = sum(len(p) for p in ask.prompts)
            if reply.json["usage"] != {"prompt_tokens": n, "total_tokens": n}:
                self.say("rows", f"usage {reply.json['usage']}, {n} tokens", what)
        else:
            out = reply.json["outputs"][0]
            n, t = len(ask.prompts), len(ask.prompts[0])
            if out["shape"] != [n, t, self.net.c] or len(out["data"]) != n * t * self.net.c:
                return self.say("rows", f"shape {out['shape']}", what)
            found = [out["data"][k * t * self.net.c:(k + 1) * t * self.net.c] for k in range(n)]
        why = "" if len(found) == len(ask.prompts) else f"{len(found)} rows"
        for ids, row in zip(ask.prompts, found):
            wanted = [v for r in self.ref.rows(ids) for v in r]
            limit = self.ref.limit
            if self.net.kind == "embeddings":
                length = math.sqrt(sum(v * v for v in wanted))
                wanted, limit = [v / length for v in wanted], 2 * limit / length * math.sqrt(self.net.c)
            by = served_nets.forward.difference(wanted, row)
            if not by <= limit + 1e-6:
                why = f"differs by {by:.3g}, allowed {limit:.3g}: ids {ids[:10]}"
        self.say("rows", why, what)
        ask.found = found
        return None

    # ---- the whole

    def run(self):
        draw = self.draw
        if self.of_lists:
            return self.run_lists()
        kind = draw.choice(("texts",) * 8 + ("embeddings", "embeddings", "states", "pictures"))
        self.net = net = served_nets.Pictures(draw) if kind == "pictures" else served_nets.Net(draw, kind)
        net.precision = "BF16" if draw.random() < 0.12 and kind != "pictures" else "F32"
        self.with_tokenizer = kind == "texts" or (kind == "embeddings" and draw.random() < 0.7)
        words = "abc abd ha bed éa cab " if isinstance(net.tokenizer, served_nets.Words) else "The tea is as the user sees it, 09 times é日€. "
        self.bases = [draw.choice((words, words[4:], words[::-1])) * 8 for _ in range(2)]
        self.id_bases = [[draw.randrange(net.rows) for _ in range(net.most)] for _ in range(3)] if kind != "pictures" else []
        net.write(self.folder, draw)
        ranks, options, env = self.options()
        self.env = env
        self.kind = f"{kind}, {type(net.tokenizer).__name__}, {net.precision}, {ranks} ranks" + (" tensor:2" if self.parallel else "")
        with open(os.path.join(self.folder, "command"), "w", encoding="utf-8") as f:
            f.write(f"{ranks} {shlex.join(options)} {env}\n")
        self.ref = served_nets.Reference(self.folder, net, draw)
        self.walk, self.ref_known = served_nets.Walk(self.ref), self.ref.known()
        self.by_bytes = {net.tokenizer.bytes_of(i): i for i in reversed(self.ref_known)}
        try:
            self.server = Server(self.folder, ranks, options, env)
            self.serve()
        finally:
            self.server.job.end()
            self.ref.close()
        return None

    def run_lists(self):
        """A net of words: by generate and predict alone."""
        draw, net = self.draw, served_nets.WordNet(self.draw)
        self.net, self.kind, t, self.env = net, "lists", net.tokenizer, {}
        net.write(self.folder, draw)
        self.ref = served_nets.Reference(self.folder, net, draw)
        self.walk = served_nets.Walk(self.ref)
        texts = []
        for i in range(5):
            words = [draw.choice([w for w in t.words if w != "<eos>"] + (["zzz"] if "<unk>" in t.words else [])) for _ in range(draw.randrange(1, 12))]
            prompt = "".join(w + draw.choice((" ", " ", "  ", "\n", " \n")) for w in words)
            texts.append(prompt if draw.random() < 0.5 else prompt.strip())
            with open(os.path.join(self.folder, f"t{i}.txt"), "w", encoding="utf-8") as f:
                f.write(texts[-1])
        temperature, top_p, most, seed = draw.choice((0, 0, 0.5, 1, 3)), draw.choice((1, 1, 0.7, 0.2)), draw.choice((1, 4, 15)), draw.randrange(1000)
        words = ["--model=deploy.prototxt", "--weights=w.npz", f"--tokenizer={t.file}", f"--max_tokens={most}", f"--temperature={temperature}",
                 f"--top_p={top_p}", f"--seed={seed}", "--log=error"]
        code, out = job.run([*of(self.env), *job.launch(draw.choice((1, 1, 2)), [job.CORTADO, "predict", *words, "--format=json",
                                                                                *(f"t{i}.txt" for i in range(5))])], self.folder, ANSWER_S)
        told = json.loads(out)["continuations"] if code == 0 else []
        self.say("lists", "" if len(told) == 5 else f"{code}: {out[-300:]}", shlex.join(words))
        for prompt, one in zip(texts, told):
            self.say("lists", self.judge_list(prompt, one["text"], most, temperature, top_p), f"{prompt!r} {shlex.join(words)}")
            code, out = job.run([*of(self.env), job.CORTADO, "generate", *words, f"--prompt={prompt}"], self.folder, ANSWER_S)
            self.say("lists", "" if (code, out) == (0, one["text"]) else f"generate: {code}: {out!r}, predict {one['text']!r}", repr(prompt))
        self.ref.close()

    def judge_list(self, prompt, text, most, temperature, top_p):
        t, made = self.net.tokenizer, []
        ids = t.encode(prompt)
        for w in re.findall(r"\n|[^ \n]+", text):
            if w != "\n" and w not in t.id:
                return f"{w!r} is no word"
            made.append(t.line_end if w == "\n" else t.id[w])
        if len(made) != most:
            return f"{len(made)} words of {most}: {text!r}"
        if text != t.behind(ids[-1], made):
            return f"{text!r} are written as {t.behind(ids[-1], made)!r}"
        self.ref.fill(ids + made)
        for k, one in enumerate(made):
            why = self.walk.allowed(self.ref.scores(ids + made[:k]), one, temperature, top_p)
            if why:
                return f"word {k} of {text!r}: {why}"
        return ""

    def serve(self):
        lines = job.errors(self.server.job.log())
        if self.server.at is None:
            code = self.server.job.process.poll()
            self.note = " / ".join(lines)
            return self.say("start", "" if code == 2 and len(lines) == 1 else f"{code}: {' / '.join(lines)[:400] or self.server.job.log()[-300:]}")
        self.say("start")
        self.server.key, self.server.keeps, self.server.chunks = self.key, self.draw.random() < 0.6, self.draw.random() < 0.4
        net, draw = self.net, self.draw
        self.context, self.budget = getattr(net, "most", 0), 4096
        if net.kind == "texts":
            room = re.search(r"the cache has room for (\d+) ", self.server.job.log())
            self.context = min(net.most, int(room.group(1))) if room else net.most
        self.hup = draw.random() < 0.15
        self.draw_go = random.Random(draw.random())
        make, judge = {"texts": (self.completion, self.judge), "pictures": (self.pictures_ask, self.judge_pictures)}.get(
            net.kind, (self.rows_ask, self.judge_rows))
        asks = [make() for _ in range(self.n_request)]
        replies = {}

        def answer(k, a):
            replies[k] = self.send(a)
        jobs = [lambda k=k, a=a: answer(k, a) for k, a in enumerate(asks)]
        refusals = self.refusals()
        jobs += [lambda r=r: self.refuse(r) for r in draw.sample(refusals, min(len(refusals), self.n_request // 2))]
        if net.kind == "texts":
            jobs += [lambda a=a: self.go(a) for a in draw.sample(asks, self.n_request // 5)]
        draw.shuffle(jobs)
        self.side_by_side(jobs)
        self.held = [resident_kib(self.server.job.pid(r)) for r in range(self.ranks)]
        for k, a in enumerate(asks):
            judge(a, replies.get(k, "no answer"))
        self.again(asks, replies, judge)
        if net.kind == "texts" and net.precision == "F32":
            self.alone(asks, replies)
        if net.kind == "pictures":
            self.predict([a for a in asks if not a.path.startswith("/v2")])
        self.spread_of_draws()
        if net.kind == "texts" and self.number % 3 == 0 and not self.may_be_busy():
            self.swap(draw.sample(asks, min(8, len(asks))))
        self.ending()
        return None

    def swap(self, asks):
        """Other weights under the same name, and SIGHUP: then texts are theirs."""
        for _, values in self.net.weights.values():
            self.draw.shuffle(values)
        before = self.server.job.log().count("read again, and in use")
        self.net.write(self.folder, self.draw)
        os.kill(self.server.job.pid(0), signal.SIGHUP)
        end = time.time() + START_S
        while self.server.job.log().count("read again, and in use") == before and time.time() < end:
            time.sleep(0.02)
        if time.time() >= end:
            self.say("swap", "other weights are never in use")
            return
        self.ref.close()
        self.ref = served_nets.Reference(self.folder, self.net, self.draw)
        self.walk = served_nets.Walk(self.ref)
        replies = {}

        def answer(k, a):
            replies[k] = self.send(a)
        self.hup, hup = False, self.hup
        self.side_by_side([lambda k=k, a=a: answer(k, a) for k, a in enumerate(asks)])
        self.hup = hup or None  # both nets were in memory
        for k, a in enumerate(asks):
            self.judge(a, replies.get(k, "no answer"))
        self.say("swap")

    def again(self, asks, replies, judge):
        """Some once more, alone, with events or without, with logprobs or without."""
        draw = self.draw
        for k, a in enumerate(asks):
            if draw.random() > 0.5 or not isinstance(replies.get(k), Reply):
                continue
            body = a.body
            if self.net.kind == "texts":
                body = dict(a.body)
                body.pop("stream_options", None)
                body["stream"] = not body.get("stream", False)
                if a.drawn():
                    body["logprobs"] = True if a.chat else 2
                elif draw.random() < 0.5:
                    body.pop("logprobs", None)
                    body.pop("top_logprobs", None)
            b = drawn_requests.Ask(a.path, body, a.prompts)
            b.__dict__.update({k: v for k, v in a.__dict__.items() if k in ("head", "files", "top")})
            reply = self.send(b)
            judge(b, reply)
            if not isinstance(reply, Reply):
                continue
            if self.net.kind == "texts":
                if not a.comes_again() and not self.deterministic:
                    continue
                one, two = ([(c["text"], c["finish"]) for c in r.choices] for r in (replies[k], reply))
                self.say("same", "" if one == two else f"{two} alone, {one} beside others", json.dumps(a.body)[:300])
            elif hasattr(a, "found") and hasattr(b, "found"):
                same = a.found == b.found or (self.net.kind == "pictures" and not self.deterministic)
                self.say("same", "" if same else "other bits alone than beside others", str(a.body)[:300])

    def alone(self, asks, replies):
        """By `cortado generate` and `cortado predict`, also of files, on ranks."""
        draw, n = self.draw, 0
        files = []
        for k, a in enumerate(asks):
            prompt, reply = a.body.get("prompt"), replies.get(k)
            if n == 2 or not isinstance(prompt, str) or "\0" in prompt or not isinstance(reply, Reply) or "stop" in a.body:
                continue
            if not a.comes_again() or a.get("seed", 0) < 0 or a.get("top_p", 1) == 0:
                continue
            n += 1
            if len(a.prompts[0]) + 4 <= self.context:
                files.append((prompt, self.follow(drawn_requests.Ask("", {"temperature": 0, "max_tokens": 4}), a.prompts[0], None, 0)))
            words = ["--model=deploy.prototxt", "--weights=w.npz", f"--tokenizer={self.net.tokenizer.file}", f"--prompt={prompt}",
                     f"--max_tokens={a.get('max_tokens', 16)}", f"--temperature={a.get('temperature', 1)}", f"--top_p={a.get('top_p', 1)}", f"--seed={a.get('seed', 0)}"]
            verb = draw.choice(("generate", "predict"))
            if verb == "predict":
                words.append("--format=json")
            done = subprocess.run([*of(self.env), job.CORTADO, verb, *words, "--log=error"], cwd=self.folder, env=job.environment(self.env),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=ANSWER_S, check=False)
            text = served_nets.shown(done.stdout)
            if verb == "predict" and done.returncode == 0:
                text = json.loads(done.stdout)["continuations"][0]["text"]
            wanted = reply.choices[0]["text"]
            self.say(verb, "" if done.returncode == 0 and text == wanted else f"{done.returncode}: {text!r}, the server {wanted!r}", f"{words} {done.stderr[-200:]}")
        if files and draw.random() < 0.3:
            self.of_files(files)

    def of_files(self, files):
        """files: prompts, and what the net goes on with, 4 tokens."""
        for i, (prompt, _) in enumerate(files):
            with open(os.path.join(self.folder, f"t{i}.txt"), "w", encoding="utf-8") as f:
                f.write(prompt)
        words = [job.CORTADO, "predict", "--model=deploy.prototxt", "--weights=w.npz", f"--tokenizer={self.net.tokenizer.file}", "--max_tokens=4", "--format=json",
                 "--log=error", *(f"t{i}.txt" for i in range(len(files)))]
        code, out = job.run([*of(self.env), *job.launch(self.draw.choice((1, 2)), words)], self.folder, ANSWER_S)
        told = json.loads(out)["continuations"] if code == 0 else []
        why = "" if len(told) == len(files) else f"{code}: {len(told)} texts: {out[-300:]}"
        for (prompt, (data, finish, n, _)), one in zip(files, told):
            if finish is not None and (one["text"], one["tokens"], one["ended"], one["prompt"]) != (served_nets.shown(data), n, finish == "stop", prompt):
                why = f"{one}, the net {data!r} ({finish}), {n} tokens"
        self.say("predict", why, shlex.join(words))

    def predict(self, asks):
        """Classes of files without a server."""
        pairs = [(f, v) for a in asks for f, v in zip(a.files, a.prompts)][:5]
        for i, (f, _) in enumerate(pairs):
            with open(os.path.join(self.folder, f"p{i}.png"), "wb") as to:
                to.write(f)
        command = [*of(self.env), job.CORTADO, "predict", "--model=deploy.prototxt", "--weights=w.npz", "--format=json", "--log=error"]
        code, out = job.run(command + [f"p{i}.png" for i in range(len(pairs))], self.folder)
        if not pairs:
            return
        if code != 0:
            self.say("predict", f"{code}: {out[-300:]}")
            return
        for (_, v), told in zip(pairs, json.loads(out)["predictions"]):
            self.say("predict", self.differs(self.ref.run("w", v), dict(enumerate(told["all"]))), told["file"])

    def spread_of_draws(self):
        if self.spread[1] > 0.5:
            by = max(0.0, abs(self.spread[0]) - self.spread[2]) / math.sqrt(self.spread[1])
            self.say("draws", "" if by < SPREAD else f"drawn tokens are {by:.1f} deviations from as probable as they should be")

    def ending(self):
        end, why = time.time() + 20, "x"
        while why and time.time() < end:
            m = self.server.metrics()
            held = {k: v for k, v in m.items() if re.match(r"cortado_(sequences|cache_tokens|waiting|replica_sequences|replica_cache_tokens)", k) and v}
            ended = sum(v for k, v in m.items() if k.startswith("cortado_ended_total"))
            why = f"held: {held}" if held else f"{ended} ended of {m['cortado_admitted_total']}" if ended != m["cortado_admitted_total"] else ""
            time.sleep(0.05)
        failed = m['cortado_ended_total{how="failed"}']
        if not why and failed:
            why = f"{failed} failed"
        self.say("end", why)
        grown = max(resident_kib(self.server.job.pid(r)) - k for r, k in enumerate(self.held))
        if self.kv is not None and self.hup is False and grown > 1024 * (GROWTH_MIB + self.kv):
            self.say("end", f"{grown} KiB more resident than after the first requests")
        lines = job.errors(self.server.job.log())
        if lines:
            self.say("end", f"errors: {' / '.join(lines)[:300]}")
        code = self.server.end()
        self.code = code
        self.say("end", "" if code == 0 else f"exit code {code}: {self.server.job.log()[-300:]}")


def try_all(results, options, folder):
    n = int(options.get("requests", "30"))
    for seed, number, name in job.drawn(results, options):
        path = os.path.join(folder, f"case{number}")
        os.mkdir(path)
        case = Case(path, seed, number, n)
        case.run()
        for group, wrong in case.rows.items():
            note = f"{case.count[group]} compared"
            if group == "texts":
                note += f", {case.unclear} up to two as good, {case.cached} tokens of the cache"
            refused = group == "start" and case.server.at is None
            if refused:
                note = case.note
            results.add(f"serve: {group}", f"{name}: {case.kind}", [0, 2], 2 if refused else 0, "; ".join(wrong[:4]), note)
        if "keep" in options and any(case.rows.values()):
            kept = os.path.join(options["keep"], f"{seed}.{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(path, kept, ignore=lambda d, names: [x for x in names if x == "sock"])
            with open(os.path.join(kept, "told"), "w", encoding="utf-8") as f:
                f.write("\n".join(f"{g}: {w}" for g, all_of in case.rows.items() for w in all_of) + "\n")
        shutil.rmtree(path)


if __name__ == "__main__":
    job.main(sys.argv[1:], __doc__, {"cases", "first", "seed", "requests", "keep"}, try_all)
