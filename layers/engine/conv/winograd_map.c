/* The maps of winograd.h, for each instruction set: along one axis, then along the other. Compiled
 * with -ffp-contract=fast, as blocked_tile.c. */
#include "layers/engine/conv/blocked_vec.h"
#include "layers/engine/conv/winograd.h"

/* Six places: points 0, +-a, +-b, infinity. m = 4: 4 x 4 outputs of 3 x 3 taps; m = 2 of 5 x 5 */
#define PA  0.625f
#define PB  1.5f
#define PA2 (PA * PA)
#define PB2 (PB * PB)
#define NA  (2.0 * PA2 * (PA2 - PB2))
#define NB  (2.0 * PB2 * (PB2 - PA2))
#define CA3 (float)(PA * PA2 / NA)
#define CB3 (float)(PB * PB2 / NB)
#define CA4 (float)(PA2 * PA2 / NA)
#define CB4 (float)(PB2 * PB2 / NB)

/* _l: values along an axis, _r: what the map makes of them */
#define IN_4(_l, _r)                                                                               \
    {                                                                                              \
        vec even = _l[4] - PA2 * _l[2], odd = _l[3] - PA2 * _l[1];                                 \
                                                                                                   \
        _r[3] = even + PB * odd, _r[4] = even - PB * odd;                                          \
        even = _l[4] - PB2 * _l[2], odd = _l[3] - PB2 * _l[1];                                     \
        _r[1] = even + PA * odd, _r[2] = even - PA * odd;                                          \
        _r[0] = _l[4] - (PA2 + PB2) * _l[2] + (PA2 * PB2) * _l[0];                                 \
        _r[5] = _l[5] - (PA2 + PB2) * _l[3] + (PA2 * PB2) * _l[1];                                 \
    }
#define OUT_4(_l, _r)                                                                              \
    {                                                                                              \
        vec sum_a = _l[1] + _l[2], sum_b = _l[3] + _l[4];                                          \
        vec dif_a = _l[1] - _l[2], dif_b = _l[3] - _l[4];                                          \
                                                                                                   \
        _r[0] = _l[0] + sum_a + sum_b;                                                             \
        _r[1] = PA * dif_a + PB * dif_b;                                                           \
        _r[2] = PA2 * sum_a + PB2 * sum_b;                                                         \
        _r[3] = _l[5] + (PA * PA2) * dif_a + (PB * PB2) * dif_b;                                   \
    }
#define GRAD_4(_l, _r)                                                                             \
    {                                                                                              \
        vec even = _l[0] + PA2 * _l[2], odd = _l[1] + PA2 * _l[3];                                 \
                                                                                                   \
        _r[0] = _l[0], _r[5] = _l[3];                                                              \
        _r[1] = even + PA * odd, _r[2] = even - PA * odd;                                          \
        even = _l[0] + PB2 * _l[2], odd = _l[1] + PB2 * _l[3];                                     \
        _r[3] = even + PB * odd, _r[4] = even - PB * odd;                                          \
    }
#define WEIGHT_4(_l, _r)                                                                           \
    {                                                                                              \
        vec even = (float)(1 / NA) * _l[0] + (float)(PA2 / NA) * _l[2];                            \
                                                                                                   \
        _r[0] = (1.0f / (PA2 * PB2)) * _l[0], _r[5] = _l[2];                                       \
        _r[1] = even + (float)(PA / NA) * _l[1], _r[2] = even - (float)(PA / NA) * _l[1];          \
        even = (float)(1 / NB) * _l[0] + (float)(PB2 / NB) * _l[2];                                \
        _r[3] = even + (float)(PB / NB) * _l[1], _r[4] = even - (float)(PB / NB) * _l[1];          \
    }
#define DWEIGHT_4(_l, _r)                                                                          \
    {                                                                                              \
        vec sum_a = _l[1] + _l[2], sum_b = _l[3] + _l[4];                                          \
        vec dif_a = _l[1] - _l[2], dif_b = _l[3] - _l[4];                                          \
                                                                                                   \
        _r[0] = (1.0f / (PA2 * PB2)) * _l[0] + (float)(1 / NA) * sum_a + (float)(1 / NB) * sum_b;  \
        _r[1] = (float)(PA / NA) * dif_a + (float)(PB / NB) * dif_b;                               \
        _r[2] = _l[5] + (float)(PA2 / NA) * sum_a + (float)(PB2 / NB) * sum_b;                     \
    }

