#include "comm/collective/clock_sync.h"

#include "comm/collective/blocking.h"
#include "framework/base/clock.h"

enum { ROUNDS = 20 };

static ct_status answer(ct_comm *c, int rank, int tag)
{
    for (int i = 0; i < ROUNDS; ++i) {
        double now = 0;

        CT_TRY_MPI(MPI_Recv(&now, 1, MPI_DOUBLE, rank, tag, c->world, MPI_STATUS_IGNORE));
        now = ct_clock_s();
        CT_TRY_MPI(MPI_Send(&now, 1, MPI_DOUBLE, rank, tag, c->world));
    }
    return CT_OK;
}

static ct_status ask(ct_comm *c, int tag, ct_clock_offset *out)
{
    double shortest = -1;

    for (int i = 0; i < ROUNDS; ++i) {
        double there = 0, left = ct_clock_s(), back = 0;

        CT_TRY_MPI(MPI_Send(&left, 1, MPI_DOUBLE, 0, tag, c->world));
        CT_TRY_MPI(MPI_Recv(&there, 1, MPI_DOUBLE, 0, tag, c->world, MPI_STATUS_IGNORE));
        back = ct_clock_s();
        if ((shortest >= 0) && (back - left >= shortest)) continue;
        shortest = back - left;
        *out = (ct_clock_offset){ .at_s = back,
                                  .offset_s = left + 0.5 * shortest - there,
                                  .error_s = 0.5 * shortest };
    }
    return CT_OK;
}

ct_status ct_clock_sync(ct_comm *c, ct_clock_offset *out)
{
    int tag = ct_comm_take_tags(c, 1);

    *out = (ct_clock_offset){ .at_s = ct_clock_s() };
    CT_TRY(ct_comm_barrier(c)); /* those who come late keep rank 0 from nobody */
    for (int r = 1; r < c->size; ++r) {
        if (c->rank == 0) {
            CT_TRY(answer(c, r, tag));
        } else if (c->rank == r) {
            CT_TRY(ask(c, tag, out));
        }
    }
    return CT_OK;
}
