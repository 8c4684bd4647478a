# A net that answers: no HTTP, no MPI.
