# The schema, the reader and writer of prototxt, upgrades of old nets.
IN_SIM := all
