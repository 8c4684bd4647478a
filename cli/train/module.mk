# `cortado train`, `cortado find_rate` and `cortado test`.