#define BACK_4(_l, _r)                                                                             \
    {                                                                                              \
        vec sum_a = _l[1] + _l[2], sum_b = _l[3] + _l[4];                                          \
        vec dif_a = _l[1] - _l[2], dif_b = _l[3] - _l[4];                                          \
                                                                                                   \
        _r[0] = (PA2 * PB2) * _l[0];                                                               \
        _r[1] = (PA2 * PB2) * _l[5] - (PA * PB2) * dif_a - (PB * PA2) * dif_b;                     \
        _r[2] = -(PA2 + PB2) * _l[0] - PB2 * sum_a - PA2 * sum_b;                                  \
        _r[3] = PA * dif_a + PB * dif_b - (PA2 + PB2) * _l[5];                                     \
        _r[4] = _l[0] + sum_a + sum_b;                                                             \
        _r[5] = _l[5];                                                                             \
    }

#define IN_5(_l, _r)   IN_4(_l, _r)
#define BACK_5(_l, _r) BACK_4(_l, _r)
#define OUT_5(_l, _r)                                                                              \
    {                                                                                              \
        vec dif_a = _l[1] - _l[2], dif_b = _l[3] - _l[4];                                          \
                                                                                                   \
        _r[0] = _l[0] + (_l[1] + _l[2]) + (_l[3] + _l[4]);                                         \
        _r[1] = _l[5] + PA * dif_a + PB * dif_b;                                                   \
    }
#define GRAD_5(_l, _r)                                                                             \
    {                                                                                              \
        vec odd_a = PA * _l[1], odd_b = PB * _l[1];                                                \
                                                                                                   \
        _r[0] = _l[0], _r[5] = _l[1];                                                              \
        _r[1] = _l[0] + odd_a, _r[2] = _l[0] - odd_a;                                              \
        _r[3] = _l[0] + odd_b, _r[4] = _l[0] - odd_b;                                              \
    }
#define WEIGHT_5(_l, _r)                                                                           \
    {                                                                                              \
        vec even = (float)(1 / NA) * _l[0] + (float)(PA2 / NA) * _l[2] + CA4 * _l[4];              \
        vec odd = (float)(PA / NA) * _l[1] + CA3 * _l[3];                                          \
                                                                                                   \
        _r[0] = (1.0f / (PA2 * PB2)) * _l[0], _r[5] = _l[4];                                       \
        _r[1] = even + odd, _r[2] = even - odd;                                                    \
        even = (float)(1 / NB) * _l[0] + (float)(PB2 / NB) * _l[2] + CB4 * _l[4];                  \
        odd = (float)(PB / NB) * _l[1] + CB3 * _l[3];                                              \
        _r[3] = even + odd, _r[4] = even - odd;                                                    \
    }
#define DWEIGHT_5(_l, _r)                                                                          \
    {                                                                                              \
        vec sum_a = _l[1] + _l[2], sum_b = _l[3] + _l[4];                                          \
        vec dif_a = _l[1] - _l[2], dif_b = _l[3] - _l[4];                                          \
                                                                                                   \
        _r[0] = (1.0f / (PA2 * PB2)) * _l[0] + (float)(1 / NA) * sum_a + (float)(1 / NB) * sum_b;  \
        _r[1] = (float)(PA / NA) * dif_a + (float)(PB / NB) * dif_b;                               \
        _r[2] = (float)(PA2 / NA) * sum_a + (float)(PB2 / NB) * sum_b;                             \
        _r[3] = CA3 * dif_a + CB3 * dif_b;                                                         \
        _r[4] = _l[5] + CA4 * sum_a + CB4 * sum_b;                                                 \
    }

/* Four places: points 0, +-1, infinity */
#define IN_2(_l, _r)                                                                               \
    {                                                                                              \
        _r[0] = _l[2] - _l[0], _r[3] = _l[3] - _l[1];                                              \
        _r[1] = _l[2] + _l[1], _r[2] = _l[2] - _l[1];                                              \
    }
