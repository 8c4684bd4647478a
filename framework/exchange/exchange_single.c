/* One rank: nothing travels. The context is the number of parameters, so nothing has to be freed.
 */
#include "framework/exchange/exchange.h"

static ct_status single_ready(void *ctx, int param)
{
    (void)ctx, (void)param;
    return CT_OK;
}

static ct_status single_poll(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

static ct_status single_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    (void)ctx;
    return landed(landed_ctx, first, n);
}

static ct_status single_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    int n_param = (int)(intptr_t)ctx;

    return (n_param > 0) ? landed(landed_ctx, 0, n_param) : CT_OK;
}

static ct_status single_replay(void *ctx, ct_replay what)
{
    (void)ctx, (void)what;
    return CT_OK;
}

static const ct_transport_ops transport_ops = {
    .ready = single_ready,
    .poll = single_poll,
    .wait = single_wait,
    .finish = single_finish,
    .replay = single_replay,
};

static ct_status single_begin(ct_grad_sync *s, int64_t iteration, float scale, float rate)
{
    (void)s, (void)iteration, (void)scale, (void)rate;
    return CT_OK;
}

static void single_reads(void *ctx, int param)
{
    (void)ctx, (void)param;
}

static ct_grad_effect single_effect(void *ctx, int param)
{
    (void)ctx, (void)param;
    return CT_GRAD_SUM;
}

static void single_stats(void *ctx, bool codec, ct_sync_stats *out)
{
    (void)ctx, (void)codec;
    *out = (ct_sync_stats){ .bytes_sent = 0 };
}

static const ct_grad_sync_ops sync_ops = {
    .begin = single_begin,
    .reads = single_reads,
    .effect = single_effect,
    .stats = single_stats,
};

void ct_exchange_single(int n_param, ct_exchange *out)
{
    void *ctx = (void *)(intptr_t)n_param;
    ct_transport transport = { .ctx = ctx, .ops = &transport_ops, .records = true };

    *out = (ct_exchange){ .job = { .size = 1 },
                          .data = { .size = 1 },
                          .stage = { .size = 1 },
                          .sync = { .ctx = ctx, .ops = &sync_ops, .transport = transport } };
}
