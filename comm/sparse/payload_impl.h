/** @file payload_impl.h  A payload taken apart. Private to wire*.c. */
#ifndef CT_PAYLOAD_IMPL_H
#define CT_PAYLOAD_IMPL_H

#include <stdbool.h>
#include <string.h>

#include "comm/sparse/payload.h"
#include "framework/base/bf16.h"
#include "framework/base/simd.h"

typedef enum {
    CT_CODE_PAIRS,
    CT_CODE_HALF,
    CT_CODE_MEAN32,
    CT_CODE_MEAN16,
    CT_CODE_DENSE32,
    CT_CODE_DENSE16,
    CT_CODE_N
} ct_payload_code;

typedef struct ct_payload_head {
    uint64_t bytes; /* head included */
    uint32_t code;
    float mean;
    int64_t n, count;
} ct_payload_head;

/** Where the pieces lie; NULL: the code has none. Borrows the payload. */
typedef struct ct_payload_view {
    ct_payload_code code;
    float mean;
    int64_t n, count;
    const uint32_t *index32, *per_block; /* [count], [blocks of n] */
    const uint16_t *index16, *half;      /* [count]; dense: half[n] */
    const float *value;                  /* [count]; dense: [n]     */
} ct_payload_view;

CT_HD static inline int64_t ct_payload_blocks(int64_t n)
{
    return (n + CT_PAYLOAD_BLOCK - 1) / CT_PAYLOAD_BLOCK;
}

/** The bf16 that HALF carries for v: it reaches as far as f32 but for the last half step below
 *  infinity, which becomes the largest number. */
CT_HD static inline uint16_t ct_payload_half_bits(float v)
{
    uint16_t h = ct_bf16_from_f32(v);
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return (((h & 0x7fffu) == 0x7f80u) && ((bits & 0x7fffffffu) != 0x7f800000u)) ? (uint16_t)(h - 1)
                                                                                 : h;
}

/** Bytes of a payload. */
CT_HD static inline size_t ct_payload_size(ct_payload_code code, int64_t n, int64_t count)
{
    size_t entries = (size_t)count, blocks = sizeof(uint32_t) * (size_t)ct_payload_blocks(n);

    switch (code) {
    case CT_CODE_PAIRS:
        return CT_PAYLOAD_HEAD + 8 * entries;
    case CT_CODE_HALF:
        return CT_PAYLOAD_HEAD + blocks + 4 * entries;
    case CT_CODE_MEAN32:
        return CT_PAYLOAD_HEAD + 4 * entries;
    case CT_CODE_MEAN16:
        return CT_PAYLOAD_HEAD + blocks + 2 * entries;
    case CT_CODE_DENSE32:
        return CT_PAYLOAD_HEAD + 4 * (size_t)n;
    default:
        return CT_PAYLOAD_HEAD + 2 * (size_t)n;
    }
}

/** As what it travels. */
CT_HD static inline ct_payload_code ct_payload_choose(ct_payload_form form, int64_t n,
                                                      int64_t count)
{
    ct_payload_code one = CT_CODE_PAIRS, other = CT_CODE_DENSE32;

    if (form == CT_PAYLOAD_HALF) {
        one = CT_CODE_HALF;
        other = CT_CODE_DENSE16;
    } else if (form == CT_PAYLOAD_MEAN) {
        one = CT_CODE_MEAN32;
        other = CT_CODE_MEAN16;
    }
    return (ct_payload_size(other, n, count) < ct_payload_size(one, n, count)) ? other : one;
}

/** Lays a payload of this code out; the head is checked elsewhere. */
void ct_payload_lay_out(const void *payload, ct_payload_code code, int64_t n, int64_t count,
                        ct_payload_view *v);
/** Checks the head against bytes and n, and the blocks' counts against the head. The indices are
 *  for the reader to check. CT_ERR_COMM. */
ct_status ct_payload_open(const void *payload, size_t bytes, int64_t n, ct_payload_view *v);

#endif
