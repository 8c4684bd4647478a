# `cortado info`.
