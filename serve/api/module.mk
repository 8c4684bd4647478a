# Requests and replies without the network: routes, JSON, keys, metrics, and the thread that runs batches.
