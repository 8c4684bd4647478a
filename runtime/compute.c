#include "runtime/compute.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_CPU 1024 /* of a node: CPU_SETSIZE */

void openblas_set_num_threads(int n);

/* "0-3,8" */
static void cores_str(const cpu_set_t *set, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < MAX_CPU; i++) {
        int last = i;

        if (!CPU_ISSET(i, set)) continue;
        while ((last + 1 < MAX_CPU) && CPU_ISSET(last + 1, set)) last++;
        if (used + 16 >= size) {
            snprintf(text + used, size - used, ",...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, (last > i) ? "%s%d-%d" : "%s%d",
                                 (used > 0) ? "," : "", i, last);
        i = last;
    }
}

/* Cores of mine, each divided by the ranks that may run on it. */
static int fair_share(const cpu_set_t *mine, const cpu_set_t *all, int n_rank)
{
    double share = 0;

    for (int i = 0; i < MAX_CPU; i++) {
        int users = 0;

        if (!CPU_ISSET(i, mine)) continue;
        for (int r = 0; r < n_rank; r++) users += CPU_ISSET(i, &all[r]) ? 1 : 0;
        share += 1.0 / (double)users;
    }
    return (share < 1) ? 1 : (int)(share + 1e-9);
}

ct_status ct_threads_set(MPI_Comm node, int wanted, ct_threads *out)
{
    const char *env = getenv("OMP_NUM_THREADS");
    cpu_set_t mine, any, *all;
    int n_rank = 1, *n_thread, sum = 0;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) {
        for (int i = 0; (i < omp_get_num_procs()) && (i < MAX_CPU); i++) CPU_SET(i, &mine);
    }
    if (node != MPI_COMM_NULL) MPI_Comm_size(node, &n_rank);
    all = calloc((size_t)n_rank, sizeof(*all));
    n_thread = calloc((size_t)n_rank, sizeof(*n_thread));
    if ((all == NULL) || (n_thread == NULL)) {
        free(all);
        free(n_thread);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the masks of %d ranks", n_rank);
    }
    all[0] = mine;
    if (node != MPI_COMM_NULL) {
        MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE, node);
    }
    if (wanted > 0) {
        out->n = wanted;
        out->from = "--threads";
    } else if (env != NULL) {
        out->n = omp_get_max_threads();
        out->from = "OMP_NUM_THREADS";
    } else {
        out->n = fair_share(&mine, all, n_rank);
        out->from = "affinity mask";
    }
    n_thread[0] = out->n;
    if (node != MPI_COMM_NULL) {
        MPI_Allgather(&out->n, 1, MPI_INT, n_thread, 1, MPI_INT, node);
    }
    CPU_ZERO(&any);
    for (int r = 0; r < n_rank; r++) {
        CPU_OR(&any, &any, &all[r]);
        sum += n_thread[r];
    }
    out->n_core = CPU_COUNT(&mine);
    out->too_many = (sum > CPU_COUNT(&any)) || (out->n > out->n_core);
    cores_str(&mine, out->cores, sizeof(out->cores));
    free(all);
    free(n_thread);
    omp_set_dynamic(0);
    omp_set_num_threads(out->n);
    openblas_set_num_threads(out->n);
    return CT_OK;
}

void ct_threads_release(void)
{
    (void)omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

ct_status ct_threads_log(MPI_Comm node, const ct_threads *t)
{
    char line[160], *all;
    int n_rank = 1, rank = 0;

    if (node != MPI_COMM_NULL) {
        MPI_Comm_size(node, &n_rank);
        MPI_Comm_rank(node, &rank);
    }
    all = calloc((size_t)n_rank, sizeof(line));
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the map of %d ranks", n_rank);
    snprintf(line, sizeof(line), "%d threads (%s) on %d cores: %s", t->n, t->from, t->n_core,
             t->cores);
    memcpy(all, line, sizeof(line));
    if (node != MPI_COMM_NULL) {
        MPI_Gather(line, (int)sizeof(line), MPI_CHAR, all, (int)sizeof(line), MPI_CHAR, 0, node);
    }
    if (rank == 0) {
        for (int r = 0; r < n_rank; r++) {
            CT_INFO("local rank %d: %s", r, all + (size_t)r * sizeof(line));
        }
        if (t->too_many && ct_log_on(CT_LOG_INFO)) { /* once: rank 0 of the job */
            CT_WARN("more threads than cores on this node: each step waits for the slowest; set "
                    "OMP_NUM_THREADS, fewer ranks, or give the launcher more cores a rank");
        }
    }
    free(all);
    return CT_OK;
}

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define GUARD                                                                                      \
    "CORTADO_BLAS_WAS" /* set by the first execution: the core that OpenBLAS had picked            \
                        */

/* ---- the kernels of OpenBLAS */

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

/* By its path, so that the process keeps its name, which is what one looks for with pgrep. A link
 * does where the path is gone. */
static void start_again(char **argv)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n > 0) {
        path[n] = '\0';
        execv(path, argv);
    }
    execv("/proc/self/exe", argv);
}

void ct_cores_keep(void)
{
    cpu_set_t all;

    CPU_ZERO(&all);
    for (int p = 0; p < omp_get_num_places(); p++) {
        int n = omp_get_place_num_procs(p), *id = calloc((size_t)n + 1, sizeof(*id));

        if (id == NULL) return; /* as OpenMP bound it: slower, and right */
        omp_get_place_proc_ids(p, id);
        for (int i = 0; i < n; i++)
            if ((id[i] >= 0) && (id[i] < MAX_CPU)) CPU_SET(id[i], &all);
        free(id);
    }
    if (CPU_COUNT(&all) > 0) (void)sched_setaffinity(0, sizeof(all), &all);
}

void ct_blas_core_ensure(char **argv)
{
    const char *want = wanted();

    if ((want == NULL) || (getenv(GUARD) != NULL) || (getenv("OPENBLAS_CORETYPE") != NULL)) return;
    if ((setenv(GUARD, ct_blas_core_name(), 1) != 0) || (setenv("OPENBLAS_CORETYPE", want, 1) != 0))
        return;
    start_again(argv);
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
