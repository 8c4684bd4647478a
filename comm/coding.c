#include "comm/coding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exch_cost.h"
#include "comm/exch_impl.h"
#include "comm/select.h"
#include "framework/base/clock.h"

/* Beyond the caches of a core; a thousandth is selected, a thirty-second is exchanged, so that its
 * time can be read off. */
enum { N = 1 << 20, SELECTED = N / 1024, ENTRIES = N / 32, RUNS = 4 };

typedef struct bench {
    ct_comm *c;
    float *grad, *u, *v, *sum;
    char *payload;
    ct_selector *selector;
    ct_sparse out, low, high, merged;
} bench;

static void release(bench *b)
{
    ct_mem_release(b->grad);
    ct_mem_release(b->u);
    ct_mem_release(b->v);
    ct_mem_release(b->sum);
    ct_mem_release(b->payload);
    ct_selector_destroy(b->selector);
    ct_sparse_destroy(&b->out);
    ct_sparse_destroy(&b->low);
    ct_sparse_destroy(&b->high);
    ct_sparse_destroy(&b->merged);
}

/* Roughly normal numbers, cheaply: what is selected of them is spread as that of gradients. */
static void fill(float *v)
{
    uint32_t x = 12345;

    for (int i = 0; i < N; ++i) {
        float sum = -2;

        for (int k = 0; k < 4; ++k) {
            x = x * 1664525u + 1013904223u;
            sum += (float)(x >> 8) * 0x1p-24f;
        }
        v[i] = sum;
    }
}

/* Every 32nd element, near where that lies in each block. */
static ct_status fill_list(ct_sparse *s, int shift)
{
    CT_TRY(ct_sparse_reserve(s, ENTRIES));
    s->n = N;
    s->count = ENTRIES;
    for (int i = 0; i < ENTRIES; ++i) {
        s->index[i] = (uint32_t)(i * 32 + (i * 7 + shift) % 32);
        s->value[i] = (float)((i * 37 + shift) % 1001) - 500.5f;
    }
    return CT_OK;
}

static ct_status prepare(bench *b)
{
    size_t bytes = sizeof(float) * N;

    b->grad = ct_mem_acquire(bytes);
    b->u = ct_mem_acquire(bytes);
    b->v = ct_mem_acquire(bytes);
    b->sum = ct_mem_acquire(bytes);
    b->payload = ct_mem_acquire(ct_wire_bytes(CT_WIRE_PAIRS, N, ENTRIES));
    if ((b->grad == NULL) || (b->u == NULL) || (b->v == NULL) || (b->sum == NULL) ||
        (b->payload == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to measure codecs");
    fill(b->grad);
    memset(b->u, 0, bytes);
    memset(b->v, 0, bytes);
    memset(b->sum, 0, bytes);
    CT_TRY(fill_list(&b->low, 0));
    CT_TRY(fill_list(&b->high, 11));
    return ct_selector_create(CT_SELECT_AUTO, N, SELECTED, &b->selector);
}

static double stream(bench *b)
{
    double start = ct_clock_s();
    int n_thread = b->c->n_thread;

#pragma omp parallel for simd schedule(static) num_threads(n_thread)
    for (int i = 0; i < N; ++i) b->sum[i] = b->grad[i] + 3.0f * b->u[i];
    return ct_clock_s() - start;
}

/* What a rank has left to do with a step's list. */
static ct_status exchange(bench *b, double *pack_s, double *add_s, double *merge_s)
{
    double start = ct_clock_s();
    const void *payload = b->payload;
    size_t bytes = 0;

    ct_wire_round(CT_WIRE_PAIRS, &b->low, b->v);
    bytes = ct_wire_pack(CT_WIRE_PAIRS, &b->low, b->payload);
    *pack_s = ct_clock_s() - start;
    start = ct_clock_s();
    CT_TRY(ct_wire_add_all(&payload, &bytes, 1, b->sum, N, b->c->n_thread));
    *add_s = ct_clock_s() - start;
    start = ct_clock_s();
    CT_TRY(ct_exch_merge(&b->low, &b->high, ENTRIES, &b->merged));
    *merge_s = ct_clock_s() - start;
    return CT_OK;
}

enum { MEMORY, UPDATE, SELECT, PACK, ADD, MERGE, FIGURES };

static ct_status run(bench *b, double *best)
{
    ct_accum a = { .grad = b->grad,
                   .u = b->u,
                   .v = b->v,
                   .n = N,
                   .scale = 1,
                   .rate = 0.01f,
                   .momentum = 0.9f,
                   .mask_momentum = true,
                   .n_thread = b->c->n_thread };

    for (int k = 0; k < FIGURES; ++k) best[k] = INFINITY;
    for (int i = 0; i < RUNS; ++i) {
        double t[FIGURES], start = 0;

        t[MEMORY] = stream(b);
        start = ct_clock_s();
        ct_accum_run(&a);
        t[UPDATE] = ct_clock_s() - start;
        start = ct_clock_s();
        CT_TRY(ct_selector_run(b->selector, &a, &b->out));
        t[SELECT] = ct_clock_s() - start;
        CT_TRY(exchange(b, &t[PACK], &t[ADD], &t[MERGE]));
        for (int k = 0; k < FIGURES; ++k) best[k] = fmin(best[k], t[k]);
    }
    return CT_OK;
}

ct_status ct_coding_measure(ct_comm *c, ct_coding_speed *out)
{
    bench b = { .c = c };
    double best[FIGURES] = { 0 };
    int64_t ns[FIGURES + 1] = { 0 };
    ct_status status = prepare(&b);

    if (status == CT_OK) status = run(&b, best);
    release(&b);
    for (int k = 0; k < FIGURES; ++k) ns[k] = (int64_t)(1e9 * best[k]) + 1;
    ns[FIGURES] = (status != CT_OK);
    CT_TRY(ct_comm_max(c, ns, FIGURES + 1));
    CT_TRY(status);
    if (ns[FIGURES] != 0)
        return CT_FAIL(CT_ERR_COMM, "codecs could not be measured on another rank");
    *out = (ct_coding_speed){ .memory = 12e9 * N / (double)ns[MEMORY],
                              .update_s = 1e-9 * (double)ns[UPDATE] / N,
                              .select_s = 1e-9 * fmax(0, (double)(ns[SELECT] - ns[UPDATE])) / N,
                              .pack_s = 1e-9 * (double)ns[PACK] / ENTRIES,
                              .add_s = 1e-9 * (double)ns[ADD] / ENTRIES,
                              .merge_s = 1e-9 * (double)ns[MERGE] / (2 * ENTRIES),
                              .measured = true };
    return CT_OK;
}

ct_status ct_coding_find(ct_comm *c)
{
    ct_machine *m = &c->topo->machine;
    double start = ct_clock_s();

    if (m->coding.measured) return CT_OK;
    CT_TRY(ct_coding_measure(c, &m->coding));
    ct_exch_model_renew(c);
    CT_INFO("codecs here: streams %.3g GB/s, update %.3g ns an element and selection %.3g more; an "
            "entry %.3g ns to pack, %.3g to add, %.3g to merge (measured in %.0f ms)",
            1e-9 * m->coding.memory, 1e9 * m->coding.update_s, 1e9 * m->coding.select_s,
            1e9 * m->coding.pack_s, 1e9 * m->coding.add_s, 1e9 * m->coding.merge_s,
            1e3 * (ct_clock_s() - start));
    return CT_OK;
}
