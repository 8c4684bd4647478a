"""The clients that users have, against a server of a small net: OpenAI's and Triton's.

Usage: clients.py openai|embeddings|triton ADDRESS:PORT: a line "ok NAME" or "not ok NAME" for each check.
"""
import sys

ADDRESS = sys.argv[2]


def check(name, good, why=""):
    print(("ok " if good else "not ok ") + name + (f": {why}" if not good else ""))


def client():
    import openai
    return openai.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="a-key", max_retries=0)


def openai():
    import openai
    c = client()
    check("models", [m.id for m in c.models.list()] == ["tiny"])
    one = c.completions.create(model="tiny", prompt="Some", max_tokens=12, temperature=0)
    check("completion", one.choices[0].finish_reason in ("length", "stop") and one.usage.prompt_tokens == 4, one)
    parts = list(c.completions.create(model="tiny", prompt="Some", max_tokens=12, temperature=0, stream=True))
    check("stream", "".join(p.choices[0].text for p in parts) == one.choices[0].text, parts)
    with_logprobs = c.completions.create(model="tiny", prompt="Some", max_tokens=3, temperature=0, logprobs=2)
    check("logprobs", len(with_logprobs.choices[0].logprobs.token_logprobs) == 3, with_logprobs)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    chat = c.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=8, temperature=0, logprobs=True,
                                     top_logprobs=3)
    check("chat", chat.choices[0].message.role == "assistant" and chat.usage.completion_tokens <= 8, chat)
    check("chat_logprobs", all(len(t.top_logprobs) == 3 for t in chat.choices[0].logprobs.content), chat)
    text, usage = "", None
    for p in c.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0, stream=True,
                                       stream_options={"include_usage": True}):
        text += (p.choices[0].delta.content or "") if p.choices else ""
        usage = p.usage or usage
    check("chat_stream", text == chat.choices[0].message.content and usage.total_tokens == chat.usage.total_tokens,
          (text, usage, chat))
    check("cached", usage.prompt_tokens_details.cached_tokens == 32, usage)  # the page that the chat before left
    for name, error, call in [
            ("wrong_field", openai.BadRequestError, lambda: c.completions.create(model="tiny", prompt="a", n=2)),
            ("no_model", openai.NotFoundError, lambda: c.completions.create(model="other", prompt="a")),
            ("too_long", openai.UnprocessableEntityError, lambda: c.completions.create(model="tiny", prompt="a" * 100)),
            ("wrong_key", openai.AuthenticationError, lambda: c.with_options(api_key="b").models.list())]:
        try:
            call()
            check(name, False, "no error")
        except error as e:
            check(name, e.body["message"] != "", e)


def embeddings():
    c = client()
    texts = ["a", "some words"]
    packed = c.embeddings.create(model="tiny", input=texts)  # this client asks for base64
    plain = c.embeddings.create(model="tiny", input=texts, encoding_format="float")
    near = all(abs(a - b) < 1e-6 for x, y in zip(packed.data, plain.data) for a, b in zip(x.embedding, y.embedding))
    check("embeddings", near and len(packed.data) == 2 and len(packed.data[0].embedding) == 24)


def triton():
    import numpy
    import tritonclient.http as http
    from tritonclient.utils import InferenceServerException
    headers = {"Authorization": "Bearer a-key"}
    c = http.InferenceServerClient(ADDRESS)
    check("live", c.is_server_live() and c.is_server_ready() and c.is_model_ready("tiny", headers=headers))
    meta = c.get_model_metadata("tiny", headers=headers)
    name, out = meta["inputs"][0]["name"], meta["outputs"][0]["name"]
    ids = numpy.frombuffer(b"some wordsother word", numpy.uint8).astype(numpy.int32).reshape(2, 10)
    rows = []
    for binary in (False, True):
        x = http.InferInput(name, ids.shape, "INT32")
        x.set_data_from_numpy(ids, binary_data=binary)
        y = http.InferRequestedOutput(out, binary_data=binary)
        r = c.infer("tiny", [x], outputs=[y], headers=headers, request_id="7")
        rows.append(r.as_numpy(out))
        check(f"infer_{'binary' if binary else 'json'}", rows[-1].shape == (2, 24) and r.get_response()["id"] == "7")
    check("infer_same", numpy.allclose(rows[0], rows[1], rtol=1e-6, atol=0))
    x = http.InferInput(name, [1, 3], "FP32")
    x.set_data_from_numpy(numpy.zeros((1, 3), numpy.float32))
    try:
        c.infer("tiny", [x], headers=headers)
        check("wrong_type", False, "no error")
    except InferenceServerException as e:
        check("wrong_type", e.status() == "400" and "INT32" in e.message(), e)


globals()[sys.argv[1]]()
