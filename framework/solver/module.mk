# The training loop, learning rates, update rules.
IN_SIM := optex_param update_rule
