#include "runtime/exchange/exchange_switch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "framework/base/log.h"
#include "runtime/exchange/exchange_inner.h"

struct ct_exchange_switch {
    ct_exchange coded; /* first: exchange_inner.h */
    ct_exchange dense;
    bool (*skips)(void *ctx);
    void *skips_ctx;
    const char *by;
    _Atomic bool is_dense; /* the step under way */
    bool begun;            /* at least one       */
};

ct_status ct_exchange_switch_create(const ct_exchange *coded, const ct_exchange *dense,
                                    bool (*skips)(void *ctx), void *skips_ctx, const char *by,
                                    ct_exchange_switch **x_p)
{
    ct_exchange_switch *x = malloc(sizeof(*x));

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    *x = (ct_exchange_switch){
        .coded = *coded, .dense = *dense, .skips = skips, .skips_ctx = skips_ctx, .by = by
    };
    *x_p = x;
    return CT_OK;
}

void ct_exchange_switch_destroy(ct_exchange_switch *x)
{
    free(x);
}

bool ct_exchange_switch_is_dense(const ct_exchange_switch *x)
{
    return x->is_dense;
}

static const ct_exchange *now(const ct_exchange_switch *x)
{
    return x->is_dense ? &x->dense : &x->coded;
}

static void say(const ct_exchange_switch *x, int64_t iteration)
{
    if (x->by == NULL) return;
    if (x->is_dense)
        CT_INFO("from iteration %" PRId64
                " on nothing is compressed: gradients are added up on the GPUs, by %s",
                iteration, x->by);
    else
        CT_INFO("from iteration %" PRId64 " on gradients are compressed, and meet on the host",
                iteration);
}

/* ---- a step */

static ct_status switch_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    ct_exchange_switch *x = ctx;
    bool was_dense = x->is_dense;

    CT_TRY(x->coded.begin(x->coded.ctx, iteration, scale, rate));
    x->is_dense = x->skips(x->skips_ctx);
    if (!x->begun || (x->is_dense != was_dense)) say(x, iteration);
    x->begun = true;
    return x->is_dense ? x->dense.begin(x->dense.ctx, iteration, scale, rate) : CT_OK;
}

static ct_status switch_ready(void *ctx, int param)
{
    const ct_exchange *e = now(ctx);

    return e->ready(e->ctx, param);
}

static ct_status switch_poll(void *ctx)
{
    const ct_exchange *e = now(ctx);

    return e->poll(e->ctx);
}

static ct_status switch_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    const ct_exchange *e = now(ctx);

    return e->finish(e->ctx, landed, landed_ctx);
}

static ct_status switch_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    const ct_exchange *e = now(ctx);

    return e->wait(e->ctx, first, n, landed, landed_ctx);
}

static void switch_reads(void *ctx, int param)
{
    const ct_exchange *e = now(ctx);

    if (e->reads != NULL) e->reads(e->ctx, param);
}

static ct_status switch_replay(void *ctx, ct_replay what)
{
    ct_exchange_switch *x = ctx;

    return x->dense.replay(x->dense.ctx, what);
}

static bool switch_records(void *ctx)
{
    return ((const ct_exchange_switch *)ctx)->is_dense;
}

/* ---- of all steps */

static ct_status switch_sum_there(void *ctx, ct_stream st, double *v, int n)
{
    const ct_exchange *dense = &((const ct_exchange_switch *)ctx)->dense;

    return dense->sum_there(dense->ctx, st, v, n);
}

static void switch_counters(void *ctx, ct_exchange_counters *out)
{
    const ct_exchange_switch *x = ctx;
    ct_exchange_counters dense;

    x->coded.counters(x->coded.ctx, out);
    x->dense.counters(x->dense.ctx, &dense);
    out->exposed_s += dense.exposed_s;
    out->bytes_sent += dense.bytes_sent;
    out->moving_s += dense.moving_s;
    out->encode_s += dense.encode_s;
}

void ct_exchange_switch_wrap(ct_exchange_switch *x, ct_exchange *out)
{
    *out = ct_exchange_inner(x);
    out->begin = switch_begin;
    out->ready = switch_ready;
    out->poll = switch_poll;
    out->finish = switch_finish;
    out->wait = switch_wait;
    out->reads = switch_reads;
    out->sum_there = (x->dense.sum_there != NULL) ? switch_sum_there : NULL;
    out->counters = switch_counters;
    out->replay = (x->dense.replay != NULL) ? switch_replay : NULL;
    out->records = switch_records;
}
