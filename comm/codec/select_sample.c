/* A bound for the exact selection where no earlier step has left one. */
#include <math.h>

#include "comm/codec/select_impl.h"

enum {
    LINE = 16,         /* elements of a cache line */
    SAMPLE_MIN = 4096, /* elements                 */
    SAMPLE_MAX = 1 << 17,
    SAMPLE_SELECTED = 64, /* as many of a sample should be selected */
    SAMPLE_SHARE = 32     /* at most this part of all is sampled    */
};

/* Lines from all over the arrays, gathered and updated as the pass will: keys in sel->sample. */
static void draw_sample(const ct_select_run *r, int64_t n_line)
{
    const ct_momentum_correction *a = r->a;
    int64_t m = n_line * LINE, stride = a->n / n_line;
    float *g = r->sel->sample, *w = g + m, *u = w + m, *v = u + m;
    ct_momentum_correction s = *a;

    s.grad = g;
    s.weight = (a->weight != NULL) ? w : NULL;
    s.u = (a->u != NULL) ? u : NULL;
    s.v = v;
#pragma omp parallel for schedule(static) num_threads(r->team) if (r->team > 1)
    for (int64_t l = 0; l < n_line; ++l) { /* a line of each stride, not always the same one */
        uint64_t mixed = (uint64_t)(l + 1) * 0x9e3779b97f4a7c15u >> 32;
        int64_t at = l * stride + (int64_t)(mixed % (uint64_t)(stride - LINE)), to = l * LINE;
        size_t bytes = LINE * sizeof(float);

        at -= (at >= LINE) ? at % LINE : 0;
        memcpy(g + to, a->grad + at, bytes);
        memcpy(v + to, a->v + at, bytes);
        if (s.u != NULL) memcpy(u + to, a->u + at, bytes);
        if ((s.u != NULL) && (s.weight != NULL)) memcpy(w + to, a->weight + at, bytes);
        ct_momentum_correction_block(&s, to, LINE);
        for (int64_t i = to; i < to + LINE; ++i)
            v[i] = ct_select_float(ct_select_key_of(v[i], r->key));
    }
}

/* Elements of a sample among which enough are of the k largest. */
static int64_t sample_size(const ct_selector *sel, int64_t k)
{
    int64_t m = SAMPLE_SELECTED * sel->n / k;

    if (m > SAMPLE_MAX) m = SAMPLE_MAX;
    return (m < SAMPLE_MIN) ? SAMPLE_MIN : m;
}

ct_status ct_select_sample_bound(const ct_select_run *r, int32_t *bound_p)
{
    ct_selector *sel = r->sel;
    int64_t m = sample_size(sel, sel->k), n_line, equal;
    double expected;
    uint32_t bits;

    *bound_p = 0;
    if (m > sel->n / SAMPLE_SHARE) return CT_OK;
    if (sel->sample == NULL) {
        size_t most = (size_t)sample_size(sel, sel->k_least);

        sel->sample = ct_mem_acquire(4 * most * sizeof(*sel->sample));
        if (sel->sample == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample");
    }
    n_line = m / LINE;
    m = n_line * LINE;
    draw_sample(r, n_line);
    expected = (double)sel->k * (double)m / (double)sel->n;
    ct_sparse_kth(sel->sample + 3 * m, m, llround(1.5 * expected + 4 * sqrt(expected)) + 8, &bits,
                  &equal);
    if (bits > 0) *bound_p = (int32_t)bits - 1;
    return CT_OK;
}
