# Compression of gradients.
$(call sim_twin_of,codec,select momentum_correction cast sign low_rank)
IN_SIM := all
