# Sparse vectors, their payloads, and their sums over ranks.
$(call sim_twin_of,sparse,payload payload_add sparse_merge)
IN_SIM := all
