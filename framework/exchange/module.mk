# What the solver asks of the other ranks.
