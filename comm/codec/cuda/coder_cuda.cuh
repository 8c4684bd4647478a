/** @file coder_cuda.cuh  A parameter's coder on a CUDA device, and what its kernels share.
 * Private to comm/cuda.
 *
 * Elements go in chunks of CT_SELECT_BLOCK, a chunk a warp. Candidates of a chunk lie one after the
 * other in a segment; segments lie in any order, and counts of chunks, added up, say where their
 * entries go: so lists ascend, and are the same in every run. Where candidates are more than there
 * is room for (constants), segments are not used and V is read instead.
 */
#ifndef CT_CODER_CUDA_H
#define CT_CODER_CUDA_H

#include <cmath>
#include <cstdint>
#include <cstring>

#include "framework/tensor/cuda/warp.cuh"

extern "C" {
#include "comm/codec/momentum_correction_math.h"
#include "comm/codec/codec_kernels.h"
#include "comm/codec/select_key.h"
#include "comm/sparse/payload_impl.h"
}

enum {
    TOP_BITS = 12,
    MID_BITS = 10,
    LOW_BITS = 9, /* of a key's 31 */
    TOP_BINS = 1 << TOP_BITS,
    MID_BINS = 1 << MID_BITS,
    LOW_BINS = 1 << LOW_BITS,
    MID_AT = TOP_BINS,
    LOW_AT = TOP_BINS + MID_BINS,
    ALL_BINS = TOP_BINS + MID_BINS + LOW_BINS,
    CHUNK = CT_SELECT_BLOCK,
    MOST_BLOCKS = 1024, /* of a pass: some for each multiprocessor */
    FOUR = 4            /* floats that a thread reads at once */
};

/* Of one run; zeros when it begins. */
struct coder_run {
    unsigned bin[ALL_BINS];
    unsigned prefix;  /* the k-th key's upper bits, as far as they are known                      */
    unsigned bound;   /* elements over it are candidates                                          */
    unsigned settled; /* selected are the keys over prefix, and no others                         */
    unsigned overflow;
    unsigned cursor;         /* candidates so far                                                 */
    unsigned bad;            /* V is not finite                                                   */
    unsigned gathers;        /* the next pass that collects is to do so                           */
    unsigned passes;         /* over V */
    unsigned long long rest; /* elements with just this prefix that are selected                  */
    unsigned long long count;
    float mean;
    /* of a search between mean and maximum */
    unsigned most, over[CT_SELECT_PROBES];
    float low, high, probe[CT_SELECT_PROBES];
    unsigned searches, found;
    unsigned collects, guess; /* candidates over `guess` are collected in the update's own pass */
};

/* From run to run. */
struct coder_kept {
    float clip, share;
    unsigned holds, wrong;
    unsigned long long filled;
    double square;
    struct {
        float threshold, margin;
        int age;
    } history[3]; /* of sign -1, 0, 1 */
};

struct ct_codec_coder {
    ct_coder_setup s;
    ct_select_kind kind; /* EXACT, SEARCH or SAMPLED */
    int64_t n_chunk, limit;
    unsigned room; /* candidates */
    size_t stride; /* of payloads */
    char *block;   /* all of the following */
    coder_run *run;
    coder_kept *kept;
    double *part;            /* [2 n_chunk] */
    unsigned *start, *count; /* [n_chunk] segments */
    unsigned *over, *equal;  /* [n_chunk] keys over the k-th, and equal to it; then: before */
    unsigned *found_index;   /* [room] candidates */
    float *found_value;      /* [room] */
    unsigned *index;         /* [limit] selected */
    float *value;            /* [limit] */
    ct_coder_note *note;
    char *payload, *incoming;
};

/* Arguments of the update, as kernels take them. */
struct accum_args {
    const float *grad, *weight;
    float *u, *v;
    int64_t n;
    ct_momentum_correction_factors f;
    const float *clip;
};

static inline accum_args args_of(const ct_codec_coder *c, const ct_momentum_correction *a)
{
    accum_args x = { a->grad,
                     a->weight,
                     a->u,
                     a->v,
                     a->n,
                     { a->scale, a->rate, a->momentum, a->decay,
                       ((a->carry != 0) && (a->u != NULL)) ? a->carry : 1.0f },
                     &c->kept->clip };

    return x;
}

