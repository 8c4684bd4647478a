/* Attention, both passes: bench_attention [N HEADS TOKENS DIM [KV_HEADS [ROUNDS]]]; threads as
 * OMP_NUM_THREADS says, causal, q, k and v packed, medians. Operations are those of what is seen:
 * two products forward, five backward. Without arguments: GPT-2 small and large, a character model,
 * SmolLM2's shape. Beside them torch's scaled_dot_product_attention is measured the same way. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/sort.h"
#include "layers/engine/attention/attention.h"

enum { MOST_ROUNDS = 51 };

typedef struct shape {
    int64_t n, heads, tokens, dim, kv;
} shape;

static float *numbers(int64_t n, uint64_t key)
{
    float *x = ct_mem_acquire((size_t)n * sizeof(*x));

    for (int64_t i = 0; (x != NULL) && (i < n); i++)
        x[i] = 2 * ct_rng_uniform_at(key, (uint64_t)i) - 1;
    return x;
}

static int run(const shape *s, int rounds)
{
    int64_t row = (s->heads + 2 * s->kv) * s->dim, top = s->n * s->tokens * s->heads * s->dim;
    ct_attention_desc d = { .device = CT_DEVICE_CPU,
                            .n_thread = omp_get_max_threads(),
                            .n = s->n,
                            .tq = s->tokens,
                            .tk = s->tokens,
                            .heads = s->heads,
                            .kv_heads = s->kv,
                            .dim = s->dim,
                            .q_row = row,
                            .k_row = row,
                            .v_row = row,
                            .causal = true,
                            .scale = 0.125f,
                            .wants_q = true,
                            .wants_kv = true };
    const ct_attention_impl *forward = ct_attention_forward_table[0];
    const ct_attention_impl *backward = ct_attention_backward_table[0];
    float *x = numbers(s->n * s->tokens * row, 1), *dx = numbers(s->n * s->tokens * row, 2);
    float *y = numbers(top, 3), *dy = numbers(top, 4);
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_attention_args a = { .q = x, .k = x + s->heads * s->dim, .y = y, .dy = dy, .dq = dx };
    double pairs, gflop, t_forward[MOST_ROUNDS], t_backward[MOST_ROUNDS];
    size_t work, more;

    if (ct_attention_split(&d) != CT_OK) return 1;
    work = ct_attention_workspace(forward, &d);
    more = ct_attention_workspace(backward, &d);
    a.v = a.k + s->kv * s->dim;
    a.dk = dx + (a.k - x), a.dv = dx + (a.v - x);
    a.stats = numbers(2 * s->n * s->heads * s->tokens, 5);
    a.work = ct_mem_acquire((more > work) ? more : work);
    if (!x || !dx || !y || !dy || !a.stats || !a.work) return 1;
    for (int i = -1; i < rounds; i++) {
        double start = ct_clock_s(), middle;

        if (forward->run(&d, &ex, &a) != CT_OK) return 1;
        middle = ct_clock_s();
        if (backward->run(&d, &ex, &a) != CT_OK) return 1;
        if (i < 0) continue;
        t_forward[i] = middle - start;
        t_backward[i] = ct_clock_s() - middle;
    }
    pairs = ct_attention_pairs(&d) * (double)(s->n * s->heads);
    gflop = 2e-9 * pairs * (double)s->dim;
    printf("n %lld heads %lld kv %lld tokens %lld dim %lld: forward %.2f ms %.1f GFLOP/s, backward "
           "%.2f ms %.1f GFLOP/s\n",
           (long long)s->n, (long long)s->heads, (long long)s->kv, (long long)s->tokens,
           (long long)s->dim, 1e3 * ct_median(t_forward, rounds),
           2 * gflop / ct_median(t_forward, rounds), 1e3 * ct_median(t_backward, rounds),
           5 * gflop / ct_median(t_backward, rounds));
    ct_mem_release(x), ct_mem_release(dx), ct_mem_release(y), ct_mem_release(dy);
    ct_mem_release(a.stats), ct_mem_release(a.work);
    return 0;
}

int main(int argc, char **argv)
{
    static const shape usual[] = { { 1, 12, 1024, 64, 12 }, { 4, 12, 1024, 64, 12 },
                                   { 16, 6, 256, 64, 6 },   { 1, 20, 1024, 64, 20 },
                                   { 1, 9, 2048, 64, 3 },   { 1, 12, 1024, 80, 12 },
                                   { 1, 12, 1024, 128, 12 } };
    shape s = { 0 };
    int rounds = (argc > 6) ? atoi(argv[6]) : 15;

    if ((rounds < 1) || (rounds > MOST_ROUNDS)) rounds = 15;
    if (argc < 5) {
        for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
            if (run(&usual[i], rounds) != 0) return 1;
        }
        return 0;
    }
    s = (shape){ atoll(argv[1]), atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), 0 };
    s.kv = (argc > 5) ? atoll(argv[5]) : s.heads;
    return run(&s, rounds);
}
