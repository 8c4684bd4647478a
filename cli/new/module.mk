# `cortado new`.
