# `cortado plan`.
