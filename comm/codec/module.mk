# Compression of gradients.
$(call sim_twin_of,codec,select momentum_correction cast integer sign low_rank)
IN_SIM := all
