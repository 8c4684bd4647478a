#include "framework/tensor/storage_shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ct_status ct_shard_add(ct_shard *s, int64_t from, int64_t count)
{
    ct_shard_piece *last = (s->n > 0) ? &s->piece[s->n - 1] : NULL;
    ct_shard_piece *grown;

    if (count == 0) return CT_OK;
    s->count += count;
    if ((last != NULL) && (last->from + last->count == from)) {
        last->count += count;
        return CT_OK;
    }
    grown = realloc(s->piece, sizeof(*grown) * ((size_t)s->n + 1));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d pieces of a shard", s->n + 1);
    s->piece = grown;
    s->piece[s->n++] = (ct_shard_piece){ from, count };
    return CT_OK;
}

ct_status ct_shard_add_from(const ct_shard *s, int64_t from, ct_shard *to)
{
    for (int i = 0; i < s->n; i++) {
        ct_shard_piece p = s->piece[i];
        int64_t skip = (from > p.from) ? from - p.from : 0;

        if (skip < p.count) CT_TRY(ct_shard_add(to, p.from + skip, p.count - skip));
    }
    return CT_OK;
}

void ct_shard_destroy(ct_shard *s)
{
    free(s->piece);
    *s = (ct_shard){ .n = 0 };
}

/* ---- the storage */

enum { LINE = 16 /* floats: pieces begin at multiples of it in the inner storage, too */ };

static int64_t padded(int64_t count)
{
    return (count + LINE - 1) / LINE * LINE;
}

int64_t ct_shard_length(const ct_shard *s)
{
    int64_t at = 0;

    for (int i = 0; i + 1 < s->n; i++) at += padded(s->piece[i].count);
    return (s->n > 0) ? at + s->piece[s->n - 1].count : 0;
}

typedef struct shard_storage {
    int n;
    ct_shard_piece *piece;
    int64_t *at; /* [n] where a piece begins in `inner` */
    ct_storage inner;
    ct_storage_range out[CT_STORAGE_OUT]; /* of inner, that are wanted */
} shard_storage;

static void destroy(shard_storage *own)
{
    if (own == NULL) return;
    (void)ct_storage_close(&own->inner); /* it says why */
    free(own->piece);
    free(own->at);
    free(own);
}

/* The piece that has the range; NULL: none has all of it. */
static const ct_shard_piece *find(const shard_storage *own, const ct_storage_range *r)
{
    int low = 0, high = own->n;

    while (low < high) {
        int mid = low + (high - low) / 2;
        const ct_shard_piece *p = &own->piece[mid];

        if (r->from < p->from)
            high = mid;
        else if (r->from >= p->from + p->count)
            low = mid + 1;
        else
            return (r->count <= p->from + p->count - r->from) ? p : NULL;
    }
    return NULL;
}

static ct_status shard_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    shard_storage *own = s->own;
    const ct_shard_piece *p = find(own, r);
    int k = 0;

    if (p == NULL)
        return CT_FAIL(CT_ERR_ARG,
                       "floats %" PRId64 " to %" PRId64
                       " of a storage are wanted, of which this rank has not all",
                       r->from, r->from + r->count);
    while (own->out[k].storage != NULL) k++; /* no more than CT_STORAGE_OUT are wanted at once */
    CT_TRY(ct_storage_want(&own->inner, st, own->at[p - own->piece] + (r->from - p->from), r->count,
                           r->use, &own->out[k]));
    r->data = own->out[k].data;
    return CT_OK;
}

static ct_status shard_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    shard_storage *own = s->own;
    int k = 0;

    while ((own->out[k].storage == NULL) || (own->out[k].data != r->data) ||
           (own->out[k].count != r->count))
        k++; /* the storage has checked that it is wanted */
    return ct_storage_done(&own->out[k], st);
}

static int64_t shard_together(const ct_storage *s, int64_t from)
{
    const shard_storage *own = s->own;
    const ct_storage_range first = { .from = from, .count = 1 };
    const ct_shard_piece *p = find(own, &first);
    int64_t left, most;

    if (p == NULL) return s->count - from; /* wanting it says so */
    left = p->from + p->count - from;
    most = ct_storage_together(&own->inner, own->at[p - own->piece] + (from - p->from));
    return (left < most) ? left : most;
}

static void shard_close(ct_storage *s)
{
    destroy(s->own);
}

static bool copy_pieces(const ct_shard *shard, shard_storage *own)
{
    int64_t at = 0;

    own->piece = malloc(sizeof(*own->piece) * ((size_t)shard->n + 1));
    own->at = malloc(sizeof(*own->at) * ((size_t)shard->n + 1));
    if ((own->piece == NULL) || (own->at == NULL)) return false;
    if (shard->n > 0) memcpy(own->piece, shard->piece, sizeof(*own->piece) * (size_t)shard->n);
    own->n = shard->n;
    for (int i = 0; i < own->n; i++) {
        own->at[i] = at;
        at += padded(own->piece[i].count);
    }
    return true;
}

ct_status ct_storage_open_shard(const ct_shard *shard, ct_storage_open_fn inner, void *inner_ctx,
                                const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops fixed = { .name = "shard",
                                          .fixed = true,
                                          .want = shard_want,
                                          .done = shard_done,
                                          .together = shard_together,
                                          .close = shard_close };
    static const ct_storage_ops moving = { .name = "shard",
                                           .want = shard_want,
                                           .done = shard_done,
                                           .together = shard_together,
                                           .close = shard_close };
    shard_storage *own = calloc(1, sizeof(*own));
    ct_status status;

    if ((own == NULL) || !copy_pieces(shard, own)) {
        destroy(own);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a shard of %d pieces", shard->n);
    }
    status = inner(inner_ctx, dev, ct_shard_length(shard), &own->inner);
    if (status != CT_OK) {
        destroy(own);
        return status;
    }
    *s_p = (ct_storage){ .ops = own->inner.ops->fixed ? &fixed : &moving,
                         .dev = dev,
                         .count = count,
                         .bytes = own->inner.bytes,
                         .own = own };
    return CT_OK;
}
