"""photographs.py FOLDER N [SIZE [MORE]]: N pictures of each of three classes as PNG files in folders of FOLDER,
SIZE (48) and up to MORE (8) pixels wide and high.

Grass is green with blades, sea blue with waves, sand yellow with dots; colours and places are by chance.
"""
import os, random, struct, sys, zlib


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, pixels):
    rows = b"".join(b"\0" + bytes(pixels[3 * width * y : 3 * width * (y + 1)]) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


BASE = {"grass": (60, 150, 50), "sand": (200, 180, 90), "sea": (40, 90, 170)}


def picture(name, size, by):
    base = [c + by.randint(-25, 25) for c in BASE[name]]
    phase, pixels = by.randint(2, 5), []
    for y in range(size):
        for x in range(size):
            dark = (x % phase == 0) if name == "grass" else (y % phase == 0) if name == "sea" else ((x * y) % phase == 0)
            noise = by.randint(-15, 15) - (30 if dark else 0)
            pixels += [min(255, max(0, c + noise)) for c in base]
    return pixels


if __name__ == "__main__":
    folder, n = sys.argv[1], int(sys.argv[2])
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 48
    more = int(sys.argv[4]) if len(sys.argv) > 4 else 8
    for k, name in enumerate(sorted(BASE)):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        by = random.Random(k)
        for i in range(n):
            width = size + by.randint(0, more)
            open(os.path.join(folder, name, "%s %02d.png" % (name, i)), "wb").write(png(width, width, picture(name, width, by)))
