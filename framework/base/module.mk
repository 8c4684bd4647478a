# Status, log, memory, random numbers: what everything stands on.
$(call sim_twins,clock)
$(call sim_twins_unless_real,memory)
IN_SIM := all
# the simulator has no HDF5
OMIT += $(if $(filter 1,$(SIMGRID)),hdf5.c)

$(call needs,URING,async_io_uring)

# Words of bits go from mask registers to memory, not through vectors.
FLAGS_$(D)/rng_many := -fno-tree-slp-vectorize
