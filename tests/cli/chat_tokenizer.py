"""Prints a tokenizer.json of the 256 bytes, behind them the special tokens of a chat in CHATML."""
import json
keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
char, n = {}, 0
for b in range(256):
    char[b] = chr(b) if b in keep else chr(256 + n)
    n += b not in keep
words = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
vocab = {char[b]: b for b in range(256)}
print(json.dumps({"version": "1.0", "added_tokens": [{"id": 256 + i, "content": w, "special": True} for i, w in enumerate(words)],
                  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                  "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
