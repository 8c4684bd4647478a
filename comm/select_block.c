/* What selections do with a block of V that lies in the first cache. */
#include "comm/select_impl.h"
#include "framework/base/simd.h"

enum { N_GROUP = CT_SELECT_BLOCK / CT_SELECT_GROUP, LANES = 16 };

static inline __attribute__((always_inline)) int32_t key_at(const float *v, int64_t i,
                                                            ct_select_key key)
{
    return ct_select_key_of(v[i], key);
}

/* The largest key of each group of 32. */
CT_SIMD_CLONES static void group_most(ct_select_key key, int64_t n_group, const float *v,
                                      int32_t *most)
{
    for (int64_t g = 0; g < n_group; ++g) {
        int32_t m = 0;

#pragma omp simd reduction(max : m)
        for (int64_t j = 0; j < CT_SELECT_GROUP; ++j) {
            int32_t k = key_at(v, g * CT_SELECT_GROUP + j, key);

            m = (k > m) ? k : m;
        }
        most[g] = m;
    }
}

/* The room is full: what cannot be among the largest goes, and what would not, does not come in. An
 * element equal to the last that stays, but later, loses against all that stay. */
static void prune(ct_select_found *f)
{
    uint32_t threshold;
    int64_t equal, at = 0;

    ct_sparse_kth(f->value, f->count, f->limit, &threshold, &equal);
    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t m = (uint32_t)ct_select_bits(f->value[j]) & 0x7fffffffu;
        bool tie = (m == threshold) & (equal > 0);

        equal -= tie;
        f->index[at] = f->index[j];
        f->value[at] = f->value[j];
        at += (m > threshold) | tie;
    }
    f->count = at;
    f->bound = (int32_t)threshold;
}

/* Bit j of the result is byte j, which is 0 or 1, of eight. */
static inline __attribute__((always_inline)) uint32_t gather_bits(const uint8_t hit[8])
{
    uint64_t x;

    memcpy(&x, hit, sizeof(x));
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) x = __builtin_bswap64(x);
    return (uint32_t)(x * 0x0102040810204080u >> 56);
}

/* Which of 32 keys are over the bound. */
static inline __attribute__((always_inline)) uint32_t over(const int32_t *k, int32_t bound)
{
    uint8_t hit[CT_SELECT_GROUP];

#pragma omp simd
    for (int j = 0; j < CT_SELECT_GROUP; ++j) hit[j] = k[j] > bound;
    return gather_bits(hit) | gather_bits(hit + 8) << 8 | gather_bits(hit + 16) << 16 |
           gather_bits(hit + 24) << 24;
}

static inline __attribute__((always_inline)) void collect_group(ct_select_key key, const float *x,
                                                                int64_t from, ct_select_found *f)
{
    int32_t k[CT_SELECT_GROUP];
    int64_t at;

    if (f->count + CT_SELECT_GROUP > f->room) prune(f);
    at = f->count;
#pragma omp simd
    for (int j = 0; j < CT_SELECT_GROUP; ++j) k[j] = key_at(x, j, key);
    for (uint32_t m = over(k, f->bound); m != 0; m &= m - 1, ++at) {
        int j = __builtin_ctz(m);

        f->index[at] = (uint32_t)from + (uint32_t)j;
        f->value[at] = x[j];
    }
    f->count = at;
}

/* Appends the elements over the bound of each group that has some. Hits are few and cannot be
 * foreseen, and a branch guessed wrong costs as much as comparing several groups: so comparisons
 * make masks, and only set bits are walked. */
CT_SIMD_CLONES static void collect_groups(ct_select_key key, int64_t n_group, const int32_t *most,
                                          const float *v, int64_t first, ct_select_found *f)
{
    int64_t g = 0;

    for (; g + CT_SELECT_GROUP <= n_group; g += CT_SELECT_GROUP) {
        for (uint32_t m = over(most + g, f->bound); m != 0; m &= m - 1) {
            int64_t at = (g + __builtin_ctz(m)) * CT_SELECT_GROUP;

            collect_group(key, v + at, first + at, f);
        }
    }
    for (; g < n_group; ++g) {
        int64_t at = g * CT_SELECT_GROUP;

        if (most[g] > f->bound) collect_group(key, v + at, first + at, f);
    }
}

/* The same of less than a group. */
static void collect_rest(ct_select_key key, const float *v, int64_t first, int64_t n,
                         ct_select_found *f)
{
    if (f->count + n > f->room) prune(f);
    for (int64_t j = 0; j < n; ++j) {
        f->index[f->count] = (uint32_t)(first + j);
        f->value[f->count] = v[j];
        f->count += key_at(v, j, key) > f->bound;
    }
}

static int32_t largest(const int32_t *x, int64_t n, int32_t m)
{
    for (int64_t g = 0; g < n; ++g) m = (x[g] > m) ? x[g] : m;
    return m;
}

/* Groups of whole 32 elements, then the rest as a group of its own. */
static int64_t all_groups(ct_select_key key, const float *v, int64_t n, int32_t *most)
{
    int64_t n_group = n / CT_SELECT_GROUP, rest = n_group * CT_SELECT_GROUP;

    group_most(key, n_group, v, most);
    if (rest == n) return n_group;
    most[n_group] = 0;
    for (int64_t i = rest; i < n; ++i) {
        int32_t k = key_at(v, i, key);

        if (k > most[n_group]) most[n_group] = k;
    }
    return n_group + 1;
}

static int64_t extremes(ct_select_key key, const float *v, int64_t n, ct_select_found *f,
                        int32_t *most)
{
    int64_t n_group;

    if (key.keep == 0xffffffffu) { /* of the other sign only this is looked at */
        n_group = all_groups(ct_select_key_of_sign(0), v, n, most);
        f->worst = largest(most, n_group, f->worst);
    }
    n_group = all_groups(key, v, n, most);
    f->most = largest(most, n_group, f->most);
    if (f->most > f->worst) f->worst = f->most;
    return n_group;
}

void ct_block_extremes(ct_select_key key, const float *v, int64_t n, ct_select_found *f)
{
    int32_t most[N_GROUP];

    (void)extremes(key, v, n, f, most);
}

void ct_block_collect(ct_select_key key, const float *v, int64_t first, int64_t n,
                      ct_select_found *f)
{
    int32_t most[N_GROUP];
    int64_t n_group = n / CT_SELECT_GROUP, rest = n_group * CT_SELECT_GROUP;

    (void)extremes(key, v + first, n, f, most);
    collect_groups(key, n_group, most, v + first, first, f);
    if ((rest < n) && (most[n_group] > f->bound))
        collect_rest(key, v + first + rest, first + rest, n - rest, f);
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
