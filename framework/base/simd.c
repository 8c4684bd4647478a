#include "framework/base/simd.h"

#include <stdlib.h>
#include <string.h>

#if CT_SIMD_ANY_LANES > 4
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

static ct_simd_level processor_level(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) return CT_SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CT_SIMD_AVX2;
#endif
    return CT_SIMD_PORTABLE;
}

const char *ct_simd_name(ct_simd_level level)
{
#if CT_SIMD_ANY_LANES == 16
    static const char *const name[] = { "sve512" };
#elif CT_SIMD_ANY_LANES == 8
    static const char *const name[] = { "sve256" };
#else
    static const char *const name[] = { "portable", "avx2", "avx512" };
#endif
    return name[level];
}

void ct_simd_built(int *built_p, int *here_p)
{
    *built_p = *here_p = 0;
#if CT_SIMD_ANY_LANES > 4
    *built_p = 32 * CT_SIMD_ANY_LANES;
    if (getauxval(AT_HWCAP) & HWCAP_SVE)
        *here_p = 8 * (prctl(PR_SVE_GET_VL, 0, 0, 0, 0) & PR_SVE_VL_LEN_MASK);
#endif
}

/* want: what the environment says, or NULL. */
static ct_simd_level allowed_level(const char *want)
{
    ct_simd_level level = processor_level();

    for (int i = 0; (want != NULL) && (i < (int)level); i++) {
        if (strcmp(want, ct_simd_name((ct_simd_level)i)) == 0) return (ct_simd_level)i;
    }
    return level;
}

ct_simd_level ct_simd_pick(void)
{
    return allowed_level(getenv("CORTADO_SIMD"));
}

bool ct_simd_has_bf16(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    const char *want = getenv("CORTADO_SIMD");

    if ((want != NULL) && (strcmp(want, "avx512") == 0)) return false;
    return (allowed_level(want) == CT_SIMD_AVX512) && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

int ct_simd_block(void)
{
    switch (ct_simd_pick()) {
    case CT_SIMD_AVX512:
        return 16;
    case CT_SIMD_AVX2:
        return 8;
    default:
        return CT_SIMD_ANY_BLOCK;
    }
}
