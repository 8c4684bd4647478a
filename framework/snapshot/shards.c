#include "framework/snapshot/shards.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST, COUNT, RANK, SAID };

static int by_first(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (x[FIRST] > y[FIRST]) - (x[FIRST] < y[FIRST]);
}

/* All ranks say equally many numbers. */
static ct_status gather_pieces(ct_state_shards *s, const ct_shard *own, int64_t most, int64_t *mine)
{
    int64_t *all = malloc(sizeof(*all) * (size_t)(SAID * most * s->g->size + 1));
    ct_status status;

    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shards of %d ranks", s->g->size);
    for (int64_t i = 0; i < most; i++) {
        int64_t *p = mine + SAID * i;

        p[FIRST] = (i < own->n) ? own->piece[i].from : 0;
        p[COUNT] = (i < own->n) ? own->piece[i].count : 0;
        p[RANK] = s->g->rank;
    }
    status = ct_group_gather(s->g, mine, (int)(SAID * most), all);
    for (int64_t i = 0; (status == CT_OK) && (i < most * s->g->size); i++) {
        if (all[SAID * i + COUNT] == 0) continue;
        memmove(all + SAID * s->n++, all + SAID * i, SAID * sizeof(*all));
    }
    s->piece = all;
    qsort(s->piece, (size_t)s->n, SAID * sizeof(*all), by_first);
    return status;
}

ct_status ct_state_shards_create(const ct_shard *own, int64_t count, const ct_group *g,
                                 ct_state_shards **shards_p)
{
    ct_state_shards *s = calloc(1, sizeof(*s));
    int64_t most = own->n, *mine = NULL;
    ct_status status = ct_group_max(g, &most, 1);

    if (status == CT_OK) mine = malloc(sizeof(*mine) * (size_t)(SAID * most + 1));
    if ((status == CT_OK) && ((s == NULL) || (mine == NULL)))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for shards of %d ranks", g->size);
    if (status == CT_OK) {
        *s = (ct_state_shards){ .g = g, .count = count };
        status = gather_pieces(s, own, most, mine);
    }
    free(mine);
    if (status != CT_OK) {
        ct_state_shards_destroy(s);
        return status;
    }
    *shards_p = s;
    return CT_OK;
}

void ct_state_shards_destroy(ct_state_shards *s)
{
    if (s == NULL) return;
    free(s->piece);
    free(s);
}

ct_status ct_state_shards_own(const ct_state_shards *s, ct_shard *own)
{
    for (int i = 0; i < s->n; i++) {
        const int64_t *p = s->piece + SAID * i;

        if (p[RANK] == s->g->rank) CT_TRY(ct_shard_add(own, p[FIRST], p[COUNT]));
    }
    return CT_OK;
}

/* What piece i has of floats [from, from + count); false: nothing. */
static bool meets(const ct_state_shards *s, int i, int64_t from, int64_t count, int64_t *at_p,
                  int64_t *n_p)
{
    const int64_t *p = s->piece + SAID * i;
    int64_t at = (p[FIRST] > from) ? p[FIRST] : from, end = p[FIRST] + p[COUNT];

    if (end > from + count) end = from + count;
    *at_p = at;
    *n_p = end - at;
    return end > at;
}

/* ---- rank 0 asks, all answer */

/* The first piece that ends behind a float. */
static int first_near(const ct_state_shards *s, int64_t from)
{
    int low = 0, high = s->n;

    while (low < high) {
        int mid = low + (high - low) / 2;
        const int64_t *p = s->piece + SAID * mid;

        if (p[FIRST] + p[COUNT] <= from)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static ct_status answer(const void *who, ct_storage *const *own, const ct_whole_ask *a, float *data)
{
    const ct_state_shards *s = who;
    const ct_group *g = s->g;
    int64_t at, n;

    if (!a->fetch) CT_TRY(ct_group_broadcast(g, data, (size_t)a->count * sizeof(float)));
    if (a->fetch && (g->rank == 0)) memset(data, 0, (size_t)a->count * sizeof(float));
    for (int i = first_near(s, a->from); (i < s->n) && meets(s, i, a->from, a->count, &at, &n);
         i++) {
        int rank = (int)s->piece[SAID * i + RANK];

        if (!a->fetch) {
            if (rank == g->rank)
                ct_whole_note(a, ct_storage_put(own[a->k], at, n, data + (at - a->from)));
            continue;
        }
        if (rank == g->rank) ct_whole_note(a, ct_storage_get(own[a->k], at, n, a->room));
        CT_TRY(ct_group_send(g, a->room, (size_t)n * sizeof(float), rank, 0));
        if (g->rank == 0) memcpy(data + (at - a->from), a->room, (size_t)n * sizeof(float));
    }
    return CT_OK;
}

ct_whole_source ct_state_shards_source(const ct_state_shards *s)
{
    return (ct_whole_source){ .g = s->g, .count = s->count, .answer = answer, .who = s };
}

ct_status ct_state_shards_run(const ct_state_shards *s, ct_storage *const *own, int n,
                              ct_whole_work work, void *ctx)
{
    ct_whole_source source = ct_state_shards_source(s);

    return ct_whole_run(&source, own, n, work, ctx);
}

/* ---- on every rank */

static ct_status get_all(void *ctx, ct_storage *whole)
{
    return ct_storage_get(whole, 0, whole->count, ctx);
}

ct_status ct_state_shards_gather(const ct_state_shards *s, ct_storage *own, float *data)
{
    CT_TRY(ct_state_shards_run(s, &own, 1, get_all, data));
    return ct_group_broadcast(s->g, data, (size_t)s->count * sizeof(float));
}

ct_status ct_net_broadcast_rest(const ct_net *net, const ct_group *g)
{
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (!p->learns)
            CT_TRY(ct_group_broadcast(g, ct_blob_data(&p->blob), (size_t)p->count * sizeof(float)));
    }
    return CT_OK;
}
