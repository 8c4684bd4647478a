/* What stands between the products: maxima, powers of 2, sums, masks and gradients of the softmax,
 * a vector at a time. Compiled with -ffp-contract=fast. */
#include <float.h>
#include <math.h>

#include "framework/base/simd.h"
#include "layers/engine/attention/flash.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define EACH _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)

static const float lane_number[CT_FLASH_WIDTH] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                   11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                   22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };
static const uint32_t lane_bit[CT_FLASH_WIDTH] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31
};

static inline int64_t between(int64_t n, int64_t least, int64_t most)
{
    return (n < least) ? least : (n > most) ? most : n;
}

/* A lane's number to compare with, or one beyond all. */
static inline float near_lanes(int64_t n)
{
    return (float)((n < -1) ? -1 : (n > CT_FLASH_WIDTH) ? CT_FLASH_WIDTH : n);
}

/* 2^x for x at most 0 (larger where a mask follows), within 2 units of the last place; 0 below
 * 2^-126. Minimax of degree 5 in the relative error on |r| <= 1/2. */
#define POWER(_y, _x, _max)                                                                        \
    {                                                                                              \
        vec t_ = _max(low, (_x)), k_ = t_ + round_up, r_ = t_ - (k_ - round_up), sum_;             \
                                                                                                   \
        sum_ = r_ * 0x1.5bba12p-10f + 0x1.3cea88p-7f;                                              \
        sum_ = sum_ * r_ + 0x1.c6b752p-5f;                                                         \
        sum_ = sum_ * r_ + 0x1.ebf9bcp-3f;                                                         \
        sum_ = sum_ * r_ + 0x1.62e42ap-1f;                                                         \
        sum_ = sum_ * r_ + 1.0f;                                                                   \
        (_y) = sum_ * (vec)((bits)k_ << 23);                                                       \
    }

#define VECTORS(_lanes)                                                                            \
    typedef float vec __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));           \
    typedef int32_t bits __attribute__((vector_size(4 * (_lanes)), aligned(4), may_alias));        \
    const vec zero = { 0.0f };                                                                     \
    const bits none = { 0 };                                                                       \
    (void)zero;                                                                                    \
    (void)none
#define FOR_POWERS            const vec low = zero - 127.0f, round_up = zero + (0x1.8p23f + 127.0f)
#define AT(_type, _p, _lanes) (*(_type *)(void *)((_p) + v * (_lanes)))
#define IN(_type, _p, _lanes) (*(const _type *)(const void *)((_p) + v * (_lanes)))

