#include "runtime/blas_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define GUARD                                                                                      \
    "CORTADO_BLAS_WAS" /* set by the first execution: the core that OpenBLAS had picked            \
                        */

char *openblas_get_corename(void);
char *openblas_get_config(void);

/* What OpenBLAS calls its kernels, by the widest registers they use. */
static const struct {
    const char *core;
    int level;
} core_table[] = {
    { "SapphireRapids", 3 }, { "Cooperlake", 3 }, { "SkylakeX", 3 },
    { "Haswell", 2 },        { "Zen", 2 },        { "Excavator", 1 },
    { "Steamroller", 1 },    { "Piledriver", 1 }, { "Bulldozer", 1 },
    { "Sandybridge", 1 },
};

const char *ct_blas_core_name(void)
{
    return openblas_get_corename();
}

#if defined(__x86_64__)
/* AMD before family 1Ah (Zen 5) splits 512-bit operations in two, so the AVX2 kernels, which are
 * tuned for it, stay. On Zen 5 sgemm of 1024^3 on one core: SkylakeX 187 GFLOP/s, Zen 99. */
static bool wide_registers_pay(void)
{
    unsigned a, b, c, d, family;

    if (!__builtin_cpu_is("amd")) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    family = ((a >> 8) & 15) + ((((a >> 8) & 15) == 15) ? ((a >> 20) & 255) : 0);
    return family >= 0x1a;
}

static int cpu_level(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        wide_registers_pay()) {
        return 3;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 2;
    return __builtin_cpu_supports("avx") ? 1 : 0;
}
#else
static int cpu_level(void)
{
    return 0; /* elsewhere OpenBLAS knows its CPUs, or is built for one */
}
#endif

const char *ct_blas_core_better(const char *core, int level)
{
    int have = 0;

    for (size_t i = 0; i < sizeof(core_table) / sizeof(core_table[0]); i++) {
        if (strcasecmp(core, core_table[i].core) == 0) have = core_table[i].level;
    }
    if (have >= level) return NULL;
    return (level == 3) ? "SkylakeX" : (level == 2) ? "Haswell" : "Sandybridge";
}

static const char *wanted(void)
{
    /* a library built for one CPU has no other kernels */
    if (strstr(openblas_get_config(), "DYNAMIC_ARCH") == NULL) return NULL;
    return ct_blas_core_better(ct_blas_core_name(), cpu_level());
}

void ct_blas_core_ensure(char **argv)
{
    const char *want = wanted();

    if ((want == NULL) || (getenv(GUARD) != NULL) || (getenv("OPENBLAS_CORETYPE") != NULL)) return;
    if ((setenv(GUARD, ct_blas_core_name(), 1) != 0) || (setenv("OPENBLAS_CORETYPE", want, 1) != 0))
        return;
    execv("/proc/self/exe", argv);
    unsetenv(GUARD); /* no /proc: go on with the slow kernels; the log says so */
}

void ct_blas_core_log(void)
{
    const char *was = getenv(GUARD), *want = wanted();

    if (was != NULL) {
        CT_INFO("OpenBLAS had picked its %s kernels; started again with OPENBLAS_CORETYPE=%s: %s",
                was, getenv("OPENBLAS_CORETYPE"), ct_blas_core_name());
    }
    if (want != NULL) {
        CT_INFO("OpenBLAS runs its %s kernels, but this CPU could run %s (OPENBLAS_CORETYPE)",
                ct_blas_core_name(), want);
    }
}
