#include "framework/tensor/storage.h"

#include <inttypes.h>

#include "framework/base/memory.h"

/* ---- wanting and giving back */

static bool collides(const ct_storage_range *a, int64_t from, int64_t count, ct_storage_use use)
{
    bool apart = (a->from + a->count <= from) || (from + count <= a->from);

    return !apart && ((a->use != CT_STORAGE_READ) || (use != CT_STORAGE_READ));
}

static ct_status check_free(const ct_storage *s, int64_t from, int64_t count, ct_storage_use use)
{
    if ((from < 0) || (count < 0) || (from > s->count - count))
        return CT_FAIL(CT_ERR_ARG,
                       "%" PRId64 " floats from %" PRId64 " on of a storage of %" PRId64
                       " are wanted",
                       count, from, s->count);
    for (int i = 0; i < s->n_out; i++) {
        const ct_storage_range *a = &s->out[i];

        if (collides(a, from, count, use))
            return CT_FAIL(CT_ERR_ARG,
                           "floats %" PRId64 " to %" PRId64
                           " of a storage are wanted while %" PRId64 " to %" PRId64
                           " are not given back",
                           from, from + count, a->from, a->from + a->count);
    }
    if (s->n_out == CT_STORAGE_OUT)
        return CT_FAIL(CT_ERR_ARG, "more than %d ranges of a storage are wanted at once",
                       CT_STORAGE_OUT);
    return CT_OK;
}

ct_status ct_storage_want(ct_storage *s, ct_stream st, int64_t from, int64_t count,
                          ct_storage_use use, ct_storage_range *r)
{
    ct_storage_range wanted = { .storage = s, .from = from, .count = count, .use = use };

    CT_TRY(check_free(s, from, count, use));
    CT_TRY(s->ops->want(s, st, &wanted));
    s->out[s->n_out++] = *r = wanted;
    return CT_OK;
}

int64_t ct_storage_together(const ct_storage *s, int64_t from)
{
    int64_t left = s->count - from, most = left;

    if (s->ops->together != NULL) most = s->ops->together(s, from);
    return (most < left) ? most : left;
}

ct_status ct_storage_done(ct_storage_range *r, ct_stream st)
{
    ct_storage *s = r->storage;
    ct_storage_range back = *r;
    int i = 0;

    if (s == NULL) return CT_OK;
    *r = (ct_storage_range){ .storage = NULL };
    while ((i < s->n_out) && !((s->out[i].data == back.data) && (s->out[i].from == back.from) &&
                               (s->out[i].count == back.count)))
        i++;
    if (i == s->n_out)
        return CT_FAIL(CT_ERR_ARG,
                       "floats %" PRId64 " to %" PRId64
                       " of a storage are given back, but not wanted",
                       back.from, back.from + back.count);
    s->out[i] = s->out[--s->n_out];
    return s->ops->done(s, st, &back);
}

ct_status ct_storage_settled(const ct_storage *s)
{
    if (s->n_out == 0) return CT_OK;
    return CT_FAIL(CT_ERR_ARG,
                   "%d range%s of a storage %s not given back, the first floats %" PRId64
                   " to %" PRId64,
                   s->n_out, (s->n_out == 1) ? "" : "s", (s->n_out == 1) ? "is" : "are",
                   s->out[0].from, s->out[0].from + s->out[0].count);
}

ct_status ct_storage_close(ct_storage *s)
{
    ct_status status = CT_OK;

    if (s->ops == NULL) return CT_OK;
    status = ct_storage_settled(s);
    if (s->ops->close != NULL) s->ops->close(s);
    *s = (ct_storage){ .ops = NULL };
    return status;
}

/* ---- the simplest form: memory of a device */

static ct_status fixed_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    (void)st;
    r->data = (float *)s->own + r->from;
    return CT_OK;
}

static ct_status fixed_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    (void)s;
    (void)st;
    (void)r;
    return CT_OK;
}

static void fixed_close(ct_storage *s)
{
    s->dev->mem_release(s->own);
}

ct_status ct_storage_open_fixed(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops ops = {
        .name = "fixed", .fixed = true, .want = fixed_want, .done = fixed_done, .close = fixed_close
    };
    size_t bytes = (size_t)count * sizeof(float);
    void *data = NULL;

    (void)ctx;
    CT_TRY(dev->mem_acquire(bytes, &data));
    *s_p = (ct_storage){ .ops = &ops, .dev = dev, .count = count, .bytes = bytes, .own = data };
    return CT_OK;
}

