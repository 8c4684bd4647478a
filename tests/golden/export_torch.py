#!/usr/bin/env python3
"""ONNX files that PyTorch writes, into the current folder: for tests/long/onnx_torch.sh.

Usage: export_torch.py [FOLDER]

torchvision's nets with seeded weights and, in their BatchNorms, seeded statistics, scales and shifts; and, where
FOLDER has config.json and model.safetensors of MiniLM, that with both of transformers' ways to write attention.
"""
import os
import sys

import torch
import torchvision


def spread(net):
    """Statistics as of a trained net: not all 0 and 1."""
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            for value, low, high in ((m.running_mean, -0.2, 0.2), (m.running_var, 0.5, 1.5), (m.weight, 0.7, 1.3), (m.bias, -0.2, 0.2)):
                value.data.uniform_(low, high)
    return net.eval()


def write(net, inputs, name, names, outputs, axes):
    torch.onnx.export(net, inputs, f"{name}.onnx", opset_version=17, dynamo=False, input_names=names, output_names=outputs,
                      dynamic_axes={n: axes for n in names + outputs[:1]})


for seed, name in enumerate(["resnet50", "mobilenet_v2", "densenet121"]):
    torch.manual_seed(seed)
    net = spread(getattr(torchvision.models, name)(weights=None))
    write(net, (torch.randn(1, 3, 224, 224),), name, ["data"], ["logits"], {0: "n"})

if len(sys.argv) > 1 and sys.argv[1]:
    import safetensors.torch
    import transformers

    class Whole(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, ids, mask, types):
            out = self.net(input_ids=ids, attention_mask=mask, token_type_ids=types)
            return out.last_hidden_state, out.pooler_output

    config = transformers.BertConfig.from_json_file(os.path.join(sys.argv[1], "config.json"))
    for way in ("eager", "sdpa"):
        config._attn_implementation = way
        net = transformers.BertModel(config).eval()
        net.load_state_dict(safetensors.torch.load_file(os.path.join(sys.argv[1], "model.safetensors")), strict=False)
        ids = torch.randint(1000, 2000, (2, 12))
        mask = torch.ones(2, 12, dtype=torch.int64)
        mask[1, 9:] = 0
        write(Whole(net), (ids, mask, torch.zeros_like(ids)), f"minilm_{way}", ["input_ids", "attention_mask", "token_type_ids"],
              ["hidden", "pooled"], {0: "n", 1: "t"})
