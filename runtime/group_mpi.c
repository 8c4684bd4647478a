#include "runtime/job.h"

#include "comm/collective/async_sum.h"
#include "comm/collective/blocking.h"

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

static ct_status mpi_sum_begin(void *ctx, float *v, int64_t n, void **ticket_p)
{
    const ct_group_mpi *g = ctx;
    ct_async_sum *s = NULL;

    CT_TRY(ct_async_sum_begin_f32(g->comm, v, n, g->reproducible, &s));
    *ticket_p = s;
    return CT_OK;
}

static ct_status mpi_sum_begin_f64(void *ctx, double *v, int n, void **ticket_p)
{
    ct_async_sum *s = NULL;

    CT_TRY(ct_async_sum_begin(((ct_group_mpi *)ctx)->comm, v, n, &s));
    *ticket_p = s;
    return CT_OK;
}

static ct_status mpi_sum_wait(void *ctx, void *ticket)
{
    (void)ctx;
    return ct_async_sum_end(ticket);
}

static ct_status mpi_sum_poll(void *ctx)
{
    return ct_async_sum_poll(((ct_group_mpi *)ctx)->comm);
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

static ct_status mpi_send(void *ctx, void *data, size_t bytes, int from, int to)
{
    return ct_comm_send(((ct_group_mpi *)ctx)->comm, data, bytes, from, to);
}

static ct_status mpi_exchange(void *ctx, const float *const *out, const int64_t *out_n,
                              float *const *in, const int64_t *in_n)
{
    return ct_comm_exchange(((ct_group_mpi *)ctx)->comm, out, out_n, in, in_n);
}

static const ct_group_ops ops = { mpi_sum,           mpi_sum_there, mpi_max,      mpi_sum_begin,
                                  mpi_sum_begin_f64, mpi_sum_wait,  mpi_sum_poll, mpi_broadcast,
                                  mpi_gather,        mpi_barrier,   mpi_send,     mpi_exchange };

void ct_group_mpi_open(ct_group_mpi *g, ct_group *out)
{
    *out = (ct_group){
        .ctx = g, .rank = g->comm->rank, .size = g->comm->size, .ops = &ops, .topo = g->comm->topo
    };
}

ct_status ct_group_mpi_take(ct_group_mpi *g, const ct_device *dev, const ct_device_sum_ops *lib,
                            ct_group *out)
{
    char id[CT_DEVICE_SUM_ID] = { 0 };
    ct_status status = (out->rank == 0) ? lib->make_id(id) : CT_OK;

    CT_TRY(ct_group_agree(out, status));
    CT_TRY(ct_group_broadcast(out, id, sizeof(id)));
    g->lib = lib;
    CT_TRY(lib->open(dev, g->comm, id, out->rank, out->size, &g->library));
    out->sums_there = (lib->sum != NULL);
    return CT_OK;
}

void ct_group_mpi_close(ct_group_mpi *g)
{
    if (g->lib != NULL) g->lib->close(g->library);
    g->lib = NULL;
}
