/* The limit of a sum in shared memory: 2 threads of one process, without any signals between them,
 * each add up their half of P buffers and write the sum into all of them. Before each repetition
 * the thread that a buffer belongs to rewrites it, untimed, as `cortado bench comm` does. Compare
 * with `mpirun -np P cortado bench comm --algorithm=hier`.
 *
 *   bench_node_limit [BYTES...]     median microseconds, and GB/s of the buffer, for P = 2 and 4 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"

enum { MAX_P = 4, MAX_REPEAT = 51 };

CT_SIMD_CLONES static void two(float *restrict a, float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}

CT_SIMD_CLONES static void four(float *restrict a, float *restrict b, float *restrict c,
                                float *restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] = c[i] = d[i] = a[i] + b[i] + c[i] + d[i];
}

CT_SIMD_CLONES static void rewrite(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) x[i] = (float)(i & 31);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds from the moment both threads start to the moment both are done. */
static double once(float *const *x, int p, int64_t n)
{
    double took[2] = { 0, 0 };

#pragma omp parallel num_threads(2)
    {
        int me = omp_get_thread_num();
        int64_t at = (me == 0) ? 0 : n / 2, count = (me == 0) ? n / 2 : n - n / 2;

        for (int i = me * p / 2; i < (me + 1) * p / 2; ++i) rewrite(x[i], n);
#pragma omp barrier
        double start = ct_clock_s();

        if (p == 2)
            two(x[0] + at, x[1] + at, count);
        else
            four(x[0] + at, x[1] + at, x[2] + at, x[3] + at, count);
#pragma omp barrier
        took[me] = ct_clock_s() - start;
    }
    return (took[0] > took[1]) ? took[0] : took[1];
}

static int limit(int p, int64_t bytes)
{
    int repeat = (bytes <= (16 << 20)) ? MAX_REPEAT : 9;
    double seconds[MAX_REPEAT];
    float *x[MAX_P] = { NULL };
    int status = 0;

    for (int i = 0; i < p; ++i) {
        x[i] = malloc((size_t)bytes + CT_ALIGN); /* pages of the usual size, as a window's */
        status |= (x[i] == NULL);
    }
    if (status == 0) {
        for (int k = -1; k < repeat; ++k) {
            double s = once(x, p, bytes / 4);

            if (k >= 0) seconds[k] = s;
        }
        qsort(seconds, (size_t)repeat, sizeof(*seconds), ascending);
        printf("%d buffers of %10lld bytes: %10.2f us, least %10.2f, %6.2f GB/s\n", p,
               (long long)bytes, 1e6 * seconds[repeat / 2], 1e6 * seconds[0],
               1e-9 * (double)bytes / seconds[repeat / 2]);
    } else {
        fprintf(stderr, "no memory for %d buffers of %lld bytes\n", p, (long long)bytes);
    }
    for (int i = 0; i < p; ++i) free(x[i]);
    return status;
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int p = 2; p <= MAX_P; p += 2) {
        if (argc > 1) {
            for (int i = 1; i < argc; ++i) {
                long long bytes = atoll(argv[i]);

                if ((bytes < 4096) || (bytes > ((long long)1 << 32))) {
                    fprintf(stderr, "bench_node_limit: %s: expected 4096 to 2^32 bytes\n", argv[i]);
                    return 2;
                }
                status |= limit(p, bytes);
            }
            continue;
        }
        for (int64_t bytes = 4096; bytes <= (256 << 20); bytes *= 4) status |= limit(p, bytes);
    }
    return status;
}
