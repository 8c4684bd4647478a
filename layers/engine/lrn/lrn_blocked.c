/* Across channels that stand in blocks, one pass over memory each way. A block's channels of a
 * place are one vector; its window is made of the blocks before and behind it, moved by some lanes.
 *
 * Work goes by SOME places, in them by SIDE places, in these by blocks: what a block shares with
 * its neighbours stays in registers. Meanwhile the next places are asked for, and what was made
 * goes past the caches a few lines at a time, so that memory is busy beside the arithmetic. scale
 * is made again in backward, where reading it would be a third more traffic. */
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/lrn/lrn.h"

#include <math.h>

/* SIDE: places whose powers are taken side by side. One's is a chain of 20 operations that wait for
 * each other; four of them keep a processor busy. */
enum { PLACES = 64, MOST_BLOCK = 16, SIDE = 4, SOME = 16, MOST_KEPT = 32 };

static bool supports(const ct_lrn_desc *d)
{
    return ct_lrn_on_cpu(d) && ((d->block == 8) || (d->block == 16)) && !d->within &&
           ((d->size - 1) / 2 <= d->block);
}

static inline int64_t blocks_of(const ct_lrn_desc *d)
{
    return (d->c + d->block - 1) / d->block;
}

/* A row: `places` places of a block. Beside the first and the last block stand zeros. */
typedef struct row {
    const float *at;
    int step; /* floats from place to place: the block; of zeros 0 */
} row;

/* What is written of SOME places of up to MOST_KEPT blocks, before it passes the caches by. */
typedef struct scratch {
    float made[MOST_KEPT][SOME * MOST_BLOCK] __attribute__((aligned(64)));
    float zero[MOST_BLOCK] __attribute__((aligned(64)));
} scratch;

/* One piece of an image: all blocks of `places` places. */
typedef struct piece {
    const ct_lrn_desc *d;
    const float *x, *dy; /* at the first place of block 0 */
    float *y, *dx, *scale;
    int64_t step; /* floats from block to block */
    int places;
    float factor;
    bool stream; /* what is written passes the caches by */
    scratch *s;
} piece;

/* Block j of an array of the piece. */
CT_SIMD_PART row row_of(const piece *p, const float *array, int64_t j)
{
    if ((j < 0) || (j >= blocks_of(p->d))) return (row){ p->s->zero, 0 };
    return (row){ array + j * p->step, p->d->block };
}

static inline void fetch(const float *at, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(at + i, 0, 2);
}

/* v^e of each; a function of its own, since the compiler would write out every call. */
__attribute__((noinline)) static void raise_each(int64_t n, float e, float *v)
{
    for (int64_t i = 0; i < n; i++) v[i] = powf(v[i], e);
}

#define LANES_8(_q)  (_q), (_q) + 1, (_q) + 2, (_q) + 3, (_q) + 4, (_q) + 5, (_q) + 6, (_q) + 7
#define LANES_16(_q) LANES_8(_q), LANES_8((_q) + 8)

/* Lanes [_q, _q + _b) of two vectors behind one another. */
#define MOVED(_b, _low, _high, _q) CT_SIMD_MIXED(num##_b, _low, _high, LANES_##_b(_q))

#define LOAD(_b, _row, _p)    (*(const vec##_b *)((_row).at + (_p) * (_row).step))
#define MASKED(_b, _v, _mask) ((vec##_b)((num##_b)(_v) & (_mask)))

/* Kernels of blocks of _b channels; vectors go by their addresses, since how functions take them
 * differs between sets of instructions. */
