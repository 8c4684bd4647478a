/* The tiles of convolutions on blocked layouts: sums that stay in registers. Compiled with
 * -ffp-contract=fast: multiply-adds are fused where the set has them. */
#include "framework/base/stream.h"
#include "layers/engine/conv/blocked.h"
#include "layers/engine/conv/blocked_vec.h"

/* n words of channels, outputs [_lo, _hi) of the tile; x at the first of them, _step words between.
 */
#define ADD_CHANNELS(_add, _l, _b, _vecs, _lo, _hi, _step, _n, _x, _weight)                        \
    ADD_AHEAD(_add, _l, _b, _vecs, _lo, _hi, _step, _n, _x, _weight, ((_hi) - (_lo)) * (_step))
#define ADD_AHEAD(_add, _l, _b, _vecs, _lo, _hi, _step, _n, _x, _weight, _soon)                    \
    for (int64_t c = 0; c < (_n); c++) {                                                           \
        const float *wc = (_weight) + c * ((_vecs) * (_b));                                        \
        vec factor[(_vecs)*CT_PARTS(_b, _l)];                                                      \
                                                                                                   \
        __builtin_prefetch((_x) + (_soon) + c * (_step));                                          \
                                                                                                   \
        CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) factor[v] =                   \
            *(const vec *)(wc + v * (_l));                                                         \
        CT_UNROLL for (int i = (_lo); i < (_hi); i++)                                              \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                           \
                _add(acc[i][v], (_x)[c + (i - (_lo)) * (_step)], factor[v]);                       \
        }                                                                                          \
    }

/* Outputs at [*lo_p, *hi_p) of `tile` meet a column inside. */
static inline void inside(const ct_blk_tile *t, int64_t col, int64_t tile, int64_t *lo_p,
                          int64_t *hi_p)
{
    valid_range(col, t->si, t->w, tile, lo_p, hi_p);
}

/* Columns of a tap one after the other, b words each, zeros for those outside. */
static inline void gather(int64_t b, int64_t tile, const float *row, int64_t col, int64_t si,
                          int64_t lo, int64_t hi, float *to)
{
    for (int64_t i = 0; i < tile; i++) {
        for (int64_t c = 0; c < b; c++)
            to[i * b + c] = ((i >= lo) && (i < hi)) ? row[(col + i * si) * b + c] : 0.0f;
    }
}

