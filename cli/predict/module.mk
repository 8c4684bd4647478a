# `cortado predict`.
