#!/usr/bin/env python3
"""Training steps of the models of scripts/gpu/bench.sh in PyTorch, on the same GPU: eager with
channels_last, f32 without TF32, the batch on the device; images/s."""
import time

import torch
import torchvision.models as models

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def step_seconds(make, batch, steps, form):
    net = make(weights=None, **({"aux_logits": False, "init_weights": True} if "googlenet" in make.__name__ else {}))
    net = net.cuda().train()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    if form == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    label = torch.randint(0, 1000, (batch,), device="cuda")
    rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loss = torch.nn.CrossEntropyLoss()

    def step():
        rule.zero_grad(set_to_none=True)
        loss(net(x), label).backward()
        rule.step()

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.time() - start) / steps


print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}, f32, eager")
for make, batch, steps in ((models.alexnet, 256, 20), (models.googlenet, 128, 10), (models.resnet50, 128, 10),
                           (models.vgg16, 64, 10)):
    for form in ("plain", "channels_last"):
        s = step_seconds(make, batch, steps, form)
        print(f"{make.__name__:10} {batch:6} {1e3 * s:9.2f} {batch / s:12.1f}   {form}", flush=True)
        torch.cuda.empty_cache()
