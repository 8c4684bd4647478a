# A model on other ranks: works as messages over MPI, behind the dispatcher of rank 0.
