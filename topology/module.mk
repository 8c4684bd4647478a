# The machine as data.
$(call needs_else,HWLOC,place_hwloc,place_nohwloc)
IN_SIM := all
