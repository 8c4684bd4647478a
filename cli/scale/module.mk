# Scaling studies.
