/** @file dropout.h  Which random number an element of a blob draws: what Dropout's two sides share.
 * Private to layers/. */
#ifndef CT_TYPES_DROPOUT_H
#define CT_TYPES_DROPOUT_H

#include "framework/net/layer.h"

typedef struct ct_dropout_state {
    uint64_t drop_below; /* of the 32-bit numbers: those below drop the element */
    float scale;
    uint64_t name_hash;
} ct_dropout_state;

/** A blob as rows, in each of which the stream's numbers follow one another. */
typedef struct ct_dropout_numbers {
    int64_t n_row, row; /* rows, elements in each                       */
    uint64_t first;     /* number of row 0's first element              */
    uint64_t stride;    /* from a row's first number to the next one's  */
} ct_dropout_numbers;

ct_dropout_numbers ct_dropout_number(const ct_tensor *x, const ct_exec *ex);

#endif
