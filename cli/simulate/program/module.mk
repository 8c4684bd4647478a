# The simulator: a program of its own.
$(call sim_only,$(basename $(notdir $(wildcard $(D)/*.c))))
IN_SIM := all
