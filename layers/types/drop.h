/** @file drop.h  What Dropout, which leaves out numbers, and Filter, which leaves out samples,
 * share between the host and devices; private to layers/. */
#ifndef CT_TYPES_DROP_H
#define CT_TYPES_DROP_H

#include "framework/base/simd.h"
#include "framework/net/layer.h"

/* ---- Dropout: which random number an element of a blob draws */

typedef struct ct_dropout_state {
    uint64_t drop_below; /* of the 32-bit numbers: those below drop the element */
    float scale;
    uint64_t name_hash;
    ct_cut cut; /* of a part, along cut.axis */
} ct_dropout_state;

/** A blob as rows, in each of which the stream's numbers follow one another. A part's numbers are
 *  those of its elements in the whole. */
typedef struct ct_dropout_numbers {
    int64_t n_row, row; /* rows, elements in each                                 */
    uint64_t first;     /* number of row 0's first element                        */
    int64_t group;      /* so many rows are `within` numbers from one to the next */
    uint64_t within;
    uint64_t stride;  /* from a group's first number to the next one's          */
    int64_t at, step; /* row 0 in the blob, and elements from one row to the next */
} ct_dropout_numbers;

/** Of range k of a part; of what is whole there is one. */
ct_dropout_numbers ct_dropout_number(const ct_dropout_state *s, const ct_tensor *x,
                                     const ct_exec *ex, int k);

/** Number of a row's first element. */
CT_HD static inline uint64_t ct_dropout_first(const ct_dropout_numbers *r, int64_t row)
{
    return r->first + (uint64_t)(row / r->group) * r->stride +
           (uint64_t)(row % r->group) * r->within;
}

/* ---- Filter: what it keeps between its passes */

/* Buffer: how many samples are chosen, and which, in order, as int64_t. On devices, where the host
 * knows how many, as int32_t which they are, and behind room for all each sample's place among
 * them, -1 where it is not chosen. */
enum { CT_FILTER_ROWS };

/** Bytes of a sample. */
static inline size_t ct_filter_bytes(const ct_tensor *t)
{
    return (t->shape.dim[0] > 0) ? ct_tensor_bytes(t) / (size_t)t->shape.dim[0] : 0;
}

#endif