#define KERNELS(_b)                                                                                \
    typedef float vec##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));           \
    typedef int32_t num##_b __attribute__((vector_size(4 * (_b)), aligned(4), may_alias));         \
                                                                                                   \
    CT_LRN_ROOTS(roots##_b, vec##_b, num##_b)                                                      \
                                                                                                   \
    /* the channels that there are in block j, as a mask */                                        \
    CT_SIMD_PART void real##_b(const ct_lrn_desc *d, int64_t j, num##_b *mask_p)                   \
    {                                                                                              \
        int32_t left = (d->c - j * (_b) < (_b)) ? (int32_t)(d->c - j * (_b)) : (_b);               \
                                                                                                   \
        *mask_p = (num##_b){ LANES_##_b(0) } < (num##_b){ 0 } + left;                              \
    }                                                                                              \
                                                                                                   \
    /* sums over windows, in the order of the channels; fixed: `size`, or 0 */                     \
    CT_SIMD_PART void window##_b(const int fixed, int64_t size, const vec##_b *low_p,              \
                                 const vec##_b *mid_p, const vec##_b *high_p, vec##_b *sum_p)      \
    {                                                                                              \
        vec##_b low = *low_p, mid = *mid_p, high = *high_p, sum;                                   \
        int64_t first = (_b) - (size - 1) / 2;                                                     \
        float v[3 * (_b)];                                                                         \
                                                                                                   \
        if (fixed == 5) {                                                                          \
            sum = MOVED(_b, low, mid, (_b)-2) + MOVED(_b, low, mid, (_b)-1) + mid +                \
                  MOVED(_b, mid, high, 1) + MOVED(_b, mid, high, 2);                               \
        } else if (fixed == 3) {                                                                   \
            sum = MOVED(_b, low, mid, (_b)-1) + mid + MOVED(_b, mid, high, 1);                     \
        } else {                                                                                   \
            *(vec##_b *)v = low;                                                                   \
            *(vec##_b *)(v + (_b)) = mid;                                                          \
            *(vec##_b *)(v + 2 * (_b)) = high;                                                     \
            sum = *(const vec##_b *)(v + first);                                                   \
            for (int64_t q = 1; q < size; q++) sum += *(const vec##_b *)(v + first + q);           \
        }                                                                                          \
        *sum_p = sum;                                                                              \
    }                                                                                              \
                                                                                                   \
    /* s^-beta, and s^-1, of n places */                                                           \
    CT_SIMD_PART void powers##_b(const int n, bool usual, float beta, const vec##_b *s,            \
                                 vec##_b *power, vec##_b *inverse)                                 \
    {                                                                                              \
        vec##_b r[SIDE];                                                                           \
        float v[SIDE * (_b)];                                                                      \
                                                                                                   \
        if (usual) {                                                                               \
            roots##_b(n, s, r);                                                                    \
            CT_LRN_EACH(n) power[i] = r[i] * (r[i] * r[i]);                                        \
            CT_LRN_EACH(n) inverse[i] = (r[i] * r[i]) * (r[i] * r[i]);                             \
            return;                                                                                \
        }                                                                                          \
        CT_LRN_EACH(n) * (vec##_b *)(v + i * (_b)) = s[i];                                         \
        CT_LRN_EACH(n) inverse[i] = 1.0f / s[i];                                                   \
        raise_each(n *(_b), -beta, v);                                                             \
        CT_LRN_EACH(n) power[i] = *(const vec##_b *)(v + i * (_b));                                \
    }                                                                                              \
                                                                                                   \
    /* What goes on from block to block of some places: x and its square, of this block and the    \
     * one before; backward also their ratios, and dy scale^-beta of the one before */             \
    typedef struct carry##_b {                                                                     \
        vec##_b x[SIDE], low[SIDE], mid[SIDE];                                                     \
        vec##_b before[SIDE], ratio_low[SIDE], ratio_mid[SIDE], part[SIDE];                        \
    } carry##_b;                                                                                   \
                                                                                                   \
    CT_SIMD_PART void begin##_b(const int n, const piece *w, int p, carry##_b *c)                  \
    {                                                                                              \
        vec##_b none = { 0 };                                                                      \
        num##_b mask;                                                                              \
                                                                                                   \
        real##_b(w->d, 0, &mask);                                                                  \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            c->x[i] = MASKED(_b, *(const vec##_b *)(w->x + (p + i) * (_b)), mask);                 \
            c->mid[i] = c->x[i] * c->x[i];                                                         \
            c->low[i] = c->ratio_low[i] = c->ratio_mid[i] = c->before[i] = c->part[i] = none;      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* scale and its powers of n places of block j from place p on; then x and its squares are     \
     * those of the next block. */                                                                 \
    CT_SIMD_PART void places##_b(const int n, const piece *w, int64_t j, const int fixed,          \
                                 bool usual, int p, carry##_b *c, vec##_b *s, vec##_b *power,      \
                                 vec##_b *inverse)                                                 \
    {                                                                                              \
        const ct_lrn_desc *d = w->d;                                                               \
        const row after = row_of(w, w->x, j + 1);                                                  \
        num##_b next;                                                                              \
                                                                                                   \
        real##_b(d, j + 1, &next);                                                                 \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            vec##_b x = MASKED(_b, LOAD(_b, after, p + i), next), high = x * x, sum;               \
                                                                                                   \
            window##_b(fixed, d->size, &c->low[i], &c->mid[i], &high, &sum);                       \
            s[i] = d->k + w->factor * sum;                                                         \
            c->low[i] = c->mid[i], c->mid[i] = high;                                               \
            c->before[i] = c->x[i], c->x[i] = x;                                                   \
        }                                                                                          \
        powers##_b(n, usual, d->beta, s, power, inverse);                                          \
    }                                                                                              \
                                                                                                   \
    /* n places of block j from place p on */                                                      \
    CT_SIMD_PART void forward_some##_b(const int n, const piece *w, int64_t j, const int fixed,    \
                                       bool usual, int p, carry##_b *c, float *y)                  \
    {                                                                                              \
        float *keep = (w->scale != NULL) ? w->scale + j * w->step + p * (_b) : NULL;               \
        vec##_b s[SIDE], power[SIDE], inverse[SIDE];                                               \
        num##_b mask;                                                                              \
                                                                                                   \
        real##_b(w->d, j, &mask);                                                                  \
        places##_b(n, w, j, fixed, usual, p, c, s, power, inverse);                                \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            *(vec##_b *)(y + i * (_b)) = MASKED(_b, c->before[i] * power[i], mask);                \
            if (keep != NULL) *(vec##_b *)(keep + i * (_b)) = s[i];                                \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* the same backward: ratios of block j, gradients of the block before, if there are such */   \
    CT_SIMD_PART void back_some##_b(const int n, const bool is, const bool was, const piece *w,    \
                                    int64_t j, const int fixed, bool usual, int p, carry##_b *c,   \
                                    float *dx)                                                     \
    {                                                                                              \
        const float *dy = w->dy + j * w->step + p * (_b);                                          \
        float factor = 2.0f * w->factor * w->d->beta;                                              \
        vec##_b s[SIDE], power[SIDE], inverse[SIDE], x[SIDE];                                      \
        num##_b mask;                                                                              \
                                                                                                   \
        CT_LRN_EACH(n) x[i] = c->before[i];                                                        \
        if (is) places##_b(n, w, j, fixed, usual, p, c, s, power, inverse);                        \
        real##_b(w->d, j, &mask);                                                                  \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            vec##_b g = { 0 }, ratio = { 0 }, sum;                                                 \
                                                                                                   \
            if (is) {                                                                              \
                g = MASKED(_b, *(const vec##_b *)(dy + i * (_b)) * power[i], mask);                \
                ratio = MASKED(_b, g * c->before[i] * inverse[i], mask);                           \
            }                                                                                      \
            if (was) {                                                                             \
                window##_b(fixed, w->d->size, &c->ratio_low[i], &c->ratio_mid[i], &ratio, &sum);   \
                *(vec##_b *)(dx + i * (_b)) = c->part[i] - factor * x[i] * sum;                    \
            }                                                                                      \
            c->ratio_low[i] = c->ratio_mid[i], c->ratio_mid[i] = ratio, c->part[i] = g;            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* n places from place p on of all blocks; to: of block 0, others `step` floats apart */       \
    CT_SIMD_PART void some##_b(const int n, const piece *w, const int fixed, bool usual, int p,    \
                               float *to, int64_t step)                                            \
    {                                                                                              \
        int64_t blocks = blocks_of(w->d);                                                          \
        carry##_b c;                                                                               \
                                                                                                   \
        begin##_b(n, w, p, &c);                                                                    \
        if (w->dx == NULL) {                                                                       \
            for (int64_t j = 0; j < blocks; j++) {                                                 \
                fetch(w->x + j * w->step + (p + SOME) * (_b), n * (_b));                           \
                forward_some##_b(n, w, j, fixed, usual, p, &c, to + j * step);                     \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        back_some##_b(n, true, false, w, 0, fixed, usual, p, &c, NULL);                            \
        for (int64_t j = 1; j < blocks; j++) {                                                     \
            fetch(w->x + j * w->step + (p + SOME) * (_b), n * (_b));                               \
            fetch(w->dy + j * w->step + (p + SOME) * (_b), n * (_b));                              \
            back_some##_b(n, true, true, w, j, fixed, usual, p, &c, to + (j - 1) * step);          \
        }                                                                                          \
        back_some##_b(n, false, true, w, blocks, fixed, usual, p, &c, to + (blocks - 1) * step);   \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void pass##_b(const piece *w, const int side, const int fixed, bool usual,        \
                               bool stream)                                                        \
    {                                                                                              \
        float *out = (w->dx != NULL) ? w->dx : w->y;                                               \
                                                                                                   \
        for (int q = 0, n; q < w->places; q += n) {                                                \
            float *to = stream ? w->s->made[0] : out + q * (_b);                                   \
            int64_t step = stream ? SOME * MOST_BLOCK : w->step;                                   \
            int p = 0;                                                                             \
                                                                                                   \
            n = (w->places - q < SOME) ? w->places - q : SOME;                                     \
            for (; p + side <= n; p += side)                                                       \
                some##_b(side, w, fixed, usual, q + p, to + p * (_b), step);                       \
            for (; p < n; p++) some##_b(1, w, fixed, usual, q + p, to + p * (_b), step);           \
            for (int64_t j = 0; stream && (j < blocks_of(w->d)); j++)                              \
                ct_stream_copy(n *(_b), w->s->made[j], out + j * w->step + q * (_b));              \
        }                                                                                          \
    }

/* The usual cases each for itself, so that their loops have no others. */
#define PIECE(_name, _target, _b)                                                                  \
    _target static void _name(const piece *w)                                                      \
    {                                                                                              \
        bool usual = ct_lrn_is_usual(w->d);                                                        \
                                                                                                   \
        if (usual && (w->d->size == 5))                                                            \
            pass##_b(w, SIDE, 5, true, w->stream);                                                 \
        else if (usual && (w->d->size == 3))                                                       \
            pass##_b(w, SIDE, 3, true, w->stream);                                                 \
        else if (w->d->size == 5)                                                                  \
            pass##_b(w, SIDE, 5, false, w->stream);                                                \
        else                                                                                       \
            pass##_b(w, SIDE, 0, usual, w->stream);                                                \
    }

KERNELS(8)
KERNELS(16)

PIECE(piece8, CT_SIMD_CLONES, 8)

/* Nets have blocks of 16 where registers hold them (ct_simd_block()). In shorter vectors these
 * kernels take the compiler half a minute: there one loop for all cases is enough. */
static void piece16_any(const piece *w)
{
    pass16(w, 1, 0, ct_lrn_is_usual(w->d), w->stream);
}
#ifdef CT_SIMD_BLOCK_16
PIECE(piece16, CT_SIMD_BLOCK_16, 16)
#else
static void piece16(const piece *w)
{
    piece16_any(w);
}
#endif

/* Piece t of the batch: image t / n_piece. */
static void run_piece(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t t, bool in_one,
                      bool stream, scratch *s)
{
    int64_t area = d->h * d->w, n_piece = (area + PLACES - 1) / PLACES;
    int64_t first = t % n_piece * PLACES;
    int64_t at = (t / n_piece * blocks_of(d) * area + first) * d->block;
    piece w = { .d = d,
                .x = a->x + at,
                .y = (a->dx == NULL) ? a->y + at : NULL,
                .dy = (a->dx != NULL) ? a->dy + at : NULL,
                .dx = (a->dx != NULL) ? a->dx + at : NULL,
                .scale = (a->scale != NULL) ? a->scale + at : NULL,
                .step = area * d->block,
                .places = (area - first < PLACES) ? (int)(area - first) : PLACES,
                .factor = ct_lrn_factor(d),
                .stream = stream,
                .s = s };

    if (d->block == 8)
        piece8(&w);
    else if (in_one)
        piece16(&w);
    else
        piece16_any(&w);
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t n_piece = d->n * ((d->h * d->w + PLACES - 1) / PLACES);
    size_t bytes = (size_t)(d->n * blocks_of(d) * d->block * d->h * d->w) * sizeof(float);
    bool stream =
        (blocks_of(d) <= MOST_KEPT) && ct_stream_pays((a->dx != NULL) ? a->dx : a->y, bytes);
    bool in_one = (ct_simd_block() == 16);
    ct_status polled = CT_OK;

#pragma omp parallel num_threads(d->n_thread)
    {
        scratch s;

        memset(s.zero, 0, sizeof(s.zero));
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_piece; t++) {
            run_piece(d, a, t, in_one, stream, &s);
            ct_engine_poll(ex, &polled);
        }
        ct_stream_end();
    }
    return polled;
}

const ct_lrn_impl ct_lrn_blocked_forward = {
    .name = "blocked", .supports = supports, .run = run, .can = CT_LRN_CAN_REMAKE
};
const ct_lrn_impl ct_lrn_blocked_backward = {
    .name = "blocked", .supports = supports, .run = run, .can = CT_LRN_CAN_REMAKE
};
