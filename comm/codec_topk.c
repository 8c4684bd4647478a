/* topk: the k elements of grad + residual that are largest by magnitude; the rest stays in the
 * residual, so that sent + residual = gradient + old residual, bit by bit.
 *
 * Selection is exact and independent of the number of threads: the magnitude's 31 bits order
 * floats like integers, so a histogram of the upper 16 bits finds the bin in which the k-th lies, a
 * second one, of the lower 15 bits of that bin, the exact value; among equals the lowest indices
 * are taken. Zeros are never sent, so that fewer than k elements may travel.
 *
 * Payload: int64 count, then count indices (uint32, or uint64 beyond 2^32 elements), ascending,
 * then count floats. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec_types.h"

enum {
    LOW_BITS = 15,
    HIGH_BINS = 1 << 16,
    LOW_BINS = 1 << LOW_BITS,
    MIN_PER_THREAD = 1 << 16, /* elements */
    MAX_TEAM = 64             /* threads: each has histograms of its own */
};

static size_t index_size(int64_t n)
{
    return (n > (int64_t)UINT32_MAX + 1) ? sizeof(uint64_t) : sizeof(uint32_t);
}

static int64_t wanted(const ct_codec_config *c, int64_t n)
{
    int64_t k = llround((double)c->density * (double)n);

    if (k < 1) k = 1;
    return (k < n) ? k : n;
}

static size_t payload_size(int64_t n, int64_t count)
{
    return sizeof(int64_t) + (size_t)count * (index_size(n) + sizeof(float));
}

static size_t topk_bound(const ct_codec_config *c, int64_t n)
{
    return payload_size(n, wanted(c, n));
}

static uint32_t magnitude(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits & 0x7fffffffu;
}

/* What one thread found in its block [first, last) of the elements. */
typedef struct share {
    int64_t first, last;
    int64_t *high; /* [HIGH_BINS] */
    int64_t *low;  /* [LOW_BINS], of the elements in the bin of the threshold */
    int64_t above; /* elements over the threshold */
    int64_t equal; /* elements at it that are sent */
    int64_t at;    /* place of the first one in the payload */
} share;

typedef struct selection {
    int64_t k;
    int team;
    share *share; /* [team] */
    int64_t *bins;
    int64_t high_bin, rank_in_bin; /* the k-th is the rank_in_bin-th largest of that bin */
    uint32_t threshold;
    int64_t count;
} selection;

static void selection_destroy(selection *s)
{
    free(s->share);
    free(s->bins);
}