enum update_rule { RESIDUAL, MOMENTUM, NESTEROV };

/* What one element adds to V; U moves on. */
template <update_rule RULE, bool DECAYS>
static __device__ inline float update_step(const accum_args &a, float clip, float g, float w,
                                           float *u)
{
    ct_momentum_correction_factors f = a.f;

    f.scale = ct_momentum_correction_mul(f.scale, clip); /* as codec_kernels.c does */
    if (RULE == RESIDUAL) return ct_momentum_correction_plain(f.scale, g);
    return ct_momentum_correction_step(f, DECAYS, RULE == NESTEROV, g, w, u);
}

/* One of the rules as a kernel's template argument: _CALL(rule, decays). */
#define CT_WITH_RULE(_a, _CALL)                                                                    \
    do {                                                                                           \
        if ((_a).u == NULL)                                                                        \
            _CALL(RESIDUAL, false);                                                                \
        else if (nesterov && ((_a).weight != NULL))                                                \
            _CALL(NESTEROV, true);                                                                 \
        else if (nesterov)                                                                         \
            _CALL(NESTEROV, false);                                                                \
        else if ((_a).weight != NULL)                                                              \
            _CALL(MOMENTUM, true);                                                                 \
        else                                                                                       \
            _CALL(MOMENTUM, false);                                                                \
    } while (0)

struct alignas(16) four_floats {
    float x[FOUR];
};

/* Slices begin anywhere. */
static __device__ inline bool fours(const float *x)
{
    return ((uintptr_t)x % sizeof(four_floats)) == 0;
}

static __device__ inline four_floats load_four(const float *from, int64_t i, int64_t n)
{
    four_floats r = {};

    if ((i + FOUR <= n) && fours(from)) return *(const four_floats *)(const void *)(from + i);
    for (int c = 0; c < FOUR; c++) {
        if (i + c < n) r.x[c] = from[i + c];
    }
    return r;
}

static __device__ inline void store_four(float *to, int64_t i, int64_t n, const four_floats &r)
{
    if ((i + FOUR <= n) && fours(to)) {
        *(four_floats *)(void *)(to + i) = r;
        return;
    }
    for (int c = 0; c < FOUR; c++) {
        if (i + c < n) to[i + c] = r.x[c];
    }
}

/* Blocks of a pass over fours of n elements, and of one over chunks. */
static inline unsigned pass_blocks(int64_t n)
{
    unsigned blocks = ct_cuda_grid((n + FOUR - 1) / FOUR);

    return (blocks < MOST_BLOCKS) ? blocks : (unsigned)MOST_BLOCKS;
}

static inline unsigned chunk_blocks(const ct_codec_coder *c)
{
    int64_t blocks = (c->n_chunk + CT_WARPS - 1) / CT_WARPS;

    return (unsigned)((blocks < 2 * MOST_BLOCKS) ? blocks : 2 * MOST_BLOCKS);
}

#define CT_WARP_LOOP(_c, _n)                                                                       \
    for (int64_t _c = blockIdx.x * (int64_t)CT_WARPS + threadIdx.x / CT_WARP; _c < (_n);           \
         _c += (int64_t)gridDim.x * CT_WARPS)

/* Which bins hold how many: by block, in its shared memory, then all together. Zeros are never
 * selected and not counted. */
static __device__ inline void count_key(unsigned *bin, float v, ct_select_key key)
{
    int32_t k = ct_select_key_of(v, key);

    if (k > 0) atomicAdd(&bin[k >> CT_SELECT_BIN_SHIFT], 1u);
}

static __device__ inline void flush_bins(const unsigned *bin, int n, unsigned *to)
{
    for (int b = (int)threadIdx.x; b < n; b += CT_CUDA_BLOCK) {
        if (bin[b] != 0) atomicAdd(&to[b], bin[b]);
    }
}

