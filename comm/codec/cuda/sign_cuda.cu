/* Signs (sign.h) on a device: a block of 1024 elements a warp, 32 of them in each thread's
 * registers. A ballot makes 32 bits at once; sums are added up in the CPU's order, so payloads have
 * its bytes. */
#include "comm/codec/cuda/coder_cuda.cuh"

extern "C" {
#include "comm/codec/sign.h"
}

namespace
{
/* So that a thread's elements stay in registers. */
#ifdef __CUDACC__
#define CT_UNROLL _Pragma("unroll")
#else
#define CT_UNROLL
#endif

enum { EACH = CT_SIGN_BLOCK / CT_WARP, LANES = CT_WARP / 2 /* that the CPU adds up apart */ };

/* As it travels. */
struct sign_block {
    float plus, minus;
    unsigned below[EACH];
};

/* What an element adds to its side's sum. */
__device__ inline float on_side(float x, bool below)
{
    return ((x < 0) == below) ? x : 0.0f;
}

__device__ inline float mean_of(float sum, int n)
{
    if (n == 0) return 0.0f;
#ifdef __CUDA_ARCH__
    return __fdiv_rn(sum, (float)n);
#else
    return sum / (float)n;
#endif
}

/* x[w]: element 32 w + lane of n; beyond them 0. What the block tells goes out of x; to NULL: it is
 * only looked at. The CPU has 16 sums of each side, of every 16th element: here the lower half of
 * the warp has those of elements that are not below zero, the upper half the others, and what one
 * thread does not hold the one 16 lanes away does. */
__device__ inline bool encode_block(float *x, int n, sign_block *to)
{
    unsigned lane = ct_lane(), bits = 0;
    bool upper = (lane >= LANES);
    float sum = 0, plus = 0, minus = 0;
    int n_below = 0;

    CT_UNROLL
    for (int w = 0; w < EACH; w++) {
        float other = ct_warp_from(x[w], lane ^ LANES);
        unsigned below = ct_warp_ballot(x[w] < 0);

        sum = ct_momentum_correction_add(sum, on_side(upper ? other : x[w], upper));
        sum = ct_momentum_correction_add(sum, on_side(upper ? x[w] : other, upper));
        n_below += ct_popc(below);
        if ((int)lane == w) bits = below;
    }
    for (unsigned k = 0; k < LANES; k++) plus = ct_momentum_correction_add(plus, ct_warp_from(sum, k));
    for (unsigned k = 0; k < LANES; k++) minus = ct_momentum_correction_add(minus, ct_warp_from(sum, LANES + k));
    if (is_bad(plus) || is_bad(minus)) return false;
    if (to == NULL) return true;
    plus = mean_of(plus, n - n_below);
    minus = mean_of(minus, n_below);
    to->below[lane] = bits;
    if (lane == 0) {
        to->plus = plus;
        to->minus = minus;
    }
    CT_UNROLL
    for (int w = 0; w < EACH; w++) x[w] = ct_momentum_correction_add(x[w], -((x[w] < 0) ? minus : plus));
    return true;
}

/* Heads are there. Of block b the part j has number (b + 1) parts - 1 over all blocks (sign.c). */
template <update_rule RULE, bool DECAYS, bool UPDATES>
__global__ void encode_kernel(accum_args a, int64_t n_block, int parts, int skip, char *payload,
                              coder_run *run)
{
    float clip = UPDATES ? *a.clip : 1.0f;
    bool bad = false;

    CT_WARP_LOOP(b, n_block)
    {
        float x[EACH];
        int64_t first = b * CT_SIGN_BLOCK, left = a.n - first;
        int64_t j = ((b + 1) * parts - 1) / n_block;
        char *to = payload + CT_SIGN_HEAD * (j + 1) + CT_SIGN_BLOCK_BYTES * b;

        CT_UNROLL
        for (int w = 0; w < EACH; w++) {
            int64_t i = first + w * CT_WARP + (int64_t)ct_lane();

            x[w] = (i < a.n) ? a.v[i] : 0.0f;
            if (UPDATES && (i < a.n)) {
                float u = (RULE != RESIDUAL) ? a.u[i] : 0.0f;
                float step =
                    update_step<RULE, DECAYS>(a, clip, a.grad[i], DECAYS ? a.weight[i] : 0.0f, &u);

                if (RULE != RESIDUAL) a.u[i] = u;
                x[w] = ct_momentum_correction_keep(a.f.carry, x[w], step);
            }
        }
        bad = !encode_block(x, (int)((left < CT_SIGN_BLOCK) ? left : CT_SIGN_BLOCK),
                            (j != skip) ? (sign_block *)(void *)to : NULL) ||
              bad;
        CT_UNROLL
        for (int w = 0; w < EACH; w++) {
            int64_t i = first + w * CT_WARP + (int64_t)ct_lane();

            if (i < a.n) a.v[i] = x[w];
        }
    }
    if (bad) run->bad = 1;
}

__global__ void note_kernel(const coder_run *run, const coder_kept *kept, ct_coder_note *note)
{
    if (threadIdx.x != 0) return;
    *note = {};
    note->bad = run->bad;
    note->wrong = kept->wrong;
}

/* ---- adding */

__device__ inline const sign_block *block_of(const char *payload, int64_t b)
{
    return (const sign_block *)(const void *)(payload + CT_SIGN_HEAD) + b;
}

__device__ inline bool add_block(const sign_block *s, float *x)
{
    CT_UNROLL
    for (int w = 0; w < EACH; w++) {
        bool below = ((s->below[w] >> ct_lane()) & 1u) != 0;

        x[w] = ct_momentum_correction_add(x[w], below ? s->minus : s->plus);
    }
    return !is_bad(s->plus) && !is_bad(s->minus);
}

__device__ inline void load_block(const float *v, int64_t first, int64_t n, float *x)
{
    CT_UNROLL
    for (int w = 0; w < EACH; w++) {
        int64_t i = first + w * CT_WARP + (int64_t)ct_lane();

        x[w] = (i < n) ? v[i] : 0.0f;
    }
}

__device__ inline void store_block(float *v, int64_t first, int64_t n, const float *x)
{
    CT_UNROLL
    for (int w = 0; w < EACH; w++) {
        int64_t i = first + w * CT_WARP + (int64_t)ct_lane();

        if (i < n) v[i] = x[w];
    }
}

__global__ void add_kernel(const char *payload, int64_t stride, int n_payload, bool onto, float *v,
                           int64_t n, coder_kept *kept)
{
    bool good = true;

    CT_WARP_LOOP(b, (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK)
    {
        float x[EACH] = {};

        if (onto) load_block(v, b * CT_SIGN_BLOCK, n, x);
        for (int p = 0; p < n_payload; p++)
            good = add_block(block_of(payload + p * stride, b), x) && good;
        store_block(v, b * CT_SIGN_BLOCK, n, x);
    }
    if (!good) kept->wrong = 1;
}

/* Each block from the payload of its part. */
__global__ void put_kernel(const char *payload, int64_t stride, int parts, float *v, int64_t n,
                           coder_kept *kept)
{
    int64_t n_block = (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK;
    bool good = true;

    CT_WARP_LOOP(b, n_block)
    {
        float x[EACH] = {};
        int64_t j = ((b + 1) * parts - 1) / n_block;

        good = add_block(block_of(payload + j * stride, b - n_block * j / parts), x) && good;
        store_block(v, b * CT_SIGN_BLOCK, n, x);
    }
    if (!good) kept->wrong = 1;
}

unsigned blocks_for(int64_t n_block)
{
    int64_t blocks = (n_block + CT_WARPS - 1) / CT_WARPS;

    return (unsigned)((blocks < 1) ? 1 : (blocks < 2 * MOST_BLOCKS) ? blocks : 2 * MOST_BLOCKS);
}

int64_t blocks_in(int64_t n)
{
    return (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK;
}

ct_status begin_note(ct_codec_coder *c, ct_stream st)
{
    return ct_cuda_check(cudaMemsetAsync(&c->run->bad, 0, sizeof(c->run->bad), (cudaStream_t)st),
                         "cudaMemsetAsync");
}
} // namespace

ct_status ct_coder_sign(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *accum, int parts,
                        int skip, void *payload)
{
    accum_args a = args_of(c, accum);
    bool nesterov = accum->nesterov;
    int64_t n_block = blocks_in(a.n);

    CT_TRY(begin_note(c, st));
#define RUN(_rule, _decays)                                                                        \
    CT_CUDA_RUN_BLOCKS((encode_kernel<_rule, _decays, true>), blocks_for(n_block), st, a, n_block, \
                       parts, skip, (char *)payload, c->run)
    CT_WITH_RULE(a, RUN);
#undef RUN
    CT_CUDA_RUN(note_kernel, 1, st, c->run, c->kept, c->note);
    return ct_cuda_launched("signs");
}

ct_status ct_coder_sign_take(ct_codec_coder *c, ct_stream st, float *v, int64_t n, void *payload)
{
    accum_args a = {};
    int64_t n_block = blocks_in(n);

    a.v = v;
    a.n = n;
    CT_TRY(begin_note(c, st));
    if (n > 0)
        CT_CUDA_RUN_BLOCKS((encode_kernel<RESIDUAL, false, false>), blocks_for(n_block), st, a,
                           n_block, 1, -1, (char *)payload, c->run);
    CT_CUDA_RUN(note_kernel, 1, st, c->run, c->kept, c->note);
    return ct_cuda_launched("signs of a sum");
}

ct_status ct_coder_sign_add(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                            int n_payload, bool onto, float *v, int64_t n)
{
    if (n == 0) return CT_OK;
    CT_CUDA_RUN_BLOCKS(add_kernel, blocks_for(blocks_in(n)), st, (const char *)payload,
                       (int64_t)stride, n_payload, onto, v, n, c->kept);
    return ct_cuda_launched("addition of signs");
}

ct_status ct_coder_sign_put(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                            int parts, float *v, int64_t n)
{
    CT_CUDA_RUN_BLOCKS(put_kernel, blocks_for(blocks_in(n)), st, (const char *)payload,
                       (int64_t)stride, parts, v, n, c->kept);
    return ct_cuda_launched("signs of all parts");
}
