/* Weights that come for the steps that read them, and go (ct_net_options.window). */
#include <string.h>

#include "framework/solver/train_step.h"

bool ct_step_has_visits(const ct_train_step *t)
{
    return ct_net_has_visits(t->net);
}

/* This rank's pieces of a parameter go to their place. */
static ct_status bring(ct_train_step *t, int i)
{
    const ct_param *p = &t->net->param[i];
    int64_t from = 0, count = p->count;

    if (ct_host_update_is_open(&t->host))
        return ct_host_bring(&t->host, t->pass->exec.stream, t->visit_from, p->offset, count,
                             ct_blob_data(&p->blob), p->chunk);
    if (!t->sync->shards)
        return ct_storage_get(t->visit_from, p->offset, count, ct_blob_data(&p->blob));
    for (int k = 0; t->sync->ops->own(t->sync->ctx, i, k, &from, &count); k++)
        CT_TRY(
            ct_storage_get(t->visit_from, p->offset + from, count, ct_blob_data(&p->blob) + from));
    return CT_OK;
}

/* In forward the step before may still have to update them. */
static ct_status begin(ct_train_step *t, int first, int end)
{
    const ct_transport *way = &t->sync->transport;

    for (int i = first; i < end; i++) {
        CT_TRY(ct_step_land_gradient(t, i));
        CT_TRY(bring(t, i));
    }
    return t->sync->shards ? way->ops->gather(way->ctx, first, false) : CT_OK;
}

ct_status ct_step_chunk(void *ctx, ct_chunk_call call, int chunk)
{
    ct_train_step *t = ctx;
    const ct_transport *way = &t->sync->transport;
    int first, end;

    ct_net_chunk(t->net, chunk, &first, &end);
    if (call == CT_CHUNK_BEGIN) return begin(t, first, end);
    if ((call == CT_CHUNK_WAIT) && ct_host_update_is_open(&t->host))
        return ct_host_arrive(&t->host, t->pass->exec.stream, chunk);
    if ((call == CT_CHUNK_WAIT) && t->sync->shards) return way->ops->gather(way->ctx, first, true);
    return CT_OK;
}

/* What this rank has of it. */
static ct_status put(void *ctx, const ct_param *p, const float *value)
{
    ct_train_step *t = ctx;
    int64_t from, count;

    if (!t->sync->shards) return ct_storage_put(&t->weights, p->offset, p->count, value);
    for (int k = 0; t->sync->ops->own(t->sync->ctx, (int)(p - t->net->param), k, &from, &count);
         k++)
        CT_TRY(ct_storage_put(&t->weights, p->offset + from, count, value + from));
    return CT_OK;
}

ct_status ct_step_fill(ct_train_step *t)
{
    return ct_step_has_visits(t) ? ct_net_fill(t->net, put, t) : CT_OK;
}
