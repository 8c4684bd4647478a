/* Entries into buckets by parts of a block, and a bucket into its part, which is in the caches next
 * to the core by then. Straight from the payloads into the block it takes twice as long: each piece
 * is an inner loop that ends where no processor can foresee, and it knows only when the indices
 * have come. Here a window of fixed length is looked at whatever belongs to the part, stored whole,
 * and then overwritten by the next from where the part ended: nothing branches. */
#include "comm/sparse/payload_piece.h"

#include "framework/base/simd.h"

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

void ct_piece_drain(ct_piece_bucket *b, float *part, uint32_t len, bool clear)
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

bool ct_piece_split(ct_payload_code code, const ct_piece_run *run)
{
#ifdef CT_PIECE_MASKS
    if ((ct_simd_pick() == CT_SIMD_AVX512) && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return masks(code, run);
#endif
    return plain(code, run);
}
