/** @file pack.h  A batch as bytes in one piece, for a device that transforms it.
 *
 * What a sample's transform takes of it (its window: the crop, or all) lies in the block as it was
 * decoded: a byte or a float a value, channel by channel and not mirrored. Where it was taken
 * stands beside it. The device does the rest: (value - mean) * scale, the mirroring, the border. So
 * a quarter of the bytes goes up, and no host thread does arithmetic; draws, and the operations on
 * each value, are those of ct_transform_apply(), so the result is the same bit by bit.
 *
 * The block: a ct_pack_place a sample, then the further fields, then the values; each from a
 * multiple of CT_ALIGN on.
 */
#ifndef CT_PACK_H
#define CT_PACK_H

#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/data/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where a sample's window lies in it; with a border it may reach out. */
typedef struct ct_pack_place {
    int32_t top, left;
    int32_t height, width; /* of the sample */
    int32_t mirrored;
    int32_t unused[3];
} ct_pack_place;

/** The same for all batches of a loader. */
typedef struct ct_pack {
    int64_t samples;
    int64_t channels, height, width; /* of a window */
    bool wide;                       /* values are floats, not bytes */
    size_t rest_at[CT_MAX_FIELD], values_at, bytes;
} ct_pack;

/** The arithmetic of a transform. */
typedef struct ct_pack_rule {
    const float *mean; /* where the values are made; NULL: none */
    int64_t n_mean;    /* 1, one a channel, or with mean_file one a value of a sample */
    bool mean_file;
    bool computes; /* false: values go through as they are */
    float scale;
} ct_pack_rule;

/** Whether a batch of such windows can be laid out: what follows counts in 32 bits. */
static inline bool ct_pack_can(const ct_shape *window)
{
    return ct_shape_count(window, 0, -1) <= INT32_MAX;
}
/** Lays out batches of `samples`: window: of field 0 as it comes out; count[f]: values of field f
 *  in a batch. */
static inline ct_pack ct_pack_lay(int64_t samples, const ct_shape *window, bool wide, int n_field,
                                  const int64_t *count)
{
    ct_pack p = { .samples = samples, .channels = 1, .height = 1, .wide = wide };
    size_t at = ct_align_up((size_t)samples * sizeof(ct_pack_place));

    p.width = ct_shape_count(window, 0, -1);
    if (window->ndim == 3) {
        p.channels = window->dim[0];
        p.height = window->dim[1];
        p.width = window->dim[2];
    }
    for (int f = 1; f < n_field; f++) {
        p.rest_at[f] = at;
        at += ct_align_up((size_t)count[f] * sizeof(float));
    }
    p.values_at = at;
    p.bytes = at + ct_align_up((size_t)count[0] * (wide ? sizeof(float) : 1));
    return p;
}

/** Value i of field 0 of a batch in `block`, counted as it comes out. Within a sample 32 bits
 * count: divisions of 64 are slow on GPUs. */
CT_HD static inline float ct_pack_value(const ct_pack *p, const ct_pack_rule *r, const void *block,
                                        int64_t i)
{
    int64_t size = p->channels * p->height * p->width, sample = i / size;
    uint32_t e = (uint32_t)(i - sample * size), line = e / (uint32_t)p->width;
    uint32_t x = e - line * (uint32_t)p->width, c = line / (uint32_t)p->height;
    uint32_t y = line - c * (uint32_t)p->height;
    const ct_pack_place *at = (const ct_pack_place *)block + sample;
    const char *values = (const char *)block + p->values_at;
    int64_t from = at->mirrored ? p->width - 1 - x : x, index = i - x + from;
    int64_t row = at->top + (int64_t)y, column = at->left + from;
    float v, mean = 0.0f;

    if ((row < 0) || (row >= at->height) || (column < 0) || (column >= at->width)) return 0.0f;
    v = p->wide ? ((const float *)values)[index] : (float)((const uint8_t *)values)[index];
    if (!r->computes) return v;
    if (r->mean_file)
        mean = r->mean[(c * at->height + row) * at->width + column];
    else if (r->mean != NULL)
        mean = r->mean[(r->n_mean > 1) ? c : 0];
    return (v - mean) * r->scale;
}

#ifdef __cplusplus
}
#endif

#endif
