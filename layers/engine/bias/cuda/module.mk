# Sums with a bias on CUDA.
