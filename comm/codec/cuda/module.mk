# Kernels of codecs on CUDA.
