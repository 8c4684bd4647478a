/* What sparse exchanges do to lists of entries. */
#include <math.h>
#include <string.h>

#include "comm/sparse/sparse_allreduce_impl.h"

enum { TEAM_MIN = 1 << 18 /* elements */ };

static void append_at(ct_sparse *out, int64_t at, uint32_t index, float value)
{
    out->index[at] = index;
    out->value[at] = value;
}

static void append(ct_sparse *out, uint32_t index, float value)
{
    if (value != 0) append_at(out, out->count++, index, value);
}

ct_status ct_sparse_allreduce_merge(const ct_sparse *low, const ct_sparse *high, int64_t k,
                                    ct_sparse *out)
{
    int64_t i = 0, j = 0;

    CT_TRY(ct_sparse_reserve(out, low->count + high->count));
    out->n = low->n;
    out->count = 0;
    while ((i < low->count) && (j < high->count)) {
        uint32_t a = low->index[i], b = high->index[j];

        if (a == b)
            append(out, a, low->value[i] + high->value[j]);
        else
            append(out, (a < b) ? a : b, (a < b) ? low->value[i] : high->value[j]);
        i += (a <= b);
        j += (b <= a);
    }
    for (; i < low->count; ++i) append(out, low->index[i], low->value[i]);
    for (; j < high->count; ++j) append(out, high->index[j], high->value[j]);
    if (out->count > k) ct_sparse_keep(out, k, NULL);
    return CT_OK;
}

/* Whose this element is among n. Knuth's multiplier mixes what neighbours have in common. */
static int keeper(uint32_t index, int n)
{
    uint64_t mixed = (uint32_t)(index * 2654435761u);

    return (int)((mixed * (uint64_t)n) >> 32);
}

void ct_sparse_allreduce_keep_lost(const ct_sparse *list, const ct_sparse *kept, int n, int me,
                                   const ct_residual_return *lost)
{
    int64_t j = 0;

    ct_residual_return_next(lost);
    for (int64_t i = 0; i < list->count; ++i) {
        while ((j < kept->count) && (kept->index[j] < list->index[i])) j += 1;
        if ((j < kept->count) && (kept->index[j] == list->index[i])) continue;
        if (keeper(list->index[i], n) == me)
            ct_residual_return_add(lost, list->index[i], list->value[i]);
    }
}

void ct_sparse_allreduce_round_shared(ct_payload_form form, ct_sparse *list, int n, int me,
                                      const ct_residual_return *lost)
{
    if (form != CT_PAYLOAD_HALF) return;
    ct_residual_return_next(lost);
    for (int64_t j = 0; j < list->count; ++j) {
        float v = list->value[j], r = ct_payload_half(v);

        list->value[j] = r;
        if (keeper(list->index[j], n) == me) ct_residual_return_add(lost, list->index[j], v - r);
    }
}

void ct_sparse_allreduce_clear(float *v, int64_t n, int n_thread)
{
    int team = ((n >= TEAM_MIN) && (n_thread > 1)) ? n_thread : 1;

#pragma omp parallel for schedule(static) num_threads(team)
    for (int t = 0; t < team; ++t) {
        int64_t begin = ct_part(n, team, t);
        int64_t end = ct_part(n, team, t + 1);

        memset(v + begin, 0, sizeof(*v) * (size_t)(end - begin));
    }
}

int64_t ct_sparse_allreduce_filled(const float *v, int64_t n, int n_thread, int64_t random)
{
    int team = ((n >= TEAM_MIN) && (n_thread > 1)) ? n_thread : 1;
    int64_t filled = 0;

    (void)random;
#pragma omp parallel for simd schedule(static) num_threads(team) reduction(+ : filled)
    for (int64_t i = 0; i < n; ++i) filled += (v[i] != 0);
    return filled;
}

void ct_sparse_allreduce_deliver(const ct_sparse *list, float *v, int64_t n, int n_thread,
                                 int64_t *filled_p)
{
    int64_t filled = 0;

    ct_sparse_allreduce_clear(v, n, n_thread);
    ct_sparse_allreduce_put(list, v, &filled);
    *filled_p = filled;
}

/* ---- regions */

void ct_sparse_allreduce_cut(const ct_sparse *list, const int64_t *bound, int n_region,
                             int64_t *part)
{
    int64_t at = 0;

    for (int j = 0; j < n_region; ++j) {
        int64_t hi = list->count;

        while (at < hi) { /* the first entry that is not before the boundary */
            int64_t mid = at + (hi - at) / 2;

            if (list->index[mid] < bound[j])
                at = mid + 1;
            else
                hi = mid;
        }
        part[j] = at;
    }
    part[0] = 0;
    part[n_region] = list->count;
}

void ct_sparse_allreduce_add_region(const ct_sparse *list, int64_t first, int64_t last,
                                    int64_t start, int64_t n, float *sum, uint64_t *touched,
                                    int64_t *bin)
{
    double bins_per_element = (n > 0) ? (double)CT_REGION_BINS / (double)n : 0;

    for (int64_t j = first; j < last; ++j) {
        int64_t d = list->index[j] - start;

        sum[d] += list->value[j];
        touched[d / 64] |= UINT64_C(1) << (d % 64);
        bin[(int)((double)d * bins_per_element)] += 1;
    }
}

static ct_status collect(float *sum, int64_t n, uint64_t *touched, ct_sparse *out)
{
    int64_t count = 0;

    for (int64_t w = 0; w < n / 64 + 1; ++w) count += __builtin_popcountll(touched[w]);
    CT_TRY(ct_sparse_reserve(out, count));
    out->n = n;
    out->count = 0;
    for (int64_t w = 0; w < n / 64 + 1; ++w) {
        for (uint64_t bits = touched[w]; bits != 0; bits &= bits - 1) {
            int64_t d = w * 64 + __builtin_ctzll(bits);

            append(out, (uint32_t)d, sum[d]);
            sum[d] = 0;
        }
        touched[w] = 0;
    }
    return CT_OK;
}

ct_status ct_sparse_allreduce_take_region(float *sum, int64_t n, uint64_t *touched,
                                          ct_sparse_allreduce_filter *f, ct_sparse *out)
{
    int64_t kept = 0;

    CT_TRY(collect(sum, n, touched, out));
    ct_residual_return_next(&f->lost);
    f->wanted = f->share;
    if (f->threshold > 0) {
        for (int64_t j = 0; j < out->count; ++j) {
            float v = out->value[j];

            if (!(fabsf(v) < f->threshold)) /* a NaN passes, to be seen */
                append_at(out, kept++, out->index[j], v);
            else
                ct_residual_return_add(&f->lost, out->index[j], v);
        }
        out->count = f->wanted = kept;
    }
    kept = (f->threshold > 0) ? f->most : f->share;
    if (out->count > kept) ct_sparse_keep(out, kept, &f->lost);
    f->least = (out->count > 0) ? INFINITY : 0;
    for (int64_t j = 0; j < out->count; ++j) f->least = fminf(f->least, fabsf(out->value[j]));
    return CT_OK;
}

void ct_sparse_allreduce_put(const ct_sparse *list, float *sum, int64_t *filled_p)
{
    for (int64_t j = 0; j < list->count; ++j) {
        sum[list->index[j]] = list->value[j];
        *filled_p += (list->value[j] != 0);
    }
}

void ct_sparse_allreduce_learn(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    ct_regions_learn(g, news, k);
}
