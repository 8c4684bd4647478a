/* Many payloads into one vector. The vector goes by tiles that stay in the cache while all payloads
 * are added to a tile; a cursor for each payload remembers how far it has been read. Adding takes a
 * third of the time; the rest is getting at the pieces, of a few cache lines each and all over
 * memory. So those of the next payloads are fetched beforehand, and where a piece ends is counted
 * and not searched for: a branch on what has yet to come from memory would wait for it. */
#include "comm/wire_impl.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"

enum {
    TILE = CT_WIRE_BLOCK,     /* elements: a quarter of a megabyte, and of a usual second cache */
    BATCH = 1024,             /* payloads at a time; their views and cursors lie on the stack  */
    MIN_PER_THREAD = 1 << 16, /* entries                                                      */
    AHEAD = 32,               /* payloads: fetched while others are added                     */
    MOST_FETCHED = 2048,      /* bytes of an array of one: longer ones are streams of their own */
    LINE = 64                 /* bytes of a cache line                                        */
};

/* One thread's stretch of the vector, of whole tiles, and where its payloads are in there. */
typedef struct stretch {
    const ct_wire_view *view;
    int n_view;
    float *dense;
    bool clear, count;
    int64_t begin, end, filled;
    bool good;
    uint32_t at[BATCH];   /* next entry, of each payload         */
    uint32_t some[BATCH]; /* entries of a tile: hardly ever more */
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

/* Where the entries of element i on begin; i is a block's start, or n. */
static uint32_t entry_of(const ct_wire_view *v, int64_t i)
{
    int64_t sum = 0;

    if (i >= v->n) return (uint32_t)v->count;
    if (v->index32 != NULL) return lower_bound(v, i);
    if (v->index16 == NULL) return 0;
    for (int64_t b = 0; b < i / CT_WIRE_BLOCK; ++b) sum += v->per_block[b];
    return (uint32_t)sum;
}

/* Whether index[-1] (where `more`) and m indices ascend; *below_p: how many are below end. */
CT_SIMD_CLONES static bool look_at(const uint32_t *index, uint32_t m, bool more, uint32_t end,
                                   uint32_t *below_p)
{
    uint32_t bad = 0, below = 0;

    if (more && (m > 0)) bad |= (index[0] <= index[-1]);
#pragma omp simd reduction(+ : below)
    for (uint32_t j = 0; j < m; ++j) below += (index[j] < end);
#pragma omp simd reduction(| : bad)
    for (uint32_t j = 1; j < m; ++j) bad |= (index[j] <= index[j - 1]);
    *below_p = below;
    return bad == 0;
}

/* The entries from `at` on that lie in [start, start + len), if all that was looked at ascends:
 * *end_p is behind them. Not searched for but counted, a window at a time, which does not branch
 * on what has to come from memory first. */
static bool find_piece(const ct_wire_view *v, uint32_t at, int64_t start, int64_t len,
                       uint32_t some, uint32_t *end_p)
{
    uint32_t i = at, m = 0, below = 0;
    uint32_t end = (uint32_t)(start + len); /* at most CT_SPARSE_MAX */
    bool good = true;

    do {
        m = (uint32_t)v->count - i;
        if (m > some) m = some;
        good = look_at(v->index32 + i, m, i > at, end, &below) && good;
        i += below;
    } while (good && (below == m) && (i < v->count));
    *end_p = i;
    return good && ((i == at) || (v->index32[at] >= start));
}

static bool in_order16(const uint16_t *index, uint32_t m, uint32_t len)
{
    uint16_t bad = 0;

    if (m == 0) return true;
#pragma omp simd reduction(| : bad)
    for (uint32_t j = 1; j < m; ++j) bad |= (uint16_t)(index[j] <= index[j - 1]);
    return (bad == 0) && (index[m - 1] < len);
}

/* Looked through first, so that the additions need not look. */
static bool add_pairs(const ct_wire_view *v, uint32_t *at_p, int64_t start, int64_t len,
                      uint32_t some, float *tile)
{
    uint32_t at = *at_p, end = at, from = (uint32_t)start;
    const uint32_t *index = v->index32;

    if (!find_piece(v, at, start, len, some, &end)) return false;
    *at_p = end;
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

/* Into the second cache: the first one's lines under way are few, and additions need them. */
static void fetch_lines(const void *from, size_t bytes)
{
    const char *p = from;

    if (bytes > MOST_FETCHED) bytes = MOST_FETCHED;
    for (size_t i = 0; i < bytes; i += LINE) __builtin_prefetch(p + i, 0, 2);
}

/* What the next tile takes of a payload, or this one of a later payload. */
static void fetch(const ct_wire_view *v, uint32_t at, uint32_t some)
{
    uint32_t n = (v->count - at < some) ? (uint32_t)v->count - at : some;

    if (v->index32 != NULL) {
        fetch_lines(v->index32 + at, sizeof(*v->index32) * n);
        if (v->value != NULL) fetch_lines(v->value + at, sizeof(*v->value) * n);
    } else if (v->index16 != NULL) {
        fetch_lines(v->index16 + at, sizeof(*v->index16) * n);
        if (v->half != NULL) fetch_lines(v->half + at, sizeof(*v->half) * n);
    }
}

static bool add_tile(stretch *s, int64_t start, int64_t len)
{
    float *tile = s->dense + start;
    int ahead = (s->n_view > AHEAD) ? AHEAD : s->n_view - 1;
    bool good = true;

    for (int p = 0; p < s->n_view; ++p) {
        const ct_wire_view *v = &s->view[p];
        int next = p + ahead;

        if (next >= s->n_view) next -= s->n_view; /* its cursor is at the next tile already */
        if (ahead > 0) fetch(&s->view[next], s->at[next], s->some[next]);
        if (v->index32 != NULL) {
            good = add_pairs(v, &s->at[p], start, len, s->some[p], tile) && good;
        } else if (v->index16 != NULL) {
            uint32_t n = v->per_block[start / CT_WIRE_BLOCK];

            good = add_block(v, s->at[p], n, (uint32_t)len, tile) && good;
            s->at[p] += n;
        } else {
            add_dense(v, start, len, tile);
        }
    }
    return good;
}

CT_SIMD_CLONES static int64_t count_filled(const float *v, int64_t n) /* a tile's */
{
    int32_t sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += (v[i] != 0);
    return sum;
}

/* first, last: entries of each payload where the stretch begins and ends. */
static void add_stretch(stretch *s, const uint32_t *first, const uint32_t *last)
{
    s->good = true;
    for (int p = 0; p < s->n_view; ++p) {
        uint32_t mean = (uint32_t)(s->view[p].count * TILE / s->view[p].n);

        s->at[p] = first[p];
        s->some[p] = mean + mean / 4 + 16;
    }
    for (int64_t start = s->begin; s->good && (start < s->end); start += TILE) {
        int64_t len = (s->end - start < TILE) ? s->end - start : TILE;

        if (s->clear) memset(s->dense + start, 0, sizeof(float) * (size_t)len);
        s->good = add_tile(s, start, len);
        if (s->count) s->filled += count_filled(s->dense + start, len);
    }
    /* every entry was met, once: no index out of order hides some between two stretches */
    for (int p = 0; p < s->n_view; ++p) {
        if ((s->view[p].index32 != NULL) && (s->at[p] != last[p])) s->good = false;
    }
}

static int64_t stretch_begin(int64_t n, int t, int parts)
{
    int64_t at = (n + TILE - 1) / TILE * t / parts * TILE;

    return (at < n) ? at : n;
}

static int team_of(const ct_wire_view *view, int n_view, int64_t n, int n_thread)
{
    int64_t entries = n / 16, n_tile = (n + TILE - 1) / TILE;
    int team = omp_in_parallel() ? 1 : n_thread;

    for (int p = 0; p < n_view; ++p) entries += view[p].count;
    if (team > entries / MIN_PER_THREAD + 1) team = (int)(entries / MIN_PER_THREAD + 1);
    if (team > n_tile) team = (int)n_tile;
    return (team < 1) ? 1 : team;
}

static ct_status add_batch(const ct_wire_view *view, int n_view, float *dense, int64_t n,
                           bool clear, int n_thread, int64_t *filled_p)
{
    bool count = (*filled_p >= 0);
    int64_t filled = 0;
    int team = team_of(view, n_view, n, n_thread), parts = (team > 1) ? 2 * team : 1, bad = 0;
    uint32_t *cut = malloc(sizeof(*cut) * (size_t)(parts + 1) * (size_t)(n_view + 1));

    if (cut == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to add %d payloads", n_view);
#pragma omp parallel num_threads(team) reduction(+ : bad, filled)
    {
#pragma omp for schedule(static)
        for (int p = 0; p < n_view; ++p) {
            for (int t = 0; t <= parts; ++t)
                cut[t * n_view + p] = entry_of(&view[p], stretch_begin(n, t, parts));
        }
#pragma omp for schedule(dynamic, 1)
        for (int t = 0; t < parts; ++t) {
            stretch s = {
                .view = view, .n_view = n_view, .dense = dense, .clear = clear, .count = count
            };

            s.begin = stretch_begin(n, t, parts);
            s.end = stretch_begin(n, t + 1, parts);
            if (s.begin == s.end) continue;
            add_stretch(&s, cut + t * n_view, cut + (t + 1) * n_view);
            bad += !s.good;
            filled += s.filled;
        }
    }
    free(cut);
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
