# Shapes of samples whose source is not there.
