# Attention on CUDA.
