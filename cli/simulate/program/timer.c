/* Durations in place of what computes. */
#include <simgrid/actor.h>
#include <stdlib.h>

#include "cli/simulate/program/sim.h"
#include "cli/simulate/sim_setup.h"
#include "comm/collective/async_sum.h"

enum { BLOCK = 16 << 20, TAG = 1 };

struct ct_sim_timer {
    ct_comm *comm;
    MPI_Comm self;
    char *block;
};

ct_status ct_sim_timer_create(ct_comm *comm, ct_sim_timer **timer_p)
{
    ct_sim_timer *t = calloc(1, sizeof(*t));

    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a timer");
    t->comm = comm;
    t->self = MPI_COMM_SELF;
    t->block = ct_mem_acquire(2 * (size_t)BLOCK);
    if (t->block == NULL) {
        free(t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a timer");
    }
    *timer_p = t;
    return CT_OK;
}

void ct_sim_timer_destroy(ct_sim_timer *timer)
{
    if (timer == NULL) return;
    ct_mem_release(timer->block);
    free(timer);
}

/* Of gradients, and of layers' sums. */
static int list_pending(const ct_sim_timer *t, MPI_Request **out, int max)
{
    int n = ct_async_sum_pending(t->comm, out, max);

    return n + ct_comm_pending(t->comm, out + n, max - n);
}

/* Until the message of n bytes is there, or one of the others: *over_p. */
static ct_status wait_first(ct_sim_timer *t, MPI_Request *own, bool *over_p, bool *moved_p)
{
    MPI_Request *other[CT_COMM_MAX_PENDING], list[CT_COMM_MAX_PENDING + 1];
    int n = list_pending(t, other, CT_COMM_MAX_PENDING), done = MPI_UNDEFINED;

    for (int i = 0; i < n; ++i) list[i] = *other[i];
    list[n] = *own;
    CT_TRY_MPI(MPI_Waitany(n + 1, list, &done, MPI_STATUS_IGNORE));
    for (int i = 0; i < n; ++i) *other[i] = list[i];
    *own = list[n];
    *over_p = (done == n);
    *moved_p = (done != n);
    return CT_OK;
}

static bool any_pending(const ct_sim_timer *t)
{
    MPI_Request *one[1];

    return list_pending(t, one, 1) > 0;
}

static ct_status pass(ct_sim_timer *t, int bytes, ct_status (*moved)(void *ctx), void *ctx)
{
    MPI_Request request[2];
    bool over = false, any = false;

    CT_TRY_MPI(MPI_Irecv(t->block, bytes, MPI_BYTE, 0, TAG, t->self, &request[0]));
    CT_TRY_MPI(MPI_Isend(t->block + BLOCK, bytes, MPI_BYTE, 0, TAG, t->self, &request[1]));
    while (!over) {
        CT_TRY(wait_first(t, &request[0], &over, &any));
        if (any && (moved != NULL)) CT_TRY(moved(ctx));
    }
    CT_TRY_MPI(MPI_Wait(&request[1], MPI_STATUS_IGNORE));
    return CT_OK;
}

ct_status ct_sim_timer_pass(ct_sim_timer *timer, double seconds, ct_status (*moved)(void *ctx),
                            void *ctx)
{
    while (seconds > 0) {
        double bytes = seconds * CT_SIM_TIMER_BANDWIDTH;
        int n = (bytes < BLOCK) ? (int)bytes : BLOCK;

        if ((n == 0) || !any_pending(timer)) {
            sg_actor_sleep_for(seconds);
            return CT_OK;
        }
        CT_TRY(pass(timer, n, moved, ctx));
        seconds -= n / CT_SIM_TIMER_BANDWIDTH;
    }
    return CT_OK;
}