/* _add: how a word is added to a sum; _k: words of a block of x */
#define TILE_OF(_add, _k, _l, _name, _target, _b, _size, _vecs)                                    \
    _target static void _name##_tile(const ct_blk_tile *t)                                         \
    {                                                                                              \
        CT_VEC(_l);                                                                                \
        CT_VEC_BITS(_l);                                                                           \
        vec acc[_size][(_vecs)*CT_PARTS(_b, _l)];                                                  \
        float edge[(_size) * (_k)];                                                                \
                                                                                                   \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                           \
            {                                                                                      \
                if (t->start != NULL)                                                              \
                    acc[i][v] = *(const vec *)(t->start + v * (_l));                               \
                else                                                                               \
                    acc[i][v] =                                                                    \
                        *(const vec *)(t->y + i * t->y_step + CT_PART_AT(_b, _l, v, t->y_block));  \
                if ((t->start != NULL) && !t->stream)                                              \
                    __builtin_prefetch(t->y + i * t->y_step + CT_PART_AT(_b, _l, v, t->y_block),   \
                                       1);                                                         \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < t->n_block; k++) {                                                 \
            const float *w = t->weight + k * t->weight_block;                                      \
            int64_t n = (k + 1 < t->n_block) ? (_k) : t->last;                                     \
                                                                                                   \
            for (int64_t p = 0; p < t->n_p; p++) {                                                 \
                const float *row = t->x + k * t->x_block + (t->row + p * t->row_step) * t->x_row;  \
                int64_t col = t->col;                                                              \
                                                                                                   \
                for (int64_t q = 0; q < t->n_q; q++) {                                             \
                    const float *at = row + col * (_k);                                            \
                    int64_t lo = 0, hi = (_size);                                                  \
                                                                                                   \
                    if ((col < 0) || (col + ((_size)-1) * t->si >= t->w))                          \
                        inside(t, col, (_size), &lo, &hi);                                         \
                    if ((lo == 0) && (hi == (_size)) && (t->si == 2)) {                            \
                        ADD_CHANNELS(_add, _l, _b, _vecs, 0, _size, 2 * (_k), n, at, w)            \
                    } else if ((lo == 1) && (hi == (_size)) && (t->si == 1)) {                     \
                        ADD_CHANNELS(_add, _l, _b, _vecs, 1, _size, _k, n, at + (_k), w)           \
                    } else if ((lo == 0) && (hi == (_size)-1) && (t->si == 1)) {                   \
                        ADD_CHANNELS(_add, _l, _b, _vecs, 0, (_size)-1, _k, n, at, w)              \
                    } else if ((lo == 2) && (hi == (_size)) && (t->si == 1)) {                     \
                        ADD_CHANNELS(_add, _l, _b, _vecs, 2, _size, _k, n, at + 2 * (_k), w)       \
                    } else if ((lo == 0) && (hi == (_size)-2) && (t->si == 1)) {                   \
                        ADD_CHANNELS(_add, _l, _b, _vecs, 0, (_size)-2, _k, n, at, w)              \
                    } else if (lo < hi) {                                                          \
                        if ((lo > 0) || (hi < (_size)) || (t->si != 1)) {                          \
                            gather(_k, _size, row, col, t->si, lo, hi, edge);                      \
                            at = edge;                                                             \
                        }                                                                          \
                        ADD_AHEAD(_add, _l, _b, _vecs, 0, _size, _k, n, at, w, t->soon)            \
                    }                                                                              \
                    col += t->col_step;                                                            \
                    w += (_k) * (_vecs) * (_b);                                                    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        if (t->relu) {                                                                             \
            CT_UNROLL for (int i = 0; i < (_size); i++)                                            \
            {                                                                                      \
                CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) acc[i][v] =           \
                    (vec)((bits)acc[i][v] & ~(acc[i][v] < 0.0f));                                  \
            }                                                                                      \
        }                                                                                          \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                           \
            {                                                                                      \
                float *to = t->y + i * t->y_step + CT_PART_AT(_b, _l, v, t->y_block);              \
                                                                                                   \
                if (CT_STREAM_BYPASSES && t->stream) {                                             \
                    vec out = acc[i][v];                                                           \
                                                                                                   \
                    ct_stream_put((_l), (const float *)&out, to);                                  \
                } else {                                                                           \
                    *(vec *)to = acc[i][v];                                                        \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

#define TILE(_name, _target, _b, _size, _vecs)                                                     \
    TILE_OF(CT_ADD, _b, _b, _name, _target, _b, _size, _vecs)
#define TILE_ANY(_name, _target, _b, _size, _vecs)                                                 \
    TILE_OF(CT_ADD, _b, CT_SIMD_ANY_LANES, _name, _target, _b, _size, _vecs)
#define TILE_PAIR(_name, _target, _b, _size, _vecs)                                                \
    TILE_OF(CT_ADD_PAIR, (_b) / 2, _b, _name, _target, _b, _size, _vecs)

CT_TILES_ANY(TILE_ANY)
CT_TILES_X86(TILE)
CT_TILES_PAIR(TILE_PAIR)

const ct_blk_tile_fn ct_blk_tiles[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE(tile);
const ct_blk_tile_fn ct_blk_tiles_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE_PAIR(tile);

ct_blk_set ct_blk_pick(bool bf16)
{
    ct_simd_level level = ct_simd_pick();
    ct_blk_set s = { .level = level,
                     .b = CT_SIMD_ANY_BLOCK,
                     .max_tile = { CT_BLK_ANY_TILE, CT_BLK_ANY_TILE_2 } };

    if (level == CT_SIMD_AVX512)
        s = (ct_blk_set){ .level = level, .b = 16, .max_tile = { 16, 14 } };
    else if (level == CT_SIMD_AVX2)
        s = (ct_blk_set){ .level = level, .b = 8, .max_tile = { 12, 6 } };
    s.narrow = bf16 ? ct_narrow_pick() : NULL;
    s.pair = bf16 ? s.narrow->pair : 1;
    s.words = s.b / s.pair;
    s.tiles = (s.pair == 2) ? ct_blk_tiles_pair : ct_blk_tiles[level];
    s.lists = (s.pair == 2) ? ct_blk_lists_pair : ct_blk_lists[level];
    s.grads = (s.pair == 2) ? ct_blk_grads_pair : ct_blk_grads[level];
    return s;
}
