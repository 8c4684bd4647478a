# What runs a job: ranks, signals, the watchdog.

# Products are added up: fused where the processor can.
FLAGS_$(D)/machine_limit := -ffp-contract=fast
SVE_FILES += $(D)/machine_limit
