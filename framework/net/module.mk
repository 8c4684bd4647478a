# The layer contract, graph building, the memory plan, the interpreter.
$(call sim_twins,layer)
IN_SIM := step_run layer_sim
