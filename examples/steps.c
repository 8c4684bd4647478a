/* A solver's steps, looked at meanwhile.
 *
 *     cc steps.c $(pkg-config --cflags --libs cortado) -o steps
 *     ./steps solver.prototxt 4 50 learned.npz
 *
 * Makes 4 times 50 steps, prints the outputs of the net each time, and writes the weights. */
#include <stdio.h>
#include <stdlib.h>

#include <cortado/cortado.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, cortado_error());
    return 1;
}

static int show(cortado_solver *solver)
{
    cortado_net *net = cortado_solver_net(solver);

    printf("iteration %lld", (long long)cortado_solver_iteration(solver));
    for (int i = 0; cortado_net_output_name(net, i) != NULL; i++) {
        cortado_blob b;

        if (cortado_net_blob(net, cortado_net_output_name(net, i), &b) != CORTADO_OK)
            return fail("an output");
        if (b.count > 0) printf(", %s = %.6f", cortado_net_output_name(net, i), (double)b.data[0]);
    }
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    cortado_solver *solver;

    if (argc != 5) {
        fprintf(stderr, "usage: %s SOLVER TIMES STEPS TO\n", argv[0]);
        return 2;
    }
    if (cortado_solver_open(argv[1], CORTADO_KEEP_OUTPUTS, &solver) != CORTADO_OK)
        return fail(argv[1]);
    for (int i = 0; i < atoi(argv[2]); i++) {
        if (cortado_solver_step(solver, atoi(argv[3])) != CORTADO_OK) return fail("a step");
        if (show(solver) != 0) return 1;
    }
    if (cortado_net_save(cortado_solver_net(solver), argv[4]) != CORTADO_OK) return fail(argv[4]);
    cortado_solver_close(solver);
    return 0;
}
