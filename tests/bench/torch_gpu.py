#!/usr/bin/env python3
"""Training steps of the models of scripts/gpu/bench.sh in PyTorch, on the same GPU: eager and
compiled, channels_last, f32 without TF32 and bf16 (autocast), the batch on the device; samples/s. And torch.topk of the largest
thousandth, beside bench_gpu's selections.
SECONDS_LEFT: no step of the list begins later."""
import os
import time

import torch
import torchvision.models as models
from torch import nn

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
END = time.time() + float(os.environ.get("SECONDS_LEFT", "1e9"))


class Words(nn.Module):
    """The large model of Zaremba et al. (2014): two layers of 1500, 35 words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10000, 1500)
        self.lstm = nn.LSTM(1500, 1500, 2, dropout=0.65)
        self.drop = nn.Dropout(0.65)
        self.out = nn.Linear(1500, 10000)

    def forward(self, x):
        return self.out(self.drop(self.lstm(self.drop(self.embed(x)))[0])).flatten(0, 1)


def images(make, **more):
    def both(batch):
        net = make(weights=None, **more).cuda().train().to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        return net, x, torch.randint(0, 1000, (batch,), device="cuda")

    return both


def words(batch):
    x = torch.randint(0, 10000, (35, batch), device="cuda")
    return Words().cuda().train(), x, torch.randint(0, 10000, (35 * batch,), device="cuda")


def step_seconds(make, batch, steps, bf16, compiled):
    net, x, label = make(batch)
    run = torch.compile(net) if compiled else net
    rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loss = nn.CrossEntropyLoss()

    def step():
        rule.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            value = loss(run(x), label)
        value.backward()
        rule.step()

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.time() - start) / steps


LIST = (
    ("alexnet", images(models.alexnet), 256, 20),
    ("vgg16", images(models.vgg16), 64, 10),
    ("resnet50", images(models.resnet50), 128, 10),
    ("googlenet", images(models.googlenet, aux_logits=False, init_weights=True), 128, 10),
    ("lstm_large", words, 20, 20),
)

print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
for n in (25_000_000, 138_000_000):
    v = torch.randn(n, device="cuda")
    for turn in range(3):
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(5):
            torch.topk(v.abs(), n // 1000, sorted=False)
        torch.cuda.synchronize()
        s = (time.time() - start) / 5
    print(f"torch.topk of {n // 1000000} M: {1e6 * s:.1f} us", flush=True)
    del v
for compiled in (False, True):
    for name, make, batch, steps in LIST:
        for bf16 in (False, True):
            if time.time() > END:
                print("out of time: what follows not run")
                raise SystemExit
            try:
                s = step_seconds(make, batch, steps, bf16, compiled)
            except Exception as e:  # a compiler that is not there, or no memory
                print(f"{name:11} {batch:6} failed: {str(e).splitlines()[0]}", flush=True)
                continue
            print(f"{name:11} {batch:6} {'BF16' if bf16 else 'F32':>5} {1e3 * s:9.2f} {batch / s:12.1f}   "
                  f"{'compiled' if compiled else 'eager'}", flush=True)
            torch.cuda.empty_cache()
