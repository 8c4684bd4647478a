#!/usr/bin/env python3
"""Makes tests/golden/data_golden.h: sizes that images are resized to and windows that are cut out of one, with
the checksums of what must come out. An independent statement, in NumPy, of OpenCV's bilinear resize
(opencv_linear.py) and of what Caffe's WindowData layer does with a window. Where the cv2 module is there, both
use OpenCV too and must agree."""
import os
import zlib

import numpy as np

import opencv_linear

try:
    import cv2
except ImportError:
    cv2 = None

F = np.float32


def pattern(h, w, c):
    """Bytes without any structure; the test makes the same."""
    i = np.arange(h * w * c, dtype=np.uint64)
    return ((i * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) >> np.uint64(24)).astype(np.uint8).reshape(h, w, c)


def resize(image, h, w):
    mine = opencv_linear.resize(image, h, w)
    if cv2 is not None:
        theirs = cv2.resize(image, (w, h)).reshape(mine.shape)
        assert np.array_equal(mine, theirs), (image.shape, h, w, np.abs(mine.astype(int) - theirs).max())
    return mine


def half_away(v):
    """C's round() of a float."""
    return int(np.floor(abs(float(v)) + 0.5)) * (1 if v >= 0 else -1)


def window(image, box, crop, pad, square, mirror, mean, scale):
    """WindowDataLayer::load_batch of BVLC Caffe for one window, in its float32. mean: None, values of the
    channels, or channels x size x size."""
    x1, y1, x2, y2 = box
    height, width, channels = image.shape
    out = np.zeros((channels, crop, crop), F)
    size_w, size_h, pad_w, pad_h = crop, crop, 0, 0
    if pad > 0 or square:
        context = F(crop) / F(crop - 2 * pad)
        half_h, half_w = F(y2 - y1 + 1) / F(2), F(x2 - x1 + 1) / F(2)
        center_x, center_y = F(x1) + half_w, F(y1) + half_h
        if square:
            half_w = half_h = max(half_w, half_h)
        x1, x2 = half_away(center_x - half_w * context), half_away(center_x + half_w * context)
        y1, y2 = half_away(center_y - half_h * context), half_away(center_y + half_h * context)
        scale_x, scale_y = F(crop) / F(x2 - x1 + 1), F(crop) / F(y2 - y1 + 1)
        left, top = max(0, -x1), max(0, -y1)
        right, bottom = max(0, x2 - width + 1), max(0, y2 - height + 1)
        x1, y1, x2, y2 = x1 + left, y1 + top, x2 - right, y2 - bottom
        size_w = half_away(F(x2 - x1 + 1) * scale_x)
        size_h = half_away(F(y2 - y1 + 1) * scale_y)
        pad_h = half_away(F(top) * scale_y)
        pad_w = half_away(F(right if mirror else left) * scale_x)
        size_h, size_w = min(size_h, crop - pad_h), min(size_w, crop - pad_w)
    cut = resize(np.ascontiguousarray(image[y1:y2 + 1, x1:x2 + 1]), size_h, size_w)
    if mirror:
        cut = cut[:, ::-1]
    cut = cut.transpose(2, 0, 1).astype(F)
    if mean is not None and np.ndim(mean) == 3:
        off = (mean.shape[2] - crop) // 2
        cut = cut - mean[:, off + pad_h:off + pad_h + size_h, off + pad_w:off + pad_w + size_w]
    elif mean is not None:
        cut = cut - np.asarray(mean, F)[:, None, None]
    out[:, pad_h:pad_h + size_h, pad_w:pad_w + size_w] = cut * F(scale)
    return out


def mean_image(c, n):
    """The test makes the same."""
    return ((np.arange(c * n * n) * 7 % 97) + F(0.25)).astype(F).reshape(c, n, n)


RESIZE = [(7, 5, 3, 3, 11), (1, 9, 1, 4, 4), (37, 53, 3, 16, 17), (64, 64, 3, 32, 32), (33, 40, 3, 227, 227),
          (100, 75, 1, 64, 64), (5, 5, 3, 5, 9), (75, 100, 3, 50, 50), (50, 40, 3, 17, 40), (3, 2, 3, 1, 1)]
# image height, width; box; crop, context_pad, square, mirror; mean (0 none, 1 values, 2 image); scale
WINDOW = [
    (40, 60, (5, 6, 30, 25), 16, 0, 0, 0, 0, 1.0),
    (40, 60, (5, 6, 30, 25), 16, 0, 0, 1, 1, 0.5),
    (40, 60, (5, 6, 30, 25), 16, 3, 0, 0, 1, 1.0),
    (40, 60, (0, 0, 20, 11), 16, 3, 0, 0, 2, 1.0),
    (40, 60, (0, 0, 20, 11), 16, 3, 0, 1, 2, 0.017),
    (40, 60, (38, 20, 59, 39), 17, 5, 0, 0, 1, 1.0),
    (40, 60, (38, 20, 59, 39), 17, 5, 0, 1, 1, 1.0),
    (40, 60, (10, 2, 50, 9), 16, 0, 1, 0, 2, 1.0),
    (40, 60, (10, 2, 50, 9), 16, 0, 1, 1, 2, 1.0),
    (40, 60, (3, 1, 8, 38), 21, 4, 1, 1, 1, 0.25),
    (40, 60, (0, 0, 59, 39), 16, 7, 1, 0, 2, 1.0),
    (13, 9, (4, 4, 4, 4), 8, 1, 0, 0, 1, 1.0),
    (13, 9, (8, 12, 8, 12), 24, 11, 0, 1, 1, 1.0),
]


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data_golden.h")
    with open(path, "w") as f:
        f.write("/* Made by make_data_golden.py. Resized: height, width, channels, new height, new width, CRC-32 of the\n"
                " * bytes. Windows: image height, width; x1 y1 x2 y2; crop, context_pad, square, mirrored, mean (0: none,\n"
                " * 1: values, 2: image), scale; CRC-32 of the floats. */\n")
        f.write("static const struct {\n    int h, w, c, to_h, to_w;\n    uint32_t crc;\n} resize_golden[] = {\n")
        for h, w, c, th, tw in RESIZE:
            crc = zlib.crc32(resize(pattern(h, w, c), th, tw).tobytes())
            f.write("    { %d, %d, %d, %d, %d, 0x%08xu },\n" % (h, w, c, th, tw, crc))
        f.write("};\n\nstatic const struct {\n    int h, w, box[4], crop, pad, square, mirrored, mean;\n    float scale;\n"
                "    uint32_t crc;\n} window_golden[] = {\n")
        for h, w, box, crop, pad, square, mirror, kind, scale in WINDOW:
            mean = (None, [104, 117.5, 123], mean_image(3, crop + 5))[kind]
            out = window(pattern(h, w, 3), box, crop, pad, square, mirror, mean, scale)
            f.write("    { %d, %d, { %d, %d, %d, %d }, %d, %d, %d, %d, %d, %rf, 0x%08xu },\n"
                    % ((h, w) + box + (crop, pad, square, mirror, kind, scale, zlib.crc32(out.astype("<f4").tobytes()))))
        f.write("};\n")
    print("OpenCV agrees, " + cv2.__version__ if cv2 is not None else "without OpenCV")


main()
