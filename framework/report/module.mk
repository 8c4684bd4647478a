# Log grammar, metrics, progress.
