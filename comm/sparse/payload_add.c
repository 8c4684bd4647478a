/* Many payloads into one vector. The vector goes by blocks that stay in the cache while all
 * payloads are added to a block; a cursor for each payload remembers how far it has been read.
 * Pieces, of a few cache lines each and all over memory, are fetched some payloads ahead. */
#include "comm/sparse/payload_impl.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sparse/payload_piece.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"

enum {
    BATCH = 1024,      /* payloads at a time; their views and cursors lie on the stack */
    TEAM_MIN = 1 << 16 /* entries                                      */
};

/* One thread's stretch of the vector, of whole blocks, and where its payloads are in there. */
typedef struct stretch {
    const ct_payload_view *view;
    int n_view;
    float *dense, *scratch; /* scratch: of a part, which then passes the caches; or NULL */
    ct_piece_bucket *bucket;
    bool clear, count;
    int64_t begin, end, filled;
    bool good;
    ct_piece_cursor at[BATCH];
} stretch;

/* The first entry at or beyond element i. Where entries are spread evenly, about where it is. */
static uint32_t lower_bound(const ct_payload_view *v, int64_t i)
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
static uint32_t entry_of(const ct_payload_view *v, int64_t i)
{
    int64_t sum = 0;

    if (i >= v->n) return (uint32_t)v->count;
    if (v->index32 != NULL) return lower_bound(v, i);
    if (v->index16 == NULL) return 0;
    for (int64_t b = 0; b < i / CT_PAYLOAD_BLOCK; ++b) sum += v->per_block[b];
    return (uint32_t)sum;
}

/* Of a payload from its entry `first` on. Dense ones need none. */
static ct_piece_cursor cursor_at(const ct_payload_view *v, uint32_t first)
{
    uint32_t mean = (uint32_t)(v->count * CT_PAYLOAD_BLOCK / v->n), count = (uint32_t)v->count;
    ct_piece_cursor c = {
        .at = first, .end = first, .count = count, .some = mean + mean / 4 + 8, .mean = v->mean
    };

    if (v->index32 != NULL) {
        c.index = v->index32;
        c.value = v->value;
        c.end = count;
    } else if (v->index16 != NULL) {
        c.index = v->index16;
        c.value = v->half;
    }
    return c;
}

static void add_dense(const ct_payload_view *v, int64_t start, int64_t len, float *tile)
{
    if (v->value != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < len; ++i) tile[i] += v->value[start + i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < len; ++i) tile[i] += ct_bf16_to_f32(v->half[start + i]);
    }
}

/* A block of 16-bit indices begins: nothing of the last one may be left. */
static bool enter_block(stretch *s, int64_t block)
{
    bool good = true;

    for (int p = 0; p < s->n_view; ++p) {
        if (s->view[p].index16 == NULL) continue;
        good = (s->at[p].at == s->at[p].end) && good;
        s->at[p].end += s->view[p].per_block[block];
    }
    return good;
}

