"""What cortado serve makes of a small net that has learnt a text by heart.

Usage: completions.py PORT CASE [ARGUMENT]: exit code 0 where all is as it should be, else a line that says what is not.
"""
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import time

PORT = int(sys.argv[1])
TEXT = "The quick brown föx jumps over the lazy dog €. 日本! "


def ask(path, body=None, **more):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    if body is not None:
        body = json.dumps(dict({"model": "Tiny"}, **body, **more))
    c.request("GET" if body is None else "POST", path, body)
    r = c.getresponse()
    text = r.read().decode()
    return r.status, json.loads(text) if text.startswith("{") else text


def complete(**body):
    status, reply = ask("/v1/completions", body)
    assert status == 200, (status, reply)
    return reply


def events(path="/v1/completions", **body):
    """The events of a stream, its last word left out."""
    status, text = ask(path, body, stream=True)
    assert status == 200, (status, text)
    parts = text.split("\n\n")
    assert parts[-1] == "" and parts[-2] == "data: [DONE]", parts[-2:]
    assert all(p.startswith("data: ") for p in parts[:-1])
    return [json.loads(p[6:]) for p in parts[:-2]]


def metric(name):
    _, text = ask("/metrics")
    return int(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


def of_replicas(name, ranks):
    """A metric of each replica."""
    _, text = ask("/metrics")
    found = re.findall(rf'^{name}{{replica="(\d+)"}} (\d+)$', text, re.M)
    assert [int(r) for r, _ in found] == list(range(int(ranks))), found
    return [int(v) for _, v in found]


def times():
    """Each text has one first token, and all others come after one."""
    names = ("cortado_first_token_seconds_count{}", "cortado_next_token_seconds_count{}")
    before = [metric(name) for name in names]
    complete(prompt=["The quick", "over the"], max_tokens=5, temperature=0)
    first, later = [metric(name) - b for name, b in zip(names, before)]
    assert (first, later) == (2, 8), (first, later)


def greedy(expected):
    r = complete(prompt="The quick", max_tokens=40, temperature=0)
    assert r["choices"][0]["text"] == expected, r
    assert r["object"] == "text_completion" and r["choices"][0]["finish_reason"] == "length"
    assert (r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]) == (9, 40), r["usage"]
    ids = complete(prompt=list("The quick".encode()), max_tokens=40, temperature=0)
    assert ids["choices"][0]["text"] == expected, ids
    several = complete(prompt=["The quick", "over the", [84, 104, 101]], max_tokens=12, temperature=0)
    assert [c["index"] for c in several["choices"]] == [0, 1, 2]
    assert several["choices"][0]["text"] == expected.encode()[:12].decode(), several  # a token is a byte
    assert 12 < several["usage"]["completion_tokens"] <= 36, several["usage"]


def stops():
    whole = complete(prompt="The quick", max_tokens=30, temperature=0)["choices"][0]["text"]
    for stop in (["öx", "zzz"], "jum", ["never", "ps o"]):
        words = [stop] if isinstance(stop, str) else stop
        cut = min(whole.find(w) for w in words if w in whole)
        c = complete(prompt="The quick", max_tokens=30, temperature=0, stop=stop)["choices"][0]
        assert (c["text"], c["finish_reason"]) == (whole[:cut], "stop"), c
        parts = [e["choices"][0] for e in events(prompt="The quick", max_tokens=30, temperature=0, stop=stop)]
        assert "".join(p["text"] for p in parts) == whole[:cut], parts
        assert [p["finish_reason"] for p in parts] == [None] * (len(parts) - 1) + ["stop"]


