# The layer contract, graph building, the memory plan, the interpreter.
IN_SIM := step_run