ct_storage ct_storage_at(const ct_device *dev, float *data, int64_t count)
{
    static const ct_storage_ops ops = {
        .name = "borrowed", .fixed = true, .want = fixed_want, .done = fixed_done
    };

    return (ct_storage){ .ops = &ops, .dev = dev, .count = count, .own = data };
}

/* ---- whole ranges, chunk by chunk */

typedef ct_status (*chunk_fn)(const ct_storage_range *r, void *ctx);

static ct_status by_chunks(ct_storage *s, int64_t from, int64_t count, ct_storage_use use,
                           chunk_fn fn, void *ctx)
{
    for (int64_t at = 0, n = 0; at < count; at += n) {
        ct_storage_range r = { .storage = NULL };
        int64_t most = ct_storage_together(s, from + at);
        ct_status status, back;

        n = (count - at < CT_STORAGE_CHUNK) ? count - at : CT_STORAGE_CHUNK;
        if (n > most) n = most;
        CT_TRY(ct_storage_want(s, NULL, from + at, n, use, &r));
        status = fn(&r, ctx);
        back = ct_storage_done(&r, NULL);
        CT_TRY(status);
        CT_TRY(back);
    }
    return CT_OK;
}

typedef struct outside { /* what a range is copied from or to; begins at its float `from` */
    int64_t from;
    float *to;
    const float *source;
} outside;

static size_t bytes_of(const ct_storage_range *r)
{
    return (size_t)r->count * sizeof(float);
}

static ct_status get_chunk(const ct_storage_range *r, void *ctx)
{
    const outside *o = ctx;

    return r->storage->dev->to_host(NULL, o->to + (r->from - o->from), r->data, bytes_of(r));
}

static ct_status put_chunk(const ct_storage_range *r, void *ctx)
{
    const outside *o = ctx;

    return r->storage->dev->from_host(NULL, r->data, o->source + (r->from - o->from), bytes_of(r));
}

static ct_status copy_chunk(const ct_storage_range *r, void *ctx)
{
    const outside *o = ctx;

    return r->storage->dev->copy(NULL, r->data, o->source + (r->from - o->from), bytes_of(r));
}

static ct_status zero_chunk(const ct_storage_range *r, void *ctx)
{
    (void)ctx;
    return r->storage->dev->zero(NULL, r->data, bytes_of(r));
}

ct_status ct_storage_get(ct_storage *s, int64_t from, int64_t count, float *host)
{
    return by_chunks(s, from, count, CT_STORAGE_READ, get_chunk,
                     &(outside){ .from = from, .to = host });
}

ct_status ct_storage_put(ct_storage *s, int64_t from, int64_t count, const float *host)
{
    return by_chunks(s, from, count, CT_STORAGE_WRITE, put_chunk,
                     &(outside){ .from = from, .source = host });
}

ct_status ct_storage_copy(ct_storage *s, int64_t from, int64_t count, const float *data)
{
    return by_chunks(s, from, count, CT_STORAGE_WRITE, copy_chunk,
                     &(outside){ .from = from, .source = data });
}

ct_status ct_storage_zero(ct_storage *s, int64_t from, int64_t count)
{
    return by_chunks(s, from, count, CT_STORAGE_WRITE, zero_chunk, NULL);
}

typedef struct visit { /* of ct_storage_each() */
    ct_storage_fn fn;
    void *ctx;
    float *host; /* room for a chunk; NULL: ranges are in host memory */
} visit;

static ct_status visit_chunk(const ct_storage_range *r, void *ctx)
{
    const visit *v = ctx;
    const ct_device *dev = r->storage->dev;

    if (v->host == NULL) return v->fn(v->ctx, r->from, r->count, r->data);
    if (r->use != CT_STORAGE_WRITE) CT_TRY(dev->to_host(NULL, v->host, r->data, bytes_of(r)));
    CT_TRY(v->fn(v->ctx, r->from, r->count, v->host));
    return (r->use == CT_STORAGE_READ) ? CT_OK
                                       : dev->from_host(NULL, r->data, v->host, bytes_of(r));
}

ct_status ct_storage_each(ct_storage *s, int64_t from, int64_t count, ct_storage_use use,
                          ct_storage_fn fn, void *ctx)
{
    int64_t most = (count < CT_STORAGE_CHUNK) ? count : CT_STORAGE_CHUNK;
    visit v = { .fn = fn, .ctx = ctx };
    ct_status status;

    if ((s->dev->kind != CT_DEVICE_CPU) && (count > 0)) {
        v.host = ct_mem_acquire((size_t)most * sizeof(float));
        if (v.host == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " floats of a storage", most);
    }
    status = by_chunks(s, from, count, use, visit_chunk, &v);
    ct_mem_release(v.host);
    return status;
}
