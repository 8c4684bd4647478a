# Engines of ReLU.
