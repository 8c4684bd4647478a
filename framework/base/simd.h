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

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    (__GNUC__ >= 12) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
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

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_SIMD_PORTABLE, CT_SIMD_AVX2, CT_SIMD_AVX512 } ct_simd_level;

/** The widest that this processor has, or less where the environment says CORTADO_SIMD=avx512,
 *  avx2 or portable: for tests and comparisons. Set it before anything runs, and leave it. */
ct_simd_level ct_simd_pick(void);
/** Whether there is an instruction for products of pairs of bf16 numbers added up in f32
 *  (AVX512_BF16). CORTADO_SIMD=avx512, as anything below it, leaves it out. */
bool ct_simd_has_bf16(void);
/** Channels of a block in blocked layouts, [N][C / block][H][W][block]: 16 with AVX-512, else 8. */
int ct_simd_block(void);

#ifdef __cplusplus
}
#endif

#endif
