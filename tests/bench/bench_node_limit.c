/* The limit of a sum in shared memory: 2 threads of one process, without any signals between them,
 * each add up their half of P buffers and write the sum into all of them. Before each repetition
 * the thread that a buffer belongs to rewrites it, untimed, as `cortado bench comm` does. Compare
 * with `mpirun -np P cortado bench comm --algorithm=hier`.
 *
 * Then the same for 4 processes of one buffer each that share 2 cores, as ranks do: each is kept on
 * its core, must run once after the start to say that it has come, and once more to see that the
 * sum is there; in between two of them, whichever run, add up a half each. Who has nothing to do
 * gives its core away at once. That is the least any sum of ranks that share cores must do; "no
 * sum" is that without the adding: what the switching alone takes.
 *
 *   bench_node_limit [BYTES...]     median microseconds, and GB/s of the buffer, for P = 2 and 4 */
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/base/sort.h"

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
        ct_sort(seconds, repeat);
        printf("%d buffers of %10lld bytes: %10.2f us, least %10.2f, %6.2f GB/s\n", p,
               (long long)bytes, 1e6 * seconds[repeat / 2], 1e6 * seconds[0],
               1e-9 * (double)bytes / seconds[repeat / 2]);
    } else {
        fprintf(stderr, "no memory for %d buffers of %lld bytes\n", p, (long long)bytes);
    }
    for (int i = 0; i < p; ++i) free(x[i]);
    return status;
}

/* ---- processes */

/* What the processes share. Counters only grow. */
typedef struct board {
    _Atomic int ready, arrived, claimed, done, left;
    double seconds[MAX_REPEAT][MAX_P];
} board;

static void wait_for(_Atomic int *counter, int value)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < value) (void)sched_yield();
}

/* One repetition, the k-th from 0, of the process `me`. */
static double take_part(board *b, float *const *x, int me, int64_t n, int k, int adds)
{
    double start = 0, took = 0;
    int half = 0;

    rewrite(x[me], n);
    (void)atomic_fetch_add(&b->ready, 1);
    wait_for(&b->ready, (k + 1) * MAX_P);
    start = ct_clock_s();
    (void)atomic_fetch_add(&b->arrived, 1);
    wait_for(&b->arrived, (k + 1) * MAX_P);
    for (half = atomic_load(&b->claimed); half < 2 * (k + 1);) {
        int64_t at = (half % 2 == 0) ? 0 : n / 2, count = (half % 2 == 0) ? n / 2 : n - n / 2;

        if (!atomic_compare_exchange_weak(&b->claimed, &half, half + 1)) continue;
        if (adds) four(x[0] + at, x[1] + at, x[2] + at, x[3] + at, count);
        (void)atomic_fetch_add(&b->done, 1);
        break;
    }
    wait_for(&b->done, 2 * (k + 1));
    took = ct_clock_s() - start;
    (void)atomic_fetch_add(&b->left, 1);
    wait_for(&b->left,
             (k + 1) * MAX_P); /* the next rewriting takes no core from who is still here */
    return took;
}

static void be_process(board *b, float *const *x, int me, int64_t n, int repeat, int adds)
{
    cpu_set_t core;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);

    CPU_ZERO(&core);
    CPU_SET(me % ((cores < 2) ? 1 : 2), &core);
    (void)sched_setaffinity(0, sizeof(core), &core); /* else as they come: still a valid time */
    for (int k = 0; k <= repeat; ++k) {
        double s = take_part(b, x, me, n, k, adds);

        if (k > 0) b->seconds[k - 1][me] = s;
    }
    _exit(0);
}

static int process_limit(int64_t bytes, int adds)
{
    int repeat = (bytes <= (16 << 20)) ? MAX_REPEAT : 9, status = 0;
    size_t size = (size_t)bytes / CT_ALIGN * CT_ALIGN, all = MAX_P * size + sizeof(board);
    char *shared = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board *b = (board *)(void *)(shared + MAX_P * size);
    double seconds[MAX_REPEAT];
    float *x[MAX_P];
    pid_t child[MAX_P];

    if (shared == MAP_FAILED) return 1;
    for (int i = 0; i < MAX_P; ++i) x[i] = (float *)(void *)(shared + (size_t)i * size);
    fflush(stdout);
    for (int i = 0; i < MAX_P; ++i) {
        child[i] = fork();
        if (child[i] == 0) be_process(b, x, i, (int64_t)size / 4, repeat, adds);
        if (child[i] > 0) continue;
        fprintf(stderr, "bench_node_limit: cannot make 4 processes\n");
        while (--i >= 0) (void)kill(child[i], SIGKILL); /* they would wait for ever */
        status = 1;
        break;
    }
    for (int end = 0; wait(&end) > 0;) status |= (end != 0);
    for (int k = 0; k < repeat; ++k) {
        seconds[k] = 0;
        for (int i = 0; i < MAX_P; ++i)
            seconds[k] = (b->seconds[k][i] > seconds[k]) ? b->seconds[k][i] : seconds[k];
    }
    ct_sort(seconds, repeat);
    printf("4 processes of %8lld bytes: %10.2f us, least %10.2f%s\n", (long long)bytes,
           1e6 * seconds[repeat / 2], 1e6 * seconds[0], adds ? "" : "  (no sum)");
    (void)munmap(shared, all);
    return status;
}

/* p: 2 or 4 buffers and threads; 5: the processes. */
static int at_size(int p, int64_t bytes)
{
    if (p <= MAX_P) return limit(p, bytes);
    return process_limit(bytes, 0) | process_limit(bytes, 1);
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int p = 2; p <= MAX_P + 1; p += (p == 2) ? 2 : 1) {
        if (argc > 1) {
            for (int i = 1; i < argc; ++i) {
                long long bytes = atoll(argv[i]);

                if ((bytes < 4096) || (bytes > ((long long)1 << 32))) {
                    fprintf(stderr, "bench_node_limit: %s: expected 4096 to 2^32 bytes\n", argv[i]);
                    return 2;
                }
                status |= at_size(p, bytes);
            }
            continue;
        }
        for (int64_t bytes = 4096; bytes <= (256 << 20); bytes *= 4) status |= at_size(p, bytes);
    }
    return status;
}
