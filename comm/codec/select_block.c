/* Which elements of a block are over a bound, as bits. The compiler makes no such masks of a plain
 * loop, and by way of bytes or of groups' maxima it takes twice to three times as long. */
#include "comm/codec/select_impl.h"
#include "framework/base/simd.h"

/* Bit j of the result is byte j, which is 0 or 1, of eight. */
static uint64_t gather_bits(const uint8_t hit[8])
{
    uint64_t x;

    memcpy(&x, hit, sizeof(x));
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) x = __builtin_bswap64(x);
    return x * 0x0102040810204080u >> 56;
}

static uint32_t mark_portable(ct_select_key key, int64_t n_group, const float *v, int32_t bound,
                              uint64_t *mark)
{
    uint32_t some = 0;

    for (int64_t g = 0; g < n_group; ++g, v += CT_SELECT_GROUP) {
        uint8_t hit[CT_SELECT_GROUP];
        uint64_t m = 0;

#pragma omp simd
        for (int j = 0; j < CT_SELECT_GROUP; ++j) hit[j] = ct_select_key_of(v[j], key) > bound;
        for (int j = 0; j < CT_SELECT_GROUP; j += 8) m |= gather_bits(hit + j) << j;
        mark[g] = m;
        some |= (uint32_t)(m != 0) << g;
    }
    return some;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* As the bound is not negative, keys below 0 need not become 0. */
#define MARK(_name, _target, _lanes, _set1, _load, _xor, _and, _over)                              \
    __attribute__((target(_target))) static uint32_t _name(                                        \
        ct_select_key key, int64_t n_group, const float *v, int32_t bound, uint64_t *mark)         \
    {                                                                                              \
        uint32_t some = 0;                                                                         \
                                                                                                   \
        for (int64_t g = 0; g < n_group; ++g, v += CT_SELECT_GROUP) {                              \
            uint64_t m = 0;                                                                        \
                                                                                                   \
            for (int j = 0; j < CT_SELECT_GROUP; j += (_lanes))                                    \
                m |= (uint64_t)_over(_and(_xor(_load(v + j), _set1((int32_t)key.flip)),            \
                                          _set1((int32_t)key.keep)),                               \
                                     _set1(bound))                                                 \
                     << j;                                                                         \
            mark[g] = m;                                                                           \
            some |= (uint32_t)(m != 0) << g;                                                       \
        }                                                                                          \
        return some;                                                                               \
    }

#define LOAD_AVX2(_p) _mm256_castps_si256(_mm256_loadu_ps(_p))
#define OVER_AVX2(_a, _b)                                                                          \
    (uint32_t) _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(_a, _b)))

MARK(mark_avx512, "avx512f", 16, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_xor_si512,
     _mm512_and_si512, _mm512_cmpgt_epi32_mask)
MARK(mark_avx2, "avx2", 8, _mm256_set1_epi32, LOAD_AVX2, _mm256_xor_si256, _mm256_and_si256,
     OVER_AVX2)

ct_mark_fn ct_mark_pick(void)
{
    ct_simd_level level = ct_simd_pick();

    if (level == CT_SIMD_AVX512) return mark_avx512;
    return (level == CT_SIMD_AVX2) ? mark_avx2 : mark_portable;
}
#else
ct_mark_fn ct_mark_pick(void)
{
    return mark_portable;
}
#endif

/* ---- What selections do with a block of V that lies in the first cache. */

enum { LANES = 16 };

static inline __attribute__((always_inline)) int32_t key_at(const float *v, int64_t i,
                                                            ct_select_key key)
{
    return ct_select_key_of(v[i], key);
}

static void put_back(const ct_momentum_correction *a, const ct_select_found *f, int64_t j)
{
    float *u = ct_momentum_correction_masked(a);

    if ((ct_select_bits(f->value[j]) & INT32_MAX) <= f->taken) return;
    a->v[f->index[j]] = f->value[j];
    if (u != NULL) u[f->index[j]] = f->u[j];
}

void ct_block_restore(const ct_momentum_correction *a, const ct_select_found *f)
{
    for (int64_t j = 0; j < f->count; ++j) put_back(a, f, j);
}

/* The room is full: what cannot be among the largest goes, and what would not, does not come in. An
 * element equal to the last that stays, but later, loses against all that stay. */
static void prune(const ct_momentum_correction *a, ct_select_found *f)
{
    uint32_t threshold;
    int64_t equal, at = 0;
    bool masks = (ct_momentum_correction_masked(a) != NULL);

    ct_sparse_kth(f->value, f->count, f->limit, &threshold, &equal);
    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t m = (uint32_t)ct_select_bits(f->value[j]) & INT32_MAX;
        bool tie = (m == threshold) & (equal > 0), stays = (m > threshold) | tie;

        equal -= tie;
        if (!stays) put_back(a, f, j);
        f->index[at] = f->index[j];
        f->value[at] = f->value[j];
        if (masks) f->u[at] = f->u[j];
        at += stays;
    }
    f->count = at;
    f->bound = (int32_t)threshold;
}

