/* Training on several ranks, in a program of one's own that runs MPI.
 *
 *     mpicc ranks.c $(pkg-config --cflags --libs cortado) -o ranks
 *     mpirun -np 2 ./ranks solver.prototxt 20
 *
 * Makes 20 steps, as `mpirun -np 2 cortado train` does. Rank 0 prints the checksum of the weights.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include <cortado/cortado.h>

/* Every rank gets here alike: a call that fails on one of them fails on all. */
static int train(const char *file, int steps, int rank)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    cortado_solver *solver;
    uint64_t checksum;
    cortado_status status =
        cortado_solver_open_on(file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &solver);

    if (status != CORTADO_OK) return status;
    status = cortado_solver_step(solver, steps);
    if (status == CORTADO_OK) status = cortado_solver_checksum(solver, &checksum);
    if ((status == CORTADO_OK) && (rank == 0))
        printf("iteration %lld: checksum %016llx\n", (long long)cortado_solver_iteration(solver),
               (unsigned long long)checksum);
    cortado_solver_close(solver);
    return status;
}

int main(int argc, char **argv)
{
    int level, rank, status = 2;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc == 3)
        status = train(argv[1], atoi(argv[2]), rank);
    else
        fprintf(stderr, "usage: %s SOLVER STEPS\n", argv[0]);
    if ((argc == 3) && (status != CORTADO_OK))
        fprintf(stderr, "rank %d: %s: %s\n", rank, cortado_status_name(status), cortado_error());
    MPI_Finalize();
    return status;
}
