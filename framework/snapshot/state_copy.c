#include "framework/snapshot/state_copy.h"

#include <string.h>

#include "framework/snapshot/snapshot_impl.h"

/* ---- who copies what */

enum { LINE = 16 /* floats: equal parts begin at multiples of it */ };

/* Of n ranks that each have a whole net. own: the shard of states of this one; NULL: it has all of
 * them. */
static ct_status share_whole(const ct_net *net, const ct_shard *own, int rank, int n,
                             ct_state_copy *c)
{
    int64_t part = ((net->grad_count + n - 1) / n + LINE - 1) / LINE * LINE, from = part * rank;
    ct_shard_piece equal = { from,
                             (net->grad_count - from < part) ? net->grad_count - from : part };
    const ct_shard all = { .n = (equal.count > 0) ? 1 : 0, .piece = &equal };

    if (own == NULL) own = &all;
    for (int i = 0; i < own->n; i++) {
        CT_TRY(ct_shard_add(&c->weights, own->piece[i].from, own->piece[i].count));
        CT_TRY(ct_shard_add(&c->history, own->piece[i].from, own->piece[i].count));
    }
    if (rank != 0) return CT_OK;
    return ct_shard_add(&c->weights, net->grad_count, net->weight_count - net->grad_count);
}

ct_status ct_state_copy_size(const ct_net *net, const ct_shard *own, int rank, int n, int n_history,
                             int64_t *floats_p)
{
    ct_state_copy c = { .net = net };
    ct_status status = share_whole(net, own, rank, n, &c);

    *floats_p = ct_state_copy_floats(&c, n_history);
    ct_state_copy_destroy(&c);
    return status;
}

/* Of ranks with parts of a net: what this one is asked for. */
static ct_status share_parts(ct_state_copy *c)
{
    const ct_parts *p = &c->parts;
    bool pieces = (p->first_piece != NULL), added = !pieces || !ct_net_has_visits(c->net);

    if (pieces) CT_TRY(ct_shard_add_from(p->shard, 0, &c->history));
    for (int i = 0; i < c->net->n_param; i++) {
        const ct_param *own = &c->net->param[i];
        bool visits = pieces && ct_net_param_visits(c->net, own);

        if (visits && !added) CT_TRY(ct_shard_add_from(p->shard, own->offset, &c->weights));
        added = added || visits; /* what comes and goes stands together */
        if (!ct_parts_stands(p, ct_net_find_param(p->whole, own->key))) continue;
        if (!visits) CT_TRY(ct_shard_add(&c->weights, own->offset, own->count));
        if (!pieces && ct_param_has_history(c->net, own))
            CT_TRY(ct_shard_add(&c->history, own->offset, own->count));
    }
    return CT_OK;
}

static ct_status share_all(ct_state_copy *c, const ct_state_shards *shards)
{
    ct_shard own = { .n = 0 };
    ct_status status = CT_OK;

    if (shards != NULL) status = ct_state_shards_own(shards, &own);
    if (status == CT_OK)
        status = share_whole(c->net, (shards != NULL) ? &own : NULL, c->g->rank, c->g->size, c);
    ct_shard_destroy(&own);
    CT_TRY(ct_group_agree(c->g, status));
    return ct_state_shards_create(&c->weights, c->net->weight_count, c->g, &c->shards);
}

ct_status ct_state_copy_create(const ct_net *net, const ct_snapshot_state *state, const ct_group *g,
                               ct_state_copy *c)
{
    c->net = net;
    c->g = g;
    for (int k = 0; k < CT_WHOLE_ARENAS; k++) c->own[k] = &c->copy[k];
    if (state->parts == NULL) return share_all(c, state->shards);
    c->parts = *state->parts;
    if (c->parts.learned != NULL) c->parts.learned = &c->copy[0];
    return ct_group_agree(g, share_parts(c));
}

void ct_state_copy_destroy(ct_state_copy *c)
{
    for (int k = 0; k < c->n; k++) (void)ct_storage_close(&c->copy[k]); /* it says why */
    c->n = 0;
    ct_shard_destroy(&c->weights);
    ct_shard_destroy(&c->history);
    ct_state_shards_destroy(c->shards);
    c->shards = NULL;
}

