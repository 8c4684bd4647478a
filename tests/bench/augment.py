#!/usr/bin/env python3
"""Images a second of CPU time on one thread: cortado time --data beside torchvision's transforms, on the same JPEG
files and recipes. Runs alternate; a line gives the median of each and the ratio's range over the pairs.

    python3 tests/bench/augment.py [CORTADO] [PAIRS]      needs torch, torchvision, pillow, numpy

torchvision runs twice: on Pillow's images, and on tensors (v2 and decode_jpeg); the faster one counts. CPU time, not
time that passes, so that other work on the machine counts little.
"""
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torchvision import io as tvio
from torchvision import transforms as v1
from torchvision.transforms import v2

N, HEIGHT, WIDTH, SIZE = 200, 375, 500, 224
CORTADO = sys.argv[1] if len(sys.argv) > 1 else "./cortado"
PAIRS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
MEAN, STD = [0.485, 0.456, 0.406], [0.5] * 3
RECIPES = {
    "crop": ("", lambda v: [], []),
    "jitter": (
        "color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }",
        lambda v: [v.ColorJitter(0.4, 0.4, 0.4, 0.1)],
        [],
    ),
    "rand": (
        "rand_augment { } erase { probability: 0.25 }",
        lambda v: [v.RandAugment(interpolation=v1.InterpolationMode.BILINEAR)],
        [v1.RandomErasing(0.25)],
    ),
}


def photographs(folder):
    """Clouds of low frequencies with some noise: JPEG files of about a photograph's size."""
    by = np.random.default_rng(1)
    for i in range(N):
        low = by.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        a = np.asarray(Image.fromarray(low).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(int)
        a = np.clip(a + by.integers(-12, 13, a.shape), 0, 255).astype(np.uint8)
        os.makedirs(f"{folder}/{i % 2}", exist_ok=True)
        Image.fromarray(a).save(f"{folder}/{i % 2}/{i:04}.jpg", quality=90)


def net(path, fields):
    with open(path, "w") as f:
        f.write(
            'layer { name: "in" type: "Data" top: "data" top: "label"\n'
            f"  transform_param {{ force_color: true mirror: true random_resized_crop {{ size: {SIZE} }} {fields}\n"
            "    scale: 0.0078 mean_value: 104 mean_value: 117 mean_value: 123 }\n"
            '  data_param { source: "set/train_lmdb" batch_size: 20 } }\n'
        )


def ours(path):
    out = subprocess.run(
        [CORTADO, "time", f"--model={path}", "--data", "--iterations=40"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    ).stdout
    return float(re.search(r"([0-9.]+) images/s for each core", out).group(1))


def theirs(files, make, after, tensors):
    v = v2 if tensors else v1
    first = [v.RandomResizedCrop(SIZE, antialias=True), v.RandomHorizontalFlip(), *make(v)]
    last = [v2.ToDtype(torch.float32, scale=True)] if tensors else [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)]
    recipe = v.Compose(first + last + [v.Normalize(MEAN, STD)] + after)
    for k, n in ((0, 40), (1, 3 * N)):
        start = time.process_time()
        for i in range(n):
            data = files[i % N]
            if tensors:
                x = tvio.decode_jpeg(data[1], mode=tvio.ImageReadMode.RGB)
            else:
                x = Image.open(io.BytesIO(data[0])).convert("RGB")
            recipe(x)
        took = time.process_time() - start
    return n / took


def main():
    global CORTADO
    CORTADO = os.path.abspath(CORTADO)
    torch.set_num_threads(1)
    work = tempfile.TemporaryDirectory()
    os.chdir(work.name)
    photographs("pictures")
    subprocess.run([CORTADO, "convert", "images", "--from=pictures", "--to=set", "--encoded"], check=True, capture_output=True)
    files = []
    for i in range(N):
        with open(f"pictures/{i % 2}/{i:04}.jpg", "rb") as f:
            data = f.read()
        files.append((data, torch.frombuffer(bytearray(data), dtype=torch.uint8)))
    print(f"{N} JPEG of {WIDTH} x {HEIGHT}, {sum(len(f[0]) for f in files) // N} bytes each; {PAIRS} pairs")
    print("recipe   cortado  Pillow  tensors  ratio to the faster (least, most)")
    for name, (fields, make, after) in RECIPES.items():
        net("net.prototxt", fields)
        rows = [(ours("net.prototxt"), theirs(files, make, after, False), theirs(files, make, after, True)) for _ in range(PAIRS)]
        ratio = sorted(a / max(b, c) for a, b, c in rows)
        mid = [statistics.median(r[i] for r in rows) for i in range(3)]
        print(f"{name:8} {mid[0]:7.0f} {mid[1]:7.0f} {mid[2]:8.0f}  {statistics.median(ratio):.2f} ({ratio[0]:.2f}, {ratio[-1]:.2f})", flush=True)


main()
