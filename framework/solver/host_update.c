#include "framework/solver/host_update.h"

enum {
    USUAL_PIECE = 1 << 20, /* floats */
    NOBODY = -1
};

/* ---- rings of pinned memory */

static ct_status open_ring(const ct_device *dev, int64_t piece, ct_pinned_ring *r)
{
    size_t bytes = (size_t)piece * sizeof(float);

    CT_TRY(dev->host_acquire(CT_PINNED_SLOTS * bytes, &r->block));
    for (int i = 0; i < CT_PINNED_SLOTS; i++)
        r->slot[i] = (ct_pinned_slot){ .of = NOBODY, .data = (float *)r->block + i * piece };
    return CT_OK;
}

static ct_status end_copy(const ct_device *dev, ct_pinned_slot *s)
{
    bool done;

    if (s->ticket != NULL) CT_TRY(dev->copy_done(s->ticket, true, &done));
    s->ticket = NULL;
    return CT_OK;
}

static void close_ring(const ct_device *dev, ct_pinned_ring *r)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++) (void)end_copy(dev, &r->slot[i]);
    if (r->block != NULL) dev->host_release(r->block);
}

ct_status ct_host_update_open(const ct_net *net, int64_t piece, ct_host_update *h)
{
    const ct_device *dev = net->options.dev;
    const int64_t line = CT_ALIGN / (int64_t)sizeof(float);

    if ((dev->copy_begin == NULL) || (dev->copy_ahead == NULL) || (dev->host_acquire == NULL) ||
        (dev->upload == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { state: HOST }: device %s makes no copies beside its work",
                       dev->name);
    piece = (piece > 0) ? piece : USUAL_PIECE;
    *h = (ct_host_update){ .net = net,
                           .piece = (piece + line - 1) / line * line,
                           .version = NOBODY };
    CT_TRY(open_ring(dev, h->piece, &h->down));
    return open_ring(dev, h->piece, &h->up);
}

void ct_host_update_close(ct_host_update *h)
{
    if (h->net == NULL) return;
    close_ring(h->net->options.dev, &h->down);
    close_ring(h->net->options.dev, &h->up);
    *h = (ct_host_update){ .net = NULL };
}

/* ---- gradients */

static ct_pinned_slot *find(ct_host_update *h, int param, int64_t at)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++) {
        ct_pinned_slot *s = &h->down.slot[i];

        if ((s->of == param) && (s->from <= at) && (at < s->from + s->count)) return s;
    }
    return NULL;
}

static ct_pinned_slot *find_free(ct_host_update *h)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++)
        if (h->down.slot[i].of == NOBODY) return &h->down.slot[i];
    return NULL;
}

/* The piece of a gradient that begins at `from`. */
static ct_status send_down(ct_host_update *h, ct_stream st, ct_pinned_slot *s, int param,
                           int64_t from)
{
    const ct_param *p = &h->net->param[param];
    int64_t left = p->count - from, n = (left < h->piece) ? left : h->piece;

    CT_TRY(end_copy(h->net->options.dev, s));
    CT_TRY(h->net->options.dev->copy_begin(st, s->data, ct_blob_diff(&p->blob) + from,
                                           (size_t)n * sizeof(float), true, &s->ticket));
    s->of = param;
    s->from = from;
    s->count = n;
    return CT_OK;
}

/* The pieces from `from` on, while there are free slots. */
static ct_status send_free(ct_host_update *h, ct_stream st, int param, int64_t from)
{
    for (; from < h->net->param[param].count; from += h->piece) {
        ct_pinned_slot *s = find_free(h);

        if (find(h, param, from) != NULL) continue;
        if (s == NULL) return CT_OK;
        CT_TRY(send_down(h, st, s, param, from));
    }
    return CT_OK;
}

void ct_host_gradients_begin(ct_host_update *h)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++) h->down.slot[i].of = NOBODY;
}

ct_status ct_host_gradient_ready(ct_host_update *h, ct_stream st, int param)
{
    return send_free(h, st, param, 0);
}

