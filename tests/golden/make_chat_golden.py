#!/usr/bin/env python3
"""Writes tests/golden/chat: a small tokenizer with the special tokens of chats, and chats with the
ids that transformers gives them by a template as the models have it. Needs transformers, jinja2."""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, decoders, trainers
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent / "chat"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
           "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TEMPLATE = {
    "CHATML": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
              "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "LLAMA3": "{% for message in messages %}{% set content = '<|start_header_id|>' + "
              "message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + "
              "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = '<|begin_of_text|>' + "
              "content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "ZEPHYR": "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + "
              "message['content'] + eos_token + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
}
CHATS = [
    [("user", "Hello there")],
    [("system", "You are brief."), ("user", "What is coffee?"), ("assistant", "A drink.\n"),
     ("user", " And\n\ntea? ")],
    [("user", "\n\nTwo lines in front, and two behind.\n\n")],
    [("user", ""), ("assistant", " \t "), ("user", "Caf\u00e9, \u6c49\u5b57 \U0001f642!")],
    [("user", "|> signs < of | the template >")],
]


def make_tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    text = ["user\n\nassistant\n\nsystem\n\n|>\n\n<|user|>\n<|assistant|>\n tea coffee\n\n\n\nyou"] * 3
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=330, min_frequency=2, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return t


def main():
    t = make_tokenizer()
    t.save(str(HERE / "tokenizer.json"), pretty=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>")
    rows = []
    for name, jinja in TEMPLATE.items():
        for chat in CHATS:
            messages = [{"role": r, "content": c} for r, c in chat]
            text = fast.apply_chat_template(messages, chat_template=jinja, tokenize=False,
                                            add_generation_prompt=True)
            ids = fast(text, add_special_tokens=False)["input_ids"]
            rows.append({"template": name, "messages": messages, "ids": ids})
    lines = ",\n".join(json.dumps(row) for row in rows)
    jinja = json.dumps(TEMPLATE, indent=1)
    (HERE / "chats.json").write_text(f'{{"jinja": {jinja},\n"chats": [\n{lines}\n]}}\n')


main()
