# Micro-benchmarks.
