/* blocking_wait.c for a simulation: MPI's blocking calls, since SMPI makes of a non-blocking
 * collective a message between every two ranks. Gradients under way stand still meanwhile. */
#include "comm/collective/blocking.h"

#include <stdlib.h>

ct_status ct_comm_complete(ct_comm *c, MPI_Request *request)
{
    (void)c;
    CT_TRY_MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
    return CT_OK;
}

ct_status ct_comm_gather_begin(ct_comm *c, const double *v, int n, double *all,
                               MPI_Request *request)
{
    (void)c, (void)v, (void)n, (void)all, (void)request;
    return CT_UNSUPPORTED;
}

ct_status ct_comm_sum(ct_comm *c, double *v, int n)
{
    double *all = NULL;
    int rc = MPI_SUCCESS;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    if (ct_comm_sums_by_tree(c, n)) return ct_comm_sum_tree(c, v, n);
    all = malloc(sizeof(*all) * (size_t)n * (size_t)c->size);
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d x %d numbers", c->size, n);
    rc = MPI_Allgather(v, n, MPI_DOUBLE, all, n, MPI_DOUBLE, c->mpi);
    for (int i = 0; (rc == MPI_SUCCESS) && (i < n); ++i) {
        v[i] = all[i];
        for (int r = 1; r < c->size; ++r) v[i] += all[(size_t)r * (size_t)n + (size_t)i];
    }
    free(all);
    CT_TRY_MPI(rc);
    return CT_OK;
}

ct_status ct_comm_max(ct_comm *c, int64_t *v, int n)
{
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, MPI_MAX, c->mpi));
    return CT_OK;
}

ct_status ct_comm_broadcast(ct_comm *c, void *data, size_t bytes)
{
    const size_t chunk = (size_t)1 << 30; /* of one call, well below 2^31 */

    for (size_t at = 0; at < bytes; at += chunk) {
        size_t n = (bytes - at < chunk) ? bytes - at : chunk;

        CT_TRY_MPI(MPI_Bcast((char *)data + at, (int)n, MPI_BYTE, 0, c->mpi));
    }
    return CT_OK;
}

ct_status ct_comm_gather(ct_comm *c, const int64_t *v, int n, int64_t *all)
{
    CT_TRY_MPI(MPI_Allgather(v, n, MPI_INT64_T, all, n, MPI_INT64_T, c->mpi));
    return CT_OK;
}

ct_status ct_comm_barrier(ct_comm *c)
{
    CT_TRY_MPI(MPI_Barrier(c->mpi));
    return CT_OK;
}
