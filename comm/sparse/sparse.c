#include "comm/sparse/sparse.h"

#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/simd.h"

enum {
    BIN_BITS = 12,
    BINS = 1 << BIN_BITS, /* counted at once                          */
    FEW = 64,             /* of a bin: each compared with all of them */
    MAGNITUDE = 0x7fffffff
};

CT_SIMD_PART uint32_t magnitude(float f)
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

/* The least and the largest magnitude. */
CT_SIMD_CLONES static void span(const float *value, int64_t count, int32_t *least_p,
                                int32_t *most_p)
{
    int32_t least = MAGNITUDE, most = 0;

#pragma omp simd reduction(min : least) reduction(max : most)
    for (int64_t j = 0; j < count; ++j) {
        int32_t m = (int32_t)magnitude(value[j]);

        least = (m < least) ? m : least;
        most = (m > most) ? m : most;
    }
    *least_p = least;
    *most_p = most;
}

/* Which of BINS bins of 2^shift magnitudes, from `from` on; BINS: none of them. */
static uint32_t bin_of(float value, uint32_t from, int shift)
{
    uint32_t bin = (magnitude(value) - from) >> shift;

    return (bin < BINS) ? bin : BINS;
}

/* The bin, from the last of n_bin, that holds the *k_p-th of those in bins; *k_p becomes its place
 * in there, *held_p how many are in there. */
static uint32_t narrow(const float *value, int64_t count, uint32_t from, int shift, uint32_t n_bin,
                       int64_t *k_p, int64_t *held_p)
{
    uint32_t seen[BINS + 1] = { 0 }, bin = n_bin - 1;
    int64_t above = 0;

    for (int64_t j = 0; j < count; ++j) seen[bin_of(value[j], from, shift)] += 1;
    while (above + seen[bin] < *k_p) above += seen[bin--];
    *k_p -= above;
    *held_p = seen[bin];
    return bin;
}

/* The *k_p-th of the `held` values, at most FEW, in a bin; *k_p becomes its place among equals. */
static uint32_t among_few(const float *value, int64_t count, uint32_t from, int shift, uint32_t bin,
                          int64_t held, int64_t *k_p)
{
    uint32_t few[FEW + 1];
    int64_t at = 0;

    for (int64_t j = 0; j < count; ++j) {
        few[at] = magnitude(value[j]);
        at += (bin_of(value[j], from, shift) == bin);
    }
    for (int64_t i = 0; i < held; ++i) {
        int64_t more = 0, equal = 0;

        for (int64_t j = 0; j < held; ++j) {
            more += (few[j] > few[i]);
            equal += (few[j] == few[i]);
        }
        if ((more >= *k_p) || (more + equal < *k_p)) continue;
        *k_p -= more;
        return few[i];
    }
    return 0; /* there are `held`, so never */
}

/* Bins of what there is, not of all numbers: magnitudes that were selected lie in few octaves, and
 * increments of one and the same counter would wait for each other. */
void ct_sparse_kth(const float *value, int64_t count, int64_t k, uint32_t *bits_p, int64_t *equal_p)
{
    int32_t least = 0, most = 0;
    uint32_t from = 0, n_bin = BINS;
    int shift = 0;

    *equal_p = (k >= count) ? count : 0;
    *bits_p = (k <= 0) ? UINT32_MAX : 0;
    if ((k <= 0) || (k >= count)) return;
    span(value, count, &least, &most);
    from = (uint32_t)least;
    while (((uint32_t)(most - least) >> shift) >= BINS) shift += 1;
    for (;;) {
        int64_t held = 0;
        uint32_t bin = narrow(value, count, from, shift, n_bin, &k, &held);

        if ((shift > 0) && (held <= FEW)) {
            *bits_p = among_few(value, count, from, shift, bin, held, &k);
            break;
        }
        from += bin << shift;
        *bits_p = from;
        if (shift == 0) break;
        n_bin = 1u << ((shift < BIN_BITS) ? shift : BIN_BITS);
        shift = (shift > BIN_BITS) ? shift - BIN_BITS : 0;
    }
    *equal_p = k;
}

void ct_sparse_keep(ct_sparse *s, int64_t k, const ct_residual_return *dropped)
{
    uint32_t threshold;
    int64_t equal, at = 0;

    if (k >= s->count) return;
    if (dropped != NULL) ct_residual_return_next(dropped);
    ct_sparse_kth(s->value, s->count, k, &threshold, &equal);
    for (int64_t j = 0; j < s->count; ++j) { /* which stay cannot be foreseen: no branch on it */
        float value = s->value[j];
        uint32_t m = magnitude(value), index = s->index[j];
        bool tie = (m == threshold) & (equal > 0), stays = (m > threshold) | tie;

        equal -= tie;
        if ((dropped != NULL) && !stays) ct_residual_return_add(dropped, index, value);
        s->index[at] = index;
        s->value[at] = value;
        at += stays;
    }
    s->count = at;
}

void ct_residual_return_note(const ct_residual_return *d, int64_t i, float value)
{
    ct_residual_return_list *list = d->list;

    if ((list == NULL) || (value == 0)) return;
    if (list->entry.count == list->entry.room) {
        list->full = true;
        return;
    }
    list->entry.index[list->entry.count] = (uint32_t)(d->first + i);
    list->entry.value[list->entry.count++] = value;
}

void ct_residual_return_next(const ct_residual_return *d)
{
    ct_residual_return_list *list = d->list;
    int64_t last = 0;

    if (list == NULL) return;
    if (list->n_batch > 0) last = list->end[list->n_batch - 1];
    if (list->entry.count == last) return;
    if (list->n_batch == CT_RESIDUAL_RETURN_BATCHES)
        list->full = true;
    else
        list->end[list->n_batch++] = list->entry.count;
}

void ct_residual_return_clear(ct_residual_return_list *list)
{
    list->entry.count = 0;
    list->n_batch = 0;
    list->full = false;
}
