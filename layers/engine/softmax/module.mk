# Engines of softmax.

# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/softmax_omp := -fno-trapping-math
