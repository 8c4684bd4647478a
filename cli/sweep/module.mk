# `cortado sweep`.
