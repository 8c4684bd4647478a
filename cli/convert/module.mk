# `cortado convert` and `cortado extract`.
