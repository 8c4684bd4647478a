"""Nets and solvers of Cortado, as NumPy arrays.

    import cortado

    net = cortado.Net("deploy.prototxt", "net.caffemodel")
    net.blobs["data"].data[...] = picture          # N x C x H x W
    probability = net.forward()["prob"]            # N x classes

    solver = cortado.Solver("solver.prototxt")
    solver.step(100)
    solver.net.params["conv1"][0].data             # its weights

Arrays are the net's own memory: nothing is copied, and what is written to them counts. Whatever goes wrong raises a cortado.Error,
with the text that the library gives: file and line where a net is wrong.
"""
from ._library import Error, FileError, log_to, set_random_seed, set_threads, version
from .image import read_image
from .layer import Layer
from .net import TEST, TRAIN, Blob, Net
from .netspec import NetSpec, layers, params
from .solver import Solver
from .tables import read_metrics, read_snapshot, read_trace

__version__ = version()
__all__ = ["Blob", "Error", "FileError", "Layer", "Net", "NetSpec", "Solver", "TEST", "TRAIN", "layers", "log_to", "params", "read_image",
           "read_metrics", "read_snapshot", "read_trace", "set_random_seed", "set_threads", "version"]
