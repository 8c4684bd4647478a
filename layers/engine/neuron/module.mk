# Functions of one number.

# A choice may compute both sides, loops with one vectorise, and sqrtf is an instruction.
FLAGS_$(D)/neuron_simd := -fno-trapping-math -fno-math-errno
