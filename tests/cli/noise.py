"""SSD's noise_param beside OpenCV: makes pictures and a net, and says what OpenCV makes of them.

noise.py make              pictures, their lists and net.prototxt in the folder it runs in
noise.py same FILE.npz     whether the batches that `cortado time --dump_batches` wrote are OpenCV's
"""
import sys

import cv2
import numpy as np

PICTURES = 2
SIZES = {"odd": (37, 50), "even": (48, 64), "small": (7, 9)}
SALT = (3, 250, 120)
CASES = {
    "decolorize": "decolorize: true",
    "blur": "gauss_blur: true",
    "hist": "hist_eq: true",
    "clahe": "clahe: true",
    "jpeg": "jpeg: 35",
    "erode": "erode: true",
    "posterize": "posterize: true",
    "inverse": "inverse: true",
    "salt": "saltpepper: true saltpepper_param { fraction: 0.2 value: 3 value: 250 value: 120 }",
    "hsv": "convert_to_hsv: true",
    "several": "erode: true posterize: true inverse: true hist_eq: true",
    "none": "",
}
# how far a value may be from that of OpenCV, which adds up its tables of tiles in another order
TOLERANCE = {"clahe": 1}


def make():
    by = np.random.default_rng(4)
    net = 'name: "noise"\n'
    for size, (height, width) in SIZES.items():
        lines = []
        for i in range(PICTURES):
            walk = np.cumsum(by.integers(-25, 26, (height, width, 3)), axis=1) + np.array([90, 120, 150])
            cv2.imwrite(f"{size}{i}.png", np.clip(walk, 10 * i, 250).astype(np.uint8))
            lines.append(f"{size}{i}.png 0\n")
        open(size, "w").writelines(lines)
        for case, fields in CASES.items():
            for color in ("true", "false"):
                if color == "false" and (case in ("salt", "hsv") or size == "small"):
                    continue
                top = f"{case}_{size}_{color}"
                net += f'layer {{ name: "{top}" type: "ImageData" top: "{top}" transform_param {{ noise_param {{ {fields} }} }}\n'
                net += f'  image_data_param {{ source: "{size}" batch_size: {PICTURES} shuffle: false is_color: {color} }} }}\n'
                net += f'layer {{ name: "end_{top}" type: "Silence" bottom: "{top}" }}\n'
    open("net.prototxt", "w").write(net)


def luma(a, change):
    if a.ndim == 2:
        return change(a)
    y = cv2.cvtColor(a, cv2.COLOR_BGR2YCrCb)
    y[..., 0] = change(np.ascontiguousarray(y[..., 0]))
    return cv2.cvtColor(y, cv2.COLOR_YCrCb2BGR)


def gray(a):
    return a if a.ndim == 2 else cv2.cvtColor(cv2.cvtColor(a, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)


def jpeg(a):
    data = cv2.imencode(".jpg", a, [cv2.IMWRITE_JPEG_QUALITY, 35])[1]
    return cv2.imdecode(data, cv2.IMREAD_UNCHANGED)


def erode(a):
    return cv2.erode(a, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3), anchor=(1, 1)))


def posterize(a):
    return a // 64 * 64 + 32


def opencv(case, a):
    return {
        "decolorize": gray,
        "blur": lambda a: cv2.GaussianBlur(a, (7, 7), 1.5),
        "hist": lambda a: luma(a, cv2.equalizeHist),
        "clahe": lambda a: luma(a, cv2.createCLAHE(4).apply),
        "jpeg": jpeg,
        "erode": erode,
        "posterize": posterize,
        "inverse": lambda a: 255 - a,
        "hsv": lambda a: cv2.cvtColor(a, cv2.COLOR_BGR2HSV),
        "several": lambda a: 255 - posterize(erode(luma(a, cv2.equalizeHist))),
        "none": lambda a: a,
    }[case](a)


def salted(a, b):
    """Drawn pixels alone differ, with the values that were given, and are as many as may be expected."""
    changed = (a != b).any(2)
    assert (b[changed] == SALT).all()
    share = 1 - (1 - 1 / changed.size) ** int(0.2 * changed.size)
    assert abs(changed.mean() - share) < 4 * (share / changed.size) ** 0.5, (changed.mean(), share)


def same(file):
    batches = np.load(file)
    for name in batches.files:
        top = name.split("/")[0]
        case, size, color = top.split("_")
        worst = 0
        for i in range(PICTURES):
            a = cv2.imread(f"{size}{i}.png", cv2.IMREAD_COLOR if color == "true" else cv2.IMREAD_GRAYSCALE)
            b = batches[name][i]
            b = b[0] if color == "false" else b.transpose(1, 2, 0)
            if case == "salt":
                salted(a, b)
            else:
                worst = max(worst, int(abs(opencv(case, a).astype(int) - b.astype(int)).max()))
        print("ok" if worst <= TOLERANCE.get(case, 0) else "not ok", f"{top}: largest difference {worst}")


if __name__ == "__main__":
    make() if sys.argv[1] == "make" else same(sys.argv[2])
