/* Many payloads into one vector. The vector goes by tiles that stay in the cache while all payloads
 * are added to a tile; a cursor for each payload remembers how far it has been read. */
#include "comm/wire_impl.h"

#include <omp.h>
#include <string.h>

#include "comm/bf16.h"

enum {
    TILE = 2 * CT_WIRE_BLOCK, /* elements: half a megabyte, half of a usual second cache      */
    BATCH = 1024,             /* payloads at a time; their views and cursors lie on the stack */
    MIN_PER_THREAD = 1 << 16  /* entries */
};

/* One thread's stretch of the vector, of whole tiles, and where its payloads are in there. */
typedef struct stretch {
    const ct_wire_view *view;
    int n_view;
    float *dense;
    bool clear, count;
    int64_t begin, end, filled;
    bool good;
    uint32_t at[BATCH]; /* next entry, of each payload */
} stretch;

/* The first entry at or beyond element i. Where entries are spread evenly, about where it is. */
static uint32_t lower_bound(const ct_wire_view *v, int64_t i)
{
    int64_t lo = 0, hi = v->count, step = 16;
    int64_t guess = (int64_t)((double)v->count * (double)i / (double)v->n);

    while ((guess > lo) && (v->index32[guess - 1] >= i)) {
        hi = guess - 1;
        guess = (hi > step) ? hi - step : 0;
        step *= 2;
    }
    lo = guess;
    for (step = 16; (lo + step < hi) && (v->index32[lo + step] < i); step *= 2) lo += step + 1;
    if (lo + step < hi) hi = lo + step;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (v->index32[mid] < i)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (uint32_t)lo;
}

/* Where the entries of element i on begin; i is a block's start. */
static uint32_t entry_of(const ct_wire_view *v, int64_t i)
{
    int64_t sum = 0;

    if (v->index32 != NULL) return lower_bound(v, i);
    if (v->index16 == NULL) return 0;
    for (int64_t b = 0; b < i / CT_WIRE_BLOCK; ++b) sum += v->per_block[b];
    return (uint32_t)sum;
}

/* Whether m indices, less `start`, ascend and stay below len. */
static bool in_order(const uint32_t *index, uint32_t m, uint32_t start, uint32_t len)
{
    uint32_t bad = 0;

    if (m == 0) return true;
#pragma omp simd reduction(| : bad)
    for (uint32_t j = 1; j < m; ++j) bad |= (index[j] <= index[j - 1]);
    return (bad == 0) && (index[0] >= start) && (index[m - 1] - start < len);
}

static bool in_order16(const uint16_t *index, uint32_t m, uint32_t len)
{
    uint16_t bad = 0;

    if (m == 0) return true;
#pragma omp simd reduction(| : bad)
    for (uint32_t j = 1; j < m; ++j) bad |= (uint16_t)(index[j] <= index[j - 1]);
    return (bad == 0) && (index[m - 1] < len);
}

/* The first of the entries from `at` on that is at `end` or beyond, if they ascend. */
static uint32_t stretch_end(const ct_wire_view *v, uint32_t at, int64_t end, uint32_t guess)
{
    uint32_t lo = at, hi = (uint32_t)v->count, step = 8;

    if (hi - at > guess) {
        uint32_t probe = at + guess;

        if (v->index32[probe] >= end) {
            for (hi = probe; (hi - lo > step) && (v->index32[hi - step] >= end); step *= 2)
                hi -= step;
            if (hi - lo > step) lo = hi - step;
        } else {
            for (lo = probe + 1; (hi - lo > step) && (v->index32[lo + step] < end); step *= 2)
                lo += step + 1;
            if (hi - lo > step) hi = lo + step;
        }
    }
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (v->index32[mid] < end)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Looked through first, so that the additions need not look: they are what takes long. */
static bool add_pairs(const ct_wire_view *v, uint32_t *at_p, int64_t start, uint32_t len,
                      uint32_t guess, float *tile)
{
    uint32_t at = *at_p, end = stretch_end(v, at, start + len, guess), from = (uint32_t)start;
    const uint32_t *index = v->index32;

    *at_p = end;
    if (!in_order(index + at, end - at, from, len)) return false;
    if (v->value != NULL) {
        const float *value = v->value;

        for (; at < end; ++at) tile[index[at] - from] += value[at];
    } else {
        for (; at < end; ++at) tile[index[at] - from] += v->mean;
    }
    return true;
}

static bool add_block(const ct_wire_view *v, uint32_t at, uint32_t n, uint32_t len, float *block)
{
    const uint16_t *index = v->index16 + at, *half = v->half;

    if (!in_order16(index, n, len)) return false;
    if (half != NULL) {
        for (uint32_t j = 0; j < n; ++j) block[index[j]] += ct_bf16_to_f32(half[at + j]);
    } else {
        for (uint32_t j = 0; j < n; ++j) block[index[j]] += v->mean;
    }
    return true;
}

static void add_dense(const ct_wire_view *v, int64_t start, int64_t len, float *tile)
{
    if (v->value != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < len; ++i) tile[i] += v->value[start + i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < len; ++i) tile[i] += ct_bf16_to_f32(v->half[start + i]);
    }
}

