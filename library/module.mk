# What include/cortado/cortado.h promises: a shared library, whose other symbols nobody sees.
IN_SIM :=
