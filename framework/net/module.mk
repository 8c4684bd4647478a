# The layer contract, graph building, the memory plan, the interpreter.
$(call sim_twins,layer)
IN_SIM := step layer_sim
