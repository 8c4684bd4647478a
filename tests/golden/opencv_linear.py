"""OpenCV's resize(INTER_LINEAR) of bytes, stated in NumPy; equal to OpenCV 3.4.18, 4.8.1 and 5.0.0 bit for bit
(make_data_golden.py says so where the cv2 module is there)."""
import numpy as np

ONE = 2048


def axis(n_in, n_out, is_x):
    """For each pixel of the result: the first of two source pixels, and both weights."""
    at = ((np.arange(n_out) + 0.5) * (1.0 / (n_out / n_in)) - 0.5).astype(np.float32)
    low = np.floor(at)
    part = at - low
    low = low.astype(np.int64)
    if is_x:  # one pixel alone beyond the edges; along y the edge row counts twice
        part[(low < 0) | (low >= n_in - 1)] = 0
        low = np.clip(low, 0, n_in - 1)
    weight = [np.rint(w * np.float32(ONE)).astype(np.int64) for w in (np.float32(1) - part, part)]
    return low, weight


def resize(image, height, width):
    x = image.reshape(image.shape[0], image.shape[1], -1).astype(np.int64)
    low, w = axis(x.shape[1], width, True)
    high = np.minimum(low + 1, x.shape[1] - 1)
    rows = x[:, low] * w[0][None, :, None] + x[:, high] * w[1][None, :, None]
    low, w = axis(x.shape[0], height, False)
    low, high = (np.clip(low + k, 0, x.shape[0] - 1) for k in (0, 1))
    part = [(v[:, None, None] * (rows[r] >> 4)) >> 16 for v, r in zip(w, (low, high))]
    return ((part[0] + part[1] + 2) >> 2).astype(np.uint8)
