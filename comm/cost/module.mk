# What collectives take on a machine.
IN_SIM := all
