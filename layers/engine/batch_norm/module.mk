# Engines of batch normalisation.

# Its squares are exact: the same bits.
FLAGS_$(D)/batch_norm_blocked_square := -ffp-contract=fast