/* The sums of part[n] and part[n + …], in one order; thread 0 has them. */
static __device__ inline void add_parts(const double *part, int64_t n, int sums, double *sum)
{
    __shared__ double all[2][CT_CUDA_BLOCK];

    for (int s = 0; s < sums; s++) {
        double mine = 0;

        for (int64_t c = threadIdx.x; c < n; c += CT_CUDA_BLOCK) mine += part[s * n + c];
        all[s][threadIdx.x] = mine;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int s = 0; s < sums; s++) {
        sum[s] = 0;
        for (int t = 0; t < CT_CUDA_BLOCK; t++) sum[s] += all[s][t];
    }
}

/** What the other files here have: members of the table. */
ct_status ct_coder_clip(ct_codec_coder *c, ct_stream st, const float *grad, int64_t n,
                        double limit);
ct_status ct_coder_shrink(ct_codec_coder *c, ct_stream st, float *grad, int64_t n, double limit);
ct_status ct_coder_update(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a);
ct_status ct_coder_all(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, float *out);
ct_status ct_coder_apart(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, bool restart,
                         int n_rank, float least, float *out, bool *empty_p);
ct_status ct_coder_square(ct_codec_coder *c, ct_stream st, const float *v, int64_t n,
                          double *sum_p);
ct_status ct_coder_select(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign);
ct_status ct_coder_add(ct_codec_coder *c, ct_stream st, const void *const *payload, const size_t *bytes,
                       int n_payload, float *sum);
ct_status ct_coder_put_back(ct_codec_coder *c, ct_stream st, const uint32_t *index,
                            const float *value, int64_t count, float *v);
ct_status ct_coder_sign(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int parts, int skip,
                        void *payload);
ct_status ct_coder_sign_take(ct_codec_coder *c, ct_stream st, float *v, int64_t n, void *payload);
ct_status ct_coder_sign_add(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                            int n_payload, bool onto, float *v, int64_t n);
ct_status ct_coder_sign_put(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                            int parts, float *v, int64_t n);
ct_status ct_low_rank_left_cuda(ct_codec_coder *c, ct_stream st, const ct_low_rank *s,
                                const ct_momentum_correction *a, const float *q, float *p);
ct_status ct_low_rank_right_cuda(ct_stream st, const ct_low_rank *s, const float *v, const float *p,
                                 float *scratch, float *q);
ct_status ct_low_rank_product_cuda(ct_stream st, const ct_low_rank *s, const float *p,
                                   const float *q, bool takes, float *v);
ct_status ct_cast_exponent_cuda(ct_stream st, const float *v, int64_t n, uint32_t *out);
ct_status ct_cast_encode_cuda(ct_stream st, bool fp16, const float *v, int64_t n, float scale,
                              uint16_t *out);
ct_status ct_cast_decode_cuda(ct_stream st, bool fp16, const uint16_t *in, int64_t n, float scale,
                              float *v);
/** The update, and how many keys each of the upper bins has. */
ct_status ct_coder_update_and_count(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                                    ct_select_key key);
/** … and candidates over the last threshold; judge, behind find_kernel, says whether they do. */
ct_status ct_coder_update_and_collect(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign,
                                      ct_select_key key);
ct_status ct_coder_judge(ct_codec_coder *c, ct_stream st, int sign);
/** … and of each chunk the sum of keys, and the largest key. */
ct_status ct_coder_update_and_sum(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                                  ct_select_key key);
/** Candidates over run->bound, where run->gathers. */
ct_status ct_coder_gather(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, ct_select_key key);
/** The update, and a threshold, or none: then the keys' upper bits are counted. */
ct_status ct_coder_search(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign,
                          ct_select_key key);
/** What is selected, as a payload, and the note. v: what is lost goes there. */
ct_status ct_coder_pack(ct_codec_coder *c, ct_stream st, float *v);

/* ---- candidates of a chunk, one after the other in a segment */

/* Where candidates go. */
struct segments {
    const float *v;
    unsigned room;
    unsigned *start, *count; /* of chunks */
    unsigned *index;
    float *value;
};

