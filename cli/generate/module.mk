# `cortado generate`.
