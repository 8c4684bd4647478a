"""Requests to `cortado serve` drawn by chance for answers.py, and what must be refused."""
import json
import struct

import served_nets

WORDS = {"Words": "abc abd ha bed éa cab def i hi gg", "other": "The tea, as the user sees it. co ffee 09 é日€\n\nstem <|x|> you"}


class Ask:
    """A request: what is sent, and what it is expected to be. prompts: ids of each."""

    def __init__(self, path, body, prompts=()):
        self.path, self.body, self.prompts = path, body, list(prompts)
        self.chat = "chat" in path

    def get(self, name, other=None):
        v = self.body.get(name)
        return other if v is None else v

    def drawn(self):
        return self.get("temperature", 1) > 0 and self.get("top_p", 1) > 0

    def comes_again(self):
        return not self.drawn() or self.get("seed") is not None


class Requests:
    """Of a case: net, tokenizer and limits are answers.Case's."""

    def text(self, most):
        """One of at most so many characters; some begin as others do."""
        draw = self.draw
        words = WORDS["Words" if isinstance(self.net.tokenizer, served_nets.Words) else "other"]
        if draw.random() < 0.6:
            base = draw.choice(self.bases)
            text = base[:draw.randrange(1, len(base) + 1)] if draw.random() < 0.5 else base[:most - draw.randrange(min(most, 6))]
        else:
            text = ""
        for _ in range(draw.choice((0, 1, 3, 10)) if text else draw.choice((1, 3, 10))):
            text += draw.choice(words) if draw.random() < 0.7 else draw.choice(words.split(" ")) + " "
        if draw.random() < 0.03 and not isinstance(self.net.tokenizer, (served_nets.Words, served_nets.Char)):
            text = text[:2] + "\0" + text[2:]
        return text[:most] or "a"

    def prompt(self, most):
        """What stands in a request, and its ids: at most so many."""
        draw, t = self.draw, self.net.tokenizer
        if not self.with_tokenizer or draw.random() < 0.35:
            if draw.random() < 0.1:
                n = most
            else:
                n = draw.randrange(1, most + 1)
            ids = draw.choice(self.id_bases)[:n - draw.randrange(min(n, 6))] if draw.random() < 0.6 else []
            ids += [draw.randrange(self.net.rows) for _ in range(n - len(ids))]
            return ids, ids
        for _ in range(50):
            text = self.text(draw.choice((3, 20, most, 2 * most)))
            ids = t.encode(text)
            if 0 < len(ids) <= most:
                return text, ids
        return "a", t.encode("a")

    def completion(self):
        draw, net = self.draw, self.net
        body, context = {}, self.context
        new = draw.choice((1, 1, 2, 3, 5, 8, 13, 20, 40))
        if draw.random() < 0.8:
            new = min(new, context - 4)
            body["max_tokens"] = new
        else:
            new = 16
        chat = self.template and draw.random() < 0.4
        room = context - new
        if chat:
            for turn in range(20):
                messages = [(draw.choice(("system", "user", "assistant")), "" if draw.random() < 0.1 else self.text(draw.choice((1, 5, 20)) if turn < 10 else 3))
                            for _ in range(draw.choice((1, 1, 2, 3)))]
                prompts = [net.tokenizer.chat(self.template, messages)]
                if len(prompts[0]) <= room:
                    break
            else:
                chat = False
        if chat:
            body["messages"] = [{"role": r if r != "system" or draw.random() < 0.7 else "developer", "content": c if draw.random() < 0.7 else
                                 [{"type": "text", "text": c[:3]}, {"type": "text", "text": c[3:]}]} for r, c in messages]
            if "max_tokens" in body and draw.random() < 0.5:
                body["max_completion_tokens"] = body.pop("max_tokens")
            if "max_tokens" not in body and "max_completion_tokens" not in body:
                body["max_tokens"] = new
            if draw.random() < 0.4:
                body["logprobs"] = True
                if draw.random() < 0.7:
                    body["top_logprobs"] = draw.choice((0, 1, 3, 20))
        else:
            n = 1 if self.queue < 4 else draw.choice((1, 1, 1, 2, 3))
            pairs = [self.prompt(max(1, room) if draw.random() < 0.6 else max(1, min(room, 40))) for _ in range(n)]
            if draw.random() < 0.05 and n == 1:
                pairs = [(ids, ids) for ids in [[draw.randrange(net.rows) for _ in range(context - body.get("max_tokens", 16))]]]
            body["prompt"] = pairs[0][0] if n == 1 and draw.random() < 0.8 else [p for p, _ in pairs]
            prompts = [ids for _, ids in pairs]
            if draw.random() < 0.4:
                body["logprobs"] = draw.choice((0, 1, 5, 20))
        if draw.random() < 0.45:
            body["temperature"] = 0
        else:
            body.update(draw.choice(({}, {"temperature": 0.3}, {"temperature": 0.8}, {"temperature": 1.7}, {"temperature": 2}, {"temperature": 1e-9})))
            body.update(draw.choice(({}, {}, {"top_p": 1}, {"top_p": 0.9}, {"top_p": 0.5}, {"top_p": 0.1}, {"top_p": 0}, {"top_p": 1e-6})))
            if draw.random() < 0.85:
                body["seed"] = draw.choice((draw.getrandbits(40), draw.getrandbits(40), -draw.getrandbits(62), 0, 2 ** 63 - 1))
        if draw.random() < 0.3:
            letters = "abcdeghist .\n09T" if not isinstance(net.tokenizer, served_nets.Words) else "abcdefghi "
            stops = ["".join(draw.choice(letters) for _ in range(draw.choice((1, 1, 1, 2)))) for _ in range(draw.choice((1, 2, 4)))]
            if body.get("temperature") == 0 and draw.random() < 0.7:  # one that comes
                told = served_nets.shown(self.follow(Ask("", dict(body, stop=None)), prompts[0], None, 0)[0]).replace("\ufffd", "").replace("\0", "")
                at = draw.randrange(len(told) + 1)
                stops[0] = told[at:at + draw.choice((1, 2, 3, 5))] or "a"
            body["stop"] = stops[0] if len(stops) == 1 and draw.random() < 0.5 else stops
        if draw.random() < 0.4:
            body["stream"] = True
            if draw.random() < 0.5:
                body["stream_options"] = {"include_usage": draw.random() < 0.8}
        for name, value in (("n", 1), ("user", "me"), ("presence_penalty", 0), ("frequency_penalty", 0.0), ("logit_bias", {}), ("stop", None), ("seed", None)):
            if draw.random() < 0.05:
                body.setdefault(name, value)
        return Ask("/v1/chat/completions" if chat else "/v1/completions", body, prompts)

    def rows_ask(self):
        draw, net = self.draw, self.net
        most = min(net.most, self.context)
        if net.kind == "embeddings":
            pairs = [self.prompt(most) for _ in range(1 if self.queue < 4 else draw.choice((1, 1, 2, 4)))]
            body = {"input": pairs[0][0] if len(pairs) == 1 and draw.random() < 0.7 else [p for p, _ in pairs]}
            if draw.random() < 0.4:
                body["encoding_format"] = draw.choice(("float", "base64"))
            if draw.random() < 0.2:
                body["dimensions"] = net.c
            return Ask("/v1/embeddings", body, [ids for _, ids in pairs])
        n, t = draw.choice((1, 1, 2, 3)), draw.randrange(1, most + 1)
        if n * t > self.budget:
            n, t = 1, min(t, self.budget)
        ids = [[draw.randrange(net.rows) for _ in range(t)] for _ in range(n)]
        data = draw.choice((ids, [i for row in ids for i in row]))
        body = {"inputs": [{"name": "tokens", "shape": [n, t], "datatype": draw.choice(("INT32", "INT64")), "data": data}]}
        return Ask(draw.choice(("/v2/models/m/infer", "/v2/models/m/versions/1/infer")), body, ids)

    def pictures_ask(self):
        """Files to /classify, or numbers."""
        draw, net = self.draw, self.net
        n = draw.choice((1, 1, 1, 2, 3)) if self.queue >= 4 else 1
        files, values = zip(*(net.picture(draw) for _ in range(n)))
        if n <= self.batch and draw.random() < 0.3:
            data = [v for x in values for v in x]
            body = {"inputs": [{"name": "data", "shape": [n, net.c, net.h, net.w], "datatype": "FP32", "data": data}]}
            head = {}
            if draw.random() < 0.5:
                one = body["inputs"][0]
                del one["data"]
                one["parameters"] = {"binary_data_size": 4 * len(data)}
                text = json.dumps(body).encode()
                head, body = {"Inference-Header-Content-Length": str(len(text))}, text + struct.pack(f"<{len(data)}f", *data)
            ask = Ask("/v2/models/m/infer", body, values)
        else:
            top = draw.choice((None, None, 1, 3, 40))
            path = "/classify" + (f"?top_k={top}" if top else "")
            if n == 1 and draw.random() < 0.5:
                ask, head = Ask(path, files[0], values), {"Content-Type": "image/png"}
            else:
                body = b"".join(b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="%d.png"\r\nContent-Type: image/png\r\n\r\n%s\r\n' % (i, f)
                                for i, f in enumerate(files)) + b"--xyz--\r\n"
                ask, head = Ask(path, body, values), {"Content-Type": "multipart/form-data; boundary=xyz"}
            ask.top = min(top or 5, net.out)
        ask.head, ask.files = head, files
        return ask

    def refusals(self):
        """Statuses, method, path, body, headers."""
        if self.net.kind == "pictures":
            return self.picture_refusals()
        own = {"texts": "/v1/completions", "embeddings": "/v1/embeddings", "states": "/v2/models/m/infer"}[self.net.kind]
        field = {"texts": "prompt", "embeddings": "input"}.get(self.net.kind)
        good = {"model": "m", field or "inputs": [1, 2]}
        if self.net.kind == "states":
            good = {"inputs": [{"name": "tokens", "shape": [1, 2], "datatype": "INT32", "data": [1, 2]}]}
        found = [((400,), "POST", own, b"{"), ((400,), "POST", own, b"[]"), ((400,), "POST", own, b""), ((400,), "POST", own, b"\xff\xfe{}"),
                 ((400,), "POST", own, b'{"model": "m", "model": "m"}'), ((400,), "POST", own, b"[" * 5000), ((400,), "POST", own, b'{"a": "\\ud800"}'),
                 ((404,), "POST", "/v1/nothing", b"{}"), ((404,), "GET", "/v1/models/other", None), ((405,), "GET", own, None), ((405,), "DELETE", own, None),
                 ((405,), "POST", "/v1/models", b"{}")]

        def bad(statuses, **more):
            found.append((statuses, "POST", own, json.dumps(dict(good, **more)).encode()))
        if field:
            bad((400,), **{field: []})
            bad((400,), **{field: ""})
            bad((400,), **{field: 5})
            bad((400,), **{field: {"a": 1}})
            bad((400,), **{field: [[]]})
            bad((400,), **{field: [1, "a"]})
            bad((400,), **{field: [1.5]})
            bad((422,), **{field: [self.net.rows]})
            bad((422,), **{field: [-1]})
            bad((422,), **{field: [2 ** 40]})
            bad((422,), **{field: [1] * (self.context + 1 if self.net.kind == "texts" or self.net.table else 5000)})
            bad((400,), tempersture=1)
            bad((404,), model="other")
            bad((400,), model=5)
            bad((400,), user=5)
        if self.net.kind == "texts":
            for more in ({"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": 1.5}, {"max_tokens": "5"}, {"n": 2}, {"n": 0}, {"best_of": 3}, {"echo": True},
                         {"temperature": 2.1}, {"temperature": -0.1}, {"temperature": "1"}, {"top_p": 1.1}, {"top_p": -1}, {"seed": 1.5}, {"seed": "a"},
                         {"stop": ""}, {"stop": ["a", ""]}, {"stop": ["a"] * 5}, {"stop": 5}, {"stop": {}}, {"stop": "x" * 1001},
                         {"logprobs": 21}, {"logprobs": -1}, {"logprobs": "a"}, {"stream": 1}, {"stream_options": {}}, {"suffix": "a"},
                         {"stream": True, "stream_options": 5}, {"stream": True, "stream_options": {"include_usage": 5}}, {"stream": True, "stream_options": []},
                         {"presence_penalty": 0.1}, {"frequency_penalty": -2}, {"logit_bias": {"1": 1}}, {"logit_bias": 5}, {"messages": []}):
                bad((400,), **more)
            bad((422,), prompt=[1, 2], max_tokens=self.context - 1)
            bad((422,), prompt=[1] * self.context, max_tokens=1)
            bad((422,), prompt=[1], max_tokens=2 ** 31 - 1)
            bad((400,), prompt=[1], max_tokens=2 ** 40)
            found.append(((404,), "POST", "/v1/embeddings", b'{"model": "m", "input": [1]}'))
            chat = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
            for status, more in ((400, {"messages": []}), (400, {"messages": [{"role": "x", "content": "a"}]}), (400, {"messages": [{"content": "a"}]}),
                                 (400, {"messages": [5]}), (400, {"messages": "a"}), (400, {"messages": [{"role": "user", "content": 5}]}), (400, {"tools": [{}]}),
                                 (400, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), (400, {"top_logprobs": 3}),
                                 (400, {"logprobs": 3}), (400, {"prompt": "a"}), (400, {"max_completion_tokens": 0}),
                                 (400, {"response_format": {"type": "json_object"}})):
                found.append(((status,), "POST", "/v1/chat/completions", json.dumps(dict(chat, **more)).encode()))
            if not self.template:
                found.append(((400,), "POST", "/v1/chat/completions", json.dumps(chat).encode()))
        elif self.net.kind == "embeddings":
            bad((400,), encoding_format="hex")
            bad((400,), dimensions=self.net.c + 1)
            found.append(((404,), "POST", "/v1/completions", b'{"model": "m", "prompt": [1]}'))
        if self.net.kind == "states":
            one = good["inputs"][0]
            for statuses, more in (((400,), {"shape": [1, 3]}), ((400,), {"shape": [2]}), ((400,), {"shape": [0, 2]}), ((400,), {"datatype": "FP32"}),
                                   ((400,), {"data": ["a", "b"]}), ((422,), {"data": [1, self.net.rows]}), ((422,), {"data": [1, -1]}), ((400,), {"name": "x"}),
                                   ((422,), {"shape": [1, 10 ** 9]}), ((400, 422), {"shape": [10 ** 12, 10 ** 12]}), ((400,), {"data": 5}), ((400,), {"data": []})):
                found.append((statuses, "POST", own, json.dumps({"inputs": [dict(one, **more)]}).encode()))
            found.append(((400,), "POST", own, b'{"inputs": []}'))
            found.append(((400,), "POST", own, json.dumps({"inputs": [one, one]}).encode()))
            found.append(((404,), "POST", "/v2/models/other/infer", json.dumps(good).encode()))
        return found

    def picture_refusals(self):
        file = self.net.picture(self.draw)[0]
        head = {"Content-Type": "image/png"}
        small = served_nets.png(self.net.w - 1, self.net.h - 1, 1, [0] * 200) if self.net.margin else b"no picture"
        form = {"Content-Type": "multipart/form-data; boundary=xyz"}
        good = {"inputs": [{"name": "data", "shape": [1, self.net.c, self.net.h, self.net.w], "datatype": "FP32", "data": [0.5]}]}
        found = [((415,), b"abc", {"Content-Type": "text/plain"}, ""), ((415,), b"abc", {}, ""), ((400,), b"", head, ""), ((415, 422), b"no picture at all", head, ""),
                 ((422,), file[:len(file) // 2], head, ""), ((415, 422), small, head, ""), ((400,), file, head, "?top_k=0"), ((400,), file, head, "?top_k=x"),
                 ((400,), file, head, "?top=1"), ((400,), b"--xyz--\r\n", form, ""), ((400,), b"", form, ""), ((400,), file, form, ""),
                 ((400,), b"a", {"Content-Type": "multipart/form-data"}, ""), ((405,), None, {}, ""), ((422,), file[:33] + b"x" * 30, head, "")]
        found = [(s, "GET" if s == (405,) else "POST", "/classify" + q, body, h) for s, body, h, q in found]
        for statuses, more in (((400,), {}), ((400,), {"shape": [1]}), ((400,), {"datatype": "INT32"}), ((400,), {"data": "a"}), ((400,), {"shape": [1, 9, 9, 9]})):
            found.append((statuses, "POST", "/v2/models/m/infer", json.dumps({"inputs": [dict(good["inputs"][0], **more)]}).encode()))
        found.append(((404,), "POST", "/v1/completions", b'{"model": "m", "prompt": [1]}'))
        found.append(((404,), "POST", "/v1/embeddings", b'{"model": "m", "input": [1]}'))
        return found
