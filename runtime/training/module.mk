# A solver with what a job has around it: for the verb and for users' programs.
