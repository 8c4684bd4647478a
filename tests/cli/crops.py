"""Tests over several crops: pictures, a net's weights, and by arithmetic of numpy what the net says of them.

crops.py make                        photos/CLASS/*.png, a list, linear.caffemodel, in the folder it runs in
crops.py report WAY CROPS FILE.json  whether `cortado test --crops=CROPS --report` says the same; WAY: crop, resize
crops.py predict WAY CROPS FILE.json whether `cortado predict --crops=CROPS` does
"""
import json, math, os, struct, sys

import numpy as np
from PIL import Image

CLASSES, SIZE, N = 3, 16, 21
MEAN = np.array([104, 117, 123], np.float32)  # blue, green, red
SCALE, TEST_RESIZE = np.float32(0.0078125), 19


def weights():
    by = np.random.default_rng(7)
    return by.normal(0, 0.09, (CLASSES, 3 * SIZE * SIZE)).astype(np.float32), np.array([0.3, -0.2, 0.1], np.float32)


def field(number, data):
    return bytes([number << 3 | 2]) + length(len(data)) + data


def length(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + length(n >> 7)


def caffemodel(w, b):
    """A NetParameter with one layer (field 100) of two blobs (7): shape (7), data (5)."""

    def one(a):
        shape = field(1, b"".join(length(n) for n in a.shape))
        return field(7, field(7, shape) + field(5, a.tobytes()))

    layer = field(1, b"ip") + field(2, b"InnerProduct") + one(w) + one(b)
    return bytes([0xA2, 0x06]) + length(len(layer)) + layer


def make():
    by = np.random.default_rng(3)
    lines = []
    for i in range(N):
        width, height = int(by.integers(20, 30)), int(by.integers(17, 25))
        name = f"photos/{'abc'[i % CLASSES]}/{i:02}.png"
        os.makedirs(os.path.dirname(name), exist_ok=True)
        Image.fromarray(by.integers(0, 256, (height, width, 3)).astype(np.uint8)).save(name)
        lines.append(f"{name} {i % CLASSES}\n")
    open("list", "w").writelines(lines)
    open("linear.caffemodel", "wb").write(caffemodel(*weights()))


def corners(image):
    height, width = image.shape[:2]
    places = [(top, left) for top in (0, height - SIZE) for left in (0, width - SIZE)]
    return [image[top : top + SIZE, left : left + SIZE] for top, left in places]


def crops_of(path, way, n):
    image = Image.open(path).convert("RGB")
    if way == "resize":  # the shorter side becomes TEST_RESIZE, antialiased
        w, h = image.size
        short = TEST_RESIZE
        image = image.resize((short * w // h, short) if h <= w else (short, short * h // w), Image.Resampling.BILINEAR)
    a = np.asarray(image)[:, :, ::-1]
    height, width = a.shape[:2]
    top, left = (height - SIZE) / 2, (width - SIZE) / 2
    top, left = (round(top), round(left)) if way == "resize" else (int(top), int(left))  # as torchvision, as Caffe
    middle = a[top : top + SIZE, left : left + SIZE]
    five = corners(a) + [middle]
    some = {1: [middle], 2: [middle], 5: five, 10: five}[n]
    return some + ([c[:, ::-1] for c in some] if n % 2 == 0 else [])


def probabilities(path, way, n):
    w, b = weights()
    mean = np.zeros(CLASSES)
    for crop in crops_of(path, way, n):
        x = ((crop.astype(np.float32) - MEAN) * SCALE).transpose(2, 0, 1).reshape(-1).astype(np.float64)
        score = w.astype(np.float64) @ x + b
        e = np.exp(score - score.max())
        mean += e / e.sum()
    return mean / n


def report(way, n, file):
    confusion = np.zeros((CLASSES, CLASSES), int)
    loss = 0.0
    for line in open("list"):
        path, label = line.split()
        p = probabilities(path, way, n)
        confusion[int(label), p.argmax()] += 1
        loss -= math.log(p[int(label)])
    said = json.load(open(file))
    assert said["crops"] == n and said["samples"] == N
    assert said["confusion"] == confusion.tolist(), (said["confusion"], confusion.tolist())
    assert abs(said["loss"] - loss / N) < 1e-5 * loss / N, (said["loss"], loss / N)
    assert abs(said["accuracy"] - confusion.trace() / N) < 1e-12
    print(f"accuracy {said['accuracy']:.4f} loss {said['loss']:.6f}")


def predict(way, n, file):
    said = json.load(open(file))["predictions"]
    assert len(said) == N
    worst = max(np.abs(probabilities(p["file"], way, n) - p["all"]).max() for p in said)
    assert worst < 2e-6, worst
    print(f"{N} pictures, largest difference {worst:.1e}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make()
    else:
        {"report": report, "predict": predict}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
