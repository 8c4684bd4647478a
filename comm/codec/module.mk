# Compression of gradients.
$(call sim_twins,low_rank low_rank_basis)
$(call sim_twins_unless_real,select momentum_correction cast sign)
IN_SIM := all