static bool add_tile(stretch *s, int64_t start, int64_t len)
{
    float *tile = s->dense + start;
    bool good = true;

    for (int p = 0; p < s->n_view; ++p) {
        const ct_wire_view *v = &s->view[p];

        if (v->index32 != NULL) {
            uint32_t guess = (uint32_t)(v->count * len / v->n);

            good = add_pairs(v, &s->at[p], start, (uint32_t)len, guess, tile) && good;
        } else if (v->index16 != NULL) {
            for (int64_t d = 0; d < len; d += CT_WIRE_BLOCK) {
                uint32_t n = v->per_block[(start + d) / CT_WIRE_BLOCK];
                int64_t rest = len - d;

                good = add_block(v, s->at[p], n,
                                 (uint32_t)((rest < CT_WIRE_BLOCK) ? rest : CT_WIRE_BLOCK),
                                 tile + d) &&
                       good;
                s->at[p] += n;
            }
        } else {
            add_dense(v, start, len, tile);
        }
    }
    return good;
}

static int64_t count_filled(const float *v, int64_t n)
{
    int64_t sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += (v[i] != 0);
    return sum;
}

static void add_stretch(stretch *s)
{
    s->good = true;
    for (int p = 0; p < s->n_view; ++p) s->at[p] = entry_of(&s->view[p], s->begin);
    for (int64_t start = s->begin; start < s->end; start += TILE) {
        int64_t len = (s->end - start < TILE) ? s->end - start : TILE;

        if (s->clear) memset(s->dense + start, 0, sizeof(float) * (size_t)len);
        s->good = add_tile(s, start, len) && s->good;
        if (s->count) s->filled += count_filled(s->dense + start, len);
    }
    /* every entry was met, once: no index out of order hides some between two stretches */
    for (int p = 0; p < s->n_view; ++p) {
        const ct_wire_view *v = &s->view[p];
        uint32_t end = (s->end < v->n) ? entry_of(v, s->end) : (uint32_t)v->count;

        if ((v->index32 != NULL) && (s->at[p] != end)) s->good = false;
    }
}

static ct_status add_batch(const ct_wire_view *view, int n_view, float *dense, int64_t n,
                           bool clear, int n_thread, int64_t *filled_p)
{
    bool count = (*filled_p >= 0);
    int64_t n_tile = (n + TILE - 1) / TILE, entries = n / 16, filled = 0;
    int team = omp_in_parallel() ? 1 : n_thread, bad = 0;

    for (int p = 0; p < n_view; ++p) entries += view[p].count;
    if (team > entries / MIN_PER_THREAD + 1) team = (int)(entries / MIN_PER_THREAD + 1);
    if (team > n_tile) team = (int)n_tile;
    if (team < 1) team = 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team) reduction(+ : bad, filled)
    for (int t = 0; t < ((team > 1) ? 2 * team : 1); ++t) {
        int parts = (team > 1) ? 2 * team : 1;
        stretch s = {
            .view = view, .n_view = n_view, .dense = dense, .clear = clear, .count = count
        };

        s.begin = n_tile * t / parts * TILE;
        s.end = n_tile * (t + 1) / parts * TILE;
        if (s.end > n) s.end = n;
        if (s.begin < s.end) {
            add_stretch(&s);
            bad += !s.good;
            filled += s.filled;
        }
    }
    if (count) *filled_p = filled;
    if (bad > 0)
        return CT_FAIL(CT_ERR_COMM, "a payload names elements out of order, or beyond its %lld",
                       (long long)n);
    return CT_OK;
}

static ct_status add_all(const void *const *payload, const size_t *bytes, int n_payload,
                         float *dense, int64_t n, bool clear, int n_thread, int64_t *filled_p)
{
    ct_wire_view view[BATCH];

    for (int first = 0; (first == 0) || (first < n_payload); first += BATCH) {
        int m = (n_payload - first < BATCH) ? n_payload - first : BATCH;

        for (int p = 0; p < m; ++p)
            CT_TRY(ct_wire_open(payload[first + p], bytes[first + p], n, &view[p]));
        CT_TRY(add_batch(view, m, dense, n, clear && (first == 0), n_thread, filled_p));
    }
    return CT_OK;
}

ct_status ct_wire_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                          float *dense, int64_t n, int n_thread)
{
    int64_t filled = -1; /* not asked for */

    return add_all(payload, bytes, n_payload, dense, n, false, n_thread, &filled);
}

ct_status ct_wire_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                          float *dense, int64_t n, int n_thread, int64_t *filled_p)
{
    int64_t filled = 0;

    CT_TRY(add_all(payload, bytes, n_payload, dense, n, true, n_thread, &filled));
    if (filled_p != NULL) *filled_p = filled;
    return CT_OK;
}
