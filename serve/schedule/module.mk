# Which requests run together, and when: no HTTP, no MPI, no net, and the clock is the caller's.
