#include "comm/sparse.h"

#include <string.h>

#include "comm/drops.h"
#include "framework/base/memory.h"

enum {
    TOP_BINS = 1 << 11, /* bits 30 to 20 of the magnitude */
    BINS = 1 << 10,     /* bits 19 to 10, 9 to 0          */
    MAGNITUDE = 0x7fffffff
};

static uint32_t magnitude(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits & MAGNITUDE;
}

static int64_t larger(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

ct_status ct_sparse_reserve(ct_sparse *s, int64_t room)
{
    uint32_t *index = NULL;
    float *value = NULL;

    if (room <= s->room) return CT_OK;
    room = larger(room, s->room + s->room / 2); /* so that growing little by little costs little */
    index = ct_mem_acquire((size_t)room * sizeof(*index));
    value = ct_mem_acquire((size_t)room * sizeof(*value));
    if ((index == NULL) || (value == NULL)) {
        ct_mem_release(index);
        ct_mem_release(value);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements of a sparse vector",
                       (long long)room);
    }
    if (s->count > 0) {
        memcpy(index, s->index, (size_t)s->count * sizeof(*index));
        memcpy(value, s->value, (size_t)s->count * sizeof(*value));
    }
    ct_mem_release(s->index);
    ct_mem_release(s->value);
    s->index = index;
    s->value = value;
    s->room = room;
    return CT_OK;
}

void ct_sparse_destroy(ct_sparse *s)
{
    ct_mem_release(s->index);
    ct_mem_release(s->value);
    *s = (ct_sparse){ 0 };
}

void ct_sparse_add_to(const ct_sparse *s, float *dense)
{
    for (int64_t j = 0; j < s->count; ++j) dense[s->index[j]] += s->value[j];
}

ct_status ct_sparse_merge(const ct_sparse *a, const ct_sparse *b, ct_sparse *out)
{
    int64_t i = 0, j = 0, at = 0;

    if (a->n != b->n)
        return CT_FAIL(CT_ERR_ARG, "sparse vectors of %lld and %lld elements cannot be merged",
                       (long long)a->n, (long long)b->n);
    out->count = 0;
    CT_TRY(ct_sparse_reserve(out, a->count + b->count));
    while ((i < a->count) && (j < b->count)) {
        uint32_t p = a->index[i], q = b->index[j];

        out->index[at] = (p < q) ? p : q;
        out->value[at] = (p < q) ? a->value[i] : (q < p) ? b->value[j] : a->value[i] + b->value[j];
        i += (p <= q);
        j += (q <= p);
        at += 1;
    }
    for (; i < a->count; ++i, ++at) {
        out->index[at] = a->index[i];
        out->value[at] = a->value[i];
    }
    for (; j < b->count; ++j, ++at) {
        out->index[at] = b->index[j];
        out->value[at] = b->value[j];
    }
    out->n = a->n;
    out->count = at;
    return CT_OK;
}

/* Of the values whose bits above `shift + bits` are `prefix`: how many there are with each value of
 * the next `bits` bits. Narrows to the bin, from the top, that holds the *k-th of them, and leaves
 * in *k its place in there. */
static uint32_t narrow(const float *value, int64_t count, int shift, int bits, uint32_t prefix,
                       int64_t *k)
{
    int64_t seen[TOP_BINS] = { 0 };
    uint32_t mask = (1u << bits) - 1, bin = mask;
    int64_t above = 0;

    for (int64_t j = 0; j < count; ++j) {
        uint32_t m = magnitude(value[j]);

        if ((m >> shift >> bits) == prefix) seen[(m >> shift) & mask] += 1;
    }
    while (above + seen[bin] < *k) above += seen[bin--];
    *k -= above;
    return (prefix << bits) | bin;
}

void ct_sparse_kth(const float *value, int64_t count, int64_t k, uint32_t *bits_p, int64_t *equal_p)
{
    uint32_t prefix;

    *equal_p = (k >= count) ? count : 0;
    *bits_p = (k <= 0) ? UINT32_MAX : 0;
    if ((k <= 0) || (k >= count)) return;
    prefix = narrow(value, count, 20, 11, 0, &k);
    prefix = narrow(value, count, 10, 10, prefix, &k);
    *bits_p = narrow(value, count, 0, 10, prefix, &k);
    *equal_p = k;
}

void ct_sparse_keep(ct_sparse *s, int64_t k, const ct_drops *dropped)
{
    uint32_t threshold;
    int64_t equal, at = 0;

    if (k >= s->count) return;
    if (dropped != NULL) ct_drop_next(dropped);
    ct_sparse_kth(s->value, s->count, k, &threshold, &equal);
    for (int64_t j = 0; j < s->count; ++j) { /* which stay cannot be foreseen: no branch on it */
        float value = s->value[j];
        uint32_t m = magnitude(value), index = s->index[j];
        bool tie = (m == threshold) & (equal > 0), stays = (m > threshold) | tie;

        equal -= tie;
        if ((dropped != NULL) && !stays) ct_drop(dropped, index, value);
        s->index[at] = index;
        s->value[at] = value;
        at += stays;
    }
    s->count = at;
}
