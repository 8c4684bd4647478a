/* Across channels that stand in blocks, one pass over memory each way. A block's channels of a
 * place are one vector; its window is made of the blocks before and behind it, moved by some lanes.
 *
 * Work goes by pieces of PLACES places, in them by blocks, in these by places, so that each array
 * is read and written in runs of some lines, and what a block shares with its neighbours is still
 * in a first-level cache: the squares of x are made three times, which costs less than keeping
 * them. scale is made again in backward, where reading it would be a third more traffic. */
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/lrn/lrn_private.h"

#include <math.h>

/* SIDE: places whose powers are taken side by side. One's is a chain of 20 operations that wait for
 * each other; four of them keep a processor busy. */
enum { PLACES = 64, MOST_BLOCK = 16, SIDE = 4 };

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

/* Rows of a piece as they go by: the ratio of a block and of its neighbours, dy scale^-beta of it
 * and of the next. */
typedef struct scratch {
    float ratio[3][PLACES * MOST_BLOCK] __attribute__((aligned(64)));
    float part[2][PLACES * MOST_BLOCK] __attribute__((aligned(64)));
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

/* The same of a ring of n rows in scratch. */
CT_SIMD_PART row kept_row(const piece *p, float ring[][PLACES * MOST_BLOCK], int n, int64_t j)
{
    if ((j < 0) || (j >= blocks_of(p->d))) return (row){ p->s->zero, 0 };
    return (row){ ring[j % n], p->d->block };
}

/* Block j, which is read soon, of this piece or of the next: memory is far, and rows are too short
 * for the processor to see where they go. */
CT_SIMD_PART const float *ahead(const piece *p, const float *array, int64_t j)
{
    int64_t n = blocks_of(p->d);

    return (j < n) ? array + j * p->step
                   : array + (j - n) * p->step + (int64_t)PLACES * p->d->block;
}

#define LANES_8(_q)  (_q), (_q) + 1, (_q) + 2, (_q) + 3, (_q) + 4, (_q) + 5, (_q) + 6, (_q) + 7
#define LANES_16(_q) LANES_8(_q), LANES_8((_q) + 8)

/* Lanes [_q, _q + _b) of two vectors behind one another. */
#if defined(__clang__) || (__GNUC__ >= 12)
#define MOVED(_b, _low, _high, _q) __builtin_shufflevector(_low, _high, LANES_##_b(_q))
#else
#define MOVED(_b, _low, _high, _q) __builtin_shuffle(_low, _high, (num##_b){ LANES_##_b(_q) })
#endif

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
    CT_SIMD_PART void put##_b(bool stream, const vec##_b *v, float *to)                            \
    {                                                                                              \
        if (stream)                                                                                \
            ct_stream_put((_b), (const float *)v, to);                                             \
        else                                                                                       \
            *(vec##_b *)to = *v;                                                                   \
    }                                                                                              \
                                                                                                   \
    /* the channels that there are in block j, as a mask */                                        \
    CT_SIMD_PART void real##_b(const ct_lrn_desc *d, int64_t j, num##_b *mask_p)                   \
    {                                                                                              \
        int32_t left = (d->c - j * (_b) < (_b)) ? (int32_t)(d->c - j * (_b)) : (_b);               \
                                                                                                   \
        *mask_p = (num##_b){ LANES_##_b(0) } < (num##_b){ 0 } + left;                              \
    }                                                                                              \
                                                                                                   \
    /* sums over windows, in the order of the channels */                                          \
    CT_SIMD_PART void window##_b(int64_t size, const vec##_b *low_p, const vec##_b *mid_p,         \
                                 const vec##_b *high_p, vec##_b *sum_p)                            \
    {                                                                                              \
        vec##_b low = *low_p, mid = *mid_p, high = *high_p, sum;                                   \
        int64_t first = (_b) - (size - 1) / 2;                                                     \
        float v[3 * (_b)];                                                                         \
                                                                                                   \
        if (size == 5) {                                                                           \
            sum = MOVED(_b, low, mid, (_b)-2) + MOVED(_b, low, mid, (_b)-1) + mid +                \
                  MOVED(_b, mid, high, 1) + MOVED(_b, mid, high, 2);                               \
        } else if (size == 3) {                                                                    \
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
                                                                                                   \
        if (usual) {                                                                               \
            roots##_b(n, s, r);                                                                    \
            CT_LRN_EACH(n) power[i] = r[i] * (r[i] * r[i]);                                        \
            CT_LRN_EACH(n) inverse[i] = (r[i] * r[i]) * (r[i] * r[i]);                             \
            return;                                                                                \
        }                                                                                          \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            r[i] = s[i];                                                                           \
            for (int c = 0; c < (_b); c++) r[i][c] = powf(r[i][c], -beta);                         \
            power[i] = r[i];                                                                       \
            inverse[i] = 1.0f / s[i];                                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* scale of a place of a block, whose x come out; masks of the block and the next one */       \
    CT_SIMD_PART void scale##_b(float k, float factor, int64_t size, const row *r, int p,          \
                                const num##_b *mask, const num##_b *next, vec##_b *x_p,            \
                                vec##_b *scale_p)                                                  \
    {                                                                                              \
        vec##_b low = LOAD(_b, r[0], p), mid = MASKED(_b, LOAD(_b, r[1], p), *mask);               \
        vec##_b high = MASKED(_b, LOAD(_b, r[2], p), *next), sum;                                  \
                                                                                                   \
        *x_p = mid;                                                                                \
        low *= low, mid *= mid, high *= high;                                                      \
        window##_b(size, &low, &mid, &high, &sum);                                                 \
        *scale_p = k + factor * sum;                                                               \
    }                                                                                              \
                                                                                                   \
    /* x, scale and its powers of n places of block j from place p on; r: rows of x */             \
    CT_SIMD_PART void places##_b(const int n, const piece *w, int64_t j, const row *r,             \
                                 int64_t size, bool usual, int p, num##_b *mask_p, vec##_b *x,     \
                                 vec##_b *s, vec##_b *power, vec##_b *inverse)                     \
    {                                                                                              \
        const ct_lrn_desc *d = w->d;                                                               \
        num##_b next;                                                                              \
                                                                                                   \
        real##_b(d, j, mask_p);                                                                    \
        real##_b(d, j + 1, &next);                                                                 \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            scale##_b(d->k, w->factor, size, r, p + i, mask_p, &next, &x[i], &s[i]);               \
        }                                                                                          \
        powers##_b(n, usual, d->beta, s, power, inverse);                                          \
    }                                                                                              \
                                                                                                   \
    /* n places of block j from place p on; r: rows of x */                                        \
    CT_SIMD_PART void forward_some##_b(const int n, const piece *w, int64_t j, const row *r,       \
                                       int64_t size, bool usual, bool stream, int p)               \
    {                                                                                              \
        float *y = w->y + j * w->step + p * (_b);                                                  \
        float *keep = (w->scale != NULL) ? w->scale + j * w->step + p * (_b) : NULL;               \
        vec##_b x[SIDE], s[SIDE], power[SIDE], inverse[SIDE];                                      \
        num##_b mask;                                                                              \
                                                                                                   \
        places##_b(n, w, j, r, size, usual, p, &mask, x, s, power, inverse);                       \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            x[i] = MASKED(_b, x[i] * power[i], mask);                                              \
            put##_b(stream, &x[i], y + i * (_b));                                                  \
            if (keep != NULL) *(vec##_b *)(keep + i * (_b)) = s[i];                                \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void forward##_b(const piece *w, int64_t j, int64_t size, bool usual,             \
                                  bool stream)                                                     \
    {                                                                                              \
        const row r[3] = { row_of(w, w->x, j - 1), row_of(w, w->x, j), row_of(w, w->x, j + 1) };   \
        const float *soon = ahead(w, w->x, j + 3);                                                 \
        int n = w->places, p = 0;                                                                  \
                                                                                                   \
        for (; p + SIDE <= n; p += SIDE) {                                                         \
            CT_LRN_EACH(SIDE) __builtin_prefetch(soon + (p + i) * (_b));                           \
            forward_some##_b(SIDE, w, j, r, size, usual, stream, p);                               \
        }                                                                                          \
        for (; p < n; p++) forward_some##_b(1, w, j, r, size, usual, stream, p);                   \
    }                                                                                              \
                                                                                                   \
    /* dy scale^-beta of n places of block j, and that times x / scale */                          \
    CT_SIMD_PART void ratios_some##_b(const int n, const piece *w, int64_t j, const row *r,        \
                                      int64_t size, bool usual, int p)                             \
    {                                                                                              \
        const float *dy = w->dy + j * w->step + p * (_b);                                          \
        float *part = w->s->part[j % 2] + p * (_b), *ratio = w->s->ratio[j % 3] + p * (_b);        \
        vec##_b x[SIDE], s[SIDE], power[SIDE], inverse[SIDE];                                      \
        num##_b mask;                                                                              \
                                                                                                   \
        places##_b(n, w, j, r, size, usual, p, &mask, x, s, power, inverse);                       \
        CT_LRN_EACH(n)                                                                             \
        {                                                                                          \
            vec##_b g = *(const vec##_b *)(dy + i * (_b)) * power[i];                              \
                                                                                                   \
            *(vec##_b *)(part + i * (_b)) = MASKED(_b, g, mask);                                   \
            *(vec##_b *)(ratio + i * (_b)) = MASKED(_b, g * x[i] * inverse[i], mask);              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void ratios##_b(const piece *w, int64_t j, int64_t size, bool usual)              \
    {                                                                                              \
        const row r[3] = { row_of(w, w->x, j - 1), row_of(w, w->x, j), row_of(w, w->x, j + 1) };   \
        const float *soon = ahead(w, w->x, j + 2), *soon_dy = ahead(w, w->dy, j + 1);              \
        int n = w->places, p = 0;                                                                  \
                                                                                                   \
        for (; p + SIDE <= n; p += SIDE) {                                                         \
            CT_LRN_EACH(SIDE) __builtin_prefetch(soon + (p + i) * (_b));                           \
            CT_LRN_EACH(SIDE) __builtin_prefetch(soon_dy + (p + i) * (_b));                        \
            ratios_some##_b(SIDE, w, j, r, size, usual, p);                                        \
        }                                                                                          \
        for (; p < n; p++) ratios_some##_b(1, w, j, r, size, usual, p);                            \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void gradients##_b(const piece *w, int64_t j, int64_t size, bool stream)          \
    {                                                                                              \
        const ct_lrn_desc *d = w->d;                                                               \
        const row r[3] = { kept_row(w, w->s->ratio, 3, j - 1), kept_row(w, w->s->ratio, 3, j),     \
                           kept_row(w, w->s->ratio, 3, j + 1) };                                   \
        const float *x = w->x + j * w->step, *part = w->s->part[j % 2];                            \
        float *dx = w->dx + j * w->step, factor = 2.0f * w->factor * d->beta;                      \
        int n = w->places;                                                                         \
        num##_b mask;                                                                              \
                                                                                                   \
        real##_b(d, j, &mask);                                                                     \
        for (int p = 0; p < n; p++) {                                                              \
            vec##_b v = MASKED(_b, *(const vec##_b *)(x + p * (_b)), mask), sum;                   \
            vec##_b low = LOAD(_b, r[0], p), mid = LOAD(_b, r[1], p), high = LOAD(_b, r[2], p);    \
                                                                                                   \
            window##_b(size, &low, &mid, &high, &sum);                                             \
            v = *(const vec##_b *)(part + p * (_b)) - factor * v * sum;                            \
            put##_b(stream, &v, dx + p * (_b));                                                    \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CT_SIMD_PART void pass##_b(const piece *w, int64_t size, bool usual, bool stream)              \
    {                                                                                              \
        int64_t n = blocks_of(w->d);                                                               \
                                                                                                   \
        if (w->dx == NULL) {                                                                       \
            for (int64_t j = 0; j < n; j++) forward##_b(w, j, size, usual, stream);                \
            return;                                                                                \
        }                                                                                          \
        for (int64_t j = 0; j <= n; j++) {                                                         \
            if (j < n) ratios##_b(w, j, size, usual);                                              \
            if (j > 0) gradients##_b(w, j - 1, size, stream);                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* the usual cases each for itself, so that their loops have no others */                      \
    CT_SIMD_CLONES static void piece##_b(const piece *w)                                           \
    {                                                                                              \
        bool usual = ct_lrn_is_usual(w->d);                                                        \
                                                                                                   \
        if (usual && (w->d->size == 5) && w->stream)                                               \
            pass##_b(w, 5, true, true);                                                            \
        else if (usual && (w->d->size == 5))                                                       \
            pass##_b(w, 5, true, false);                                                           \
        else if (usual && (w->d->size == 3))                                                       \
            pass##_b(w, 3, true, w->stream);                                                       \
        else                                                                                       \
            pass##_b(w, w->d->size, usual, w->stream);                                             \
    }

KERNELS(8)
KERNELS(16)

/* Piece t of the batch: image t / n_piece. */
static void run_piece(const ct_lrn_desc *d, const ct_lrn_args *a, int64_t t, bool stream,
                      scratch *s)
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

    if (d->block == 16)
        piece16(&w);
    else
        piece8(&w);
}

static ct_status run(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    int64_t n_piece = d->n * ((d->h * d->w + PLACES - 1) / PLACES);
    size_t bytes = (size_t)(d->n * blocks_of(d) * d->block * d->h * d->w) * sizeof(float);
    bool stream = ct_stream_pays((a->dx != NULL) ? a->dx : a->y, bytes);
    ct_status polled = CT_OK;

#pragma omp parallel num_threads(d->n_thread)
    {
        scratch s;

        memset(s.zero, 0, sizeof(s.zero));
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_piece; t++) {
            run_piece(d, a, t, stream, &s);
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
