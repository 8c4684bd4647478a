#include "framework/base/simd.h"

#include <stdlib.h>
#include <string.h>

static ct_simd_level processor_level(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) return CT_SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CT_SIMD_AVX2;
#endif
    return CT_SIMD_PORTABLE;
}

ct_simd_level ct_simd_pick(void)
{
    static const char *const name[] = { "portable", "avx2", "avx512" };
    ct_simd_level level = processor_level();
    const char *want = getenv("CORTADO_SIMD");

    for (int i = 0; (want != NULL) && (i < (int)level); i++) {
        if (strcmp(want, name[i]) == 0) return (ct_simd_level)i;
    }
    return level;
}

bool ct_simd_has_bf16(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    const char *want = getenv("CORTADO_SIMD");

    if ((want != NULL) && (strcmp(want, "avx512") == 0)) return false;
    return (ct_simd_pick() == CT_SIMD_AVX512) && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

int ct_simd_block(void)
{
    return (ct_simd_pick() == CT_SIMD_AVX512) ? 16 : 8;
}
