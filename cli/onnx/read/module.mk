# ONNX as nets.