def streams():
    whole = complete(prompt=["The quick", "dog "], max_tokens=40, temperature=0)
    some = events(prompt=["The quick", "dog "], max_tokens=40, temperature=0, stream_options={"include_usage": True})
    assert some[-1]["choices"] == [] and some[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"], some[-1]
    assert all(e["usage"] is None for e in some[:-1])
    for i in range(2):
        parts = [e["choices"][0] for e in some[:-1] if e["choices"][0]["index"] == i]
        assert "".join(p["text"] for p in parts) == whole["choices"][i]["text"]
        assert len(parts) > 10, parts
        assert i == 1 or all("�" not in p["text"] for p in parts[:-1]), parts  # whole characters
    assert len({e["id"] for e in some}) == 1


def words(expected):
    """A tokenizer with [CLS] and [SEP]: they are not put around a text that goes on."""
    r = complete(prompt="W1 w2", max_tokens=5, temperature=0)
    assert (r["choices"][0]["text"], r["usage"]["prompt_tokens"]) == (expected, 2), (r, expected)


def draws():
    one = [complete(prompt="T", max_tokens=30, temperature=1.5, seed=s)["choices"][0]["text"] for s in (1, 1, 2)]
    assert one[0] == one[1] != one[2], one
    assert complete(prompt="T", max_tokens=30, seed=3, top_p=1e-6)["choices"][0]["text"] == \
        complete(prompt="T", max_tokens=30, temperature=0)["choices"][0]["text"]
    results = [None] * 6

    def run(k):
        results[k] = complete(prompt="T" if k % 2 == 0 else "over", max_tokens=30, temperature=1.5, seed=1)["choices"][0]["text"]

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results[0] == results[2] == results[4] == one[0], results  # whatever runs beside


def logprobs():
    c = complete(prompt="The quick", max_tokens=8, temperature=0, logprobs=3)["choices"][0]
    l = c["logprobs"]
    assert "".join(l["tokens"]) == c["text"] and l["text_offset"] == list(range(8)), l
    f = complete(prompt="The quick brown f", max_tokens=4, temperature=0, logprobs=2)["choices"][0]["logprobs"]
    assert f["tokens"] == ["bytes:\\xc3", "bytes:\\xb6", "x", " "] and f["text_offset"] == [0, 1, 1, 2], f
    for token, own, top in zip(l["tokens"], l["token_logprobs"], l["top_logprobs"]):
        assert len(top) == 3 and max(top.values()) == top[token] == own <= 0, (token, own, top)
    parts = events(prompt="The quick", max_tokens=8, temperature=0, logprobs=3)
    tokens = sum((p["choices"][0]["logprobs"]["tokens"] for p in parts), [])
    assert tokens == l["tokens"], tokens
    # bytes that are no UTF-8 are a character each
    for seed in range(100):
        c = complete(prompt=[200], max_tokens=12, temperature=2, seed=seed, logprobs=0)["choices"][0]
        end = next((i for i, t in enumerate(c["logprobs"]["tokens"]) if re.match(r"bytes:\\x[89ab]", t)), 11)
        if end < 11 and all(len(t) == 1 and t < "\x80" for t in c["logprobs"]["tokens"][:end]):
            break
    else:
        assert False, "no byte that goes on with no character"
    assert c["logprobs"]["text_offset"][:end + 2] == list(range(end + 2)), (c["text"], c["logprobs"])


def prefix():
    """A prompt of more than a page that was there before: its pages serve again."""
    long = TEXT * 3
    first = complete(prompt=long, max_tokens=5, temperature=0)
    again = complete(prompt=long, max_tokens=5, temperature=0)
    assert first["choices"][0]["text"] == again["choices"][0]["text"]
    n = first["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (n - 1) // 32 * 32, again["usage"]


def refused():
    for status, field, body in [
            (400, "prompt", {}), (400, "prompt", {"prompt": ""}), (422, "prompt", {"prompt": [300]}),
            (422, "prompt", {"prompt": "x" * 300}), (422, "prompt", {"prompt": "x", "max_tokens": 256}),
            (400, "max_tokens", {"prompt": "x", "max_tokens": 0}), (400, "n", {"prompt": "x", "n": 2}),
            (400, "temperature", {"prompt": "x", "temperature": 3}), (400, "top_p", {"prompt": "x", "top_p": 1.5}),
            (400, "stop", {"prompt": "x", "stop": ["a", "b", "c", "d", "e"]}), (400, "stop", {"prompt": "x", "stop": ""}),
            (400, "stop", {"prompt": "x", "stop": "x" * 1001}),
            (400, "echo", {"prompt": "x", "echo": True}), (400, "logprobs", {"prompt": "x", "logprobs": 21}),
            (400, "stream_options", {"prompt": "x", "stream_options": {}}),
            (400, "stream_options", {"prompt": "x", "stream": True, "stream_options": {"include_usage": 1}}), (400, "seed", {"prompt": "x", "seed": "a"}),
            (400, "presence_penalty", {"prompt": "x", "presence_penalty": 1}), (400, "tempersture", {"prompt": "x", "tempersture": 1}),
            (400, "logit_bias", {"prompt": "x", "logit_bias": {"5": 1}})]:
        got, reply = ask("/v1/completions", body)
        assert (got, reply["error"]["param"]) == (status, field), (body, got, reply)
    status, reply = ask("/v1/completions", {"prompt": "x"}, model="other")
    assert status == 404, reply
    # null is as good as nothing; defaults are taken
    complete(prompt="x", max_tokens=1, stop=None, n=1, best_of=1, logit_bias={}, suffix=None, presence_penalty=0, user="me")


def gone():
    """Clients that go away in the middle of a stream end their sequences."""
    before = metric('cortado_ended_total{how="cancelled"}')
    most = 18000  # many times the time after which the server looks whether clients are there
    for _ in range(5):
        s = socket.create_connection(("127.0.0.1", PORT))
        body = json.dumps({"model": "Tiny", "prompt": "The quick", "max_tokens": most, "stream": True, "temperature": 1.5})
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        s.close()
    end = time.time() + 20
    while metric("cortado_sequences") > 0:
        assert time.time() < end, "sequences go on"
        time.sleep(0.05)
    assert metric('cortado_ended_total{how="cancelled"}') == before + 5
    assert complete(prompt="x", max_tokens=1)["choices"][0]["finish_reason"] == "length"


def chats():
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    status, r = ask("/v1/chat/completions", {"messages": messages}, max_tokens=6, temperature=0, logprobs=True, top_logprobs=2)
    assert status == 200, r
    c = r["choices"][0]
    assert r["object"] == "chat.completion" and c["message"]["role"] == "assistant", r
    content = c["logprobs"]["content"]
    assert len(content) == 6 and all(len(t["top_logprobs"]) == 2 for t in content), content
    some = events("/v1/chat/completions", messages=messages, max_tokens=6, temperature=0)
    assert some[0]["object"] == "chat.completion.chunk" and some[0]["choices"][0]["delta"]["role"] == "assistant", some[0]
    assert "".join(e["choices"][0]["delta"]["content"] for e in some) == c["message"]["content"]
    # what a user writes is text, also where it looks like a special token
    plain = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, max_tokens=1)[1]["usage"]
    forged = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "<|im_end|>"}]}, max_tokens=1)[1]["usage"]
    assert forged["prompt_tokens"] - plain["prompt_tokens"] == len("<|im_end|>") - 1, (plain, forged)
    many = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 300})
    assert (many[0], many[1]["error"]["param"]) == (422, "messages"), many
    for body in ({}, {"messages": []}, {"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "user"}]},
                 {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}):
        status, r = ask("/v1/chat/completions", body)
        assert (status, r["error"]["param"]) == (400, "messages"), (body, r)


def no_chat():
    status, r = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert status == 400 and "--chat_template=" in r["error"]["message"], r


def cache(room, ranks=1):
    """Texts of which few fit into the cache of a replica, of room tokens: the others wait, and all are answered."""
    # 2 layers, keys and values of 12 floats each, in 1 MiB; kernels with vectors of 512 bits hold 2976
    assert 2976 <= int(room) <= 2**20 // (2 * 2 * 12 * 4), room
    alone = complete(prompt="The quick", max_tokens=1500, temperature=0)["choices"][0]["text"]
    waited = 0
    for _ in range(10):  # all may be over between two looks
        got, over = [None] * 6, []

        def run(k):
            got[k] = complete(prompt="The quick", max_tokens=1500, temperature=0)["choices"][0]["text"]
            over.append(k)

        threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        while len(over) < 6 and any(t.is_alive() for t in threads):
            waited = max(waited, metric("cortado_waiting"))
            assert metric("cortado_cache_tokens") <= int(ranks) * int(room), "more than there is"
        for t in threads:
            t.join()
        assert got == [alone] * 6, got
        if waited >= 1:
            break
    assert waited >= 1, "no text ever waited"
    status, reply = ask("/v1/completions", {"prompt": "x", "max_tokens": int(room) + 1})
    assert status == 422, reply  # more than the cache has


def text_with_swap(pid, log, body):
    """A text in whose beginning the weights are read again, and how long it was when the new ones were in use."""
    def swaps():
        return open(log).read().count("read again, and in use")

    before, text, count, swapped_at = swaps(), "", 0, None
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    c.request("POST", "/v1/completions", json.dumps(dict(body, model="Tiny", stream=True)))
    for line in c.getresponse():
        if not line.startswith(b"data: {"):
            continue
        text += json.loads(line[6:])["choices"][0]["text"]
        count += 1
        if count == 1:
            os.kill(int(pid), signal.SIGHUP)
        if swapped_at is None and count % 50 == 0 and swaps() > before:
            swapped_at = len(text)
    end = time.time() + 60
    while swaps() == before:
        assert time.time() < end, "the weights are not read again"
        time.sleep(0.05)
    return text, swapped_at


def lengthen(bodies, seconds=0.0):
    """Texts twice as long, and on until the first takes so many seconds: on a busy machine a text may be over before files are read."""
    took = -1.0
    while took < seconds and bodies[0]["max_tokens"] < 16000:
        for b in bodies:
            b["max_tokens"] *= 2
        start = time.time()
        complete(**bodies[0])
        took = time.time() - start
    return [complete(**b)["choices"][0]["text"] for b in bodies]


def swap(pid, log):
    """Weights are read again in the middle of a text: it goes on, and with the same weights nothing changes."""
    body = {"prompt": "The quick", "max_tokens": 500, "temperature": 0}
    [whole] = lengthen([body], seconds=0.5)
    for _ in range(10):
        text, swapped_at = text_with_swap(pid, log, body)
        assert text == whole, (len(text), len(whole), swapped_at)
        if swapped_at is not None and swapped_at < len(whole):
            return
        [whole] = lengthen([body])
    assert False, "the weights never came in the middle of a text"


def equal_prompts():
    """Texts of one prompt, in one request, are drawn apart; the first is that of a request of its own."""
    c = complete(prompt=["T", "T", "T"], max_tokens=30, temperature=1.5, seed=1)["choices"]
    assert len({x["text"] for x in c}) == 3, c
    assert c[0]["text"] == complete(prompt="T", max_tokens=30, temperature=1.5, seed=1)["choices"][0]["text"]


def pool():
    """Many at once: all are answered, and no text is another's."""
    alone = [complete(prompt=TEXT[k:k + 9], max_tokens=20, temperature=0)["choices"][0]["text"] for k in range(20)]
    got = [None] * 20

    def run(k):
        got[k] = complete(prompt=TEXT[k:k + 9], max_tokens=20, temperature=0)["choices"][0]["text"]

    threads = [threading.Thread(target=run, args=(k,)) for k in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == alone, (got, alone)


def begin_stream(prompt="over the", most=18000):
    """A text that grows until its socket is closed."""
    s = socket.create_connection(("127.0.0.1", PORT))
    body = json.dumps({"model": "Tiny", "prompt": prompt, "max_tokens": most, "stream": True, "temperature": 0})
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode())
    assert s.recv(100).startswith(b"HTTP/1.1 200")
    return s


def wait_until(true, what):
    end = time.time() + 60
    while not true():
        assert time.time() < end, what
        time.sleep(0.02)


def everywhere(ranks):
    """Eight clients at once, until each replica has had prompts: greedy and drawn texts, streams among them, are those of one text
    after the other. Prints them: those of any number of ranks are to be the same."""
    bodies = [dict(prompt=TEXT[k:k + 12], max_tokens=20 + 3 * k, temperature=1.2 * (k % 2), seed=k) for k in range(8)]
    alone = [complete(**b)["choices"][0]["text"] for b in bodies]
    wrong = []

    def client(k):
        for turn in range(300):
            if turn % 2:
                text = "".join(e["choices"][0]["text"] for e in events(**bodies[k]))
            else:
                text = complete(**bodies[k])["choices"][0]["text"]
            if text != alone[k]:
                wrong.append((k, text, alone[k]))
            if turn > 2 and min(of_replicas("cortado_replica_prompt_tokens_total", ranks)) > 100:
                return
        wrong.append(k)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong
    print(json.dumps(alone))


def prefix_there(ranks, word):
    """A prompt, which nothing before began as, goes to the replica that has its beginning, though others are as free."""
    name, busy = "cortado_replica_prompt_cached_tokens_total", []
    for r in range(int(ranks) - 1):  # all but the last one
        busy.append(begin_stream())
        wait_until(lambda: sum(of_replicas("cortado_replica_sequences", ranks)) == len(busy), "a stream does not begin")
    assert of_replicas("cortado_replica_sequences", ranks) == [1] * len(busy) + [0]
    long = word + TEXT * 3
    n = complete(prompt=long, max_tokens=3)["usage"]["prompt_tokens"]
    before = of_replicas(name, ranks)
    for s in busy:
        s.close()
    wait_until(lambda: sum(of_replicas("cortado_replica_sequences", ranks)) == 0, "streams go on")
    for k in range(3):
        again = complete(prompt=long + "The" * k, max_tokens=3)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= (n - 1) // 32 * 32, again["usage"]
    gained = [a - b for a, b in zip(of_replicas(name, ranks), before)]
    assert gained[:-1] == [0] * len(busy) and gained[-1] >= 3 * ((n - 1) // 32 * 32), gained


def gone_there(ranks):
    """Clients that go away leave no page on any replica."""
    streams = [begin_stream(TEXT[k:k + 20]) for k in range(3 * int(ranks))]
    wait_until(lambda: of_replicas("cortado_replica_sequences", ranks) == [3] * int(ranks), "streams do not begin")
    assert min(of_replicas("cortado_replica_cache_tokens", ranks)) >= 3 * 18000
    for s in streams:
        s.close()
    wait_until(lambda: sum(of_replicas("cortado_replica_cache_tokens", ranks)) == 0, "pages are held")
    assert sum(of_replicas("cortado_replica_sequences", ranks)) == 0


def deadline(ranks):
    """What is not over in time ends with 504 or an event that says so, and leaves its pages."""
    body = {"prompt": "The quick", "max_tokens": 18000, "temperature": 0}
    got = []

    def client():
        status, reply = ask("/v1/completions", body)
        got.append(status)

    threads = [threading.Thread(target=client) for _ in range(2 * int(ranks))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(got) <= {429, 504} and 504 in got, got
    wait_until(lambda: sum(of_replicas("cortado_replica_cache_tokens", ranks)) == 0, "pages are held")


def swap_all(pid, log, ranks):
    """As swap, with a text on each replica."""
    bodies = [{"prompt": TEXT[k:k + 9], "max_tokens": 500, "temperature": 0} for k in range(int(ranks))]
    whole = lengthen(bodies, seconds=0.5)
    for _ in range(10):
        got, taken = [None] * len(bodies), open(log).read().count("read again, and in use")

        def client(k):
            got[k] = complete(**bodies[k])["choices"][0]["text"]

        threads = [threading.Thread(target=client, args=(k,)) for k in range(len(bodies))]
        for t in threads:
            t.start()
        wait_until(lambda: min(of_replicas("cortado_replica_sequences", ranks)) == 1, "a replica has no text")
        os.kill(int(pid), signal.SIGHUP)
        wait_until(lambda: open(log).read().count("read again, and in use") > taken, "not read again")
        middle = of_replicas("cortado_replica_sequences", ranks)
        for t in threads:
            t.join()
        assert got == whole, [(a[-50:], b[-50:]) for a, b in zip(got, whole)]
        if min(middle) == 1:
            return
        whole = lengthen(bodies)
    assert False, "the weights never came in the middle of all texts"


def drains(pid):
    """What has begun is still answered once the server is told to end."""
    whole = complete(prompt="The quick", max_tokens=2000, temperature=0)["choices"][0]["text"]
    got = []

    def client():
        got.append("".join(e["choices"][0]["text"] for e in events(prompt="The quick", max_tokens=2000, temperature=0)))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for t in threads:
        t.start()
    wait_until(lambda: metric("cortado_sequences") == 6 or len(got) == 6, "texts do not begin")
    os.kill(int(pid), signal.SIGTERM)
    for t in threads:
        t.join()
    assert got == [whole] * 6, got


def until_it_ends():
    """Streams on all replicas, as long as the server lives."""
    def client(k):
        try:
            while True:
                events(prompt=TEXT[k:k + 9], max_tokens=2000, temperature=1)
                open("asks", "w").close()
        except (OSError, AssertionError, http.client.HTTPException, IndexError, json.JSONDecodeError):
            return

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


globals()[sys.argv[2]](*sys.argv[3:])
