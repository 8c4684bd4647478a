# Layers on CUDA; without it the table of their kernels is empty.
