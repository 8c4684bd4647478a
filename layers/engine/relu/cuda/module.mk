# ReLU on CUDA.
