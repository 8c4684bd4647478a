"""onnx_probabilities.py MODEL MEAN PREDICTIONS: what onnxruntime makes of the PNG files that PREDICTIONS (JSON of
`cortado predict`) names is what stands there, to 1e-5, and so are the names of the classes."""
import json, struct, sys, zlib
import numpy, onnxruntime


def pixels(path):
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        n, name = struct.unpack(">I4s", data[at : at + 8])
        if name == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8 : at + 16])
        if name == b"IDAT":
            body += data[at + 8 : at + 8 + n]
        at += 12 + n
    rows = numpy.frombuffer(zlib.decompress(body), numpy.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()  # no filters
    return rows[:, 1:].reshape(height, width, 3)[:, :, ::-1].transpose(2, 0, 1).astype(numpy.float32)  # blue first


def mean(path):  # a BlobProto's packed floats are its longest run: field 5
    data = open(path, "rb").read()
    at = data.rindex(b"\x2a", 0, 40)
    n, shift, at = 0, 0, at + 1
    while True:
        n |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            break
    return numpy.frombuffer(data[at : at + n], numpy.float32).reshape(3, 40, 40)


session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
said = json.load(open(sys.argv[3]))
assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == said["classes"], said["classes"]
worst = 0
for p in said["predictions"]:
    x = (pixels(p["file"]) - mean(sys.argv[2])) * numpy.float32(0.004)
    y = session.run(None, {session.get_inputs()[0].name: x[None]})[0][0]
    worst = max(worst, float(abs(y - numpy.array(p["all"])).max()))
    assert said["classes"][int(y.argmax())] == p["class"]
print(len(said["predictions"]), "files, largest difference", worst)
assert worst < 1e-5
