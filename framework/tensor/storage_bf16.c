#include "framework/tensor/storage_forms.h"

#include <inttypes.h>

#include "framework/base/bf16.h"
#include "framework/base/memory.h"

/* A buffer for each range that may be wanted at one time. */
typedef struct bf16_storage {
    ct_bf16 *value;
    float *buffer[CT_STORAGE_OUT];
    bool used[CT_STORAGE_OUT];
} bf16_storage;

static void destroy(bf16_storage *own)
{
    ct_mem_release(own->value);
    for (int k = 0; k < CT_STORAGE_OUT; k++) ct_mem_release(own->buffer[k]);
    ct_mem_release(own);
}

static ct_status bf16_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    bf16_storage *own = s->own;
    int k = 0;

    (void)st;
    if (r->count > CT_STORAGE_BF16_MOST)
        return CT_FAIL(CT_ERR_ARG, "%" PRId64 " floats of a storage are wanted at once, of %d",
                       r->count, (int)CT_STORAGE_BF16_MOST);
    while (own->used[k]) k++; /* no more than CT_STORAGE_OUT are wanted at once */
    own->used[k] = true;
    r->data = own->buffer[k];
    if (r->use != CT_STORAGE_WRITE) ct_bf16_widen_all(r->count, own->value + r->from, r->data);
    return CT_OK;
}

static ct_status bf16_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    bf16_storage *own = s->own;
    int k = 0;

    (void)st;
    while (own->buffer[k] != r->data) k++; /* the storage has checked that it is wanted */
    if (r->use != CT_STORAGE_READ) ct_bf16_narrow_all(r->count, r->data, own->value + r->from);
    own->used[k] = false;
    return CT_OK;
}

static int64_t bf16_together(const ct_storage *s, int64_t from)
{
    (void)s, (void)from;
    return CT_STORAGE_BF16_MOST;
}

static void bf16_close(ct_storage *s)
{
    destroy(s->own);
}

static size_t buffer_bytes(int64_t count)
{
    return (size_t)((count < CT_STORAGE_BF16_MOST) ? count : CT_STORAGE_BF16_MOST) * sizeof(float);
}

size_t ct_storage_bf16_size(int64_t count)
{
    return (size_t)count * sizeof(ct_bf16) + CT_STORAGE_OUT * buffer_bytes(count);
}

ct_status ct_storage_open_bf16(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops ops = { .name = "bf16",
                                        .want = bf16_want,
                                        .done = bf16_done,
                                        .together = bf16_together,
                                        .close = bf16_close };
    size_t value = (size_t)count * sizeof(ct_bf16), buffer = buffer_bytes(count);
    bf16_storage *own;
    bool enough;

    (void)ctx;
    if (dev->kind != CT_DEVICE_CPU)
        return CT_FAIL(CT_ERR_CONFIG, "numbers of 16 bits in a storage of device %s", dev->name);
    own = ct_mem_acquire(sizeof(*own));
    if (own == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a storage");
    *own = (bf16_storage){ .value = ct_mem_acquire(value) };
    enough = (own->value != NULL);
    for (int k = 0; k < CT_STORAGE_OUT; k++) {
        own->buffer[k] = ct_mem_acquire(buffer);
        enough = enough && (own->buffer[k] != NULL);
    }
    if (!enough) {
        destroy(own);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a storage of %" PRId64 " numbers", count);
    }
    *s_p = (ct_storage){
        .ops = &ops, .dev = dev, .count = count, .bytes = ct_storage_bf16_size(count), .own = own
    };
    return CT_OK;
}
