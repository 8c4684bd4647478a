#include "layers/types/strided.h"

#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"

#include <string.h>

void ct_strided_axis(ct_strided *s, int64_t dim, int64_t from, int64_t to)
{
    int last = s->n - 1;

    if (dim == 1) return;
    if ((last >= 0) && (s->from[last] == from * dim) && (s->to[last] == to * dim)) {
        s->dim[last] *= dim; /* one behind the other on both sides */
        s->from[last] = from;
        s->to[last] = to;
        return;
    }
    s->dim[s->n] = dim;
    s->from[s->n] = from;
    s->to[s->n++] = to;
}

ct_strided ct_strided_part(const ct_shape *whole, const ct_shape *part, const int64_t *at)
{
    ct_strided s = { 0 };

    for (int i = 0; i < whole->ndim; i++) {
        int64_t step = ct_shape_count(whole, i + 1, -1);

        s.from_first += at[i] * step;
        ct_strided_axis(&s, part->dim[i], step, ct_shape_count(part, i + 1, -1));
    }
    return s;
}

ct_strided ct_strided_turn(const ct_strided *s)
{
    ct_strided t = *s;

    memcpy(t.from, s->to, sizeof(t.from));
    memcpy(t.to, s->from, sizeof(t.to));
    t.from_first = s->to_first;
    t.to_first = s->from_first;
    return t;
}

/* The two axes that run innermost, and the others. */
typedef struct loops {
    ct_strided outer;
    int64_t n_outer, rows, row_from, row_to, cols, from, to;
} loops;

static int nearest(const int64_t *step, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++) {
        if (step[i] < step[best]) best = i;
    }
    return best;
}

/* Columns are neighbours where they are written, rows where they are read, so that small tiles of
 * both use whole lines of the cache. */
static loops order(const ct_strided *s)
{
    loops l = { .n_outer = 1, .rows = 1, .cols = 1 };
    int col = nearest(s->to, s->n), row = nearest(s->from, s->n);

    if (s->n == 0) return l;
    if (row == col) row = (s->n > 1) ? ((col == 0) ? 1 : col - 1) : -1;
    l.cols = s->dim[col];
    l.from = s->from[col];
    l.to = s->to[col];
    if (row >= 0) {
        l.rows = s->dim[row];
        l.row_from = s->from[row];
        l.row_to = s->to[row];
    }
    for (int i = 0; i < s->n; i++) {
        int k = l.outer.n;

        if ((i == col) || (i == row)) continue;
        l.outer.dim[k] = s->dim[i];
        l.outer.from[k] = s->from[i];
        l.outer.to[k] = s->to[i];
        l.outer.n++;
        l.n_outer *= s->dim[i];
    }
    return l;
}

static void copy_tile(const loops *l, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                      const float *from, float *to)
{
    for (int64_t r = r0; r < r1; r++) {
        const float *f = from + r * l->row_from;
        float *t = to + r * l->row_to;

        if ((l->from == 1) && (l->to == 1)) {
            memcpy(t + c0, f + c0, (size_t)(c1 - c0) * sizeof(*t));
        } else if (l->to == 1) {
            for (int64_t c = c0; c < c1; c++) t[c] = f[c * l->from];
        } else {
            for (int64_t c = c0; c < c1; c++) t[c * l->to] = f[c * l->from];
        }
    }
}

void ct_strided_copy(const ct_strided *s, const float *from, float *to)
{
    enum { ROWS = 16, COLS = 16, LONG = 1 << 14 };
    loops l = order(s);
    bool dense = (l.from == 1) && (l.to == 1); /* then rows are copied whole, or in long pieces */
    int64_t wide = dense ? LONG : COLS, tall = dense ? 1 : ROWS;
    int64_t n_r = (l.rows + tall - 1) / tall, n_c = (l.cols + wide - 1) / wide;
    int64_t n = l.n_outer * n_r * n_c;

#pragma omp parallel for schedule(static) if (l.n_outer * l.rows * l.cols >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        int64_t r = k / n_c % n_r * tall, c = k % n_c * wide, rest = k / (n_c * n_r);
        int64_t at_from = s->from_first, at_to = s->to_first;

        for (int i = l.outer.n - 1; i >= 0; i--) {
            at_from += rest % l.outer.dim[i] * l.outer.from[i];
            at_to += rest % l.outer.dim[i] * l.outer.to[i];
            rest /= l.outer.dim[i];
        }
        copy_tile(&l, r, (r + tall < l.rows) ? r + tall : l.rows, c,
                  (c + wide < l.cols) ? c + wide : l.cols, from + at_from, to + at_to);
    }
}

static bool is_empty(const ct_blob *b)
{
    return ct_tensor_count(&b->data) == 0;
}

ct_status ct_move_forward(const ct_instance *in, ct_exec *ex, ct_move_fn plan)
{
    for (int t = 0; t < in->layer->n_top; t++) {
        ct_strided s = { 0 };

        if (is_empty(in->top[t])) continue;
        plan(in, t, &s);
        CT_TRY(
            ct_kernels(ex)->strided(ex, &s, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[t])));
    }
    return CT_OK;
}

ct_status ct_move_backward(const ct_instance *in, ct_exec *ex, ct_move_fn plan, bool partly)
{
    float *dx = ct_blob_diff(in->bottom[0]);

    if (dx == NULL) return CT_OK;
    if (partly) CT_TRY(ex->dev->zero(ex->stream, dx, ct_tensor_bytes(&in->bottom[0]->diff)));
    for (int t = 0; t < in->layer->n_top; t++) {
        ct_strided s = { 0 }, back;

        if (is_empty(in->top[t])) continue;
        plan(in, t, &s);
        back = ct_strided_turn(&s);
        CT_TRY(ct_kernels(ex)->strided(ex, &back, ct_blob_diff(in->top[t]), dx));
    }
    return CT_OK;
}
