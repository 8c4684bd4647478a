# Local steps: the groups of ranks that train by themselves, and the exchange between them.
