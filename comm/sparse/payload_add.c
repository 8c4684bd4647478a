/* Sparse payloads added to a vector.
 *
 * Entries go into buckets by parts of a block, and a bucket into its part, which is in the caches
 * next to the core by then. Straight from the payloads into the block it takes twice as long: each
 * piece is an inner loop that ends where no processor can foresee, and it knows only when the
 * indices have come. Here a window of fixed length is looked at whatever belongs to the part,
 * stored whole, and then overwritten by the next from where the part ended: nothing branches. */
#include "comm/sparse/payload_impl.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/simd.h"
#include "framework/base/stream.h"

enum {
    CT_PIECE_WINDOW = 32,  /* entries looked at in one go                                 */
    CT_PIECE_PART = 16384, /* elements of a part of a block: 64 KB, near the first cache   */
    CT_PIECE_PARTS = CT_PAYLOAD_BLOCK / CT_PIECE_PART,
    CT_PIECE_ROOM = CT_PIECE_PART + CT_PIECE_PART / 4 /* entries */
};

/** How far a payload has been read. */
typedef struct ct_piece_cursor {
    const void *index; /* of its first entry: u16 or u32, by the code                      */
    const void *value; /* … bf16 or float; NULL: all are the mean                          */
    uint32_t at;       /* next entry                                                       */
    uint32_t end;      /* of the block that is read, or of the payload: the entry after it */
    uint32_t count;    /* entries of the payload                                           */
    uint32_t some;     /* entries of a block, hardly ever more: so many are fetched ahead  */
    float mean;
} ct_piece_cursor;

/** Entries of a part that have yet to be added, in the order of the payloads. */
typedef struct ct_piece_bucket {
    float value[CT_PIECE_ROOM + CT_PIECE_WINDOW];
    uint16_t index[CT_PIECE_ROOM + CT_PIECE_WINDOW]; /* in the part */
    uint32_t n;
    bool begun; /* the part holds what was added before */
} ct_piece_bucket;

typedef struct ct_piece_run {
    ct_piece_cursor *at; /* [n_at] of all payloads                                    */
    int n_at;
    int first, last;         /* those that are added: first .. last - 1, all of one code  */
    uint32_t from;           /* the block's first index, relative as the code's indices are */
    uint32_t len;            /* elements of the block                                     */
    ct_piece_bucket *bucket; /* [PARTS]                                               */
    float *block;            /* [len]                                                 */
    bool clear;              /* what it held before does not count                    */
} ct_piece_run;

enum {
    WINDOW = CT_PIECE_WINDOW,
    GROUP = 8,           /* payloads: of so many the lines stay in the first cache for all parts */
    AHEAD = 32,          /* payloads: fetched while others are split                             */
    MOST_FETCHED = 2048, /* bytes of an array of one: longer ones are streams of their own       */
    LINE = 64            /* bytes of a cache line                                                */
};

CT_SIMD_CLONES static void add(const ct_piece_bucket *b, uint32_t n, float *part)
{
#pragma GCC unroll 4
    for (uint32_t j = 0; j < n; ++j) part[b->index[j]] += b->value[j];
}

static void ct_piece_drain(ct_piece_bucket *b, float *part, uint32_t len, bool clear)
{
    if (clear && !b->begun) memset(part, 0, sizeof(*part) * len);
    add(b, b->n, part);
    b->n = 0;
    b->begun = true;
}

/* Into the second cache: the first one's lines under way are few, and others need them. */
CT_SIMD_PART void fetch_lines(const void *from, size_t bytes)
{
    const char *p = from;

    if (bytes > MOST_FETCHED) bytes = MOST_FETCHED;
    for (size_t i = 0; i < bytes; i += LINE) __builtin_prefetch(p + i, 0, 2);
}

/* What this block takes of a later payload, or the next block of an early one, whose cursor is
 * there already. */
CT_SIMD_PART void fetch(const ct_piece_run *run, int p, size_t index_size, size_t value_size)
{
    int ahead = (run->n_at > AHEAD) ? AHEAD : run->n_at - 1, next = p + ahead;
    const ct_piece_cursor *c;
    uint32_t n, room;

    if (next >= run->n_at) next -= run->n_at;
    c = &run->at[next];
    room = c->count - c->at;
    n = (room < c->some) ? room : c->some;
    fetch_lines((const char *)c->index + index_size * c->at, index_size * n);
    if ((value_size > 0) && (c->value != NULL))
        fetch_lines((const char *)c->value + value_size * c->at, value_size * n);
}

/* What does not ascend: by lanes, or as bits where comparisons give masks. Kept in registers from
 * window to window. */
typedef uint16_t lanes __attribute__((vector_size(2 * WINDOW)));
typedef struct odd {
    lanes lane;
    uint32_t bits;
} odd;

