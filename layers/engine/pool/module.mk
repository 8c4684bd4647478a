# Engines of pooling.

# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/pool_step1 := -fno-trapping-math
