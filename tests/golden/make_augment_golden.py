#!/usr/bin/env python3
"""Makes tests/golden/augment_golden.h: operations on made-up images, with the CRC-32 of the planes that Pillow and
torchvision (where a recipe names it) make of them. Pillow 12: from 13 on it resizes columns before rows where
heights shrink more, which changes some values by 1."""
import os
import zlib

import numpy as np
import PIL
import torchvision.transforms.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import InterpolationMode

assert int(PIL.__version__.split(".")[0]) < 13, PIL.__version__
BILINEAR = Image.Resampling.BILINEAR


def pattern(h, w, c, smooth):
    """Noise, or slopes of each channel with noise of 6 bits; the test makes the same."""
    i = np.arange(h * w * c, dtype=np.uint64)
    noise = (i * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) >> np.uint64(24)
    y, x, k = i // np.uint64(w * c), i // np.uint64(c) % np.uint64(w), i % np.uint64(c)
    slope = (x * (k + np.uint64(2)) + y * np.uint64(3)) % np.uint64(160) + np.uint64(20) + noise // np.uint64(4)
    return (slope if smooth else noise).astype(np.uint8).reshape(h, w, c)


def image(h, w, c, smooth):
    a = pattern(h, w, c, smooth)
    return Image.fromarray(a if c == 3 else a[..., 0])


def crc(im):
    a = np.asarray(im)
    a = a.reshape(*a.shape[:2], -1).transpose(2, 0, 1)
    return zlib.crc32(np.ascontiguousarray(a).tobytes())


def resizes():
    for h, w, c, box, to in (
        (37, 53, 3, (0, 0, 37, 53), (16, 17)), (37, 53, 3, (3, 5, 30, 40), (7, 61)), (90, 70, 3, (11, 0, 79, 70), (32, 32)),
        (40, 33, 1, (1, 1, 38, 31), (64, 64)), (5, 5, 3, (2, 2, 1, 1), (4, 4)), (300, 260, 3, (7, 9, 280, 240), (24, 24)),
        (50, 41, 3, (0, 0, 50, 41), (50, 41)), (9, 200, 3, (0, 0, 9, 200), (3, 1)),
    ):
        out = F.resized_crop(image(h, w, c, False), *box, list(to), InterpolationMode.BILINEAR, antialias=True)
        yield h, w, c, box, to, crc(out)


def affines():
    for degrees, shift, scale, shear in (
        (0, (0, 0), 1, (0, 0)), (30, (0, 0), 1, (0, 0)), (-117.5, (3, -4), 0.8, (0, 0)), (10, (-7, 2), 1.25, (20, 0)),
        (0, (0, 0), 1, (-15, 9)),
    ):
        im = image(31, 45, 3, True)
        yield degrees, shift, scale, shear, crc(F.affine(im, degrees, list(shift), scale, list(shear), InterpolationMode.BILINEAR))


OPS = (
    ("brightness", (0.0, 0.4, 1.0, 1.9), lambda im, v: ImageEnhance.Brightness(im).enhance(v)),
    ("contrast", (0.0, 0.4, 1.0, 1.9), lambda im, v: ImageEnhance.Contrast(im).enhance(v)),
    ("saturation", (0.0, 0.4, 1.0, 1.9), lambda im, v: ImageEnhance.Color(im).enhance(v)),
    ("sharpness", (0.0, 0.4, 1.0, 1.9), lambda im, v: ImageEnhance.Sharpness(im).enhance(v)),
    ("hue", (0, 25, 127, 200), lambda im, v: F.adjust_hue(im, (v if v < 128 else v - 256) / 255)),
    ("posterize", (1, 4, 8), lambda im, v: ImageOps.posterize(im, v)),
    ("solarize", (0, 100.5, 128, 256), lambda im, v: ImageOps.solarize(im, v)),
    ("autocontrast", (0,), lambda im, v: ImageOps.autocontrast(im)),
    ("equalize", (0,), lambda im, v: ImageOps.equalize(im)),
)


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment_golden.h"), "w") as f:
        f.write("/* Made by make_augment_golden.py: what Pillow and torchvision make of images, as CRC-32 of planes. */\n")
        f.write("static const struct { int h, w, c, box[4], to_h, to_w; uint32_t crc; } crop_golden[] = {\n")
        for h, w, c, box, to, v in resizes():
            f.write(f"{{ {h}, {w}, {c}, {{ {', '.join(map(str, box))} }}, {to[0]}, {to[1]}, 0x{v:08x}u }},\n")
        f.write("};\n\n/* Of 31 x 45 slopes. */\nstatic const struct { ct_affine affine; uint32_t crc; } affine_golden[] = {\n")
        for degrees, shift, scale, shear, v in affines():
            f.write(f"{{ {{ {degrees}, {shift[0]}, {shift[1]}, {scale}, {shear[0]}, {shear[1]} }}, 0x{v:08x}u }},\n")
        f.write("};\n\n/* Of 23 x 29 pixels: channels, slopes or noise. */\n")
        f.write("static const struct { const char *op; double value; int c, smooth; uint32_t crc; } color_golden[] = {\n")
        for name, values, fn in OPS:
            for v in values:
                for c, smooth in ((3, 0), (3, 1), (1, 1)):
                    f.write(f'{{ "{name}", {v}, {c}, {smooth}, 0x{crc(fn(image(23, 29, c, smooth), v)):08x}u }},\n')
        f.write("};\n")


main()