static bool leave_stretch(const stretch *s, const uint32_t *last)
{
    bool good = true;

    for (int p = 0; p < s->n_view; ++p) {
        const ct_payload_view *v = &s->view[p];

        if (v->index16 != NULL) good = (s->at[p].at == s->at[p].end) && good;
        /* every entry was met, once: no index out of order hides some between two stretches */
        if (v->index32 != NULL) good = (s->at[p].at == last[p]) && good;
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

static uint32_t part_len(int64_t len, int i)
{
    int64_t rest = len - (int64_t)i * CT_PIECE_PART;

    return (rest < 0) ? 0 : (rest < CT_PIECE_PART) ? (uint32_t)rest : CT_PIECE_PART;
}

static void drain_all(stretch *s, float *block, int64_t len)
{
    for (int i = 0; i < CT_PIECE_PARTS; ++i)
        ct_piece_drain(&s->bucket[i], block + (size_t)i * CT_PIECE_PART, part_len(len, i),
                       s->clear);
}

/* The parts as they will be. One that nothing was added to before is made where it stays in the
 * first cache, and then passes the others by. */
static void finish(stretch *s, float *block, int64_t len)
{
    for (int i = 0; i < CT_PIECE_PARTS; ++i) {
        ct_piece_bucket *b = &s->bucket[i];
        float *to = block + (size_t)i * CT_PIECE_PART;
        float *part = ((s->scratch != NULL) && !b->begun) ? s->scratch : to;
        uint32_t n = part_len(len, i), whole = n / 4 * 4;

        ct_piece_drain(b, part, n, s->clear);
        b->begun = false;
        if (s->count) s->filled += count_filled(part, n);
        if (part == to) continue;
        ct_stream_put((int)whole, part, to);
        for (uint32_t j = whole; j < n; ++j) to[j] = part[j];
    }
}

/* Payloads of the same code in one go; a dense one waits for all before it. */
static bool add_block(stretch *s, int64_t start, int64_t len)
{
    float *block = s->dense + start;
    bool good = enter_block(s, start / CT_PAYLOAD_BLOCK);

    for (int p = 0, end = 0; good && (p < s->n_view); p = end) {
        const ct_payload_view *v = &s->view[p];
        ct_piece_run run = { .at = s->at,
                             .n_at = s->n_view,
                             .first = p,
                             .from = (v->index16 != NULL) ? 0 : (uint32_t)start,
                             .len = (uint32_t)len,
                             .bucket = s->bucket,
                             .block = block,
                             .clear = s->clear };

        for (end = p + 1; (end < s->n_view) && (s->view[end].code == v->code);) end += 1;
        run.last = end;
        if ((v->index16 != NULL) || (v->index32 != NULL)) {
            good = ct_piece_split(v->code, &run);
            continue;
        }
        drain_all(s, block, len);
        for (int q = p; q < end; ++q) add_dense(&s->view[q], start, len, block);
    }
    if (good) finish(s, block, len);
    return good;
}

/* first, last: entries of each payload where the stretch begins and ends. */
static void add_stretch(stretch *s, const uint32_t *first, const uint32_t *last)
{
    s->good = true;
    for (int i = 0; i < CT_PIECE_PARTS; ++i) {
        s->bucket[i].n = 0;
        s->bucket[i].begun = false;
    }
    for (int p = 0; p < s->n_view; ++p) s->at[p] = cursor_at(&s->view[p], first[p]);
    for (int64_t start = s->begin; s->good && (start < s->end); start += CT_PAYLOAD_BLOCK) {
        int64_t rest = s->end - start;

        s->good = add_block(s, start, (rest < CT_PAYLOAD_BLOCK) ? rest : CT_PAYLOAD_BLOCK);
    }
    s->good = s->good && leave_stretch(s, last);
    if (s->scratch != NULL) ct_stream_end();
}

static int64_t stretch_begin(int64_t n, int t, int parts)
{
    int64_t at = ct_payload_blocks(n) * t / parts * CT_PAYLOAD_BLOCK;

    return (at < n) ? at : n;
}

static int team_of(const ct_payload_view *view, int n_view, int64_t n, int n_thread)
{
    int64_t entries = n / 16;

    for (int p = 0; p < n_view; ++p) entries += view[p].count;
    if ((n_thread < 1) || omp_in_parallel()) return 1;
    return ((entries >= TEAM_MIN) && (ct_payload_blocks(n) > 1)) ? n_thread : 1;
}

/* What each thread of a team works in. */
typedef struct workplace {
    float part[CT_PIECE_PART];
    ct_piece_bucket bucket[CT_PIECE_PARTS];
} workplace;

/* cut[parts + 1][n_view]: entries of each payload where the stretches begin. Returns how many
 * stretches were bad. */
static int add_stretches(stretch *all, int64_t n, int team, int parts, uint32_t *cut,
                         workplace *place, bool streams)
{
    int n_view = all->n_view, bad = 0;
    int64_t filled = 0;

#pragma omp parallel num_threads(team) reduction(+ : bad, filled)
    {
#pragma omp for schedule(static)
        for (int p = 0; p < n_view; ++p) {
            for (int t = 0; t <= parts; ++t)
                cut[t * n_view + p] = entry_of(&all->view[p], stretch_begin(n, t, parts));
        }
#pragma omp for schedule(dynamic, 1)
        for (int t = 0; t < parts; ++t) {
            stretch s = { .view = all->view,
                          .n_view = n_view,
                          .dense = all->dense,
                          .clear = all->clear,
                          .count = all->count };
            workplace *own = &place[omp_get_thread_num()];

            s.bucket = own->bucket;
            s.scratch = streams ? own->part : NULL;
            s.begin = stretch_begin(n, t, parts);
            s.end = stretch_begin(n, t + 1, parts);
            if (s.begin == s.end) continue;
            add_stretch(&s, cut + t * n_view, cut + (t + 1) * n_view);
            bad += !s.good;
            filled += s.filled;
        }
    }
    all->filled = filled;
    return bad;
}

static ct_status add_batch(const ct_payload_view *view, int n_view, float *dense, int64_t n,
                           bool clear, int n_thread, int64_t *filled_p)
{
    stretch all = {
        .view = view, .n_view = n_view, .dense = dense, .clear = clear, .count = *filled_p >= 0
    };
    int team = team_of(view, n_view, n, n_thread), parts = (team > 1) ? 2 * team : 1, bad = 0;
    uint32_t *cut = malloc(sizeof(*cut) * (size_t)(parts + 1) * (size_t)(n_view + 1));
    workplace *place = malloc(sizeof(*place) * (size_t)team);
    bool streams = clear && ct_stream_pays(dense, sizeof(*dense) * (size_t)n);
    bool room = (cut != NULL) && (place != NULL);

    if (room) bad = add_stretches(&all, n, team, parts, cut, place, streams);
    free(cut);
    free(place);
    if (!room) return CT_FAIL(CT_ERR_NOMEM, "no memory to add %d payloads", n_view);
    if (all.count) *filled_p = all.filled;
    if (bad > 0)
        return CT_FAIL(CT_ERR_COMM, "a payload names elements out of order, or beyond its %lld",
                       (long long)n);
    return CT_OK;
}

static ct_status add_all(const void *const *payload, const size_t *bytes, int n_payload,
                         float *dense, int64_t n, bool clear, int n_thread, int64_t *filled_p)
{
    ct_payload_view view[BATCH];

    for (int first = 0; (first == 0) || (first < n_payload); first += BATCH) {
        int m = (n_payload - first < BATCH) ? n_payload - first : BATCH;

        for (int p = 0; p < m; ++p)
            CT_TRY(ct_payload_open(payload[first + p], bytes[first + p], n, &view[p]));
        CT_TRY(add_batch(view, m, dense, n, clear && (first == 0), n_thread, filled_p));
    }
    return CT_OK;
}

ct_status ct_payload_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread)
{
    int64_t filled = -1; /* not asked for */

    return add_all(payload, bytes, n_payload, dense, n, false, n_thread, &filled);
}

ct_status ct_payload_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread, int64_t *filled_p)
{
    int64_t filled = 0;

    CT_TRY(add_all(payload, bytes, n_payload, dense, n, true, n_thread, &filled));
    if (filled_p != NULL) *filled_p = filled;
    return CT_OK;
}
