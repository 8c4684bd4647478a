"""Caffe's Python interface over Cortado: `from cortado import caffe` in place of `import caffe`.

    from cortado import caffe
    from cortado.caffe import layers as L, params as P

    net = caffe.Net("deploy.prototxt", "net.caffemodel", caffe.TEST)
    net.blobs["data"].data[...] = transformer.preprocess("data", caffe.io.load_image("cat.jpg"))
    net.forward()["prob"][0].argmax()

    solver = caffe.SGDSolver("solver.prototxt")
    solver.step(1)

Nets, solvers, io, NetSpec and classifiers need NumPy alone. What has messages of protobuf (proto.caffe_pb2, to_proto, datums) needs
the package protobuf, too: pip install 'cortado[caffe]'.
"""
from . import io
from .._library import Error
from ..layer import Layer
from ..netspec import NetSpec, layers, params, to_proto
from .classifier import Classifier
from .detector import Detector
from .pycaffe import (TEST, TRAIN, AdaDeltaSolver, AdaGradSolver, AdamSolver, Blob, NesterovSolver, Net, RMSPropSolver, SGDSolver,
                      Solver, get_solver, set_device, set_mode_cpu, set_mode_gpu, set_random_seed)

__version__ = "1.0.0"  # of the interface

__all__ = ["AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "Blob", "Classifier", "Detector", "Error", "Layer", "NesterovSolver", "Net",
           "NetSpec", "RMSPropSolver", "SGDSolver", "Solver", "TEST", "TRAIN", "get_solver", "io", "layers", "params", "set_device",
           "set_mode_cpu", "set_mode_gpu", "set_random_seed", "to_proto"]
