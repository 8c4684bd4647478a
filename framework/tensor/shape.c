#include "framework/tensor/shape.h"

#include <stdio.h>

ct_shape_text ct_shape_str(const ct_shape *s)
{
    ct_shape_text out = { "" };
    size_t used = 0;
    int64_t n = 1;
    bool too_large = false;

    for (int i = 0; i < s->ndim; i++) {
        used += (size_t)snprintf(out.text + used, sizeof(out.text) - used, "%lld ",
                                 (long long)s->dim[i]);
        if (used >= sizeof(out.text)) return out;
    }
    for (int i = 0; i < s->ndim; i++) too_large |= __builtin_mul_overflow(n, s->dim[i], &n);
    if (too_large)
        snprintf(out.text + used, sizeof(out.text) - used, "(over 2^63)");
    else
        snprintf(out.text + used, sizeof(out.text) - used, "(%lld)", (long long)n);
    return out;
}

bool ct_shape_is_valid(const ct_shape *s)
{
    int64_t n = 1;

    if ((s->ndim < 0) || (s->ndim > CT_MAX_DIM)) return false;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] < 0) return false;
        /* beside an axis without elements, too: parts of a shape are multiplied as well */
        if (__builtin_mul_overflow(n, (s->dim[i] > 0) ? s->dim[i] : 1, &n) ||
            (n > ((int64_t)1 << 62) / 8))
            return false;
    }
    return true;
}

ct_status ct_shape_check(const ct_shape *s)
{
    if ((s->ndim < 0) || (s->ndim > CT_MAX_DIM))
        return CT_FAIL(CT_ERR_SHAPE, "%d dimensions, at most %d are supported", s->ndim,
                       CT_MAX_DIM);
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] < 0)
            return CT_FAIL(CT_ERR_SHAPE, "dimension %d is %lld", i, (long long)s->dim[i]);
    }
    if (!ct_shape_is_valid(s))
        return CT_FAIL(CT_ERR_SHAPE, "the shape %s is too large", ct_shape_str(s).text);
    return CT_OK;
}
