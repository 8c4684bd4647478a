# Kernels of framework/math on CUDA.