#define ROWS(_name, _target, _lanes, _max)                                                         \
    /* scores of key i that lane's query does not see become -infinity */                          \
    _target static void _name##_mask(const ct_flash_softmax *a, int64_t i)                         \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        float *s = a->s + i * CT_FLASH_ROW;                                                        \
        float from = a->causal ? near_lanes(a->first + i) : -1.0f;                                 \
        float to = (a->window > 0) ? near_lanes(a->first + i + a->window) : CT_FLASH_WIDTH;        \
        bits never = (bits)(zero - INFINITY);                                                      \
                                                                                                   \
        EACH                                                                                       \
        {                                                                                          \
            vec lane = IN(vec, lane_number, _lanes);                                               \
            bits seen = (lane >= from) & (lane < to);                                              \
                                                                                                   \
            if (a->of_key != NULL) seen &= IN(vec, a->of_query, _lanes) == a->of_key[i];           \
            AT(bits, s, _lanes) = (IN(bits, s, _lanes) & seen) | (never & ~seen);                  \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* what is the largest so far, and what earlier sums shrink by */                              \
    _target static bool _name##_largest(const ct_flash_softmax *a)                                 \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        FOR_POWERS;                                                                                \
        bits changed = none;                                                                       \
        bool any = false;                                                                          \
                                                                                                   \
        EACH                                                                                       \
        {                                                                                          \
            vec before = IN(vec, a->most, _lanes), one = before, other = before, factor;           \
            int64_t i = 0;                                                                         \
                                                                                                   \
            for (; i + 2 <= a->n; i += 2) {                                                        \
                one = _max(IN(vec, a->s + i * CT_FLASH_ROW, _lanes), one);                         \
                other = _max(IN(vec, a->s + (i + 1) * CT_FLASH_ROW, _lanes), other);               \
            }                                                                                      \
            if (i < a->n) one = _max(IN(vec, a->s + i * CT_FLASH_ROW, _lanes), one);               \
            one = _max(one, other);                                                                \
            AT(vec, a->most, _lanes) = one;                                                        \
            one = (vec)((bits)one & (one > -INFINITY)); /* nothing seen: 0 in its place */         \
            POWER(factor, before - one, _max)                                                      \
            AT(vec, a->factor, _lanes) = factor;                                                   \
            changed |= factor != 1.0f;                                                             \
        }                                                                                          \
        for (int i = 0; i < (_lanes); i++) any |= changed[i] != 0;                                 \
        return any;                                                                                \
    }                                                                                              \
                                                                                                   \
    _target static bool _name##_softmax(const ct_flash_softmax *a)                                 \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        FOR_POWERS;                                                                                \
        vec most[2], sum[2];                                                                       \
        int64_t front = 0, back = a->n; /* between them every query sees every key */              \
        bool changed;                                                                              \
                                                                                                   \
        if (a->of_key != NULL) front = a->n;                                                       \
        if (a->window > 0) front = between(2 * (_lanes)-a->first - a->window, front, a->n);        \
        if (a->causal) back = between(1 - a->first, front, a->n);                                  \
        for (int64_t i = 0; i < front; i++) _name##_mask(a, i);                                    \
        for (int64_t i = (back > front) ? back : front; i < a->n; i++) _name##_mask(a, i);         \
        changed = _name##_largest(a);                                                              \
        EACH                                                                                       \
        {                                                                                          \
            most[v] = IN(vec, a->most, _lanes);                                                    \
            most[v] = (vec)((bits)most[v] & (most[v] > -INFINITY));                                \
            sum[v] = IN(vec, a->sum, _lanes) * IN(vec, a->factor, _lanes);                         \
        }                                                                                          \
        for (int64_t i = 0; i < a->n; i++) {                                                       \
            float *s = a->s + i * CT_FLASH_ROW;                                                    \
                                                                                                   \
            EACH                                                                                   \
            {                                                                                      \
                vec power;                                                                         \
                                                                                                   \
                POWER(power, IN(vec, s, _lanes) - most[v], _max)                                   \
                AT(vec, s, _lanes) = power;                                                        \
                sum[v] += power;                                                                   \
            }                                                                                      \
        }                                                                                          \
        EACH AT(vec, a->sum, _lanes) = sum[v];                                                     \
        return changed;                                                                            \
    }                                                                                              \
                                                                                                   \
    _target static void _name##_scale(int64_t n, const float *factor, float *x)                    \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        vec by[2];                                                                                 \
                                                                                                   \
        EACH by[v] = IN(vec, factor, _lanes);                                                      \
        for (int64_t i = 0; i < n; i++, x += CT_FLASH_ROW) {                                       \
            EACH AT(vec, x, _lanes) *= by[v];                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void _name##_drop(int64_t n, const uint32_t *kept, float keep_scale, float *p)  \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
                                                                                                   \
        for (int64_t i = 0; i < n; i++, p += CT_FLASH_ROW) {                                       \
            EACH                                                                                   \
            {                                                                                      \
                bits stays = (IN(bits, lane_bit, _lanes) & (int32_t)kept[i]) != none;              \
                                                                                                   \
                AT(vec, p, _lanes) = (vec)((bits)(IN(vec, p, _lanes) * keep_scale) & stays);       \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* the lanes of query i's row, whose keys it sees */                                           \
    _target static void _name##_seen(const ct_flash_grad *a, int64_t i, float *mask)               \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        float last = a->causal ? near_lanes(a->first + i) : CT_FLASH_WIDTH;                        \
        float before = (a->window > 0) ? near_lanes(a->first + i - a->window) : -1.0f;             \
                                                                                                   \
        EACH                                                                                       \
        {                                                                                          \
            vec lane = IN(vec, lane_number, _lanes);                                               \
            bits seen = (lane <= last) & (lane > before);                                          \
                                                                                                   \
            if (a->of_key != NULL) seen &= IN(vec, a->of_key, _lanes) == a->of_query[i];           \
            AT(bits, mask, _lanes) = seen;                                                         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void _name##_grad(const ct_flash_grad *a)                                       \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        FOR_POWERS;                                                                                \
        bool whole = (a->of_key == NULL) && (!a->causal || (a->first >= 2 * (_lanes)-1)) &&        \
                     ((a->window == 0) || (a->first + a->n - 1 - a->window < 0));                  \
                                                                                                   \
        for (int64_t i = 0; i < a->n; i++) {                                                       \
            float *s = a->s + i * CT_FLASH_ROW, *dp = a->dp + i * CT_FLASH_ROW;                    \
            float mask[2 * (_lanes)];                                                              \
                                                                                                   \
            if (!whole) _name##_seen(a, i, mask);                                                  \
            EACH                                                                                   \
            {                                                                                      \
                vec p, g;                                                                          \
                                                                                                   \
                if (v >= a->vecs) {                                                                \
                    AT(vec, s, _lanes) = AT(vec, dp, _lanes) = zero;                               \
                    continue;                                                                      \
                }                                                                                  \
                g = IN(vec, dp, _lanes);                                                           \
                POWER(p, IN(vec, s, _lanes) - a->most[i], _max)                                    \
                p *= a->inverse[i];                                                                \
                if (!whole) p = (vec)((bits)p & IN(bits, mask, _lanes));                           \
                if (a->kept != NULL) {                                                             \
                    bits stays = (IN(bits, lane_bit, _lanes) & (int32_t)a->kept[i]) != none;       \
                                                                                                   \
                    AT(vec, s, _lanes) = (vec)((bits)(p * a->keep_scale) & stays);                 \
                    g = (vec)((bits)(g * a->keep_scale) & stays);                                  \
                } else {                                                                           \
                    AT(vec, s, _lanes) = p;                                                        \
                }                                                                                  \
                AT(vec, dp, _lanes) = p * (g - a->dot[i]);                                         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* several tokens side by side: a sum waits for itself */                                      \
    _target static void _name##_dots(int64_t n, int64_t dim, const float *x, const float *y,       \
                                     int64_t row, float *dot)                                      \
    {                                                                                              \
        enum { BESIDE = 8 };                                                                       \
        int64_t i = 0;                                                                             \
                                                                                                   \
        for (; i + BESIDE <= n; i += BESIDE) {                                                     \
            float sum[BESIDE] = { 0 };                                                             \
                                                                                                   \
            for (int64_t c = 0; c < dim; c++) {                                                    \
                _Pragma("GCC unroll 8") for (int k = 0; k < BESIDE; k++) sum[k] +=                 \
                    x[(i + k) * row + c] * y[(i + k) * row + c];                                   \
            }                                                                                      \
            for (int k = 0; k < BESIDE; k++) dot[i + k] = sum[k];                                  \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            dot[i] = 0;                                                                            \
            for (int64_t c = 0; c < dim; c++) dot[i] += x[i * row + c] * y[i * row + c];           \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    _target static void _name##_copy(int64_t n, int64_t dim, float by, const float *from,          \
                                     int64_t from_row, float *to, int64_t to_row)                  \
    {                                                                                              \
        VECTORS(_lanes);                                                                           \
        int64_t whole = dim / (_lanes), c;                                                         \
                                                                                                   \
        for (int64_t i = 0; i < n; i++, from += from_row, to += to_row) {                          \
            for (int64_t v = 0; v < whole; v++) AT(vec, to, _lanes) = IN(vec, from, _lanes) * by;  \
            for (c = whole * (_lanes); c < dim; c++) to[c] = from[c] * by;                         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static const ct_flash_rows rows_##_name = { _name##_softmax, _name##_scale, _name##_drop,      \
                                                _name##_grad,    _name##_dots,  _name##_copy };

/* The larger of each lane; _b where one is no number. */
#define MAX_AVX512(_a, _b) ((vec)_mm512_max_ps((__m512)(_a), (__m512)(_b)))
#define MAX_AVX2(_a, _b)   ((vec)_mm256_max_ps((__m256)(_a), (__m256)(_b)))
#define MAX_ANY(_a, _b)    ((vec)(((bits)(_a) & ((_a) > (_b))) | ((bits)(_b) & ~((_a) > (_b)))))

#if defined(__x86_64__) && defined(__GNUC__)
ROWS(avx512, __attribute__((target("avx512f,fma"))), 16, MAX_AVX512)
ROWS(avx2, __attribute__((target("avx2,fma"))), 8, MAX_AVX2)
#endif
ROWS(portable, , CT_SIMD_ANY_LANES, MAX_ANY)

const ct_flash_rows *ct_flash_rows_pick(void)
{
    ct_simd_level level = ct_simd_pick();

#if defined(__x86_64__) && defined(__GNUC__)
    if (level >= CT_SIMD_AVX512) return &rows_avx512;
    if (level >= CT_SIMD_AVX2) return &rows_avx2;
#endif
    (void)level;
    return &rows_portable;
}
