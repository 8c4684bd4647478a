# `cortado train` and `cortado test`.
