#include "comm/codec/codec_cost.h"

static double comm_allreduce_s(void *ctx, ct_dtype dtype, int64_t bytes, bool own)
{
    const ct_codec_comm_costs *m = ctx;
    const ct_coll_ops *ops = NULL;
    int64_t count = bytes / (int64_t)ct_dtype_size(dtype);

    ct_status status = own ? ct_coll_choose_own(m->comm, count, dtype, m->allreduce, &ops)
                           : ct_coll_choose(m->comm, count, dtype, m->allreduce, &ops);

    return (status == CT_OK) ? ops->cost_s(m->comm, bytes, dtype) : 0;
}

ct_status ct_codec_costs_of(ct_comm *c, const char *allreduce, bool deterministic,
                            ct_codec_comm_costs *out)
{
    *out = (ct_codec_comm_costs){ .costs = { .n_rank = c->size,
                                             .speed = ct_machine_codec_speed(&c->topo->machine),
                                             .deterministic = deterministic,
                                             .allreduce_s = comm_allreduce_s,
                                             .ctx = out,
                                             .sum_factor = 1,
                                             .wire_factor = 1 },
                                  .comm = c,
                                  .allreduce = allreduce };
    return ct_sparse_allreduce_model_of(c, &out->costs.exch);
}

double ct_codec_bus_s(const ct_codec_costs *m, double down, double up)
{
    return m->bus.there ? m->bus.down_s * down + m->bus.up_s * up : 0;
}

double ct_codec_stream_s(const ct_codec_costs *m, double bytes)
{
    return (m->speed.memory > 0) ? bytes / m->speed.memory : 0;
}

static double sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes, bool own)
{
    return (m->n_rank > 1) ? m->sum_factor * m->allreduce_s(m->ctx, dtype, bytes, own) : 0;
}

/* On a device sums begin when a gradient has come down, in any order. */
double ct_codec_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes)
{
    return sum_s(m, dtype, bytes, m->deterministic || m->bus.there);
}

double ct_codec_chained_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes)
{
    return sum_s(m, dtype, bytes, true);
}

double ct_codec_sum_bytes(const ct_codec_costs *m, double bytes)
{
    return 2 * bytes * (m->n_rank - 1) / m->n_rank;
}

double ct_codec_predict_s(ct_comm *c, const char *allreduce, bool deterministic,
                          const ct_codec_ops *ops, const ct_codec_config *config, int64_t n,
                          int64_t rows)
{
    ct_codec_comm_costs m;
    ct_codec_seconds s;

    if ((c->size == 1) || (ops->seconds == NULL)) return 0;
    if (ct_codec_costs_of(c, allreduce, deterministic, &m) != CT_OK) return 0;
    ops->seconds(&m.costs, config, n, rows, &s);
    return s.encode_s + s.wire_s + s.decode_s;
}
