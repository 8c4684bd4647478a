/* Adding up many sparse payloads: bench_decode [payloads] [elements] [density] [threads]
 *
 * Against the bytes that must move: the payloads read, the vector written (which reads its lines
 * first), at the bandwidth with which the same threads do a = b + s c on three vectors of that
 * length. Caches hold nothing of it beforehand. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/sparse/payload.h"
#include "framework/base/clock.h"
#include "framework/base/memory.h"

enum { REPEAT = 5 };

typedef struct triad {
    float *a, *b, *c;
    int64_t n;
    double best_gbs;
} triad;

/* Between the decodings, since a machine's memory is not equally fast all the time. */
static void run_triad(triad *t, int n_thread)
{
    double at = ct_clock_s(), gbs = 0;

#pragma omp parallel for simd schedule(static) num_threads(n_thread)
    for (int64_t i = 0; i < t->n; ++i) t->a[i] = t->b[i] + 0.5f * t->c[i];
    gbs = 16e-9 * (double)t->n / (ct_clock_s() - at);
    if (gbs > t->best_gbs) t->best_gbs = gbs;
}

/* Every entry a step of 1 .. 2 n / k - 1 after the one before: about k, evenly. */
static void make(int64_t n, double density, uint64_t seed, ct_sparse *s)
{
    int64_t most = (int64_t)(2 / density) - 1, i = -1;

    if (ct_sparse_reserve(s, (int64_t)(2 * density * (double)n) + 16) != CT_OK) exit(1);
    s->n = n;
    for (s->count = 0;; ++s->count) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        i += 1 + (int64_t)((seed >> 33) % (uint64_t)most);
        if ((i >= n) || (s->count == (int64_t)(1.1 * density * (double)n))) return;
        s->index[s->count] = (uint32_t)i;
        s->value[s->count] = (float)(seed >> 40);
    }
}

static void sweep(char *cold, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) cold[i] += 1;
}

static void bench(ct_payload_form form, int p, int64_t n, double density, int n_thread, triad *t)
{
    void **payload = calloc((size_t)p, sizeof(*payload));
    size_t *bytes = calloc((size_t)p, sizeof(*bytes)), all = 0;
    float *sum = ct_mem_acquire(4 * (size_t)n), *lost = calloc((size_t)n, 4);
    size_t cold_bytes = 128 << 20;
    char *cold = ct_mem_acquire(cold_bytes);
    size_t stride =
        ct_align_up(ct_payload_bytes(form, n, (int64_t)(1.1 * density * (double)n) + 64));
    char *block = ct_mem_acquire(stride * (size_t)p); /* as comm/collective/allgatherv.c has them */
    double best = 1e30, touched = 0, gbs = 0;
    int64_t filled = 0;

    for (int r = 0; r < p; ++r) {
        ct_sparse s = { 0 };

        make(n, density, 17 + (uint64_t)r, &s);
        ct_payload_round(form, &s, &(ct_residual_return){ .v = lost });
        payload[r] = block + (size_t)r * stride;
        bytes[r] = ct_payload_pack(form, &s, payload[r]);
        all += bytes[r];
        ct_sparse_destroy(&s);
    }
    for (int k = 0; k < REPEAT; ++k) {
        double at = 0, took = 0;

        run_triad(t, n_thread);
        sweep(cold, cold_bytes);
        at = ct_clock_s();
        if (ct_payload_sum_all((const void *const *)payload, bytes, p, sum, n, n_thread, &filled) !=
            CT_OK)
            exit(1);
        took = ct_clock_s() - at;
        if (took < best) best = took;
    }
    gbs = t->best_gbs;
    touched = (double)all + 8 * (double)n;
    printf("%s: %d payloads of %lld elements at %g, %d threads: %.2f ms; %.0f MB touched take %.2f "
           "ms at %.1f GB/s: ratio %.2f; filled %.3f\n",
           ct_payload_name(form), p, (long long)n, density, n_thread, 1e3 * best, 1e-6 * touched,
           1e-6 * touched / gbs, gbs, best / (1e-9 * touched / gbs), (double)filled / (double)n);
    ct_mem_release(block);
    free(payload);
    free(bytes);
    free(lost);
    ct_mem_release(sum);
    ct_mem_release(cold);
}

int main(int argc, char **argv)
{
    int p = (argc > 1) ? atoi(argv[1]) : 1024;
    int64_t n = (argc > 2) ? atoll(argv[2]) : 25000000;
    double density = (argc > 3) ? atof(argv[3]) : 0.001;
    int n_thread = (argc > 4) ? atoi(argv[4]) : omp_get_max_threads();
    triad t = { .n = n };

    t.a = ct_mem_acquire(4 * (size_t)n);
    t.b = ct_mem_acquire(4 * (size_t)n);
    t.c = ct_mem_acquire(4 * (size_t)n);
    if ((t.a == NULL) || (t.b == NULL) || (t.c == NULL)) return 1;
    for (int form = CT_PAYLOAD_PAIRS; form <= CT_PAYLOAD_MEAN; ++form) {
        t.best_gbs = 0;
        bench((ct_payload_form)form, p, n, density, n_thread, &t);
    }
    ct_mem_release(t.a);
    ct_mem_release(t.b);
    ct_mem_release(t.c);
    return 0;
}
