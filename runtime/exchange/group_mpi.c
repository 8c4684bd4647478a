#include "runtime/exchange/transports.h"

#include <stdlib.h>

#include "comm/collective/blocking.h"
#include "comm/collective/repro.h"

static ct_status mpi_sum(void *ctx, double *v, int n)
{
    return ct_comm_sum(((ct_group_mpi *)ctx)->comm, v, n);
}

static ct_status mpi_sum_there(void *ctx, ct_stream st, double *v, int n)
{
    const ct_group_mpi *g = ctx;

    return g->lib->sum(g->library, st, v, n);
}

static ct_status mpi_max(void *ctx, int64_t *v, int n)
{
    return ct_comm_max(((ct_group_mpi *)ctx)->comm, v, n);
}

/* A sum of floats under way. */
typedef struct sum {
    const ct_coll_ops *ops; /* NULL: a reproducible one, which goes all at once */
    ct_coll_req request;
} sum;

/* By name: sums in one order, the same bits on every rank, for which MPI gives no promise. */
static ct_status mpi_sum_begin(void *ctx, float *v, int64_t n, void **ticket_p)
{
    ct_group_mpi *g = ctx;
    sum *s = calloc(1, sizeof(*s));
    ct_status status = CT_OK;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sum over ranks");
    s->request = (ct_coll_req){ .comm = g->comm, .buf = v, .count = n, .dtype = CT_F32 };
    if (!g->reproducible) {
        s->request.tag = ct_comm_take_tags(g->comm, CT_COLL_TAGS);
        status = ct_coll_choose(g->comm, n, CT_F32, "ring", &s->ops);
        if (status == CT_OK) status = ct_coll_begin(s->ops, &s->request);
    }
    if (status != CT_OK) {
        free(s);
        return status;
    }
    *ticket_p = s;
    return CT_OK;
}

static ct_status mpi_sum_wait(void *ctx, void *ticket)
{
    ct_group_mpi *g = ctx;
    sum *s = ticket;
    ct_status status = (s->ops != NULL)
                           ? ct_coll_end(s->ops, &s->request)
                           : ct_repro_run(g->comm, "ring", s->request.buf, s->request.count);

    free(s);
    return status;
}

static ct_status mpi_broadcast(void *ctx, void *data, size_t bytes)
{
    return ct_comm_broadcast(((ct_group_mpi *)ctx)->comm, data, bytes);
}

static ct_status mpi_gather(void *ctx, const int64_t *v, int n, int64_t *all)
{
    return ct_comm_gather(((ct_group_mpi *)ctx)->comm, v, n, all);
}

static ct_status mpi_barrier(void *ctx)
{
    return ct_comm_barrier(((ct_group_mpi *)ctx)->comm);
}

static const ct_group_ops ops = { mpi_sum,      mpi_sum_there, mpi_max,    mpi_sum_begin,
                                  mpi_sum_wait, mpi_broadcast, mpi_gather, mpi_barrier };

void ct_group_mpi_open(ct_group_mpi *g, ct_group *out)
{
    *out = (ct_group){ .ctx = g, .rank = g->comm->rank, .size = g->comm->size, .ops = &ops };
}

ct_status ct_group_mpi_take(ct_group_mpi *g, const ct_device *dev, const ct_device_sum_ops *lib,
                            ct_group *out)
{
    char id[CT_DEVICE_SUM_ID] = { 0 };
    ct_status status = (out->rank == 0) ? lib->make_id(id) : CT_OK;

    CT_TRY(ct_group_agree(out, status));
    CT_TRY(ct_group_broadcast(out, id, sizeof(id)));
    g->lib = lib;
    CT_TRY(lib->open(dev, id, out->rank, out->size, &g->library));
    out->sums_there = (lib->sum != NULL);
    return CT_OK;
}

void ct_group_mpi_close(ct_group_mpi *g)
{
    if (g->lib != NULL) g->lib->close(g->library);
    g->lib = NULL;
}
