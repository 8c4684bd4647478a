# `cortado report`.
