#!/usr/bin/env python3
"""Makes tests/golden/images: small photographs of every awkward kind, and what OpenCV reads of them
(IMREAD_COLOR as .ppm, IMREAD_GRAYSCALE as .pgm). The kept files are those of OpenCV 4.8.1; 3.4.18 reads the
same of all but what is printed. Needs opencv-python-headless, NumPy and Pillow with JPEG and PNG."""
import io
import os
import struct
import sys
import zlib

import cv2
import numpy as np
from PIL import Image

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
H, W = 11, 14


def picture(seed):
    """Smooth enough for JPEG, different in every corner and channel."""
    y, x = np.mgrid[0:H, 0:W]
    c = np.stack([20 + 15 * x, 230 - 12 * x - 8 * y, 30 + 19 * y], -1) + 7 * seed
    return np.clip(c, 0, 255).astype(np.uint8)


def exif(orientation, big=False):
    order, mark = (">", b"MM") if big else ("<", b"II")
    return (mark + struct.pack(order + "HIH", 42, 8, 2) + struct.pack(order + "HHII", 0x0110, 4, 1, 5)
            + struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0) + struct.pack(order + "I", 0))


def jpeg(name, image, orientation=0, **options):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=90, **options)
    data = data.getvalue()
    if orientation:
        e = b"Exif\0\0" + exif(orientation, orientation % 2 == 0)
        data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(e) + 2) + e + data[2:]
    return name + ".jpg", data


def png(name, kind, depth, pixels, *chunks):
    """By hand: Pillow does not write all kinds. pixels: rows of bytes."""
    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, 0))
    for c in chunks:
        data += chunk(*c)
    data += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in pixels))) + chunk(b"IEND", b"")
    return name + ".png", data


def files():
    rgb = picture(0)
    color = Image.fromarray(rgb)
    yield jpeg("plain", color, subsampling=0)
    yield jpeg("halved", color, subsampling=2)
    yield jpeg("progressive", color, progressive=True)
    yield jpeg("gray", color.convert("L"))
    yield jpeg("cmyk", Image.fromarray(np.dstack([255 - rgb, rgb[:, :, ::-1].min(-1, keepdims=True) // 2]), "CMYK"))
    for o in range(2, 9):
        yield jpeg("exif%d" % o, color, o)
    alpha = (np.arange(H * W).reshape(H, W) * 3 % 256).astype(np.uint8)
    gray = rgb[:, :, 0]
    yield png("rgba", 6, 8, [r.tobytes() for r in np.dstack([rgb, alpha])])
    yield png("gray_alpha", 4, 8, [r.tobytes() for r in np.dstack([gray, alpha])])
    wide = rgb.astype(np.uint16) * 257 - 90 * (rgb > 100)
    yield png("rgb16", 2, 16, [r.astype(">u2").tobytes() for r in wide])
    yield png("gray16", 0, 16, [r.astype(">u2").tobytes() for r in wide[:, :, 1]])
    index = (np.arange(H * W).reshape(H, W) % 11).astype(np.uint8)
    palette = bytes(v for i in range(11) for v in (i * 23, 255 - i * 20, i * i * 2))
    yield png("palette", 3, 8, [r.tobytes() for r in index], (b"PLTE", palette))
    yield png("palette_clear", 3, 8, [r.tobytes() for r in index], (b"PLTE", palette), (b"tRNS", bytes(range(0, 220, 20))))
    bits = [np.packbits((r > 128).astype(np.uint8)).tobytes() for r in gray]
    yield png("bits", 0, 1, bits)
    yield png("exif6", 2, 8, [r.tobytes() for r in rgb], (b"eXIf", exif(6)))


def main():
    check = "--check" in sys.argv  # with another OpenCV: say what it reads otherwise
    os.makedirs(out, exist_ok=True)
    for name, data in files():
        if not check:
            with open(os.path.join(out, name), "wb") as f:
                f.write(data)
        for flag, suffix in ((cv2.IMREAD_COLOR, ".ppm"), (cv2.IMREAD_GRAYSCALE, ".pgm")):
            path = os.path.join(out, name + suffix)
            with open(os.path.join(out, name), "rb") as f:
                bytes_ = np.frombuffer(f.read(), np.uint8)
            im = cv2.imread(os.path.join(out, name), flag)
            if not np.array_equal(im, cv2.imdecode(bytes_, flag)):
                print(name, suffix, "imdecode differs from imread")
            if check:
                kept = cv2.imread(path, flag)
                if kept.shape != im.shape:
                    print(name, suffix, "shape", im.shape)
                elif not np.array_equal(kept, im):
                    print(name, suffix, "differs by", int(np.abs(kept.astype(int) - im).max()))
            else:
                rgb = im[:, :, ::-1] if im.ndim == 3 else im
                with open(path, "wb") as f:
                    f.write(b"P%d\n%d %d\n255\n" % (6 if im.ndim == 3 else 5, im.shape[1], im.shape[0]) + rgb.tobytes())
    print("OpenCV", cv2.__version__)


main()
