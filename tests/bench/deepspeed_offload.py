#!/usr/bin/env python3
"""Steps of scripts/gpu/offload.sh's model in DeepSpeed: ZeRO-3 with parameters and optimiser in host memory,
bf16 on the GPU, Adam on the host. Argument: how many blocks. Never run yet."""
import statistics
import sys
import time

import deepspeed
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, WORDS, LENGTH = 1600, 25, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (y.view(n, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, WIDTH)
        x = x + self.attn_proj(y)
        return x + self.proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block = nn.ModuleList(Block() for _ in range(blocks))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, word, label):
        x = self.wte(word) + self.wpe.weight
        for b in self.block:
            x = checkpoint(b, x, use_reentrant=False)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1).float(), label.flatten())


CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "cpu", "pin_memory": True},
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
    },
}

with deepspeed.zero.Init(config_dict_or_path=CONFIG):
    net = Gpt(int(sys.argv[1]))
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
word = torch.randint(0, WORDS, (1, LENGTH), device="cuda")
seconds = []
for step in range(5):
    torch.cuda.synchronize()
    start = time.time()
    engine.backward(engine(word, word))
    engine.step()
    torch.cuda.synchronize()
    if step >= 2:
        seconds.append(time.time() - start)
print(f"deepspeed BF16  {1e3 * statistics.median(seconds):10.1f} ms a step")