static inline segments segments_of(const ct_codec_coder *c, const float *v)
{
    segments l = { v, c->room, c->start, c->count, c->found_index, c->found_value };

    return l;
}

/* Bit c: element c is over the bound. */
static __device__ inline unsigned four_over(const four_floats &x, ct_select_key key, int32_t bound)
{
    unsigned yes = 0;

    for (int c = 0; c < FOUR; c++) yes |= (unsigned)(ct_select_key_of(x.x[c], key) > bound) << c;
    return yes;
}

/* Writes a chunk's candidates: bit 4 r + c of mask is element 128 r + 4 lane + c of the chunk. */
static __device__ inline void write_segment(const float *v, int64_t first, uint64_t mask,
                                            unsigned at, unsigned *index, float *value)
{
    uint64_t any = ct_warp_or(mask);

    while (any != 0) {
        int r = ct_first_bit(any) / FOUR;
        unsigned mine = (unsigned)(mask >> (FOUR * r)) & 15u, place = at, all = 0;
        int64_t i = first + r * FOUR * CT_WARP + FOUR * (int64_t)ct_lane();

        for (int c = 0; c < FOUR; c++) {
            unsigned lanes = ct_warp_ballot((mine >> c) & 1u);

            place += (unsigned)ct_popc(lanes & ct_lanes_before());
            all += (unsigned)ct_popc(lanes);
        }
        for (int c = 0; c < FOUR; c++) {
            if (((mine >> c) & 1u) == 0) continue;
            index[place] = (unsigned)(i + c);
            value[place++] = v[i + c];
        }
        at += all;
        any &= ~((uint64_t)15 << (FOUR * r));
    }
}

/* The mask's elements get a segment, where there is room. A warp does it together. */
static __device__ inline void keep_segment(coder_run *run, const segments &l, int64_t c,
                                           uint64_t mask)
{
    unsigned total = (unsigned)(ct_popc((unsigned)mask) + ct_popc((unsigned)(mask >> 32))), at = 0;

    total = ct_warp_add(total);
    if (ct_lane() == 0) {
        at = atomicAdd(&run->cursor, total);
        l.start[c] = at;
        l.count[c] = total;
        if ((uint64_t)at + total > l.room) run->overflow = 1;
    }
    at = ct_warp_from(at, 0);
    if ((total > 0) && ((uint64_t)at + total <= l.room))
        write_segment(l.v, c * CHUNK, mask, at, l.index, l.value);
}

/* ---- the update of four elements, in registers: what the passes over U and V do */

static __device__ inline bool is_bad(float v)
{
    return (ct_select_bits(v) & CT_SELECT_FIRST_BAD) == CT_SELECT_FIRST_BAD;
}

enum look { NOTHING, COUNTS, TAKES };

/* out: TAKES, of all of V. now_p: V as it is now, zeros beyond n; NULL: nobody asks. */
template <update_rule RULE, bool DECAYS, look LOOK>
static __device__ inline bool update_four(const accum_args &a, float clip, int64_t i,
                                          ct_select_key key, unsigned *bin, float *out,
                                          four_floats *now_p)
{
    four_floats g = load_four(a.grad, i, a.n), v = load_four(a.v, i, a.n), w = {}, u = {};
    bool bad = false;

    if (RULE != RESIDUAL) u = load_four(a.u, i, a.n);
    if (DECAYS) w = load_four(a.weight, i, a.n);
    for (int c = 0; c < FOUR; c++) {
        float step = update_step<RULE, DECAYS>(a, clip, g.x[c], w.x[c], &u.x[c]);

        v.x[c] = ct_momentum_correction_keep(a.f.carry, v.x[c], step);
        if (LOOK == COUNTS) {
            bad = bad || is_bad(v.x[c]);
            if (i + c < a.n) count_key(bin, v.x[c], key);
        }
    }
    if (RULE != RESIDUAL) store_four(a.u, i, a.n, u);
    if (LOOK == TAKES) {
        store_four(out, i, a.n, v);
        v = {};
    }
    store_four(a.v, i, a.n, v);
    if (now_p != NULL) *now_p = v;
    return bad;
}

#endif
