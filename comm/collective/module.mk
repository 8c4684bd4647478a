# Collectives and what they are made of.
$(call sim_twins,blocking_wait)
IN_SIM := all
ifeq ($(CLANG),)
  # MPICH spells MPI_STATUSES_IGNORE as (MPI_Status *)1, which gcc takes for an array too short.
  FLAGS_$(D)/coll_impi := -Wno-stringop-overflow
  FLAGS_$(D)/sum_mpi := -Wno-stringop-overflow
endif
