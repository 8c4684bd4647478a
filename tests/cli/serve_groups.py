"""serve_groups.py ADDRESS texts NUMBERS [REPLICAS]: texts that go on, alone and beside each other; prints them, and their
scores into a file. With replicas they are asked until each has run some.
serve_groups.py ADDRESS infer, embed: prints numbers.
serve_groups.py ADDRESS load: asks until nobody listens; prints which statuses came."""
import json, sys, threading, urllib.error, urllib.request
at = "http://" + sys.argv[1]
prompts = ["the ", "peace and war ", "snow . the prince went home and said nothing of war", "said"]

def ask(path, **body):
    r = urllib.request.Request(at + path, json.dumps(body).encode())
    with urllib.request.urlopen(r, timeout=60) as f:
        return json.load(f)

def complete(prompt, n=20):
    r = ask("/v1/completions", model="m", prompt=prompt, max_tokens=n, temperature=0, logprobs=2)
    c = r["choices"][0]
    return c["text"], c["logprobs"]["token_logprobs"], r["usage"]["prompt_tokens_details"]["cached_tokens"]

def together(call):
    out = [None] * len(prompts)

    def client(i):
        out[i] = call(i)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(prompts))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out

def batches():
    text = urllib.request.urlopen(at + "/metrics", timeout=60).read().decode()
    name = 'cortado_replica_batches_total{replica="'
    return [int(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]

def texts():
    replicas = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    alone = [complete(p) for p in prompts]
    begin = batches()
    assert len(begin) == replicas, begin
    for _ in range(50):
        again = together(lambda i: complete(prompts[i]))
        assert [a[:2] for a in again] == [a[:2] for a in alone], (again, alone)
        assert replicas > 1 or again[2][2] == 32, again  # its first page
        if all(n > b for n, b in zip(batches(), begin)):
            break
    else:
        sys.exit("a replica runs nothing: %s, %s" % (begin, batches()))
    print(json.dumps([a[0] for a in alone]))
    with open(sys.argv[3], "w") as f:
        print(*[v for a in alone for v in a[1]], file=f)

def infer():
    ids = [(7 * i) % 100 for i in range(2 * 20)]
    tokens = {"name": "tokens", "shape": [2, 20], "datatype": "INT32", "data": ids}
    print(*ask("/v2/models/m/infer", inputs=[tokens])["outputs"][0]["data"])

def embed():
    """One request after the other and, with more than one replica, many at a time."""
    ids = [list(range(1 + k, 2 + 5 * k)) for k in range(1, 9)]
    one = lambda _: ask("/v1/embeddings", model="m", input=ids)["data"]
    alone, begin = one(0), batches()
    for _ in range(200 if len(begin) > 1 else 0):
        assert all(a == alone for a in together(one))
        if all(n > b for n, b in zip(batches(), begin)):
            break
    else:
        assert len(begin) == 1, (begin, batches())
    for e in alone:
        print(*e["embedding"])

def load():
    seen = set()

    def client(i):
        while True:
            try:
                complete(prompts[i])
                seen.add(200)
                open("asks", "w").close()
            except urllib.error.HTTPError as e:
                seen.add(e.code)
            except OSError as e:
                seen.add("refused" if isinstance(getattr(e, "reason", e), ConnectionRefusedError) else "ended")
                return

    together(client)
    print(sorted(seen, key=str))

{"texts": texts, "infer": infer, "embed": embed, "load": load}[sys.argv[2]]()