#define BACK_2(_l, _r)                                                                             \
    {                                                                                              \
        _r[0] = -_l[0], _r[1] = _l[1] - _l[2] - _l[3];                                             \
        _r[2] = _l[0] + _l[1] + _l[2], _r[3] = _l[3];                                              \
    }
#define OUT_2(_l, _r)                                                                              \
    {                                                                                              \
        _r[0] = _l[0] + _l[1] + _l[2], _r[1] = _l[1] - _l[2] + _l[3];                              \
    }
#define GRAD_2(_l, _r)                                                                             \
    {                                                                                              \
        _r[0] = _l[0], _r[1] = _l[0] + _l[1], _r[2] = _l[0] - _l[1], _r[3] = _l[1];                \
    }
#define WEIGHT_2(_l, _r)                                                                           \
    {                                                                                              \
        vec even = 0.5f * (_l[0] + _l[2]), odd = 0.5f * _l[1];                                     \
                                                                                                   \
        _r[0] = -_l[0], _r[1] = even + odd, _r[2] = even - odd, _r[3] = _l[2];                     \
    }
#define DWEIGHT_2(_l, _r)                                                                          \
    {                                                                                              \
        vec even = 0.5f * (_l[1] + _l[2]);                                                         \
                                                                                                   \
        _r[0] = even - _l[0], _r[1] = 0.5f * (_l[1] - _l[2]), _r[2] = even + _l[3];                \
    }

/* _n x _n values to _k x _k: columns, then rows. _load(i, j); _store(i, j, value) */
#define MAP(_line, _n, _k, _load, _store)                                                          \
    {                                                                                              \
        vec mid[_k][_n] __attribute__((aligned(64)));                                              \
        vec l[_n], r[_k];                                                                          \
                                                                                                   \
        for (int j = 0; j < (_n); j++) {                                                           \
            CT_UNROLL for (int i = 0; i < (_n); i++) l[i] = _load(i, j);                           \
            _line(l, r) CT_UNROLL for (int i = 0; i < (_k); i++) mid[i][j] = r[i];                 \
        }                                                                                          \
        for (int i = 0; i < (_k); i++) {                                                           \
            CT_UNROLL for (int j = 0; j < (_n); j++) l[j] = mid[i][j];                             \
            _line(l, r) CT_UNROLL for (int j = 0; j < (_k); j++) _store(i, j, r[j])                \
        }                                                                                          \
    }

/* The same of hot maps: two lines of what columns make at a time, _first and _second, which share
 * sums, so that they stay in registers. Columns j where _there(j) does not hold are zeros. */
#define MAP_PAIRS(_line, _n, _k, _first, _second, _there, _load, _store)                           \
    CT_UNROLL for (int h = 0; h < (_k) / 2; h++)                                                   \
    {                                                                                              \
        vec mid[2][_n], l[_n], r[_k];                                                              \
                                                                                                   \
        CT_UNROLL for (int j = 0; j < (_n); j++)                                                   \
        {                                                                                          \
            mid[0][j] = mid[1][j] = (vec){ 0.0f };                                                 \
            if (!(_there(j))) continue;                                                            \
            CT_UNROLL for (int i = 0; i < (_n); i++) l[i] = _load(i, j);                           \
            _line(l, r) mid[0][j] = r[_first(h, _k)], mid[1][j] = r[_second(h, _k)];               \
        }                                                                                          \
        CT_UNROLL for (int s = 0; s < 2; s++)                                                      \
        {                                                                                          \
            int i = (s == 0) ? _first(h, _k) : _second(h, _k);                                     \
                                                                                                   \
            _line(mid[s], r) CT_UNROLL for (int j = 0; j < (_k); j++) _store(i, j, r[j])           \
        }                                                                                          \
    }

/* Into places, the first with the last, those of p with those of -p; into outputs, even powers
 * together, and odd ones. */
#define IN_FIRST(_h, _k)   (((_h) == 0) ? 0 : 2 * (_h)-1)
#define IN_SECOND(_h, _k)  (((_h) == 0) ? (_k)-1 : 2 * (_h))
#define OUT_FIRST(_h, _k)  (_h)
#define OUT_SECOND(_h, _k) ((_h) + (_k) / 2)
#define ALWAYS(_j)         true

