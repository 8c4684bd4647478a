# Gates of recurrent layers.

# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/recurrent := -fno-trapping-math
