#include "comm/collective/blocking.h"

#include <stdlib.h>

#include "comm/collective/coll.h"

enum {
    GATHERED =
        64 << 10, /* bytes of all ranks together, up to which gathering is the fewest steps */
    TAG = CT_COLL_TAGS - 1 /* of the blocking collectives' own, of which one runs at a time */
};

bool ct_comm_sums_by_tree(const ct_comm *c, int n)
{
    return (int64_t)n * c->size * (int64_t)sizeof(double) > GATHERED;
}

static ct_status send_to(ct_comm *c, const double *v, int n, int rank)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    ct_comm_lock(c);
    rc = MPI_Isend(v, n, MPI_DOUBLE, rank, TAG, c->world, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return ct_comm_complete(c, &request);
}

static ct_status add_from(ct_comm *c, double *v, int n, int rank, double *room)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    ct_comm_lock(c);
    rc = MPI_Irecv(room, n, MPI_DOUBLE, rank, TAG, c->world, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    CT_TRY(ct_comm_complete(c, &request));
    for (int i = 0; i < n; ++i) v[i] += room[i];
    return CT_OK;
}

/* Of each pair of neighbours the right one hands its sum to the left one and is done; those that
 * remain pair up again. */
static ct_status sum_up(ct_comm *c, double *v, int n, double *room)
{
    for (int64_t step = 1; step < c->size; step *= 2) {
        if ((c->rank & step) != 0) return send_to(c, v, n, c->rank - (int)step);
        if (c->rank + step < c->size) CT_TRY(add_from(c, v, n, c->rank + (int)step, room));
    }
    return CT_OK;
}

ct_status ct_comm_sum_tree(ct_comm *c, double *v, int n)
{
    double *room = malloc(sizeof(*room) * (size_t)n);
    ct_status status = CT_OK;

    if (room == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d numbers", n);
    status = sum_up(c, v, n, room);
    free(room);
    CT_TRY(status);
    return ct_comm_broadcast(c, v, (size_t)n * sizeof(*v));
}
