"""WebP and TIFF files by Pillow, and what Cortado reads of them beside what Pillow does.

    image_kinds.py make          files in the current folder, and `list`, in their order
    image_kinds.py same COLOUR.npz GRAY.npz
"""
import sys

import numpy as np
from PIL import Image, ImageOps

SIDE = 24
rng = np.random.default_rng(5)
pixels = np.clip(np.cumsum(rng.integers(-20, 21, (SIDE, SIDE, 3)), axis=1) + 128, 0, 255).astype(np.uint8)
rgb = Image.fromarray(pixels)
exif = Image.Exif()
exif[0x0112] = 6
FILES = {
    "lossless.webp": dict(image=rgb, lossless=True),
    "lossy.webp": dict(image=rgb, quality=60),
    "turned.webp": dict(image=rgb, lossless=True, exif=exif),
    "plain.tif": dict(image=rgb),
    "lzw.tif": dict(image=rgb, compression="tiff_lzw"),
    "deflate.tiff": dict(image=rgb, compression="tiff_adobe_deflate"),
    "turned.tif": dict(image=rgb, exif=exif),
    "palette.tif": dict(image=rgb.quantize(16)),
    "gray.tif": dict(image=rgb.convert("L")),
    "bits.tif": dict(image=rgb.convert("1"), compression="group4"),
}


def make():
    for name, how in FILES.items():
        how["image"].save(name, **{k: v for k, v in how.items() if k != "image"})
    with open("list", "w") as f:
        f.writelines("%s 0\n" % name for name in FILES)


def same(colour, gray):
    """Colours equal; gray is rounded from other weights, so within 1."""
    colour, gray = ([np.load(file)["data/%d" % i] for i in range(len(FILES))] for file in (colour, gray))
    for (name, _), c, g in zip(FILES.items(), colour, gray):
        with Image.open(name) as opened:
            upright = ImageOps.exif_transpose(opened)
            wanted = np.asarray(upright.convert("RGB"))[:, :, ::-1].transpose(2, 0, 1)
            wanted_gray = np.asarray(upright.convert("RGB").convert("L")).astype(int)
        print("ok" if c[0].shape == wanted.shape and (c[0] == wanted).all() else "not ok", "pixels_" + name)
        print("ok" if abs(g[0][0] - wanted_gray).max() <= 1 else "not ok", "gray_" + name)


make() if sys.argv[1] == "make" else same(*sys.argv[2:])
