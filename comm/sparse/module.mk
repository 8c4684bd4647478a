# Sparse vectors, their payloads, and their sums over ranks.
$(call sim_twins_unless_real,payload payload_add sparse_merge)
IN_SIM := all
