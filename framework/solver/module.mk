# The training loop, learning rates, update rules.
IN_SIM := update_rule
