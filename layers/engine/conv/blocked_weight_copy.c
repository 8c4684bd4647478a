/* Units of weight gradients whose operands are rounded on the way: copies in words. */
#include "layers/engine/conv/blocked_weight.h"

/* A unit's copy where operands are rounded: places j and j + 1 of dy are a word, the last one's
 * partner a zero; so x's words are of places that are a stride apart, at every place that a tap may
 * begin at. Without taps that share them only every other one is there. */
static int64_t pairs_of(const ct_grad_plan *p, int64_t cols)
{
    return blk_count(cols, p->set.pair);
}

static int64_t x_step(const ct_conv_desc *d, const ct_grad_plan *p)
{
    return (d->kw == 1) ? p->set.pair * d->sw : 1;
}

static int64_t x_places(const ct_conv_desc *d, const ct_grad_plan *p, int64_t cols)
{
    int64_t last = (pairs_of(p, cols) - 1) * p->set.pair * d->sw;

    return (d->kw == 1) ? pairs_of(p, cols) : last + (d->kw - 1) * d->dw + 1;
}

static int64_t x_rows(const ct_conv_desc *d, int64_t rows)
{
    return (rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;
}

int64_t ct_grad_copied(const ct_conv_desc *d, const ct_grad_plan *p)
{
    int64_t x = x_rows(d, p->rows) * x_places(d, p, p->cols);

    if (p->set.narrow == NULL) return 0;
    return p->images * p->set.b * (p->in_step * x + p->out_step * p->rows * pairs_of(p, p->cols));
}

void ct_grad_add_copies(const ct_conv_desc *d, const ct_grad_plan *p, const ct_grad_place *l,
                        float *dw)
{
    int64_t b = p->set.b, vecs = blk_smaller(p->out_block - l->block, CT_BLK_MAX_VECS);
    int64_t real = blk_smaller(p->in - l->k * b, b);
    int64_t n_part = blk_count(real, p->set.max_tile[vecs - 1]);
    int64_t x_row = x_places(d, p, l->j_end - l->j) * b, rows = l->i_end - l->i;
    ct_blk_grad t = { .images = l->images,
                      .cols = pairs_of(p, l->j_end - l->j),
                      .x_image = l->x_rows * x_row,
                      .x_row = d->sh * x_row,
                      .x_step = ((d->kw == 1) ? 1 : p->set.pair * d->sw) * b };
    const float *x = l->x + (l->k - l->first_k) * l->images * t.x_image;

    t.dy_row = t.cols * b;
    t.dy_image = rows * t.dy_row;
    t.dy_block = l->images * t.dy_image;
    for (int64_t tap = 0; tap < d->kh * d->kw; tap++, dw += b * vecs * b) {
        int64_t row = tap / d->kw * d->dh - d->ph, col = tap % d->kw * d->dw, i, i_end;

        valid_range(row, d->sh, d->h, d->oh, &i, &i_end);
        i = blk_larger(i, l->i), i_end = blk_smaller(i_end, l->i_end);
        if (i >= i_end) continue;
        t.rows = i_end - i;
        t.dy = l->dy + (l->block - l->first_block) * t.dy_block + (i - l->i) * t.dy_row;
        for (int64_t v = 0; v < n_part; v++) {
            int64_t c = real * v / n_part, end = real * (v + 1) / n_part;

            t.x = x + (i * d->sh + row - l->x_top) * x_row + col * b + c;
            t.dw = dw + c * vecs * b;
            p->set.grads[vecs - 1][end - c - 1](&t);
        }
    }
}

/* One row of x from column `col` on, `places` words of each channel. */
static void copy_x_row(const ct_conv_desc *d, const ct_grad_plan *p, const float *x, int64_t col,
                       int64_t places, float *to)
{
    static const float zeros[CT_BLK_MAX];
    bool h = d->x_bf16;
    void (*across)(int64_t, int64_t, const float *, const float *, int64_t, float *, int64_t) =
        h ? p->set.narrow->across_bf16 : p->set.narrow->across;
    int64_t b = p->set.b, step = x_step(d, p), partner = (p->set.pair == 2) ? d->sw : 0, lo, hi;

    /* both are inside from lo to hi */
    valid_range(col, step, d->w - partner, places, &lo, &hi);
    for (int64_t t = 0; t < places; t++) {
        int64_t a = col + t * step, c = a + partner;
        bool has_a = (a >= 0) && (a < d->w), has_c = (c >= 0) && (c < d->w);

        if ((t >= lo) && (t < hi)) continue;
        across(1, b, has_a ? ct_num_at(x, h, a * b) : zeros, has_c ? ct_num_at(x, h, c * b) : NULL,
               0, to + t * b, 0);
    }
    if (lo >= hi) return;
    x = ct_num_at(x, h, (col + lo * step) * b);
    if (step == 1)
        across(1, (hi - lo) * b, x, ct_num_at(x, h, partner * b), 0, to + lo * b, 0);
    else
        across(hi - lo, b, x, ct_num_at(x, h, partner * b), step * b, to + lo * b, b);
}

/* One row of dy: pairs of its places, the last one alone where they are odd. */
static void copy_dy_row(const ct_grad_plan *p, bool h, const float *dy, int64_t cols, float *to)
{
    void (*across)(int64_t, int64_t, const float *, const float *, int64_t, float *, int64_t) =
        h ? p->set.narrow->across_bf16 : p->set.narrow->across;
    int64_t b = p->set.b, pair = p->set.pair, n = cols / pair;

    across(n, b, dy, ct_num_at(dy, h, b), pair * b, to, b);
    if (n * pair < cols) across(1, b, ct_num_at(dy, h, n * pair * b), NULL, 0, to + n * b, 0);
}

void ct_grad_copy_unit(const ct_conv_desc *d, const ct_grad_plan *p, const ct_conv_args *a,
                       ct_grad_place *l, int64_t last_k, int64_t last_block, float *own)
{
    int64_t b = p->set.b, cols = l->j_end - l->j, places = x_places(d, p, cols);
    int64_t end = blk_smaller(l->i * d->sh - d->ph + x_rows(d, l->i_end - l->i), d->h);

    l->x_top = blk_smaller(blk_larger(l->i * d->sh - d->ph, 0), d->h);
    l->x_rows = blk_larger(end - l->x_top, 0);
    l->x = own;
    for (int64_t k = l->first_k; k < last_k; k++) {
        for (int64_t n = l->n; n < l->n + l->images; n++) {
            int64_t plane = ((n * d->group + l->g) * p->in_block + k) * in_size(d);

            for (int64_t r = l->x_top; r < l->x_top + l->x_rows; r++, own += places * b)
                copy_x_row(d, p, ct_num_at(a->x, d->x_bf16, (plane + r * d->w) * b),
                           l->j * d->sw - d->pw, places, own);
        }
    }
    l->dy = own;
    for (int64_t k = l->first_block; k < last_block; k++) {
        for (int64_t n = l->n; n < l->n + l->images; n++) {
            int64_t plane = ((n * d->group + l->g) * p->out_block + k) * out_size(d);

            for (int64_t i = l->i; i < l->i_end; i++, own += pairs_of(p, cols) * b)
                copy_dy_row(p, d->y_bf16,
                            ct_num_at(a->dy, d->y_bf16, (plane + i * d->ow + l->j) * b), cols, own);
        }
    }
}