/* Appends what is marked of 64 elements. An infinity's or a NaN's key is over any bound. */
static void append(const ct_momentum_correction *a, int64_t from, uint64_t mark, ct_select_found *f)
{
    float *v = a->v + from, *u = ct_momentum_correction_masked(a);
    int64_t at;

    if (f->count + __builtin_popcountll(mark) > f->room) prune(a, f);
    for (at = f->count; mark != 0; mark &= mark - 1, ++at) {
        int j = __builtin_ctzll(mark);
        float x = v[j];
        int32_t m = ct_select_bits(x) & INT32_MAX;

        f->index[at] = (uint32_t)(from + j);
        f->value[at] = x;
        v[j] = (m > f->taken) ? 0.0f : x;
        f->worst = (m > f->worst) ? m : f->worst;
        if (u == NULL) continue;
        f->u[at] = u[from + j];
        u[from + j] = (m > f->taken) ? 0.0f : f->u[at];
    }
    f->count = at;
}

/* Which of less than 64, the last ones. */
static uint64_t mark_rest(ct_select_key key, const float *v, int64_t n, int32_t bound)
{
    uint64_t mark = 0;

    for (int64_t j = 0; j < n; ++j) mark |= (uint64_t)(key_at(v, j, key) > bound) << j;
    return mark;
}

/* Elements over the bound are few and cannot be foreseen, and a branch guessed wrong costs as much
 * as comparing a hundred: so comparisons make marks, and only what is marked is walked. */
void ct_block_collect(ct_select_key key, const ct_momentum_correction *a, int64_t first, int64_t n,
                      ct_select_found *f)
{
    uint64_t mark[CT_SELECT_BLOCK / CT_SELECT_GROUP];
    int64_t n_group = n / CT_SELECT_GROUP, rest = first + n_group * CT_SELECT_GROUP;
    const float *v = a->v;

    if (key.keep == 0xffffffffu) { /* of the other sign only this is looked at */
        if (f->mark(ct_select_key_of_sign(0), n_group, v + first, CT_SELECT_FIRST_BAD - 1, mark) !=
            0)
            f->worst = CT_SELECT_FIRST_BAD;
    }
    for (uint32_t some = f->mark(key, n_group, v + first, f->bound, mark); some != 0;
         some &= some - 1) {
        int g = __builtin_ctz(some);

        append(a, first + g * CT_SELECT_GROUP, mark[g], f);
    }
    if (rest == first + n) return;
    ct_block_extremes(key, v + rest, first + n - rest, f);
    append(a, rest, mark_rest(key, v + rest, first + n - rest, f->bound), f);
}

/* Largest key, and magnitude. */
CT_SIMD_CLONES static void largest(ct_select_key key, const float *v, int64_t n, int32_t most[2])
{
    int32_t m = 0, w = 0;

#pragma omp simd reduction(max : m, w)
    for (int64_t i = 0; i < n; ++i) {
        int32_t k = key_at(v, i, key), x = ct_select_bits(v[i]) & 0x7fffffff;

        m = (k > m) ? k : m;
        w = (x > w) ? x : w;
    }
    most[0] = m;
    most[1] = w;
}

void ct_block_extremes(ct_select_key key, const float *v, int64_t n, ct_select_found *f)
{
    int32_t most[2];

    largest(key, v, n, most);
    if (most[0] > f->most) f->most = most[0];
    if (most[1] > f->worst) f->worst = most[1];
}

/* Sixteen sums side by side whatever the vector width, added up in a fixed order. */
CT_SIMD_CLONES static double sum_lanes(ct_select_key key, const float *v, int64_t n)
{
    double lane[LANES] = { 0.0 }, sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int64_t j = 0; j < LANES; ++j)
            lane[j] += (double)ct_select_float(key_at(v, i + j, key));
    }
    for (; i < n; ++i) lane[i % LANES] += (double)ct_select_float(key_at(v, i, key));
    for (int j = 0; j < LANES; ++j) sum += lane[j];
    return sum;
}

double ct_block_sum(ct_select_key key, const float *v, int64_t n)
{
    return sum_lanes(key, v, n);
}

CT_SIMD_CLONES static int32_t count_over(ct_select_key key, const float *v, int64_t n,
                                         int32_t bound)
{
    int32_t count = 0;

#pragma omp simd reduction(+ : count)
    for (int64_t i = 0; i < n; ++i) count += key_at(v, i, key) > bound;
    return count;
}

void ct_block_count(ct_select_key key, const float *v, int64_t n,
                    const int32_t bound[CT_SELECT_PROBES], int64_t count[CT_SELECT_PROBES])
{
    for (int j = 0; j < CT_SELECT_PROBES; ++j) count[j] += count_over(key, v, n, bound[j]);
}

void ct_block_histogram(ct_select_key key, const float *v, int64_t n, uint32_t *bin)
{
    for (int64_t i = 0; i < n; ++i) bin[key_at(v, i, key) >> CT_SELECT_BIN_SHIFT] += 1;
}
