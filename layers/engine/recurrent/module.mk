# Gates of recurrent layers.

# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/gates_simd := -fno-trapping-math
