"""The tensors of an .npz file of f32, by name; numpy need not be there."""
import array, zipfile

def tensors(path):
    out = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            data = z.read(name)
            at = 10 + int.from_bytes(data[8:10], "little")
            out[name] = array.array("f", data[at:])
    return out
