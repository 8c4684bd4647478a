#include "comm/codec/sign.h"

#include <math.h>
#include <string.h>

#include "framework/base/simd.h"
#include "framework/base/status.h"

enum { WORD = 64, LANES = 16, ALONE = 65536 /* elements: fewer are not worth a team */ };

typedef struct block {
    float plus, minus;                    /* what a bit of 0, and of 1, stands for */
    uint64_t below[CT_SIGN_BLOCK / WORD]; /* less than zero                        */
} block;

_Static_assert(sizeof(block) == CT_SIGN_BLOCK_BYTES, "payloads have no gaps");

static int64_t blocks_of(int64_t n)
{
    return (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK;
}

ct_status ct_sign_check(const void *payload, size_t bytes, int64_t n)
{
    uint64_t head[2] = { 0 }; /* its bytes, its elements: ct_sign_head() */

    if (bytes >= CT_SIGN_HEAD) memcpy(head, payload, sizeof(head));
    if ((bytes != ct_sign_bytes(n)) || (head[0] != bytes) || (head[1] != (uint64_t)n))
        return CT_FAIL(CT_ERR_COMM,
                       "signs of %lld elements in %zu bytes say of themselves: %lld in %llu",
                       (long long)n, bytes, (long long)head[1], (unsigned long long)head[0]);
    return CT_OK;
}

/* ---- one block */

/* In lanes that are written out, so that every processor adds in one order. */
CT_SIMD_CLONES static void add_up(const float *v, float *above, float *below)
{
    for (int i = 0; i < CT_SIGN_BLOCK; i += LANES) {
#pragma omp simd
        for (int k = 0; k < LANES; ++k) {
            float x = v[i + k];

            above[k] += (x < 0) ? 0 : x; /* a NaN is no less than 0: it stays in sight */
            below[k] += (x < 0) ? x : 0;
        }
    }
}

CT_SIMD_CLONES static void find_bits(const float *v, uint64_t *below)
{
    for (int w = 0; w < CT_SIGN_BLOCK / WORD; ++w) {
        uint8_t is[WORD];
        uint64_t bits = 0;

#pragma omp simd
        for (int k = 0; k < WORD; ++k) is[k] = (uint8_t)(v[w * WORD + k] < 0);
        for (int k = 0; k < WORD; k += 8) { /* the lowest bits of eight bytes side by side */
            uint64_t eight = 0;

            for (int b = 7; b >= 0; --b) eight = (eight << 8) | is[k + b];
            bits |= ((eight * 0x0102040810204080u) >> 56) << k;
        }
        below[w] = bits;
    }
}

CT_SIMD_CLONES static void take_out(float *v, float plus, float minus)
{
#pragma omp simd
    for (int i = 0; i < CT_SIGN_BLOCK; ++i) v[i] -= (v[i] < 0) ? minus : plus;
}

CT_SIMD_CLONES static void add_block(const block *b, float *v)
{
    for (int w = 0; w < CT_SIGN_BLOCK / 32; ++w) {
        uint32_t bits = (uint32_t)(b->below[w / 2] >> (32 * (w % 2)));

#pragma omp simd
        for (int k = 0; k < 32; ++k) v[32 * w + k] += ((bits >> k) & 1) ? b->minus : b->plus;
    }
}

static bool add_lanes(const float *v, float *plus, float *minus)
{
    float above[LANES] = { 0 }, below[LANES] = { 0 };

    add_up(v, above, below);
    *plus = *minus = 0;
    for (int k = 0; k < LANES; ++k) *plus += above[k];
    for (int k = 0; k < LANES; ++k) *minus += below[k];
    return isfinite(*plus) && isfinite(*minus);
}

/* v has a whole block's elements; those from n on are 0 and do not count. */
static bool encode_whole(float *v, int n, block *b)
{
    float plus = 0, minus = 0;
    int n_below = 0;

    if (!add_lanes(v, &plus, &minus)) return false;
    find_bits(v, b->below);
    for (int w = 0; w < CT_SIGN_BLOCK / WORD; ++w) n_below += __builtin_popcountll(b->below[w]);
    b->plus = (n > n_below) ? plus / (float)(n - n_below) : 0;
    b->minus = (n_below > 0) ? minus / (float)n_below : 0;
    take_out(v, b->plus, b->minus);
    return true;
}

/* b NULL: only looks whether all is finite. */
static bool encode_block(float *v, int n, block *b)
{
    float padded[CT_SIGN_BLOCK] = { 0 }, plus = 0, minus = 0;
    bool good = false;

    if (n == CT_SIGN_BLOCK)
        return (b != NULL) ? encode_whole(v, n, b) : add_lanes(v, &plus, &minus);
    memcpy(padded, v, sizeof(*v) * (size_t)n);
    good = (b != NULL) ? encode_whole(padded, n, b) : add_lanes(padded, &plus, &minus);
    memcpy(v, padded, sizeof(*v) * (size_t)n);
    return good;
}

static bool decode_block(const block *b, int n, float *v)
{
    float padded[CT_SIGN_BLOCK];

    if (!isfinite(b->plus) || !isfinite(b->minus)) return false;
    if (n == CT_SIGN_BLOCK) {
        add_block(b, v);
        return true;
    }
    memcpy(padded, v, sizeof(*v) * (size_t)n);
    memset(padded + n, 0, sizeof(padded) - sizeof(*v) * (size_t)n);
    add_block(b, padded);
    memcpy(v, padded, sizeof(*v) * (size_t)n);
    return true;
}

/* ---- payloads */

static int length_at(int64_t n, int64_t b)
{
    int64_t left = n - b * CT_SIGN_BLOCK;

    return (left < CT_SIGN_BLOCK) ? (int)left : CT_SIGN_BLOCK;
}

static const block *blocks_in(const void *payload)
{
    return (const block *)(const void *)((const char *)payload + CT_SIGN_HEAD);
}

static ct_status fail_diverged(void)
{
    return CT_FAIL(CT_ERR_DIVERGED, "the gradient, or what is kept of it, is no longer finite");
}

/* The part that block b belongs to, as ct_sign_part() deals them. */
static int part_of(const ct_sign_cut *c, int64_t b)
{
    return (int)(((b + 1) * c->parts - 1) / blocks_of(c->n));
}

ct_status ct_sign_encode(const ct_sign_cut *c, const ct_momentum_correction *a, int skip,
                         void *payload)
{
    int64_t n_block = blocks_of(c->n);
    int team = (c->n > ALONE) ? a->n_thread : 1, bad = 0;

    for (int j = 0; j < c->parts; ++j) {
        int64_t first = 0, n = 0;

        ct_sign_part(c, j, &first, &n);
        if (j != skip) ct_sign_head((char *)payload + ct_sign_at(c, j), n);
    }
#pragma omp parallel for schedule(static) num_threads(team) reduction(| : bad)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SIGN_BLOCK;
        int n = length_at(c->n, b), j = part_of(c, b);
        ct_momentum_correction part = ct_momentum_correction_part(a, first, n);
        char *to = (char *)payload + CT_SIGN_HEAD * (size_t)(j + 1) + sizeof(block) * (size_t)b;

        ct_momentum_correction_run(&part);
        bad |= !encode_block(part.v, n, (j != skip) ? (block *)(void *)to : NULL);
    }
    return bad ? fail_diverged() : CT_OK;
}

