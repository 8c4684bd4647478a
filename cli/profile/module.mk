# Times of a net's steps, in a file.
IN_SIM := all
