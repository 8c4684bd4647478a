"""The wire of protobuf, by hand."""


def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 128:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


def field(number, v):
    if isinstance(v, int):
        return varint(number << 3) + varint(v)
    v = v if isinstance(v, bytes) else v.encode()
    return varint(number << 3 | 2) + varint(len(v)) + v
