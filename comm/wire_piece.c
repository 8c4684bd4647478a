/* Entries into buckets by parts of a block, and a bucket into its part, which is in the first cache
 * by then. Straight from the payloads into the block it takes twice as long: each piece is an inner
 * loop that ends where no processor can foresee, and it knows only when the indices have come. Here
 * a window of fixed length is looked at whatever belongs to the part, stored whole, and then
 * overwritten by the next from where the part ended: nothing branches. */
#include "comm/wire_piece.h"

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
    uint32_t n;

    if (next >= run->n_at) next -= run->n_at;
    c = &run->at[next];
    n = (c->room < c->some) ? c->room : c->some;
    fetch_lines(c->index, index_size * n);
    if ((value_size > 0) && (c->value != NULL)) fetch_lines(c->value, value_size * n);
}

CT_SIMD_PART void move(ct_piece_cursor *c, uint32_t m, size_t index_size, size_t value_size)
{
    c->index = (const char *)c->index + m * index_size;
    if (value_size > 0) c->value = (const char *)c->value + m * value_size;
    c->left -= m;
    c->room -= m;
}

/* Kept in a register from window to window. */
typedef uint16_t lanes __attribute__((vector_size(2 * WINDOW)));

CT_SIMD_PART bool any(const lanes *bad)
{
    uint16_t x[WINDOW], all = 0;

    memcpy(x, bad, sizeof(x));
    for (int j = 0; j < WINDOW; ++j) all |= x[j];
    return all != 0;
}

/* A window at a cursor: pointers to index and value, or near the payload's end, where no more may
 * be read than there is, to copies. What lies before an index is another, or the head. */
#define WINDOW_AT(_type, _x, _from, _room)                                                         \
    _type _x##_copy[WINDOW + 1];                                                                   \
    const _type *_x = (_from);                                                                     \
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
                                uint16_t *restrict index, lanes *bad)                              \
    {                                                                                              \
        _type n = 0, most = (_type)((left < WINDOW) ? left : WINDOW);                              \
        uint16_t odd[WINDOW];                                                                      \
        lanes more;                                                                                \
                                                                                                   \
        _Pragma("omp simd reduction(+ : n)") for (_type j = 0; j < WINDOW; ++j)                    \
        {                                                                                          \
            _type at = (_type)(x[j] - base), before = (_type)((x - 1)[j] - base);                  \
            _type in = (at <= last) & (j < most);                                                  \
                                                                                                   \
            n = (_type)(n + in);                                                                   \
            index[j] = (uint16_t)at;                                                               \
            odd[j] = (uint16_t)(in & (j > 0) & (at <= before));                                    \
        }                                                                                          \
        memcpy(&more, odd, sizeof(more));                                                          \
        *bad |= more;                                                                              \
        return n;                                                                                  \
    }

LOOK(look16, uint16_t)
LOOK(look32, uint32_t)

/* What a payload has in a part, into its bucket, whose n is kept by the caller. False where it is
 * full, and not all was taken. _value: of entry j. */
#define SPLIT(_name, _type, _look, _value_type, _value_from, _value_size, _value)                  \
    CT_SIMD_PART bool _name(ct_piece_cursor *c, uint32_t base, uint32_t last, ct_piece_bucket *b,  \
                            uint32_t *n_p, bool again, lanes *bad)                                 \
    {                                                                                              \
        float mean = c->mean;                                                                      \
        uint32_t m = 0, n = *n_p;                                                                  \
                                                                                                   \
        (void)mean;                                                                                \
        do {                                                                                       \
            WINDOW_AT(_type, x, c->index, c->room)                                                 \
            WINDOW_AT(_value_type, value, _value_from, c->room)                                    \
            float *restrict to = b->value + n;                                                     \
                                                                                                   \
            (void)value;                                                                           \
            m = _look(x, c->left, (_type)base, (_type)last, b->index + n, bad);                    \
            _Pragma("omp simd") for (int j = 0; j < WINDOW; ++j) to[j] = _value;                   \
            if (again && (c->left > 0) && (x[0] <= x[-1])) (*bad)[0] |= 1;                         \
            move(c, m, sizeof(_type), _value_size);                                                \
            n += m;                                                                                \
            again = true;                                                                          \
        } while ((m == WINDOW) && (n <= CT_PIECE_ROOM));                                           \
        *n_p = n;                                                                                  \
        return n <= CT_PIECE_ROOM;                                                                 \
    }

SPLIT(split_pairs, uint32_t, look32, float, c->value, 4, value[j])
SPLIT(split_mean32, uint32_t, look32, uint32_t, c->index, 0, mean)
SPLIT(split_half, uint16_t, look16, uint16_t, c->value, 2, ct_bf16_to_f32(value[j]))
SPLIT(split_mean16, uint16_t, look16, uint16_t, c->index, 0, mean)

#define RUN(_name, _split, _index_size, _value_size)                                               \
    CT_SIMD_CLONES static bool _name(const ct_piece_run *run)                                      \
    {                                                                                              \
        lanes bad = { 0 };                                                                         \
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

RUN(run_pairs, split_pairs, 4, 4)
RUN(run_mean32, split_mean32, 4, 0)
RUN(run_half, split_half, 2, 2)
RUN(run_mean16, split_mean16, 2, 0)

bool ct_piece_split(ct_wire_code code, const ct_piece_run *run)
{
    if (code == CT_CODE_PAIRS) return run_pairs(run);
    if (code == CT_CODE_MEAN32) return run_mean32(run);
    return (code == CT_CODE_HALF) ? run_half(run) : run_mean16(run);
}
