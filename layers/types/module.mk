# One file a layer type.

# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/sigmoid_loss_layer := -fno-trapping-math
FLAGS_$(D)/swiglu_layer := -fno-trapping-math
