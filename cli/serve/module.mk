# cortado serve.
