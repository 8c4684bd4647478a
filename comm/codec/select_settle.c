/* The end of a selection: which of the candidates it is, and V and U without them. */
#include "comm/codec/select_impl.h"
#include "framework/base/simd.h"

enum { AHEAD = 16 }; /* elements: prefetched while others are written */

static int64_t all_found(const ct_select_run *r)
{
    int64_t total = 0;

    for (int t = 0; t < r->team; ++t) total += r->sel->thread[t].found.count;
    return total;
}

/* The least magnitude that is selected, and how many of those equal to it, as ct_sparse_kth(). */
static void find_threshold(const ct_select_run *r, float *scratch, uint32_t *bits_p,
                           int64_t *equal_p)
{
    int64_t at = 0;

    for (int t = 0; t < r->team; ++t) {
        const ct_select_found *f = &r->sel->thread[t].found;

        if (f->count > 0) memcpy(scratch + at, f->value, (size_t)f->count * sizeof(*scratch));
        at += f->count;
    }
    ct_sparse_kth(scratch, at, r->limit, bits_p, equal_p);
}

CT_SIMD_CLONES static void count(const float *value, int64_t n, int32_t threshold, int64_t *over_p,
                                 int64_t *equal_p)
{
    int64_t over = 0, equal = 0;

#pragma omp simd reduction(+ : over, equal)
    for (int64_t j = 0; j < n; ++j) {
        int32_t m = ct_select_bits(value[j]) & INT32_MAX;

        over += (m > threshold);
        equal += (m == threshold);
    }
    *over_p = over;
    *equal_p = equal;
}

/* Where each thread's go; of those equal to the threshold the first are selected. Returns how many
 * are. */
static int64_t share_out(const ct_select_run *r, int64_t equal)
{
    int64_t at = 0;

    for (int t = 0; t < r->team; ++t) {
        ct_select_thread *th = &r->sel->thread[t];

        if (th->equal > equal) th->equal = equal;
        equal -= th->equal;
        th->at = at;
        at += th->over + th->equal;
    }
    return at;
}

/* Copies what is selected, and leaves of the candidates what has to be written: 0 where one is
 * selected that the pass has not taken, and what was there where it took another. Which it will be
 * cannot be foreseen, so nothing branches on it. */
static void take(const ct_momentum_correction *a, ct_select_thread *th, int32_t threshold,
                 ct_sparse *out)
{
    ct_select_found *f = &th->found;
    int64_t at = th->at, end = at + th->over + th->equal, equal = th->equal, n = 0;
    bool masks = (ct_momentum_correction_masked(a) != NULL);
    uint32_t no_index;
    float no_value;

    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t index = f->index[j];
        float value = f->value[j];
        int32_t m = ct_select_bits(value) & INT32_MAX;
        bool tie = (m == threshold) & (equal > 0), stays = (m > threshold) | tie;

        *((at < end) ? &out->index[at] : &no_index) = index; /* behind are other threads' */
        *((at < end) ? &out->value[at] : &no_value) = value;
        at += stays;
        equal -= tie;
        f->index[n] = index;
        f->value[n] = stays ? 0.0f : value;
        if (masks) f->u[n] = stays ? 0.0f : f->u[j];
        n += stays ^ (m > f->taken);
    }
    f->count = n;
}

static void write_back(const ct_momentum_correction *a, const ct_select_found *f)
{
    float *v = a->v, *u = ct_momentum_correction_masked(a);

    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t i = f->index[j], next = f->index[(j + AHEAD < f->count) ? j + AHEAD : j];

        __builtin_prefetch(&v[next], 1);
        v[i] = f->value[j];
        if (u == NULL) continue;
        __builtin_prefetch(&u[next], 1);
        u[i] = f->u[j];
    }
}

CT_SIMD_CLONES static float least(const float *value, int64_t count)
{
    int32_t m = INT32_MAX;

#pragma omp simd reduction(min : m)
    for (int64_t j = 0; j < count; ++j) {
        int32_t x = ct_select_bits(value[j]) & 0x7fffffff;

        m = (x < m) ? x : m;
    }
    return (count > 0) ? ct_select_float(m) : 0.0f;
}

ct_status ct_select_settle(const ct_select_run *r, ct_sparse *out)
{
    uint32_t threshold = 0;
    int64_t equal = 0;

    out->count = 0;
    CT_TRY(ct_sparse_reserve(out, all_found(r)));
    find_threshold(r, out->value, &threshold, &equal);
#pragma omp parallel num_threads(r->team) if (r->team > 1)
    {
#pragma omp for schedule(static, 1)
        for (int t = 0; t < r->team; ++t) {
            ct_select_thread *th = &r->sel->thread[t];

            count(th->found.value, th->found.count, (int32_t)threshold, &th->over, &th->equal);
        }
#pragma omp single
        out->count = share_out(r, equal);
#pragma omp for schedule(static, 1)
        for (int t = 0; t < r->team; ++t) {
            take(r->a, &r->sel->thread[t], (int32_t)threshold, out);
            write_back(r->a, &r->sel->thread[t].found);
        }
    }
    out->n = r->sel->n;
    r->sel->stats.threshold = least(out->value, out->count);
    return CT_OK;
}
