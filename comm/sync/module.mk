# Gradients in buckets, on their way while layers compute.
IN_SIM := all
