# The solver's exchange over comm/.
