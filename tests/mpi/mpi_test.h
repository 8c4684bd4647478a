/** @file mpi_test.h  What MPI tests share: a main, communicators on pretended machines, verdicts.
 *
 * Between collectives nothing is asserted, since a rank that leaves a test early would hang the
 * others: faults are counted, the counts agreed with mpi_verdict(), and that is asserted.
 */
#ifndef CT_TESTS_MPI_TEST_H
#define CT_TESTS_MPI_TEST_H

#include "tests/test.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/core/comm.h"

/** Faults of all ranks together. Collective. */
static inline int mpi_verdict(int fault)
{
    int all = 0;

    MPI_Allreduce(&fault, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/** A number of (-1, 1) by chance, of 24 bits, so that sums of them are rounded: cheaper by far than
 *  those of framework/base/rng.h, for tests that draw millions of them. */
static inline float mpi_number(int rank, int64_t step, int64_t i)
{
    uint64_t x =
        ((uint64_t)i + ((uint64_t)rank << 40) + ((uint64_t)step << 48)) * 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return (float)((int64_t)(x >> 39) - (1 << 24)) * 0x1p-24f;
}

/** Machines to pretend on these ranks; how many. */
static inline int mpi_machines(char spec[8][32])
{
    static const char *const map[9][5] = {
        [3] = { "map:001", "map:010" },
        [4] = { "map:0010", "map:0101", "map:0122", "map:abba/0101", "torus:2x2" },
        [5] = { "map:00102", "map:aabab/01234" },
        [6] = { "map:012001", "map:000011", "map:abcabb/012301" },
        [8] = { "map:00101110", "map:aabbbabb/00123011", "map:xxxxxyyx/ababcbca/01012010",
                "torus:4x2" },
    };
    int n_spec = 0, n = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &n);
    snprintf(spec[n_spec++], sizeof(spec[0]), "auto");
    if (n > 1) snprintf(spec[n_spec++], sizeof(spec[0]), "%dx1", n);
    if ((n > 2) && (n % 2 == 0)) snprintf(spec[n_spec++], sizeof(spec[0]), "2x%d", n / 2);
    if ((n > 4) && (n % 2 == 0)) snprintf(spec[n_spec++], sizeof(spec[0]), "%dx2", n / 2);
    for (int i = 0; (n < 9) && (i < 5) && (map[n][i] != NULL); ++i)
        snprintf(spec[n_spec++], sizeof(spec[0]), "%s", map[n][i]);
    return n_spec;
}

static inline int mpi_count_machines(void)
{
    char spec[8][32];

    return mpi_machines(spec);
}

/** Calls f on each of them and adds up its faults. Collective. */
static inline int mpi_on_machines(int (*f)(ct_comm *c))
{
    char spec[8][32];
    int n_spec = mpi_machines(spec), fault = 0;

    for (int i = 0; i < n_spec; ++i) {
        ct_comm *c = NULL;
        int wrong = 0;

        if (ct_comm_create(MPI_COMM_WORLD, spec[i], &c) != CT_OK) return fault + 1;
        wrong = f(c);
        if (wrong > 0) fprintf(stderr, "rank %d on %s: %d faults\n", c->rank, spec[i], wrong);
        fault += wrong;
        ct_comm_destroy(c);
    }
    return fault;
}

/** Ways to cut a job into parts that work at the same time. */
enum { MPI_CUTS = 4 };

/** The part of this rank, and its place there: odd and even ranks; halves; rank 1 alone; and all,
 *  the other way round. */
static inline int mpi_part(int cut, int rank, int size, int *key_p)
{
    *key_p = (cut == 3) ? -rank : rank;
    return (cut == 0) ? rank % 2 : (cut == 1) ? (rank >= size / 2) : (cut == 2) ? (rank == 1) : 0;
}

/** Calls f on the parts of each cut of these ranks, on the machine as it is and on one of pretended
 *  nodes. All ranks call f equally often. Collective. */
static inline int mpi_on_parts(int (*f)(ct_comm *c))
{
    char spec[8][32];
    int n_spec = mpi_machines(spec), fault = 0;

    for (int i = 0; i < 2 * MPI_CUTS; ++i) {
        ct_comm *c = NULL, *part = NULL;
        int key = 0, colour, wrong;
        const char *machine = spec[(i % 2 == 0) ? 0 : n_spec - 1];

        if (ct_comm_create(MPI_COMM_WORLD, machine, &c) != CT_OK) return fault + 1;
        colour = mpi_part(i / 2, c->rank, c->size, &key);
        if (ct_comm_split(c, colour, key, &part) != CT_OK) return fault + 1;
        wrong = f(part);
        if (wrong > 0)
            fprintf(stderr, "rank %d on %s, cut %d: %d faults\n", c->rank, machine, i / 2, wrong);
        fault += wrong;
        ct_comm_destroy(part);
        ct_comm_destroy(c);
    }
    return fault;
}

/** 1 where cond is false, saying so. */
#define MPI_FAULT_UNLESS(_cond)                                                                    \
    ((_cond) ? 0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #_cond), 1))

/** As the programs do: ranks share the cores. Teams that spin for each other on cores that other
 * ranks have cost ten times the work. */
static inline void mpi_share_cores(int size)
{
    int n = (int)(sysconf(_SC_NPROCESSORS_ONLN) / size);

    if (n < omp_get_max_threads()) omp_set_num_threads((n > 1) ? n : 1);
}

/** main of an MPI test: seconds until the alarm ends a hang; longer with more ranks than cores,
 * where an MPI that waits without giving its core away takes a time slice for each message. */
static inline int mpi_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
                           unsigned seconds)
{
    int rank = 0, size = 0, failed = 0, provided = 0;

    alarm(seconds);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    alarm(seconds * (1 + (unsigned)(size / sysconf(_SC_NPROCESSORS_ONLN))));
    mpi_share_cores(size);
    ct_log_init(rank, size, "test");
    failed = _cmocka_run_group_tests("mpi", tests, n, NULL, NULL);
    MPI_Finalize();
    return failed;
}

#define MPI_MAIN(_tests, _seconds)                                                                 \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return mpi_main(argc, argv, _tests, sizeof(_tests) / sizeof((_tests)[0]), _seconds);       \
    }

#endif