ct_status ct_sign_take(float *v, int64_t n, int n_thread, void *payload)
{
    block *to = (block *)(uintptr_t)blocks_in(payload);
    int64_t n_block = blocks_of(n);
    int team = (n > ALONE) ? n_thread : 1, bad = 0;

    ct_sign_head(payload, n);
#pragma omp parallel for schedule(static) num_threads(team) reduction(| : bad)
    for (int64_t b = 0; b < n_block; ++b)
        bad |= !encode_block(v + b * CT_SIGN_BLOCK, length_at(n, b), &to[b]);
    return bad ? fail_diverged() : CT_OK;
}

static ct_status fail_mean(void)
{
    return CT_FAIL(CT_ERR_COMM, "a mean that has come in is not finite");
}

ct_status ct_sign_add(const void *payload, size_t bytes, float *v, int64_t n, int n_thread)
{
    int64_t n_block = blocks_of(n);
    int team = (n > ALONE) ? n_thread : 1, bad = 0;

    CT_TRY(ct_sign_check(payload, bytes, n));
#pragma omp parallel for schedule(static) num_threads(team) reduction(| : bad)
    for (int64_t b = 0; b < n_block; ++b)
        bad |= !decode_block(&blocks_in(payload)[b], length_at(n, b), v + b * CT_SIGN_BLOCK);
    return bad ? fail_mean() : CT_OK;
}

ct_status ct_sign_sum(const void *const *payload, const size_t *bytes, int n_payload, float *v,
                      int64_t n, int n_thread)
{
    int64_t n_block = blocks_of(n);
    int team = (n > ALONE) ? n_thread : 1, bad = 0;

    for (int p = 0; p < n_payload; ++p) CT_TRY(ct_sign_check(payload[p], bytes[p], n));
#pragma omp parallel for schedule(static) num_threads(team) reduction(| : bad)
    for (int64_t b = 0; b < n_block; ++b) {
        int length = length_at(n, b);
        float *to = v + b * CT_SIGN_BLOCK;

        memset(to, 0, sizeof(*v) * (size_t)length);
        for (int p = 0; p < n_payload; ++p)
            bad |= !decode_block(&blocks_in(payload[p])[b], length, to);
    }
    return bad ? fail_mean() : CT_OK;
}
