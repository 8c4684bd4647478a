# `cortado check`.
