/* One rank: sums, averages and broadcasts are the identity. */
#include "framework/exchange/exchange.h"

#include <string.h>

/* ctx carries only the number of parameters, so nothing has to be freed. */
static ct_status single_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    (void)ctx;
    (void)iteration;
    (void)scale;
    (void)rate;
    return CT_OK;
}

static ct_status single_ready(void *ctx, int param)
{
    (void)ctx;
    (void)param;
    return CT_OK;
}

static ct_status single_nothing(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

static ct_status single_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    int n_param = (int)(intptr_t)ctx;

    return (n_param > 0) ? landed(landed_ctx, 0, n_param) : CT_OK;
}

static ct_status single_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    (void)ctx;
    return landed(landed_ctx, first, n);
}

static ct_status single_sum(void *ctx, double *v, int n)
{
    (void)ctx;
    (void)v;
    (void)n;
    return CT_OK;
}

static ct_status single_max(void *ctx, int64_t *v, int n)
{
    (void)ctx;
    (void)v;
    (void)n;
    return CT_OK;
}

static ct_status single_average(void *ctx, float *v, int64_t n, double share)
{
    (void)ctx;
    (void)v;
    (void)n;
    (void)share;
    return CT_OK;
}

static ct_status single_broadcast(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)data;
    (void)bytes;
    return CT_OK;
}

static ct_status single_replay(void *ctx, ct_replay what)
{
    (void)ctx;
    (void)what;
    return CT_OK;
}

static void single_counters(void *ctx, ct_exchange_counters *out)
{
    (void)ctx;
    memset(out, 0, sizeof(*out));
}

static int single_n_state(void *ctx)
{
    (void)ctx;
    return 0;
}

static ct_status single_state(void *ctx, int i, ct_exchange_state *out)
{
    (void)ctx;
    (void)out;
    return CT_FAIL(CT_ERR_ARG, "one rank keeps no exchange state, asked for %d", i);
}

void ct_exchange_single(int n_param, ct_exchange *out)
{
    *out = (ct_exchange){
        .ctx = (void *)(intptr_t)n_param,
        .rank = 0,
        .n_rank = 1,
        .begin = single_begin,
        .ready = single_ready,
        .poll = single_nothing,
        .finish = single_finish,
        .wait = single_wait,
        .sum = single_sum,
        .max = single_max,
        .average = single_average,
        .broadcast = single_broadcast,
        .barrier = single_nothing,
        .counters = single_counters,
        .replay = single_replay,
        .n_state = single_n_state,
        .state = single_state,
    };
}
