/** @file wire_impl.h  A payload taken apart. Private to wire*.c. */
#ifndef CT_WIRE_IMPL_H
#define CT_WIRE_IMPL_H

#include <stdbool.h>

#include "comm/wire.h"

typedef enum {
    CT_CODE_PAIRS,
    CT_CODE_HALF,
    CT_CODE_MEAN32,
    CT_CODE_MEAN16,
    CT_CODE_DENSE32,
    CT_CODE_DENSE16,
    CT_CODE_N
} ct_wire_code;

typedef struct ct_wire_head {
    uint64_t bytes; /* head included */
    uint32_t code;
    float mean;
    int64_t n, count;
} ct_wire_head;

/** Where the pieces lie; NULL: the code has none. Borrows the payload. */
typedef struct ct_wire_view {
    ct_wire_code code;
    float mean;
    int64_t n, count;
    const uint32_t *index32, *per_block; /* [count], [blocks of n] */
    const uint16_t *index16, *half;      /* [count]; dense: half[n] */
    const float *value;                  /* [count]; dense: [n]     */
} ct_wire_view;

static inline int64_t ct_wire_blocks(int64_t n)
{
    return (n + CT_WIRE_BLOCK - 1) / CT_WIRE_BLOCK;
}

/** As what it travels. */
ct_wire_code ct_wire_choose(ct_wire_form form, int64_t n, int64_t count);
size_t ct_wire_size(ct_wire_code code, int64_t n, int64_t count);
/** Lays a payload of this code out; the head is checked elsewhere. */
void ct_wire_lay_out(const void *payload, ct_wire_code code, int64_t n, int64_t count,
                     ct_wire_view *v);
/** Checks the head against bytes and n, and the blocks' counts against the head. The indices are
 *  for the reader to check. CT_ERR_COMM. */
ct_status ct_wire_open(const void *payload, size_t bytes, int64_t n, ct_wire_view *v);

#endif
