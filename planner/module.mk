# Planning of parallel execution: which strategies, what is made again, where stages are cut.
