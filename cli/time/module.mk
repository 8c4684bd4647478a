# `cortado time`.
