# Communicators, waits, memory that the ranks of a node share.
$(call sim_twins,wait)
$(call sim_twins_unless_real,reduce)
$(call sim_only,sim_codec)
IN_SIM := all
