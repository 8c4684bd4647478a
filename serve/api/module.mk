# Requests and replies without the network: routes, JSON, keys, metrics, and the threads that run batches.
