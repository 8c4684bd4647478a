/** @file filter.h  What Filter keeps between its passes, for every device; private to layers/. */
#ifndef CT_TYPES_FILTER_H
#define CT_TYPES_FILTER_H

#include "framework/net/layer.h"

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
