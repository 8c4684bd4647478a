# What runs a job: ranks, signals, the watchdog.
