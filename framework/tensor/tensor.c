#include "framework/tensor/tensor.h"

#include <stdio.h>
#include <string.h>

int64_t ct_tensor_stored(const ct_tensor *t)
{
    ct_shape padded = t->shape;
    int64_t block = t->layout.block;

    if ((block > 1) && (padded.ndim > 1))
        padded.dim[1] = (padded.dim[1] + block - 1) / block * block;
    return ct_shape_count(&padded, 0, -1);
}

size_t ct_tensor_bytes(const ct_tensor *t)
{
    return (size_t)ct_tensor_stored(t) * ct_dtype_size(t->dtype);
}

void ct_blob_set_storage(ct_blob *b, const ct_shape *shape, ct_layout layout, ct_dtype dtype)
{
    bool same = (shape->ndim < 2) || ((ct_shape_count(shape, 2, -1) == 1) && (layout.block > 0) &&
                                      (shape->dim[1] % layout.block == 0));

    if (same) layout.block = 0;
    b->data.shape = *shape;
    b->diff.shape = *shape;
    b->data.dtype = b->diff.dtype = dtype;
    b->data.layout = b->diff.layout = layout;
}

void ct_blob_set_layout(ct_blob *b, const ct_shape *shape, ct_layout layout)
{
    ct_blob_set_storage(b, shape, layout, CT_F32);
}

void ct_blob_set_shape(ct_blob *b, const ct_shape *shape)
{
    ct_blob_set_layout(b, shape, (ct_layout){ CT_ORDER_NCHW, 0 });
}

/* ---- shapes */

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

size_t ct_dtype_size(ct_dtype dtype)
{
    switch (dtype) {
    case CT_F32:
    case CT_I32:
        return 4;
    case CT_BF16:
    case CT_F16:
        return 2;
    case CT_U8:
        return 1;
    case CT_I64:
        return 8;
    }
    return 0;
}

/* ---- parts */

ct_range ct_range_of(int64_t n, int index, int count)
{
    int64_t each = n / count, more = n % count;

    return (ct_range){ index * each + ((index < more) ? index : more), each + (index < more) };
}

ct_shape ct_cut_shape(const ct_cut *c)
{
    ct_shape s = c->whole;

    if (c->n_range > 0) s.dim[c->axis] = 0;
    for (int r = 0; r < c->n_range; r++) s.dim[c->axis] += c->range[r].count;
    return s;
}

bool ct_cut_equal(const ct_cut *a, const ct_cut *b)
{
    if ((a->n_range != b->n_range) || !ct_shape_equal(&a->whole, &b->whole)) return false;
    if ((a->n_range > 0) && (a->axis != b->axis)) return false;
    for (int r = 0; r < a->n_range; r++) {
        if ((a->range[r].first != b->range[r].first) || (a->range[r].count != b->range[r].count))
            return false;
    }
    return true;
}

int64_t ct_cut_runs(const ct_cut *c)
{
    return (c->n_range > 0) ? ct_shape_count(&c->whole, 0, c->axis) * c->n_range : 1;
}

ct_cut_run ct_cut_run_at(const ct_cut *c, int64_t i)
{
    int64_t inner, mine = 0, before = 0, outer;

    if (c->n_range == 0) return (ct_cut_run){ 0, 0, ct_shape_count(&c->whole, 0, -1) };
    inner = ct_shape_count(&c->whole, c->axis + 1, -1);
    outer = i / c->n_range;
    for (int r = 0; r < c->n_range; r++) {
        if (r < i % c->n_range) before += c->range[r].count;
        mine += c->range[r].count;
    }
    return (ct_cut_run){ (outer * c->whole.dim[c->axis] + c->range[i % c->n_range].first) * inner,
                         (outer * mine + before) * inner, c->range[i % c->n_range].count * inner };
}

void ct_cut_take(const ct_cut *c, const float *whole, float *part)
{
    for (int64_t i = 0; i < ct_cut_runs(c); i++) {
        ct_cut_run r = ct_cut_run_at(c, i);

        memmove(part + r.part, whole + r.whole, (size_t)r.count * sizeof(float));
    }
}

void ct_cut_put(const ct_cut *c, const float *part, float *whole)
{
    for (int64_t i = 0; i < ct_cut_runs(c); i++) {
        ct_cut_run r = ct_cut_run_at(c, i);

        memcpy(whole + r.whole, part + r.part, (size_t)r.count * sizeof(float));
    }
}