/* What was given before `at` is done with. */
static void leave_behind(ct_host_update *h, int param, int64_t at)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++) {
        ct_pinned_slot *s = &h->down.slot[i];

        if ((s->of == param) && (s->from + s->count <= at)) s->of = NOBODY;
    }
}

/* Others' pieces come once more when they are asked for. */
static ct_pinned_slot *find_any(ct_host_update *h)
{
    ct_pinned_slot *s = find_free(h);

    if (s != NULL) return s;
    h->down.turn = (h->down.turn + 1) % CT_PINNED_SLOTS;
    return &h->down.slot[h->down.turn];
}

ct_status ct_host_gradient(ct_host_update *h, ct_stream st, int param, int64_t at, int64_t *n_p,
                           const float **data_p)
{
    ct_pinned_slot *s;
    int64_t left;

    leave_behind(h, param, at);
    s = find(h, param, at);
    if (s == NULL) {
        s = find_any(h);
        CT_TRY(send_down(h, st, s, param, at / h->piece * h->piece));
    }
    CT_TRY(send_free(h, st, param, s->from + s->count));
    CT_TRY(end_copy(h->net->options.dev, s));
    left = s->from + s->count - at;
    if (left < *n_p) *n_p = left;
    *data_p = s->data + (at - s->from);
    return CT_OK;
}

void ct_host_gradient_done(ct_host_update *h, int param)
{
    leave_behind(h, param, h->net->param[param].count);
}

/* ---- weights */

static ct_status bring_piece(ct_host_update *h, ct_stream st, ct_storage *s, int64_t from,
                             int64_t n, float *place, int chunk)
{
    ct_pinned_slot *slot = &h->up.slot[h->up.turn];

    h->up.turn = (h->up.turn + 1) % CT_PINNED_SLOTS;
    CT_TRY(end_copy(h->net->options.dev, slot));
    CT_TRY(ct_storage_get(s, from, n, slot->data));
    slot->of = chunk;
    return h->net->options.dev->copy_ahead(st, slot->data, place, (size_t)n * sizeof(float),
                                           &slot->ticket);
}

ct_status ct_host_bring(ct_host_update *h, ct_stream st, ct_storage *s, int64_t from, int64_t count,
                        float *place, int chunk)
{
    for (int64_t at = 0; at < count; at += h->piece) {
        int64_t n = (count - at < h->piece) ? count - at : h->piece;

        CT_TRY(bring_piece(h, st, s, from + at, n, place + at, chunk));
    }
    return CT_OK;
}

/* Copies whose slots were taken since then have ended. */
ct_status ct_host_arrive(ct_host_update *h, ct_stream st, int chunk)
{
    for (int i = 0; i < CT_PINNED_SLOTS; i++) {
        ct_pinned_slot *s = &h->up.slot[i];

        if ((s->of == chunk) && (s->ticket != NULL))
            CT_TRY(h->net->options.dev->copy_follow(st, s->ticket));
    }
    return CT_OK;
}

ct_status ct_host_take_weights(ct_host_update *h, ct_storage *s)
{
    const ct_net *net = h->net;
    int64_t n;

    if (h->version == net->weight_version) return CT_OK;
    for (int64_t at = 0; at < net->grad_count; at += n) {
        int64_t most = ct_storage_together(s, at);
        ct_storage_range r;

        n = (net->grad_count - at < h->piece) ? net->grad_count - at : h->piece;
        if (n > most) n = most;
        CT_TRY(ct_storage_want(s, NULL, at, n, CT_STORAGE_WRITE, &r));
        CT_TRY(net->options.dev->to_host(NULL, r.data, net->weight_arena + at,
                                         (size_t)n * sizeof(float)));
        CT_TRY(ct_storage_done(&r, NULL));
    }
    ct_host_weights_are(h);
    return CT_OK;
}

void ct_host_weights_are(ct_host_update *h)
{
    h->version = h->net->weight_version;
}
