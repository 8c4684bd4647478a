/** @file warp.cuh  What the 32 threads of a warp tell each other. Included by .cu files.
 *
 * All of a warp call these together, with a full mask. Where CUDA is emulated a block is one warp,
 * and its threads take turns: such kernels are launched by CT_CUDA_RUN_BLOCKS.
 */
#ifndef CT_CUDA_WARP_H
#define CT_CUDA_WARP_H

#include "framework/tensor/cuda/device_cuda.h"

enum { CT_WARP = 32, CT_WARPS = CT_CUDA_BLOCK / CT_WARP /* of a block */ };

static __device__ inline unsigned ct_lane(void)
{
    return threadIdx.x % CT_WARP;
}

/** Bits of the lanes before this one. */
static __device__ inline unsigned ct_lanes_before(void)
{
    return (1u << ct_lane()) - 1u;
}

#ifdef CT_CUDA_EMULATED
static inline int ct_popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int ct_first_bit(uint64_t x)
{
    return __builtin_ctzll(x);
}

/** v of that lane. */
template <class T> static inline T ct_warp_from(T v, unsigned lane)
{
    static T all[CT_WARP];
    T one;

    all[ct_lane()] = v;
    __syncthreads();
    one = all[lane];
    __syncthreads();
    return one;
}

static inline unsigned ct_warp_ballot(bool yes)
{
    static bool all[CT_WARP];
    unsigned bits = 0;

    all[ct_lane()] = yes;
    __syncthreads();
    for (unsigned i = 0; i < CT_WARP; i++) bits |= (unsigned)all[i] << i;
    __syncthreads();
    return bits;
}

static inline uint64_t ct_warp_or(uint64_t mine)
{
    static uint64_t all[CT_WARP];
    uint64_t bits = 0;

    all[ct_lane()] = mine;
    __syncthreads();
    for (unsigned i = 0; i < CT_WARP; i++) bits |= all[i];
    __syncthreads();
    return bits;
}

static inline unsigned ct_warp_most(unsigned mine)
{
    static unsigned all[CT_WARP];
    unsigned most = 0;

    all[ct_lane()] = mine;
    __syncthreads();
    for (unsigned i = 0; i < CT_WARP; i++) most = (all[i] > most) ? all[i] : most;
    __syncthreads();
    return most;
}

template <class T> static inline T ct_warp_add(T v)
{
    static T all[CT_WARP];
    T one[CT_WARP];

    all[ct_lane()] = v;
    __syncthreads();
    for (unsigned i = 0; i < CT_WARP; i++) one[i] = all[i];
    __syncthreads();
    for (unsigned half = CT_WARP / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; i++) one[i] += one[i + half];
    return one[0];
}
#else
static __device__ inline int ct_popc(unsigned x)
{
    return __popc(x);
}
static __device__ inline int ct_first_bit(uint64_t x)
{
    return __ffsll((long long)x) - 1;
}

template <class T> static __device__ inline T ct_warp_from(T v, unsigned lane)
{
    return __shfl_sync(0xffffffffu, v, (int)lane);
}

static __device__ inline unsigned ct_warp_ballot(bool yes)
{
    return __ballot_sync(0xffffffffu, yes);
}

static __device__ inline uint64_t ct_warp_or(uint64_t mine)
{
    uint64_t high = __reduce_or_sync(0xffffffffu, (unsigned)(mine >> 32));

    return (high << 32) | __reduce_or_sync(0xffffffffu, (unsigned)mine);
}

static __device__ inline unsigned ct_warp_most(unsigned mine)
{
    return __reduce_max_sync(0xffffffffu, mine);
}

/** The sum, in one order, on all lanes. */
template <class T> static __device__ inline T ct_warp_add(T v)
{
    for (unsigned half = CT_WARP / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, (int)half);
    return v;
}
#endif

#endif
