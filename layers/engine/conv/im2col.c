#include "framework/base/simd.h"
#include "layers/engine/conv/conv_private.h"

#include <string.h>

/* One kernel tap (p, q) of one channel: OH x OW values. */
static inline void unfold_tap(const ct_conv_desc *d, int64_t p, int64_t q, const float *x,
                              float *col)
{
    int64_t top = p * d->dh - d->ph, left = q * d->dw - d->pw;
    int64_t i_lo, i_hi, j_lo, j_hi;

    valid_range(top, d->sh, d->h, d->oh, &i_lo, &i_hi);
    valid_range(left, d->sw, d->w, d->ow, &j_lo, &j_hi);
    zero_row(col, i_lo * d->ow);
    for (int64_t i = i_lo; i < i_hi; i++) {
        const float *from = x + (i * d->sh + top) * d->w + left;
        float *to = col + i * d->ow;

        zero_row(to, j_lo);
        pick_row(to + j_lo, from + j_lo * d->sw, j_hi - j_lo, d->sw);
        zero_row(to + j_hi, d->ow - j_hi);
    }
    zero_row(col + i_hi * d->ow, (d->oh - i_hi) * d->ow);
}

CT_SIMD_CLONES void ct_im2col(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *x,
                              float *col)
{
    for (int64_t c = c_from; c < c_to; c++) {
        for (int64_t p = 0; p < d->kh; p++) {
            for (int64_t q = 0; q < d->kw; q++)
                unfold_tap(d, p, q, x + c * in_size(d),
                           col + ((c * d->kh + p) * d->kw + q) * out_size(d));
        }
    }
}

static inline void fold_tap(const ct_conv_desc *d, int64_t p, int64_t q, const float *col,
                            float *dx)
{
    int64_t top = p * d->dh - d->ph, left = q * d->dw - d->pw;
    int64_t i_lo, i_hi, j_lo, j_hi;

    valid_range(top, d->sh, d->h, d->oh, &i_lo, &i_hi);
    valid_range(left, d->sw, d->w, d->ow, &j_lo, &j_hi);
    for (int64_t i = i_lo; i < i_hi; i++) {
        float *to = dx + (i * d->sh + top) * d->w + left;
        const float *from = col + i * d->ow;

        if (d->sw == 1) {
#pragma omp simd
            for (int64_t j = j_lo; j < j_hi; j++) to[j] += from[j];
        } else {
            for (int64_t j = j_lo; j < j_hi; j++) to[j * d->sw] += from[j];
        }
    }
}

CT_SIMD_CLONES void ct_col2im(const ct_conv_desc *d, int64_t c_from, int64_t c_to, const float *col,
                              float *dx)
{
    for (int64_t c = c_from; c < c_to; c++) {
        zero_row(dx + c * in_size(d), in_size(d));
        for (int64_t p = 0; p < d->kh; p++) {
            for (int64_t q = 0; q < d->kw; q++)
                fold_tap(d, p, q, col + ((c * d->kh + p) * d->kw + q) * out_size(d),
                         dx + c * in_size(d));
        }
    }
}
