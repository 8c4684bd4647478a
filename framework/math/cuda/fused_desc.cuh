/** @file fused_desc.cuh  What a product with something behind it is, without the library: how its
 * matrices lie, what it rounds, what cannot be. Private to fused_cuda.cu. */
#ifndef CT_MATH_FUSED_DESC_CUH
#define CT_MATH_FUSED_DESC_CUH

#include "framework/math/cuda/narrow.cuh"
#include "framework/math/fused.h"

/* Bits of a row of C. */
static const int64_t BIT_ROW = 128;

typedef struct stored {
    int64_t rows, columns, ld; /* as it lies here */
} stored;

static inline bool narrows(const ct_fused_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

static inline bool lies(const ct_fused_desc *d, unsigned side)
{
    return (d->narrow & side) != 0;
}

/* Whether a run rounds A or B. */
static inline bool rounds(const ct_fused_desc *d, unsigned side)
{
    return narrows(d) && !lies(d, side);
}

static inline stored side(const ct_fused_desc *d, unsigned which, bool turned, int64_t rows,
                          int64_t columns)
{
    stored s = { turned ? columns : rows, turned ? rows : columns, 0 };

    s.ld = rounds(d, which) ? ct_narrow_row(s.columns) : s.columns;
    return s;
}

static inline stored a_of(const ct_fused_desc *d)
{
    return side(d, CT_NARROW_A, d->ta, d->m, d->k);
}

static inline stored b_of(const ct_fused_desc *d)
{
    return side(d, CT_NARROW_B, d->tb, d->k, d->n);
}

static inline bool has_vector(const ct_fused_desc *d)
{
    return (d->behind & (CT_FUSE_BIAS | CT_FUSE_SUMS)) != 0;
}

static inline bool has_bits(const ct_fused_desc *d)
{
    return (d->behind & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
}

static inline int64_t bit_row(const ct_fused_desc *d)
{
    return (d->n + BIT_ROW - 1) / BIT_ROW * BIT_ROW;
}

static inline size_t bits_of(const ct_fused_desc *d)
{
    return (size_t)(d->m * bit_row(d) / 8);
}

static inline bool rounds_bias(const ct_fused_desc *d)
{
    return lies(d, CT_NARROW_C) && ((d->behind & CT_FUSE_BIAS) != 0);
}

/* What it does not do, whether or not its heuristics refuse it; NVIDIA's nvmath-python keeps away
 * from the same. Sums are made of operands as gradients of weights have them, and of more than one
 * number; and neither they nor a ReLU's gradient in depth 1. */
static inline bool is_possible(const ct_fused_desc *d)
{
    bool of_a = (d->behind & CT_FUSE_SUM_A) != 0, of_b = (d->behind & CT_FUSE_SUM_B) != 0;

    if (lies(d, CT_NARROW_C) && ((d->behind & CT_FUSE_SUMS) != 0)) return false;
    if ((d->k == 1) && ((d->behind & (CT_FUSE_DRELU | CT_FUSE_SUMS)) != 0)) return false;
    return !(of_a && (!d->ta || (d->m == 1))) && !(of_b && (d->tb || (d->n == 1)));
}

/* Rows of 16 bits as they lie. */
static inline bool rows_fit(const ct_fused_desc *d)
{
    bool a = !lies(d, CT_NARROW_A) || (a_of(d).columns % 8 == 0);
    bool b = !lies(d, CT_NARROW_B) || (b_of(d).columns % 8 == 0);

    return a && b && (!lies(d, CT_NARROW_C) || (d->n % 8 == 0)) && (narrows(d) || (d->narrow == 0));
}

#endif
