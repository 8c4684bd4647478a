#!/usr/bin/env python3
"""Runs nets in onnxruntime, for forward.py: a line of standard input is a job in JSON, a line of standard output says that it is done.

A job has the ONNX file (`net`), the file of raw floats of each of its inputs (`given`), and where to write what it gives (`to`), as read_found()
of forward.py reads it. Inputs that are not given, the states of recurrent layers, are zeros.
"""
import json
import sys

import numpy
import onnx
import onnxruntime


def compute(job):
    onnx.checker.check_model(job["net"], full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, 1, 1
    session = onnxruntime.InferenceSession(job["net"], options, providers=["CPUExecutionProvider"])
    feed, size = {}, {}
    for v in sorted(session.get_inputs(), key=lambda v: v.name not in job["given"]):  # states come last, of the sizes found
        if v.name in job["given"]:
            values = numpy.fromfile(job["given"][v.name], "f4")
            free = [d for d in v.shape if not isinstance(d, int)]
            if len(free) > 1:
                raise ValueError(f"{v.name} has the shape {v.shape}")
            if free:
                size[free[0]] = values.size // int(numpy.prod([d for d in v.shape if isinstance(d, int)]))
        shape = [size.get(d, d) for d in v.shape]
        feed[v.name] = values.reshape(shape) if v.name in job["given"] else numpy.zeros(shape, "f4")
    names = [v.name for v in session.get_outputs()]
    return dict(zip(names, session.run(names, feed)))


for line in sys.stdin:
    asked = json.loads(line)
    said, data = {"error": "", "index": {}}, b""
    try:
        for key, value in compute(asked).items():
            value = numpy.ascontiguousarray(value, "f4")
            said["index"][key] = (len(data), value.size, "f")
            data += value.tobytes()
    except Exception as e:  # whatever it says is a row of the results
        said["error"] = f"onnxruntime: {type(e).__name__}: {e}"
    with open(asked["to"], "wb") as f:
        f.write(data)
    with open(asked["to"] + ".json", "w", encoding="utf-8") as f:
        json.dump(said, f)
    print("done", flush=True)
