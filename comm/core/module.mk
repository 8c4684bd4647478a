# Communicators, waits, memory that the ranks of a node share.
$(call sim_twins,wait)
$(call sim_twins_unless_real,reduce)
IN_SIM := all
