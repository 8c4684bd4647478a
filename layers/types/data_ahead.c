/* Batches for a device that transforms them: two go up ahead of the step, beside what it computes,
 * out of the pinned memory in which they were decoded (framework/data/pack.h). The host waits for
 * no copy: a batch is given back to the loader when the next step asks for its own. */
#include "layers/types/data_common.h"
#include "layers/types/device_kernels.h"

static size_t block_bytes(const ct_pack *p)
{
    return ct_align_up(p->bytes);
}

void ct_data_ahead_buffers(const ct_layer *l, ct_instance *in)
{
    const ct_data_state *d = l->state;
    ct_data_instance *di = in->state;
    ct_pack_rule rule = ct_transform_rule(d->transform);

    di->used = -1;
    di->mean_there = false;
    ct_instance_buffer(in, CT_DATA_BLOCKS, CT_LIFETIME_ALWAYS,
                       CT_DATA_PLACES * block_bytes(ct_loader_pack(di->loader)));
    ct_instance_buffer(in, CT_DATA_MEAN, CT_LIFETIME_ALWAYS, (size_t)rule.n_mean * sizeof(float));
}

/* A copy whose end is long past as a rule. */
static ct_status end_copy(const ct_device *dev, ct_data_place *p)
{
    void *ticket = p->ticket;
    bool done;

    if (ticket == NULL) return CT_OK;
    CT_TRY(dev->copy_done(ticket, false, &done));
    if (!done) CT_TRY(dev->copy_done(ticket, true, &done));
    p->ticket = NULL;
    return CT_OK;
}

/* The batch of the step before goes back to the loader. */
static ct_status give_back(const ct_layer *l, ct_data_instance *di)
{
    if (di->used < 0) return CT_OK;
    CT_TRY(end_copy(l->dev, &di->place[di->used % CT_DATA_PLACES]));
    di->used = -1;
    ct_loader_give_back(di->loader);
    return CT_OK;
}

ct_status ct_data_ahead_begin(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_data_instance *di = in->state;

    if (ct_loader_pack(di->loader) == NULL) return CT_OK;
    CT_TRY(give_back(l, di));
    if ((ex->micro_step == di->coming) && (ex->seed == di->seed)) return CT_OK;
    for (int i = 0; i < CT_DATA_PLACES; i++) CT_TRY(end_copy(l->dev, &di->place[i]));
    return CT_OK;
}

static char *place_of(const ct_instance *in, const ct_pack *pack, int64_t step)
{
    return (char *)in->buffer[CT_DATA_BLOCKS].data +
           (size_t)(step % CT_DATA_PLACES) * block_bytes(pack);
}

/* Begins the copy of a step's batch, where that is not under way. */
static ct_status lift(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t step,
                      const ct_batch *b)
{
    ct_data_instance *di = in->state;
    const ct_pack *pack = ct_loader_pack(di->loader);
    ct_data_place *p = &di->place[step % CT_DATA_PLACES];

    if ((p->ticket != NULL) && (p->step == step)) return CT_OK;
    p->step = step;
    return l->dev->copy_ahead(ex->stream, b->block, place_of(in, pack, step), pack->bytes,
                              &p->ticket);
}

static ct_status put_mean(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_pack_rule *rule)
{
    ct_data_instance *di = in->state;

    if (di->mean_there || (rule->n_mean == 0)) return CT_OK;
    di->mean_there = true;
    return l->dev->from_host(ex->stream, in->buffer[CT_DATA_MEAN].data, rule->mean,
                             (size_t)rule->n_mean * sizeof(float));
}

static ct_status unpack(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    const ct_data_state *d = l->state;
    ct_data_instance *di = in->state;
    const ct_pack *pack = ct_loader_pack(di->loader);
    const char *block = place_of(in, pack, ex->micro_step);
    ct_pack_rule rule = ct_transform_rule(d->transform);

    CT_TRY(put_mean(l, in, ex, &rule));
    rule.mean = (rule.n_mean > 0) ? in->buffer[CT_DATA_MEAN].data : NULL;
    CT_TRY(lift(l, in, ex, ex->micro_step, b));
    CT_TRY(l->dev->copy_follow(ex->stream, di->place[ex->micro_step % CT_DATA_PLACES].ticket));
    CT_TRY(ct_kernels(ex)->unpack(ex, pack, &rule, block, ct_blob_data(in->top[0])));
    for (int i = 1; i < l->n_top; i++)
        CT_TRY(l->dev->copy(ex->stream, ct_blob_data(in->top[i]), block + pack->rest_at[i],
                            (size_t)b->count[i] * sizeof(float)));
    return CT_OK;
}

static ct_status put(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    for (int i = 0; i < l->n_top; i++)
        CT_TRY(ct_data_put(ex, in->top[i], b->field[i], b->count[i]));
    return CT_OK;
}

ct_status ct_data_ahead_use(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    ct_data_instance *di = in->state;
    ct_status status;
    ct_batch next;

    if (ct_loader_pack(di->loader) == NULL) {
        status = put(l, in, ex, b);
        ct_loader_give_back(di->loader);
        return status;
    }
    di->used = ex->micro_step;
    di->coming = ex->micro_step + 1;
    di->seed = ex->seed;
    CT_TRY((b->block != NULL) ? unpack(l, in, ex, b) : put(l, in, ex, b));
    for (int k = 1; k <= CT_DATA_AHEAD; k++) {
        if (!ct_loader_look(di->loader, k, &next)) break;
        if (next.block != NULL) CT_TRY(lift(l, in, ex, ex->micro_step + k, &next));
    }
    return CT_OK;
}

void ct_data_ahead_end(const ct_layer *l, ct_instance *in)
{
    ct_data_instance *di = in->state;

    for (int i = 0; i < CT_DATA_PLACES; i++) (void)end_copy(l->dev, &di->place[i]);
    di->used = -1;
}
