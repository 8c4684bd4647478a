/* The small blocking collectives, by MPI calls that do not wait. */
#include "comm/collective/coll.h"
#include "comm/collective/blocking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"

enum {
    MPI_CHUNK = 1 << 30, /* bytes of one MPI call, well below 2^31        */
    LARGE = 1 << 20,     /* bytes from which a broadcast is one of our own */
    LOOKS = 32           /* idle rounds between two looks at the clock     */
};

/* Who waits for long, as for a snapshot that another rank writes, leaves the core to others. Each
 * message is then seen later by a twentieth of the wait, and by little more than 0.2 ms, at most.
 */
#define LONG_S        2e-3
#define LONGEST_NAP_S 2e-4

typedef struct wait {
    double start;
    bool is_long;
} wait;

static void doze(wait *w, int idle)
{
    double waited;

    if (idle == 1) w->start = ct_clock_s();
    if (!w->is_long && (idle % LOOKS != 0)) return;
    waited = ct_clock_s() - w->start;
    w->is_long = (waited > LONG_S);
    if (w->is_long) ct_nap(fmin(waited / 20, LONGEST_NAP_S));
}

/* Not the blocking calls of MPI: those would leave standing what else is under way. Of small
 * messages, and while nothing else is under way, a long wait sleeps. */
static ct_status complete(ct_comm *c, MPI_Request *request, bool is_small)
{
    wait w = { 0 };
    int idle = 0;

    for (;;) {
        MPI_Request *pending[CT_COMM_MAX_PENDING] = { request };
        int rc = MPI_SUCCESS, done = 0, n = 1;
        ct_status status = CT_OK;

        ct_comm_lock(c);
        rc = ct_comm_test(request, &done);
        if ((rc == MPI_SUCCESS) && !done) {
            status = ct_comm_move(c);
            n += ct_comm_pending(c, pending + 1, CT_COMM_MAX_PENDING - 1);
        }
        ct_comm_unlock(c);
        CT_TRY_MPI(rc);
        if (done) return CT_OK;
        CT_TRY(status);
        idle += 1;
        CT_TRY(ct_comm_wait_any(c, pending, n, &idle));
        if (is_small && (n == 1)) doze(&w, idle);
    }
}

ct_status ct_comm_complete(ct_comm *c, MPI_Request *request)
{
    return complete(c, request, false);
}

ct_status ct_comm_gather_begin(ct_comm *c, const double *v, int n, double *all,
                               MPI_Request *request)
{
    CT_TRY_MPI(MPI_Iallgather(v, n, MPI_DOUBLE, all, n, MPI_DOUBLE, c->mpi, request));
    return CT_OK;
}

ct_status ct_comm_sum(ct_comm *c, double *v, int n)
{
    MPI_Request request = MPI_REQUEST_NULL;
    double *all = NULL;
    ct_status status = CT_OK;
    int rc = MPI_SUCCESS;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    if (ct_comm_sums_by_tree(c, n)) return ct_comm_sum_tree(c, v, n);
    all = malloc(sizeof(*all) * (size_t)n * (size_t)c->size);
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d x %d numbers", c->size, n);
    ct_comm_lock(c);
    rc = MPI_Iallgather(v, n, MPI_DOUBLE, all, n, MPI_DOUBLE, c->mpi, &request);
    ct_comm_unlock(c);
    status = (rc == MPI_SUCCESS) ? complete(c, &request, true) : CT_OK;
    if ((rc == MPI_SUCCESS) && (status == CT_OK)) {
        for (int i = 0; i < n; ++i) {
            double sum = all[i];

            for (int r = 1; r < c->size; ++r) sum += all[(size_t)r * (size_t)n + (size_t)i];
            v[i] = sum;
        }
    }
    free(all);
    CT_TRY_MPI(rc);
    return status;
}

ct_status ct_comm_max(ct_comm *c, int64_t *v, int n)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    ct_comm_lock(c);
    rc = MPI_Iallreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, MPI_MAX, c->mpi, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return complete(c, &request, true);
}

ct_status ct_comm_broadcast(ct_comm *c, void *data, size_t bytes)
{
    char *at = data;

    if (bytes >= LARGE) /* weights */
        return ct_coll_run(&ct_coll_broadcast, c, data, (int64_t)bytes, CT_U8);
    while ((bytes > 0) && (c->size > 1)) {
        size_t n = (bytes < MPI_CHUNK) ? bytes : MPI_CHUNK;
        MPI_Request request = MPI_REQUEST_NULL;
        int rc = MPI_SUCCESS;

        ct_comm_lock(c);
        rc = MPI_Ibcast(at, (int)n, MPI_BYTE, 0, c->mpi, &request);
        ct_comm_unlock(c);
        CT_TRY_MPI(rc);
        CT_TRY(complete(c, &request, true));
        at += n;
        bytes -= n;
    }
    return CT_OK;
}

ct_status ct_comm_gather(ct_comm *c, const int64_t *v, int n, int64_t *all)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    ct_comm_lock(c);
    rc = MPI_Iallgather(v, n, MPI_INT64_T, all, n, MPI_INT64_T, c->mpi, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return complete(c, &request, true);
}

ct_status ct_comm_barrier(ct_comm *c)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    if (c->size == 1) return CT_OK;
    ct_comm_lock(c);
    rc = MPI_Ibarrier(c->mpi, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return complete(c, &request, true);
}
