# Augmentation of samples: pixels, what is drawn, and the table of operations.