CT_SIMD_PART bool any(const odd *bad)
{
    uint16_t x[WINDOW];
    uint32_t all = bad->bits;

    memcpy(x, &bad->lane, sizeof(x));
    for (int j = 0; j < WINDOW; ++j) all |= x[j];
    return all != 0;
}

/* A window at a cursor: pointers to index and value, or near the payload's end, where no more may
 * be read than there is, to copies. What lies before an index is another, or the head. */
#define WINDOW_AT(_type, _x, _from, _at, _room)                                                    \
    _type _x##_copy[WINDOW + 1];                                                                   \
    const _type *_x = (const _type *)(_from) + (_at);                                              \
                                                                                                   \
    if ((_room) < WINDOW) {                                                                        \
        memset(_x##_copy, 0, sizeof(_x##_copy));                                                   \
        memcpy(_x##_copy, _x - 1, sizeof(_type) * ((_room) + 1));                                  \
        _x = _x##_copy + 1;                                                                        \
    }

/* A window's indices relative to a part. Returns how many are in there: if none of them becomes
 * bad, they are the first and ascend, since what is below the part wraps to above it. */
#define LOOK(_name, _type)                                                                         \
    CT_SIMD_PART uint32_t _name(const _type *restrict x, uint32_t left, _type base, _type last,    \
                                uint16_t *restrict index, odd *bad)                                \
    {                                                                                              \
        _type n = 0, most = (_type)((left < WINDOW) ? left : WINDOW);                              \
        uint16_t wrong[WINDOW];                                                                    \
        lanes more;                                                                                \
                                                                                                   \
        _Pragma("omp simd reduction(+ : n)") for (_type j = 0; j < WINDOW; ++j)                    \
        {                                                                                          \
            _type at = (_type)(x[j] - base), before = (_type)((x - 1)[j] - base);                  \
            _type in = (at <= last) & (j < most);                                                  \
                                                                                                   \
            n = (_type)(n + in);                                                                   \
            index[j] = (uint16_t)at;                                                               \
            wrong[j] = (uint16_t)(in & (j > 0) & (at <= before));                                  \
        }                                                                                          \
        memcpy(&more, wrong, sizeof(more));                                                        \
        bad->lane |= more;                                                                         \
        return n;                                                                                  \
    }

LOOK(look16, uint16_t)
LOOK(look32, uint32_t)

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define CT_PIECE_MASKS
#define MASKS __attribute__((target("avx512f,avx512bw,avx512vl,bmi2,popcnt")))

/* The same where comparisons give masks: the entries inside are counted in one go. */
MASKS CT_SIMD_PART uint32_t count_ascending(uint32_t in, uint32_t left, uint32_t not_over, odd *bad)
{
    in = _bzhi_u32(in, left);
    bad->bits |= in & not_over & ~1u;
    return (uint32_t)_mm_popcnt_u32(in);
}

MASKS CT_SIMD_PART uint32_t masks16(const uint16_t *x, uint32_t left, uint16_t base, uint16_t last,
                                    uint16_t *index, odd *bad)
{
    __m512i from = _mm512_set1_epi16((short)base);
    __m512i at = _mm512_sub_epi16(_mm512_loadu_si512(x), from);
    __m512i before = _mm512_sub_epi16(_mm512_loadu_si512(x - 1), from);

    _mm512_storeu_si512(index, at);
    return count_ascending(_mm512_cmple_epu16_mask(at, _mm512_set1_epi16((short)last)),
                           (left < WINDOW) ? left : WINDOW, _mm512_cmple_epu16_mask(at, before),
                           bad);
}

MASKS CT_SIMD_PART uint32_t masks32(const uint32_t *x, uint32_t left, uint32_t base, uint32_t last,
                                    uint16_t *index, odd *bad)
{
    __m512i from = _mm512_set1_epi32((int)base), most = _mm512_set1_epi32((int)last);
    uint32_t in = 0, not_over = 0;

    for (int j = 0; j < WINDOW; j += 16) {
        __m512i at = _mm512_sub_epi32(_mm512_loadu_si512(x + j), from);
        __m512i before = _mm512_sub_epi32(_mm512_loadu_si512(x + j - 1), from);

        _mm256_storeu_si256((void *)(index + j), _mm512_cvtepi32_epi16(at));
        in |= (uint32_t)_mm512_cmple_epu32_mask(at, most) << j;
        not_over |= (uint32_t)_mm512_cmple_epu32_mask(at, before) << j;
    }
    return count_ascending(in, (left < WINDOW) ? left : WINDOW, not_over, bad);
}
#endif

/* What a payload has in a part, into its bucket, whose n is kept by the caller. False where it is
 * full, and not all was taken. _value: of entry j. */
#define SPLIT(_target, _name, _type, _look, _value_type, _value_from, _value)                      \
    _target CT_SIMD_PART bool _name(ct_piece_cursor *c, uint32_t base, uint32_t last,              \
                                    ct_piece_bucket *b, uint32_t *n_p, bool again, odd *bad)       \
    {                                                                                              \
        float mean = c->mean;                                                                      \
        uint32_t at = c->at, m = 0, n = *n_p;                                                      \
                                                                                                   \
        (void)mean;                                                                                \
        do {                                                                                       \
            WINDOW_AT(_type, x, c->index, at, c->count - at)                                       \
            WINDOW_AT(_value_type, value, _value_from, at, c->count - at)                          \
            float *restrict to = b->value + n;                                                     \
                                                                                                   \
            (void)value;                                                                           \
            m = _look(x, c->end - at, (_type)base, (_type)last, b->index + n, bad);                \
            _Pragma("omp simd") for (int j = 0; j < WINDOW; ++j) to[j] = _value;                   \
            if (again && (at < c->end) && (x[0] <= x[-1])) bad->bits |= 1;                         \
            at += m;                                                                               \
            n += m;                                                                                \
            again = true;                                                                          \
        } while ((m == WINDOW) && (n <= CT_PIECE_ROOM));                                           \
        c->at = at;                                                                                \
        *n_p = n;                                                                                  \
        return n <= CT_PIECE_ROOM;                                                                 \
    }

#define RUN(_target, _name, _split, _index_size, _value_size)                                      \
    _target static bool _name(const ct_piece_run *run)                                             \
    {                                                                                              \
        odd bad = { { 0 }, 0 };                                                                    \
                                                                                                   \
        for (int first = run->first; first < run->last; first += GROUP) {                          \
            int end = (run->last - first < GROUP) ? run->last : first + GROUP;                     \
                                                                                                   \
            for (int p = first; p < end; ++p) fetch(run, p, _index_size, _value_size);             \
            for (uint32_t at = 0; at < run->len; at += CT_PIECE_PART) {                            \
                ct_piece_bucket *b = &run->bucket[at / CT_PIECE_PART];                             \
                uint32_t rest = run->len - at, n = b->n;                                           \
                uint32_t last = ((rest < CT_PIECE_PART) ? rest : CT_PIECE_PART) - 1;               \
                                                                                                   \
                for (int p = first; p < end; ++p) {                                                \
                    bool more = false;                                                             \
                                                                                                   \
                    while (!_split(&run->at[p], run->from + at, last, b, &n, more, &bad)) {        \
                        b->n = n;                                                                  \
                        n = 0;                                                                     \
                        more = true;                                                               \
                        if (any(&bad)) return false;                                               \
                        ct_piece_drain(b, run->block + at, last + 1, run->clear);                  \
                    }                                                                              \
                }                                                                                  \
                b->n = n;                                                                          \
            }                                                                                      \
            if (any(&bad)) return false;                                                           \
        }                                                                                          \
        return true;                                                                               \
    }

/* All four codes: _target before functions, its names, and how it looks at windows. */
#define CODES(_clones, _target, _set, _look16, _look32)                                            \
    SPLIT(_target, _set##_split_pairs, uint32_t, _look32, float, c->value, value[j])               \
    SPLIT(_target, _set##_split_mean32, uint32_t, _look32, uint32_t, c->index, mean)               \
    SPLIT(_target, _set##_split_half, uint16_t, _look16, uint16_t, c->value,                       \
          ct_bf16_to_f32(value[j]))                                                                \
    SPLIT(_target, _set##_split_mean16, uint16_t, _look16, uint16_t, c->index, mean)               \
    RUN(_clones, _set##_pairs, _set##_split_pairs, 4, 4)                                           \
    RUN(_clones, _set##_mean32, _set##_split_mean32, 4, 0)                                         \
    RUN(_clones, _set##_half, _set##_split_half, 2, 2)                                             \
    RUN(_clones, _set##_mean16, _set##_split_mean16, 2, 0)                                         \
                                                                                                   \
    static bool _set(ct_payload_code code, const ct_piece_run *run)                                \
    {                                                                                              \
        if (code == CT_CODE_PAIRS) return _set##_pairs(run);                                       \
        if (code == CT_CODE_MEAN32) return _set##_mean32(run);                                     \
        return (code == CT_CODE_HALF) ? _set##_half(run) : _set##_mean16(run);                     \
    }

CODES(CT_SIMD_CLONES, , plain, look16, look32)
#ifdef CT_PIECE_MASKS
CODES(MASKS, MASKS, masks, masks16, masks32)
#endif

static bool ct_piece_split(ct_payload_code code, const ct_piece_run *run)
{
#ifdef CT_PIECE_MASKS
    if ((ct_simd_pick() == CT_SIMD_AVX512) && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return masks(code, run);
#endif
    return plain(code, run);
}

/* ---- Many payloads into one vector. The vector goes by blocks that stay in the cache while all
 * payloads are added to a block; a cursor for each payload remembers how far it has been read.
 * Pieces, of a few cache lines each and all over memory, are fetched some payloads ahead. */

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
