# What runs a job: ranks, signals, the watchdog.

ifeq ($(CLANG),)
  # as in comm/collective: MPICH's MPI_STATUSES_IGNORE
  FLAGS_$(D)/failure_notice := -Wno-stringop-overflow
endif
# Products are added up: fused where the processor can.
FLAGS_$(D)/machine_limit := -ffp-contract=fast
SVE_FILES += $(D)/machine_limit