static ct_status selection_create(int64_t n, int64_t k, selection *s)
{
    int64_t useful = n / MIN_PER_THREAD + 1;
    int team = omp_in_parallel() ? 1 : omp_get_max_threads();

    if (team > useful) team = (int)useful;
    if (team > MAX_TEAM) team = MAX_TEAM;
    *s = (selection){ .k = k, .team = team };
    s->share = calloc((size_t)team, sizeof(*s->share));
    s->bins = calloc((size_t)team * (HIGH_BINS + LOW_BINS), sizeof(*s->bins));
    if ((s->share == NULL) || (s->bins == NULL)) {
        selection_destroy(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the histograms of %d threads", team);
    }
    for (int t = 0; t < team; ++t) {
        s->share[t].first = n * t / team;
        s->share[t].last = n * (t + 1) / team;
        s->share[t].high = s->bins + (size_t)t * (HIGH_BINS + LOW_BINS);
        s->share[t].low = s->share[t].high + HIGH_BINS;
    }
    return CT_OK;
}

/* residual += grad, where there is one, and the histogram of the upper bits. */
static void count_high(share *sh, const float *grad, float *residual)
{
    for (int64_t i = sh->first; i < sh->last; ++i) {
        float v = grad[i];

        if (residual != NULL) {
            v += residual[i];
            residual[i] = v;
        }
        sh->high[magnitude(v) >> LOW_BITS] += 1;
    }
}

/* The bin, from the top, in which the k-th element lies, and its place in there, from 1. */
static void find_bin(const selection *s, bool low, int n_bin, int64_t k, int64_t *bin_p,
                     int64_t *place_p)
{
    int64_t seen = 0;

    for (int b = n_bin - 1; b >= 0; --b) {
        int64_t here = 0;

        for (int t = 0; t < s->team; ++t) here += low ? s->share[t].low[b] : s->share[t].high[b];
        if (seen + here >= k) {
            *bin_p = b;
            *place_p = k - seen;
            return;
        }
        seen += here;
    }
    *bin_p = 0;
    *place_p = 0;
}

static void count_low(const selection *s, share *sh, const float *v)
{
    for (int64_t i = sh->first; i < sh->last; ++i) {
        uint32_t m = magnitude(v[i]);
        int64_t bin = m >> LOW_BITS;

        if (bin > s->high_bin)
            sh->above += 1;
        else if (bin == s->high_bin)
            sh->low[m & (LOW_BINS - 1)] += 1;
    }
}

/* From the histograms: the threshold, and what each thread sends where. */
static void deal_out(selection *s)
{
    int64_t low_bin = 0, equal = 0, at = 0;

    find_bin(s, true, LOW_BINS, s->rank_in_bin, &low_bin, &equal);
    s->threshold = (uint32_t)(s->high_bin << LOW_BITS) | (uint32_t)low_bin;
    if (s->threshold == 0) equal = 0;
    for (int t = 0; t < s->team; ++t) {
        share *sh = &s->share[t];

        for (int b = (int)low_bin + 1; b < LOW_BINS; ++b) sh->above += sh->low[b];
        sh->equal = (sh->low[low_bin] < equal) ? sh->low[low_bin] : equal;
        equal -= sh->equal;
        sh->at = at;
        at += sh->above + sh->equal;
    }
    s->count = at;
}

static void emit(const selection *s, const share *sh, const float *grad, float *residual,
                 char *indices, size_t width, float *value)
{
    const float *v = (residual != NULL) ? residual : grad;
    int64_t at = sh->at, end = sh->at + sh->above + sh->equal, equal = sh->equal;

    for (int64_t i = sh->first; (i < sh->last) && (at < end); ++i) {
        uint32_t m = magnitude(v[i]);

        if ((m < s->threshold) || ((m == s->threshold) && (equal == 0))) continue;
        if (m == s->threshold) equal -= 1;
        value[at] = v[i];
        if (width == sizeof(uint32_t))
            ((uint32_t *)(void *)indices)[at] = (uint32_t)i;
        else
            ((uint64_t *)(void *)indices)[at] = (uint64_t)i;
        if (residual != NULL) residual[i] = 0;
        at += 1;
    }
}

static ct_status check_finite(const selection *s)
{
    enum { FIRST_BAD = 0x7f800000 >> LOW_BITS }; /* infinity and all NaNs are here or above */

    for (int t = 0; t < s->team; ++t) {
        for (int b = FIRST_BAD; b < HIGH_BINS; ++b) {
            if (s->share[t].high[b] > 0)
                return CT_FAIL(CT_ERR_DIVERGED, "a gradient holds NaN or infinity");
        }
    }
    return CT_OK;
}

static ct_status topk_encode(const ct_codec_config *c, const float *grad, float *residual,
                             int64_t n, void *payload, size_t *bytes_p)
{
    const float *v = (residual != NULL) ? residual : grad;
    size_t width = index_size(n);
    char *indices = (char *)payload + sizeof(int64_t);
    float *value = NULL;
    selection s = { .k = 0 };
    ct_status status = CT_OK;

    if (n == 0) {
        memset(payload, 0, sizeof(int64_t));
        *bytes_p = sizeof(int64_t);
        return CT_OK;
    }
    CT_TRY(selection_create(n, wanted(c, n), &s));
#pragma omp parallel for schedule(static, 1) num_threads(s.team)
    for (int t = 0; t < s.team; ++t) count_high(&s.share[t], grad, residual);
    CT_TRY_GOTO(status, done, check_finite(&s));
    find_bin(&s, false, HIGH_BINS, s.k, &s.high_bin, &s.rank_in_bin);
#pragma omp parallel for schedule(static, 1) num_threads(s.team)
    for (int t = 0; t < s.team; ++t) count_low(&s, &s.share[t], v);
    deal_out(&s);
    memcpy(payload, &s.count, sizeof(s.count));
    value = (float *)(void *)(indices + (size_t)s.count * width);
#pragma omp parallel for schedule(static, 1) num_threads(s.team)
    for (int t = 0; t < s.team; ++t) emit(&s, &s.share[t], grad, residual, indices, width, value);
    *bytes_p = payload_size(n, s.count);

done:
    selection_destroy(&s);
    return status;
}

/* The payload came from another rank: nothing in it is believed. */
static ct_status topk_decode(const ct_codec_config *c, const void *payload, size_t bytes,
                             float *sum, int64_t n)
{
    const char *indices = (const char *)payload + sizeof(int64_t);
    size_t width = index_size(n);
    int64_t count = 0, last = -1;
    const float *value = NULL;

    (void)c;
    if (bytes < sizeof(count))
        return CT_FAIL(CT_ERR_COMM, "a topk payload of %zu bytes has no count", bytes);
    memcpy(&count, payload, sizeof(count));
    if ((count < 0) || (count > n) || (bytes != payload_size(n, count)))
        return CT_FAIL(CT_ERR_COMM, "a topk payload of %zu bytes says %lld of %lld elements", bytes,
                       (long long)count, (long long)n);
    value = (const float *)(const void *)(indices + (size_t)count * width);
    for (int64_t j = 0; j < count; ++j) {
        int64_t i = (width == sizeof(uint32_t))
                        ? ((const uint32_t *)(const void *)indices)[j]
                        : (int64_t)((const uint64_t *)(const void *)indices)[j];

        if ((i <= last) || (i >= n))
            return CT_FAIL(CT_ERR_COMM, "a topk payload names element %lld after %lld, of %lld",
                           (long long)i, (long long)last, (long long)n);
        sum[i] += value[j];
        last = i;
    }
    return CT_OK;
}

const ct_codec_ops ct_codec_topk = {
    .name = "topk",
    .combine = CT_COMBINE_GATHER,
    .dtype = CT_F32,
    .has_residual = true,
    .payload_bound = topk_bound,
    .encode = topk_encode,
    .decode = topk_decode,
};
