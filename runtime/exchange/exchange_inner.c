#include "runtime/exchange/exchange_inner.h"

#define INNER(_ctx) ((const ct_exchange *)(_ctx))

static ct_status inner_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    return INNER(ctx)->begin(INNER(ctx)->ctx, iteration, scale, rate);
}

static ct_status inner_sum(void *ctx, double *v, int n)
{
    return INNER(ctx)->sum(INNER(ctx)->ctx, v, n);
}

static ct_status inner_max(void *ctx, int64_t *v, int n)
{
    return INNER(ctx)->max(INNER(ctx)->ctx, v, n);
}

static ct_status inner_average(void *ctx, float *v, int64_t n, double share)
{
    return INNER(ctx)->average(INNER(ctx)->ctx, v, n, share);
}

static ct_status inner_broadcast(void *ctx, void *data, size_t bytes)
{
    return INNER(ctx)->broadcast(INNER(ctx)->ctx, data, bytes);
}

static ct_status inner_barrier(void *ctx)
{
    return INNER(ctx)->barrier(INNER(ctx)->ctx);
}

static void inner_counters(void *ctx, ct_exchange_counters *out)
{
    INNER(ctx)->counters(INNER(ctx)->ctx, out);
}

static void inner_coding(void *ctx, ct_exchange_coding *out)
{
    INNER(ctx)->coding(INNER(ctx)->ctx, out);
}

static bool inner_absorbed(void *ctx, int param)
{
    return INNER(ctx)->absorbed(INNER(ctx)->ctx, param);
}

static bool inner_tries(void *ctx, int param)
{
    return INNER(ctx)->tries(INNER(ctx)->ctx, param);
}

static void inner_share(void *ctx, float *momentum)
{
    INNER(ctx)->share(INNER(ctx)->ctx, momentum);
}

static void inner_reads(void *ctx, int param)
{
    INNER(ctx)->reads(INNER(ctx)->ctx, param);
}

static int inner_n_state(void *ctx)
{
    return INNER(ctx)->n_state(INNER(ctx)->ctx);
}

static ct_status inner_state(void *ctx, int i, ct_exchange_state *out)
{
    return INNER(ctx)->state(INNER(ctx)->ctx, i, out);
}

static ct_status inner_restored(void *ctx)
{
    return INNER(ctx)->restored(INNER(ctx)->ctx);
}

ct_exchange ct_exchange_inner(void *ctx)
{
    const ct_exchange *inner = ctx;

    return (ct_exchange){ .ctx = ctx,
                          .rank = inner->rank,
                          .n_rank = inner->n_rank,
                          .n_trial = inner->n_trial,
                          .begin = inner_begin,
                          .sum = inner_sum,
                          .max = inner_max,
                          .average = inner_average,
                          .broadcast = inner_broadcast,
                          .barrier = inner_barrier,
                          .counters = inner_counters,
                          .coding = (inner->coding != NULL) ? inner_coding : NULL,
                          .absorbed = (inner->absorbed != NULL) ? inner_absorbed : NULL,
                          .tries = (inner->tries != NULL) ? inner_tries : NULL,
                          .share = (inner->share != NULL) ? inner_share : NULL,
                          .reads = (inner->reads != NULL) ? inner_reads : NULL,
                          .n_state = inner_n_state,
                          .state = inner_state,
                          .restored = (inner->restored != NULL) ? inner_restored : NULL };
}
