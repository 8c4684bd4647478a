/** @file simd.h  Which vector instructions there are, and one function compiled for several.
 *
 * CT_SIMD_CLONES before a leaf function (plain loops, no OpenMP region, no calls that matter)
 * makes the compiler emit it for AVX2 and AVX-512 besides the baseline, and the loader pick one.
 * Elsewhere it is empty: same source, same results, since contraction into fused multiply-adds is
 * off and the order of a sum is written out by the function, never left to the vector width.
 *
 * Off where the loader's choice runs before a sanitizer is ready, and for compilers that do not
 * take the names of the levels.
 */
#ifndef CT_SIMD_H
#define CT_SIMD_H

#include <limits.h> /* __GLIBC__ */
#include <stdbool.h>

#include "framework/base/sanitizer.h"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    (__GNUC__ >= 12) && !CT_SAN_ADDRESS && !CT_SAN_THREAD
#define CT_SIMD_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CT_SIMD_CLONES
#endif

/** Before a part of such a function that the compiler might leave outside of the copies, where it
 *  would be compiled for the baseline alone. */
#define CT_SIMD_PART __attribute__((always_inline)) static inline

/** Lanes of two vectors behind one another, by their numbers. _index: vectors of as many integers
 *  of the same size, for compilers that have the older form alone. */
#if defined(__clang__) || (__GNUC__ >= 12)
#define CT_SIMD_MIXED(_index, _a, _b, ...) __builtin_shufflevector(_a, _b, __VA_ARGS__)
#else
#define CT_SIMD_MIXED(_index, _a, _b, ...) __builtin_shuffle(_a, _b, (_index){ __VA_ARGS__ })
#endif

/** Tiles without instructions of their own have registers of so many floats (SSE's and NEON's;
 *  SVE's where the build knows its length, make SVE=512), and blocks of as many channels. */
#ifdef CT_SVE_BITS
#define CT_SIMD_ANY_LANES (CT_SVE_BITS / 32)
#else
#define CT_SIMD_ANY_LANES 4
#endif
#define CT_SIMD_ANY_BLOCK ((CT_SIMD_ANY_LANES > 8) ? CT_SIMD_ANY_LANES : 8)

/** Before functions for blocks of 16, where ct_simd_block() can be that. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CT_SIMD_BLOCK_16 __attribute__((target("avx512f")))
#elif CT_SIMD_ANY_LANES == 16
#define CT_SIMD_BLOCK_16
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_SIMD_PORTABLE, CT_SIMD_AVX2, CT_SIMD_AVX512 } ct_simd_level;

/** The widest that this processor has, or less where the environment says CORTADO_SIMD=avx512,
 *  avx2 or portable: for tests and comparisons. Set it before anything runs, and leave it. */
ct_simd_level ct_simd_pick(void);
/** "portable" ("sve256", "sve512" where it was built for that), "avx2" or "avx512". */
const char *ct_simd_name(ct_simd_level level);
/** Bits of SVE's registers that tiles were compiled for, and those of this processor; 0 and 0 where
 *  they were not. Unless they are equal the program must not compute. */
void ct_simd_built(int *built_p, int *here_p);
/** Whether there is an instruction for products of pairs of bf16 numbers added up in f32
 *  (AVX512_BF16). CORTADO_SIMD=avx512, as anything below it, leaves it out. */
bool ct_simd_has_bf16(void);
/** Channels of a block in blocked layouts, [N][C / block][H][W][block]: 16 with AVX-512 and with
 *  SVE of 512 bits, else 8. */
int ct_simd_block(void);

#ifdef __cplusplus
}
#endif

/* ---- CT_HD: before a function that runs on the host and on CUDA devices alike */

#ifdef __CUDACC__
#define CT_HD __host__ __device__
#else
#define CT_HD
#endif

#endif
