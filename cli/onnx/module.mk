# Nets as ONNX.
