#include "framework/tensor/storage_forms.h"

#include <inttypes.h>
#include <stdlib.h>

#include "framework/base/hash.h"

typedef struct checked {
    float *data;
    uint64_t *sum; /* [blocks] */
    const char *what;
} checked;

static int64_t block_count(int64_t count)
{
    return (count + CT_STORAGE_CHECKED_BLOCK - 1) / CT_STORAGE_CHECKED_BLOCK;
}

/* Where a block begins and ends. */
static int64_t begin_of(int64_t block)
{
    return block * CT_STORAGE_CHECKED_BLOCK;
}

static int64_t end_of(const ct_storage *s, int64_t block)
{
    int64_t end = begin_of(block + 1);

    return (end < s->count) ? end : s->count;
}

static uint64_t sum_of(const ct_storage *s, int64_t block)
{
    const checked *own = s->own;
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, own->data + begin_of(block),
                (size_t)(end_of(s, block) - begin_of(block)) * sizeof(float));
    return ct_hash_value(&h);
}

/* Somebody writes into the block now: its hash is made when that is given back. */
static bool is_written(const ct_storage *s, int64_t block)
{
    for (int i = 0; i < s->n_out; i++) {
        const ct_storage_range *r = &s->out[i];

        if ((r->use != CT_STORAGE_READ) && (r->from < end_of(s, block)) &&
            (begin_of(block) < r->from + r->count))
            return true;
    }
    return false;
}

static ct_status check(const ct_storage *s, int64_t block)
{
    const checked *own = s->own;

    if (is_written(s, block) || (sum_of(s, block) == own->sum[block])) return CT_OK;
    return CT_FAIL(CT_ERR_DIVERGED,
                   "verify_memory: elements %" PRId64 " to %" PRId64 " of this rank's %s are not "
                   "what was written there: its memory has changed by itself",
                   begin_of(block), end_of(s, block), own->what);
}

static ct_status checked_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    checked *own = s->own;
    int64_t end = r->from + r->count;

    (void)st;
    r->data = own->data + r->from;
    for (int64_t b = r->from / CT_STORAGE_CHECKED_BLOCK; (r->count > 0) && (begin_of(b) < end);
         b++) {
        bool whole = (r->from <= begin_of(b)) && (end_of(s, b) <= end);

        if ((r->use != CT_STORAGE_WRITE) || !whole) CT_TRY(check(s, b));
    }
    return CT_OK;
}

static ct_status checked_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    checked *own = s->own;
    int64_t end = r->from + r->count;

    (void)st;
    if (r->use == CT_STORAGE_READ) return CT_OK;
    for (int64_t b = r->from / CT_STORAGE_CHECKED_BLOCK; (r->count > 0) && (begin_of(b) < end); b++)
        own->sum[b] = sum_of(s, b);
    return CT_OK;
}

static void checked_close(ct_storage *s)
{
    checked *own = s->own;

    s->dev->mem_release(own->data);
    free(own->sum);
    free(own);
}

ct_status ct_storage_open_checked(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops ops = {
        .name = "checked", .want = checked_want, .done = checked_done, .close = checked_close
    };
    size_t bytes = (size_t)count * sizeof(float);
    void *data = NULL;
    checked *own;

    if (dev->kind != CT_DEVICE_CPU)
        return CT_FAIL(CT_ERR_CONFIG,
                       "verify_memory: the %s of device %s are not checked: on the CPU alone",
                       (const char *)ctx, dev->name);
    CT_TRY(dev->mem_acquire(bytes, &data));
    own = malloc(sizeof(*own));
    if (own != NULL)
        *own = (checked){ data, calloc((size_t)block_count(count) + 1, sizeof(uint64_t)), ctx };
    if ((own == NULL) || (own->sum == NULL)) {
        free(own);
        dev->mem_release(data);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for checksums of %" PRId64 " numbers", count);
    }
    *s_p = (ct_storage){ .ops = &ops, .dev = dev, .count = count, .bytes = bytes, .own = own };
    for (int64_t b = 0; b < block_count(count); b++) own->sum[b] = sum_of(s_p, b);
    return CT_OK;
}
