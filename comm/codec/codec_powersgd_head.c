/* What powersgd's two sides share: shapes, the sums of both factors, what they cost, looks at it.
 */
#include <string.h>

#include "comm/codec/codec_cost.h"
#include "comm/codec/codec_powersgd.h"
#include "framework/base/rng.h"

#define Q_NAME "powersgd_q" /* the state */

enum { MOST_RANK = 256 };

/* ---- shapes */

ct_low_rank ct_powersgd_shape(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = { .rows = rows, .cols = n / rows, .r = c->rank };

    if (s.r > s.rows) s.r = (int)s.rows;
    if (s.r > s.cols) s.r = (int)s.cols;
    return s;
}

bool ct_powersgd_takes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s;

    if ((rows < 1) || (n % rows != 0)) return false;
    s = ct_powersgd_shape(c, n, rows);
    return s.r * (s.rows + s.cols) < n;
}

ct_status ct_powersgd_check(const ct_codec_config *c)
{
    if ((c->rank < 1) || (c->rank > MOST_RANK))
        return CT_FAIL(CT_ERR_CONFIG, "compression powersgd: rank %d, but 1 to %d is needed",
                       c->rank, MOST_RANK);
    return CT_OK;
}

/* ---- an object */

/* Of columns that are drawn; -1: at the start. */
static uint64_t key_of(const char *param, int64_t iteration)
{
    return ct_rng_key(ct_rng_hash(param), ct_rng_hash(Q_NAME), (uint64_t)iteration);
}

ct_status ct_powersgd_open(ct_powersgd_head *h, const ct_codec_setup *setup,
                           ct_error_feedback *keep)
{
    *h = (ct_powersgd_head){ .setup = *setup, .keep = keep };
    atomic_store(&h->stage, CT_POWERSGD_Q);
    atomic_store(&h->alone.rank, -1);
    if (!ct_powersgd_takes(setup->config, setup->n, setup->rows))
        return CT_FAIL(CT_ERR_ARG, "powersgd of %s, %lld elements in %lld rows", setup->key,
                       (long long)setup->n, (long long)setup->rows);
    h->shape = ct_powersgd_shape(setup->config, setup->n, setup->rows);
    h->of_p = h->shape.r * h->shape.rows;
    h->of_q = h->shape.r * h->shape.cols;
    return CT_OK;
}

/* Both begin when the one before is done, or in `start`: never MPI's own, which would want one
 * order. */
static ct_status prepare_sum(const ct_codec_setup *s, float *buf, int64_t count,
                             ct_persistent_coll *ways)
{
    const ct_coll_ops *ops = NULL;

    *ways = (ct_persistent_coll){
        .comm = s->comm, .buf = buf, .count = count, .dtype = CT_F32, .tag = s->tag
    };
    CT_TRY(ct_persistent_coll_choose_own(s->comm, count, CT_F32, s->allreduce, "powersgd", &ops));
    return ct_persistent_coll_prepare(ways, ops->name, s->deterministic);
}

ct_status ct_powersgd_connect(ct_powersgd_head *h, float *p, float *q)
{
    ct_low_rank_warm(&h->shape, key_of(h->setup.key, -1), h->warm);
    if (h->setup.comm->size == 1) return CT_OK;
    CT_TRY(prepare_sum(&h->setup, p, h->of_p, &h->ways_p));
    return prepare_sum(&h->setup, q, h->of_q, &h->ways_q);
}

void ct_powersgd_close(ct_powersgd_head *h)
{
    ct_persistent_coll_release(&h->ways_q);
    ct_persistent_coll_release(&h->ways_p);
}

void ct_powersgd_warm(ct_powersgd_head *h, const float *q)
{
    memcpy(h->warm, q, sizeof(float) * (size_t)h->of_q);
    ct_low_rank_warm(&h->shape, key_of(h->setup.key, h->iteration), h->warm);
}

/* ---- looks: all that is asked of a head */

static ct_persistent_coll *ways_now(ct_powersgd_head *h)
{
    return (atomic_load(&h->stage) <= CT_POWERSGD_P) ? &h->ways_p : &h->ways_q;
}

int ct_powersgd_pending(void *obj, MPI_Request **out, int max)
{
    ct_powersgd_head *h = obj;
    int stage = atomic_load(&h->stage);
    bool travels = (stage == CT_POWERSGD_P) || (stage == CT_POWERSGD_Q);

    return ((h->setup.comm->size > 1) && travels)
               ? ct_persistent_coll_pending(ways_now(h), out, max)
               : 0;
}

ct_coll_where *ct_powersgd_where(void *obj)
{
    ct_powersgd_head *h = obj;

    return (h->setup.comm->size > 1) ? ct_persistent_coll_where(ways_now(h)) : &h->alone;
}

/* Of the larger one. */
const char *ct_powersgd_exchange(const void *obj)
{
    const ct_powersgd_head *h = obj;
    const ct_persistent_coll *ways = (h->shape.rows > h->shape.cols) ? &h->ways_p : &h->ways_q;

    return (h->setup.comm->size > 1) ? atomic_load(&ways->now)->ops->name : "one rank";
}

bool ct_powersgd_state(void *obj, int i, ct_codec_state *out)
{
    ct_powersgd_head *h = obj;

    if (i != ct_error_feedback_states(h->keep)) return ct_error_feedback_state(h->keep, i, out);
    *out =
        (ct_codec_state){ .name = Q_NAME, .data = h->warm, .count = h->of_q, .replicated = true };
    return true;
}

/* A snapshot of another codec has no Q. */
ct_status ct_powersgd_restored(void *obj)
{
    ct_powersgd_head *h = obj;

    ct_low_rank_warm(&h->shape, key_of(h->setup.key, -1), h->warm);
    return ct_error_feedback_restored(h->keep);
}

void ct_powersgd_stats(const void *obj, ct_codec_stats *out)
{
    const ct_powersgd_head *h = obj;

    *out = h->stats;
    out->bytes_sent =
        ct_persistent_coll_bytes_sent(&h->ways_p) + ct_persistent_coll_bytes_sent(&h->ways_q);
}

/* ---- without an object */

int64_t ct_powersgd_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);

    return s.r * (s.rows + s.cols) * (int64_t)sizeof(float);
}

/* Four products a column: with the update, for Q, for what goes out of V, and for the sum. */
void ct_powersgd_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);
    double elements = (double)n, update_s = m->speed.update_s * elements;
    double products_s = (double)s.r * m->speed.column_s * elements;
    int64_t of_p = s.r * s.rows * (int64_t)sizeof(float);
    int64_t of_q = s.r * s.cols * (int64_t)sizeof(float);

    if (c->momentum_correction) update_s -= ct_codec_stream_s(m, 8 * elements);
    *out = (ct_codec_seconds){ .encode_s = ((update_s > 0) ? update_s : 0) + products_s / 4,
                               .decode_s = m->speed.factor_s * elements + products_s * 3 / 4,
                               .wire_s = ct_codec_chained_sum_s(m, CT_F32, of_p) +
                                         ct_codec_chained_sum_s(m, CT_F32, of_q),
                               .bytes = ct_codec_sum_bytes(m, (double)(of_p + of_q)) };
}
