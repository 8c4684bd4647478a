# Shapes, devices, tensors.
IN_SIM := dtype
