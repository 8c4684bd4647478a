# Shapes, devices, tensors.
IN_SIM := tensor storage
