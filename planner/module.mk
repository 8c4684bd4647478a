# Planning of parallel execution: which strategies, what is made again, where stages are cut.
IN_SIM := forward_pass forward_json