/* ---- the copies */

int64_t ct_state_copy_floats(const ct_state_copy *c, int n_history)
{
    return ct_shard_length(&c->weights) + n_history * ct_shard_length(&c->history);
}

ct_status ct_state_copy_open(ct_state_copy *c, int n_history)
{
    for (; c->n < 1 + n_history; c->n++) {
        bool first = (c->n == 0);

        CT_TRY(ct_storage_open_shard(
            first ? &c->weights : &c->history, ct_storage_open_fixed, NULL, ct_device_cpu(),
            first ? c->net->weight_count : c->net->grad_count, &c->copy[c->n]));
    }
    return CT_OK;
}

static void copy_floats(float *to, const float *from, int64_t count)
{
    const int64_t part = 1 << 18;

#pragma omp parallel for schedule(static) if (count > part)
    for (int64_t at = 0; at < count; at += part)
        memcpy(to + at, from + at, (size_t)((count - at < part) ? count - at : part) * sizeof(*to));
}

static ct_status copy_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    ct_storage_range r;

    CT_TRY(ct_storage_want(ctx, NULL, from, count, CT_STORAGE_WRITE, &r));
    copy_floats(r.data, host, count);
    return ct_storage_done(&r, NULL);
}

/* What a shard has of floats [first, end). */
static ct_status copy_pieces(const ct_shard *shard, int64_t first, int64_t end, ct_storage *from,
                             ct_storage *to)
{
    for (int i = 0; i < shard->n; i++) {
        const ct_shard_piece *p = &shard->piece[i];
        int64_t at = (p->from > first) ? p->from : first, to_end = p->from + p->count;

        if (to_end > end) to_end = end;
        if (at < to_end)
            CT_TRY(ct_storage_each(from, at, to_end - at, CT_STORAGE_READ, copy_chunk, to));
    }
    return CT_OK;
}

static bool copies(const ct_shard *shard, const ct_param *p)
{
    for (int i = 0; i < shard->n; i++)
        if ((p->offset >= shard->piece[i].from) &&
            (p->offset < shard->piece[i].from + shard->piece[i].count))
            return true;
    return false;
}

/* What does not learn lies in the net's memory, wherever the rest is. */
static ct_status copy_rest(ct_state_copy *c)
{
    for (int i = 0; i < c->net->n_param; i++) {
        const ct_param *p = &c->net->param[i];
        ct_host_copy v;
        ct_status status;

        if (ct_param_has_history(c->net, p) || !copies(&c->weights, p)) continue;
        CT_TRY(ct_host_copy_take(ct_net_device(c->net), ct_blob_data(&p->blob), p->count, &v));
        status = ct_storage_put(&c->copy[0], p->offset, p->count, v.data);
        ct_host_copy_release(&v);
        CT_TRY(status);
    }
    return CT_OK;
}

ct_status ct_state_copy_take(ct_state_copy *c, const ct_snapshot_state *state)
{
    ct_storage here =
        ct_storage_at(ct_net_device(c->net), c->net->weight_arena, c->net->grad_count);
    ct_storage *weights = (state->parts != NULL) ? state->parts->learned : state->weights;
    int64_t end = c->net->grad_count, staying = ct_net_staying(c->net);

    if (weights == NULL) weights = &here;
    CT_TRY(copy_pieces(&c->weights, 0, staying, &here, &c->copy[0]));
    CT_TRY(copy_pieces(&c->weights, staying, end, weights, &c->copy[0]));
    CT_TRY(copy_rest(c));
    for (int h = 0; h < state->n_history; h++)
        CT_TRY(copy_pieces(&c->history, 0, end, &state->history[h], &c->copy[1 + h]));
    return CT_OK;
}

ct_whole_source ct_state_copy_source(const ct_state_copy *c)
{
    return (c->shards != NULL) ? ct_state_shards_source(c->shards) : ct_parts_source(&c->parts);
}
