/** @file draws.h  Cases that tests of ranks draw by chance, all ranks alike.
 *
 * CORTADO_DRAW="SEED CASES" asks for other cases than the first few of seed 1
 * (tests/long/drawn_sums.sh).
 */
#ifndef CT_TESTS_MPI_DRAWS_H
#define CT_TESTS_MPI_DRAWS_H

#include <stdlib.h>

#include "framework/base/rng.h"
#include "tests/mpi/mpi_test.h"

/* Numbers that all ranks draw alike, or each for itself. */
typedef struct draws {
    uint64_t key, at;
} draws;

static inline int draw(draws *d, int n)
{
    return (int)(ct_rng_philox(d->key, 7, d->at++).v[0] % (uint32_t)n);
}

/* A machine of n ranks as a specification. */
static inline void draw_machine(draws *d, int n, char *spec, size_t size)
{
    int levels = 1 + draw(d, 3), at;

    if (draw(d, 4) == 0) {
        int a = 1 + draw(d, n), b;

        while (n % a != 0) a = 1 + draw(d, n);
        b = n / a;
        snprintf(spec, size, draw(d, 2) ? "%dx%d" : "torus:%dx%d", a, b);
        return;
    }
    at = snprintf(spec, size, "map:");
    for (int l = 0; l < levels; ++l) {
        int kinds = 1 + draw(d, n);

        if (l > 0) spec[at++] = '/';
        for (int r = 0; r < n; ++r) spec[at++] = (char)('a' + draw(d, kinds));
    }
    spec[at] = '\0';
}

/** Faults of all ranks in the cases asked for, or the first `usual` of seed 1. Collective. */
static inline int mpi_on_draws(int (*one_case)(uint64_t seed, uint64_t number), uint64_t usual)
{
    const char *asked = getenv("CORTADO_DRAW");
    unsigned long long seed = 1, cases = usual;
    int fault = 0;

    if ((asked != NULL) && (sscanf(asked, "%llu %llu", &seed, &cases) != 2)) return 1;
    for (unsigned long long i = 0; i < cases; ++i) {
        int wrong = mpi_verdict(one_case(seed, i));

        if (wrong > 0) fprintf(stderr, "seed %llu, case %llu: %d faults\n", seed, i, wrong);
        fault += wrong;
    }
    return fault;
}

#endif
