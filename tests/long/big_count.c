/* 2^31 + 3 elements of bf16 summed over all ranks, by every algorithm that is named: counts that an
 * int does not hold. 4.3 GB a rank, and as much again where an algorithm stages.
 * Usage: big_count [ALGORITHM…] */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "framework/base/bf16.h"
#include "comm/collective/coll.h"
#include "framework/base/clock.h"

static const int64_t COUNT = ((int64_t)1 << 31) + 3;

/* Small whole numbers, whose sums bf16 holds; another in each of 251 neighbours. */
static int value(int rank, int64_t i)
{
    return (int)((i + 7 * rank) % 251 % 16) - 8;
}

static int check(const ct_comm *c, const uint16_t *v)
{
    int sum[251], wrong = 0;

    for (int i = 0; i < 251; ++i) {
        sum[i] = 0;
        for (int r = 0; r < c->size; ++r) sum[i] += value(r, i);
    }
    for (int64_t i = 0; i < COUNT; ++i) {
        if (ct_bf16_to_f32(v[i]) == (float)sum[i % 251]) continue;
        if (++wrong <= 3)
            fprintf(stderr, "rank %d: element %lld is %g, not %d\n", c->rank, (long long)i,
                    (double)ct_bf16_to_f32(v[i]), sum[i % 251]);
    }
    return wrong > 0;
}

static int one(ct_comm *c, const char *name)
{
    const ct_coll_ops *ops = NULL;
    const ct_arena_ops *arena = ct_arena_plain();
    void *block = NULL;
    uint16_t *v = NULL;
    double start = 0;
    int fault = 0;

    if (ct_coll_choose(c, COUNT, CT_BF16, name, &ops) != CT_OK) return 1;
    if (ops->shares_memory) arena = ct_comm_arena(c);
    if (arena->acquire(arena->ctx, sizeof(*v) * (size_t)COUNT, "a test", &block) != CT_OK) return 1;
    v = block;
    for (int64_t i = 0; i < COUNT; ++i) v[i] = ct_bf16_from_f32((float)value(c->rank, i));
    MPI_Barrier(MPI_COMM_WORLD);
    start = ct_clock_s();
    fault = (ct_coll_run(ops, c, v, COUNT, CT_BF16) != CT_OK);
    if (c->rank == 0) printf("%s: %.2f s\n", ops->name, ct_clock_s() - start);
    fault += check(c, v);
    arena->release(arena->ctx, block);
    return fault;
}

int main(int argc, char **argv)
{
    ct_comm *c = NULL;
    int fault = 0;

    MPI_Init(&argc, &argv);
    if (ct_comm_create(MPI_COMM_WORLD, "auto", &c) != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 1; i < argc; ++i) fault += mpi_verdict(one(c, argv[i]));
    if ((c->rank == 0) && (fault == 0)) printf("ok big_count\n");
    ct_comm_destroy(c);
    MPI_Finalize();
    return fault != 0;
}