static bool is_inside(const ct_wino_patch *p, int64_t n)
{
    return (p->row >= 0) && (p->col >= 0) && (p->row + n <= p->h) && (p->col + n <= p->w);
}

static const float zeros[CT_WINO_MAX * CT_BLK_MAX];

/* Where row i of a patch begins; zeros outside. */
static const float *row_of(const ct_wino_patch *p, int64_t i, int64_t b)
{
    int64_t at = p->row + i;

    if ((at < 0) || (at >= p->h)) return zeros;
    return ct_num_at(p->plane, p->bf16, (at * p->w + p->col) * b);
}

#define FROM_PATCH(_i, _j)    (*(const vec *)(line[_i] + (_j)*BLOCK + c))
#define FROM_BF16(_i, _j)     CT_WIDE(ct_num_at(line[_i], true, (_j)*BLOCK + c))
#define IN_PLANE(_j)          ((uint64_t)(p->col + (_j)) < (uint64_t)p->w)
#define FROM_PLACES(_i, _j)   (*(const vec *)(from + ((_i)*N + (_j)) * step + c))
#define FROM_TAPS(_i, _j)     (*(const vec *)(taps + ((_i)*TAPS + (_j)) * tap_step + c))
#define TO_PLACES(_i, _j, _v) *(vec *)(to + ((_i)*N + (_j)) * step + c) = (_v);
#define TO_TAPS(_i, _j, _v)   *(vec *)(taps + ((_i)*TAPS + (_j)) * BLOCK + c) = (_v);
#define TO_SUM(_i, _j, _v)    *(vec *)(to + (_i)*row + (_j)*BLOCK + c) += (_v);
#define TO_PLANE(_i, _j, _v)  *(vec *)(to + (_i)*row + (_j)*BLOCK + c) = (_v) + start;
#define TO_BF16(_i, _j, _v)   CT_NARROW(ct_num_to(to, true, (_i)*row + (_j)*BLOCK + c), (_v) + start)

/* Channels c and those beside it in a register, of a block. */
#define EACH_PART(_b, _l) for (int c = 0; c < (_b); c += (_l))

/* B^T d B or A dy A^T: patches of K x K to N x N places. */
#define MAP_PATCH(_name, _line, _k, _n, _target, _b, _l)                                           \
    _target static void _name(const ct_wino_patch *p, float *to, int64_t step)                     \
    {                                                                                              \
        enum { BLOCK = _b, N = _n };                                                               \
        CT_VEC(_l);                                                                                \
        CT_VEC_BF16(_l);                                                                           \
        const float *line[_k];                                                                     \
                                                                                                   \
        CT_UNROLL for (int i = 0; i < (_k); i++) line[i] = row_of(p, i, BLOCK);                    \
        if (p->bf16) {                                                                             \
            EACH_PART(_b, _l)                                                                      \
            {                                                                                      \
                MAP_PAIRS(_line, _k, N, IN_FIRST, IN_SECOND, IN_PLANE, FROM_BF16, TO_PLACES)       \
            }                                                                                      \
        } else {                                                                                   \
            EACH_PART(_b, _l)                                                                      \
            {                                                                                      \
                MAP_PAIRS(_line, _k, N, IN_FIRST, IN_SECOND, IN_PLANE, FROM_PATCH, TO_PLACES)      \
            }                                                                                      \
        }                                                                                          \
    }

/* Of one set and kind _k, blocks of _b in registers of _l: m outputs, N = m + r - 1 places and r
 * taps along an axis. */
