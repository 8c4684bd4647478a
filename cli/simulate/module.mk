# `cortado simulate` and the platforms that it makes.
IN_SIM := sim_setup
