"""What tests/golden/check/*.txt have of Caffe, from the JSON of `cortado check` on stdin."""
import json
import sys

net = json.load(sys.stdin)
for layer in net["layers"]:
    shapes = "".join(" " + " ".join(map(str, top["shape"])) + ";" for top in layer["tops"])
    print(layer["name"] + ":" + shapes)
print("memory", net["memory"]["caffe_data"])