#define MAPS(_name, _target, _b, _l, _k, _m, _r)                                                   \
    MAP_PATCH(_name##_in_##_k, IN_##_k, (_m) + (_r)-1, (_m) + (_r)-1, _target, _b, _l)             \
    MAP_PATCH(_name##_grad_##_k, GRAD_##_k, _m, (_m) + (_r)-1, _target, _b, _l)                    \
    _target static void _name##_back_##_k(const float *from, int64_t step, float *to, int64_t row) \
    {                                                                                              \
        enum { BLOCK = _b, N = (_m) + (_r)-1 };                                                    \
        CT_VEC(_l);                                                                                \
        EACH_PART(_b, _l) MAP(BACK_##_k, N, N, FROM_PLACES, TO_SUM)                                \
    }                                                                                              \
    _target static void _name##_out_##_k(const float *from, int64_t step, const float *bias,       \
                                         const ct_wino_patch *at, float *y)                        \
    {                                                                                              \
        enum { BLOCK = _b, N = (_m) + (_r)-1 };                                                    \
        CT_VEC(_l);                                                                                \
        CT_VEC_BF16(_l);                                                                           \
        float edge[_m * _m * BLOCK] __attribute__((aligned(64)));                                  \
        bool inside = is_inside(at, _m);                                                           \
        float *to = ct_num_to(y, at->bf16, (at->row * at->w + at->col) * BLOCK);                   \
        int64_t row = (inside ? at->w : _m) * BLOCK;                                               \
        size_t bytes = (size_t)(blk_smaller(_m, at->w - at->col) * BLOCK) * ct_num_size(at->bf16); \
                                                                                                   \
        if (!inside) to = edge;                                                                    \
        EACH_PART(_b, _l)                                                                          \
        {                                                                                          \
            const vec start = *(const vec *)(bias + c);                                            \
                                                                                                   \
            if (at->bf16) {                                                                        \
                MAP_PAIRS(OUT_##_k, N, _m, OUT_FIRST, OUT_SECOND, ALWAYS, FROM_PLACES, TO_BF16)    \
            } else {                                                                               \
                MAP_PAIRS(OUT_##_k, N, _m, OUT_FIRST, OUT_SECOND, ALWAYS, FROM_PLACES, TO_PLANE)   \
            }                                                                                      \
        }                                                                                          \
        if (inside) return;                                                                        \
        for (int64_t i = 0; i < blk_smaller(_m, at->h - at->row); i++)                             \
            memcpy(ct_num_to(y, at->bf16, ((at->row + i) * at->w + at->col) * BLOCK),              \
                   ct_num_at(edge, at->bf16, i *_m *BLOCK), bytes);                                \
    }                                                                                              \
    _target static void _name##_weight_##_k(const float *taps, int64_t tap_step, float *to,        \
                                            int64_t step)                                          \
    {                                                                                              \
        enum { TAPS = _r, N = (_m) + (_r)-1 };                                                     \
        CT_VEC(_l);                                                                                \
        EACH_PART(_b, _l) MAP(WEIGHT_##_k, _r, N, FROM_TAPS, TO_PLACES)                            \
    }                                                                                              \
    _target static void _name##_dweight_##_k(const float *from, int64_t step, float *taps)         \
    {                                                                                              \
        enum { BLOCK = _b, TAPS = _r, N = (_m) + (_r)-1 };                                         \
        CT_VEC(_l);                                                                                \
        EACH_PART(_b, _l) MAP(DWEIGHT_##_k, N, _r, FROM_PLACES, TO_TAPS)                           \
    }

#define SET(_name, _k, _m, _r)                                                                     \
    {                                                                                              \
        _m, _r, _name##_in_##_k, _name##_grad_##_k, _name##_back_##_k, _name##_out_##_k,           \
            _name##_weight_##_k, _name##_dweight_##_k                                              \
    }
#define KINDS(_name, _target, _b, _l)                                                              \
    MAPS(_name, _target, _b, _l, 2, 2, 3)                                                          \
    MAPS(_name, _target, _b, _l, 4, 4, 3) MAPS(_name, _target, _b, _l, 5, 2, 5)
#define SETS(_name)                                                                                \
    {                                                                                              \
        SET(_name, 2, 2, 3), SET(_name, 4, 4, 3), SET(_name, 5, 2, 5)                              \
    }

KINDS(any, , CT_SIMD_ANY_BLOCK, CT_SIMD_ANY_LANES)
#ifdef CT_AVX512
KINDS(avx2, CT_AVX2, 8, 8)
KINDS(avx512, CT_AVX512, 16, 16)
#endif

const ct_wino_maps ct_wino_map[CT_BLK_LEVELS][CT_WINO_KINDS] = {
    [CT_SIMD_PORTABLE] = SETS(any),
#ifdef CT_AVX512
    [CT_SIMD_AVX2] = SETS(avx2),
    [CT_SIMD_AVX512] = SETS(avx512),
#endif
};
