/* `cortado bench codec`: selections, and codecs that select nothing, one step at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "comm/codec/cast.h"
#include "comm/codec/integer.h"
#include "comm/codec/low_rank.h"
#include "comm/codec/select.h"
#include "comm/codec/sign.h"
#include "framework/base/clock.h"
#include "framework/base/cpu_cache.h"
#include "framework/base/json_writer.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/sort.h"

typedef struct coder_state coder_state;

enum { CT_CODERS = 7 };

typedef enum { BF16, F16, SIGNS, INTEGERS, FACTORS } form;

static const struct kind {
    const char *codec, *wire;
    form form;
    int rank, passes; /* INTEGERS: bits in place of a rank */
} kind[CT_CODERS] = {
    { "bf16", "bf16", BF16, 0, 1 },          { "fp16", "f16", F16, 0, 2 },
    { "onebit", "signs", SIGNS, 0, 1 },      { "powersgd", "rank 2", FACTORS, 2, 3 },
    { "powersgd", "rank 4", FACTORS, 4, 3 }, { "int8", "integers", INTEGERS, 8, 1 },
    { "int4", "integers", INTEGERS, 4, 1 },
};

struct coder_state {
    const struct kind *kind;
    int64_t n;
    int n_thread;
    int64_t bytes;
    void *payload;
    float scale;       /* fp16                                              */
    ct_low_rank shape; /* powersgd, with Q of the step before and its parts */
    float *p, *q, *warm, *scratch;
};

/* As square as it can be. */
static ct_low_rank shape_of(int64_t n, int rank)
{
    ct_low_rank s = { .rows = 1, .cols = n, .r = rank };

    for (int64_t rows = 1; rows * rows <= n; ++rows) {
        if (n % rows == 0) s.rows = rows;
    }
    s.cols = n / s.rows;
    return s;
}

/* NULL allowed */
static void coder_destroy(coder_state *c)
{
    if (c == NULL) return;
    ct_mem_release(c->payload);
    ct_mem_release(c->p);
    ct_mem_release(c->q);
    ct_mem_release(c->warm);
    ct_mem_release(c->scratch);
    free(c);
}

static ct_status acquire_factors(coder_state *c)
{
    size_t of_q = sizeof(float) * (size_t)(c->shape.r * c->shape.cols);

    c->p = ct_mem_acquire(sizeof(float) * (size_t)(c->shape.r * c->shape.rows));
    c->q = ct_mem_acquire(of_q);
    c->warm = ct_mem_acquire(of_q);
    c->scratch = ct_mem_acquire(sizeof(float) * (size_t)ct_low_rank_scratch(&c->shape));
    if ((c->p == NULL) || (c->q == NULL) || (c->warm == NULL) || (c->scratch == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)c->n);
    ct_low_rank_warm(&c->shape, 1, c->warm);
    return CT_OK;
}

static ct_status acquire(coder_state *c)
{
    if (c->kind->form == FACTORS) return acquire_factors(c);
    c->payload = ct_mem_acquire((size_t)c->bytes);
    if (c->payload == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)c->n);
    return CT_OK;
}

/* Number i, 0 to CT_CODERS - 1, for n elements; *coder_p NULL: it has no form for so many. */
static ct_status coder_create(int i, int64_t n, int n_thread, coder_state **coder_p)
{
    ct_low_rank shape = shape_of(n, kind[i].rank);
    coder_state *c = NULL;
    ct_status status = CT_OK;

    *coder_p = NULL;
    if ((kind[i].form == FACTORS) &&
        ((shape.r > shape.rows) || (shape.r * (shape.rows + shape.cols) >= n)))
        return CT_OK;
    c = calloc(1, sizeof(*c));
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the bench");
    c->kind = &kind[i];
    c->n = n;
    c->n_thread = n_thread;
    c->shape = shape;
    c->bytes = (int64_t)sizeof(uint16_t) * n;
    if (c->kind->form == SIGNS) c->bytes = (int64_t)ct_sign_bytes(n);
    if (c->kind->form == INTEGERS) c->bytes = ct_integer_bytes(kind[i].rank, n);
    if (c->kind->form == FACTORS)
        c->bytes = (int64_t)sizeof(float) * shape.r * (shape.rows + shape.cols);
    status = acquire(c);
    if (status != CT_OK) {
        coder_destroy(c);
        return status;
    }
    *coder_p = c;
    return CT_OK;
}

/* As ct_codec_ops.name, and what travels: "bf16", "f16", "signs", "rank 2" … */
static const char *coder_codec(const coder_state *c)
{
    return c->kind->codec;
}

static const char *coder_wire(const coder_state *c)
{
    return c->kind->wire;
}

static int64_t coder_bytes(const coder_state *c)
{
    return c->bytes;
}

/* Over V, or the gradient */
static int coder_passes(const coder_state *c)
{
    return c->kind->passes;
}

static ct_status encode_factors(coder_state *c, const ct_momentum_correction *a)
{
    CT_TRY(ct_low_rank_left(&c->shape, a, c->warm, c->p));
    CT_TRY(ct_low_rank_basis(&c->shape, c->p));
    ct_low_rank_right(&c->shape, a->v, c->p, c->n_thread, c->scratch, c->q);
    ct_low_rank_take(&c->shape, c->p, c->q, c->n_thread, a->v);
    return CT_OK;
}

/* All that one rank does before its payload could leave; with the update of *a where the codec
 *  has one. Powersgd: of both halves. CT_ERR_DIVERGED. */
static ct_status coder_encode(coder_state *c, const ct_momentum_correction *a)
{
    switch (c->kind->form) {
    case BF16:
        ct_cast_encode(CT_BF16, a->grad, c->n, 1, c->n_thread, c->payload);
        return CT_OK;
    case F16:
        c->scale = ct_cast_scale(ct_cast_exponent(a->grad, c->n, c->n_thread), 1);
        ct_cast_encode(CT_F16, a->grad, c->n, c->scale, c->n_thread, c->payload);
        return CT_OK;
    case INTEGERS: /* what it is given stays as it is */
        (void)ct_integer_encode(c->kind->rank, (float *)(uintptr_t)a->grad, c->n, false,
                                c->n_thread, c->payload);
        return CT_OK;
    case SIGNS:
        return ct_sign_encode(&(ct_sign_cut){ .n = c->n, .parts = 1 }, a, -1, c->payload);
    default:
        return encode_factors(c, a);
    }
}

/* … and when the sum is there. */
static ct_status coder_decode(coder_state *c, float *sum)
{
    const void *payload = c->payload;
    size_t bytes = (size_t)c->bytes;

    switch (c->kind->form) {
    case BF16:
        ct_cast_decode(CT_BF16, payload, c->n, 1, c->n_thread, sum);
        return CT_OK;
    case F16:
        ct_cast_decode(CT_F16, payload, c->n, 1 / c->scale, c->n_thread, sum);
        return CT_OK;
    case INTEGERS:
        ct_integer_decode(c->kind->rank, payload, c->n, false, c->n_thread, sum);
        return CT_OK;
    case SIGNS:
        return ct_sign_sum(&payload, &bytes, 1, sum, c->n, c->n_thread);
    default:
        ct_low_rank_put(&c->shape, c->p, c->q, c->n_thread, sum);
        for (int64_t i = 0; i < c->shape.r * c->shape.cols; ++i) c->warm[i] = c->q[i];
        ct_low_rank_warm(&c->shape, 1, c->warm);
        return CT_OK;
    }
}

enum {
    WARM = 40,     /* steps ahead                                              */
    SHIFTS = 1024, /* a step's gradient is the pool from another place on      */
    SHIFT = 16,
    MAX_REPEAT = 999
};
static const size_t sweep_least = (size_t)128 << 20;

static const struct subject {
    const char *codec;
    ct_select_kind kind;
    ct_payload_form wire;
    bool history;
} subject[] = {
    { "topk", CT_SELECT_EXACT, CT_PAYLOAD_PAIRS, false },
    { "topk", CT_SELECT_EXACT, CT_PAYLOAD_PAIRS, true },
    { "topk", CT_SELECT_EXACT, CT_PAYLOAD_HALF, true },
    { "topk", CT_SELECT_EXACT, CT_PAYLOAD_MEAN, true },
    { "redsync", CT_SELECT_TRIMMED, CT_PAYLOAD_PAIRS, false },
    { "redsync", CT_SELECT_SEARCH, CT_PAYLOAD_PAIRS, false },
    { "redsync", CT_SELECT_SAMPLED, CT_PAYLOAD_PAIRS, true },
};
enum { N_SUBJECT = sizeof(subject) / sizeof(subject[0]) };

typedef struct bench {
    const ct_codec_bench *plan;
    float *pool;          /* [count + SHIFTS * SHIFT]: gradients       */
    float *u, *v;         /* the state                                 */
    float *old_u, *old_v; /* … before an update that does not count  */
    float *sum;           /* what is decoded into                      */
    char *sweep;
    size_t sweep_bytes;
    char *payload;
    size_t payload_bytes;
    ct_sparse out;
    double time[4][MAX_REPEAT]; /* encode, decode, update, triad */
} bench;

static void bench_destroy(bench *b)
{
    ct_mem_release(b->pool);
    ct_mem_release(b->u);
    ct_mem_release(b->v);
    ct_mem_release(b->old_u);
    ct_mem_release(b->old_v);
    ct_mem_release(b->sum);
    ct_mem_release(b->sweep);
    ct_mem_release(b->payload);
    ct_sparse_destroy(&b->out);
    free(b);
}

static ct_status bench_create(const ct_codec_bench *plan, bench **b_p)
{
    int64_t n = plan->count, pool = n + SHIFTS * SHIFT;
    size_t bytes = (size_t)n * sizeof(float);
    bench *b = calloc(1, sizeof(*b));

    if (b == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the bench");
    b->plan = plan;
    b->sweep_bytes = 4 * ct_cpu_cache_bytes();
    if (b->sweep_bytes < sweep_least) b->sweep_bytes = sweep_least;
    if (b->sweep_bytes > 64 * sweep_least) b->sweep_bytes = 64 * sweep_least;
    b->pool = ct_mem_acquire((size_t)pool * sizeof(float));
    b->u = ct_mem_acquire(bytes);
    b->v = ct_mem_acquire(bytes);
    b->old_u = ct_mem_acquire(bytes);
    b->old_v = ct_mem_acquire(bytes);
    b->sum = ct_mem_acquire(bytes);
    b->sweep = ct_mem_acquire(b->sweep_bytes);
    b->payload_bytes = ct_payload_bytes(CT_PAYLOAD_PAIRS, n, n);
    b->payload = ct_mem_acquire(b->payload_bytes);
    if ((b->pool == NULL) || (b->u == NULL) || (b->v == NULL) || (b->old_u == NULL) ||
        (b->old_v == NULL) || (b->sum == NULL) || (b->sweep == NULL) || (b->payload == NULL)) {
        bench_destroy(b);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)n);
    }
#pragma omp parallel for schedule(static) num_threads(plan->n_thread)
    for (int64_t i = 0; i < pool; ++i) b->pool[i] = ct_rng_normal_at(1, (uint64_t)i);
    *b_p = b;
    return CT_OK;
}

/* Each core fills its caches with something else. */
static void sweep(bench *b)
{
    int64_t n = (int64_t)(b->sweep_bytes / sizeof(uint64_t));
    uint64_t *x = (uint64_t *)(void *)b->sweep;

#pragma omp parallel for schedule(static) num_threads(b->plan->n_thread)
    for (int64_t i = 0; i < n; ++i) x[i] += 1;
}

static ct_momentum_correction accum_of(bench *b, int step)
{
    return (ct_momentum_correction){ .grad = b->pool + (int64_t)(step * 389 % SHIFTS) * SHIFT,
                                     .u = b->u,
                                     .v = b->v,
                                     .n = b->plan->count,
                                     .scale = (step % 2 == 0) ? 1.0f : -1.0f,
                                     .rate = 0.01f,
                                     .momentum = 0.9f,
                                     .mask_momentum = true,
                                     .n_thread = b->plan->n_thread };
}

static double time_update(bench *b, int step)
{
    ct_momentum_correction a = accum_of(b, step);
    size_t bytes = (size_t)a.n * sizeof(float);
    double start;

    memcpy(b->old_u, b->u, bytes);
    memcpy(b->old_v, b->v, bytes);
    sweep(b);
    start = ct_clock_s();
    ct_momentum_correction_run(&a);
    start = ct_clock_s() - start;
    memcpy(b->u, b->old_u, bytes);
    memcpy(b->v, b->old_v, bytes);
    return start;
}

static double time_triad(bench *b)
{
    int64_t n = b->plan->count;
    float *x = b->sum;
    const float *y = b->old_u, *z = b->old_v;
    double start;

    sweep(b);
    start = ct_clock_s();
#pragma omp parallel for simd schedule(static) num_threads(b->plan->n_thread)
    for (int64_t i = 0; i < n; ++i) x[i] = y[i] + 3.0f * z[i];
    return ct_clock_s() - start;
}

/* What is timed: a selection, or one of the others. */
typedef struct way {
    const struct subject *s;
    ct_selector *sel;
    coder_state *coder; /* NULL: a selection */
} way;

static ct_status encode(bench *b, const way *w, int step, size_t *bytes_p)
{
    const struct subject *s = w->s;
    ct_selector *sel = w->sel;
    ct_momentum_correction a = accum_of(b, step);

    if (w->coder != NULL) {
        *bytes_p = (size_t)coder_bytes(w->coder);
        return coder_encode(w->coder, &a);
    }
    if (!s->history) ct_selector_forget(sel);
    if (s->wire == CT_PAYLOAD_MEAN) ct_selector_sign(sel, (step % 2 == 0) ? 1 : -1);
    CT_TRY(ct_selector_run(sel, &a, &b->out));
    if (s->wire != CT_PAYLOAD_PAIRS)
        ct_payload_round(s->wire, &b->out, &(ct_residual_return){ .v = b->v });
    *bytes_p = ct_payload_pack(s->wire, &b->out, b->payload);
    return CT_OK;
}

static ct_status decode(bench *b, const way *w, size_t bytes)
{
    const void *payload = b->payload;

    if (w->coder != NULL) return coder_decode(w->coder, b->sum);
    return ct_payload_add_all(&payload, &bytes, 1, b->sum, b->plan->count, b->plan->n_thread);
}

static ct_status time_steps(bench *b, const way *w, ct_codec_row *row)
{
    int64_t n = b->plan->count;
    int repeat = b->plan->repeat;
    size_t bytes = 0;

    memset(b->u, 0, (size_t)n * sizeof(float));
    memset(b->v, 0, (size_t)n * sizeof(float));
    for (int step = 0; step < WARM; ++step) CT_TRY(encode(b, w, step, &bytes));
    for (int i = 0; i < repeat; ++i) {
        double start;

        b->time[3][i] = time_triad(b);
        b->time[2][i] = time_update(b, WARM + i);
        sweep(b);
        start = ct_clock_s();
        CT_TRY(encode(b, w, WARM + i, &bytes));
        b->time[0][i] = ct_clock_s() - start;
        memset(b->sum, 0, (size_t)n * sizeof(float));
        sweep(b);
        start = ct_clock_s();
        CT_TRY(decode(b, w, bytes));
        b->time[1][i] = ct_clock_s() - start;
    }
    row->bytes = (int64_t)bytes;
    row->selected = (w->coder != NULL) ? n : b->out.count;
    row->encode_ms = 1e3 * ct_median(b->time[0], repeat);
    row->decode_ms = 1e3 * ct_median(b->time[1], repeat);
    row->update_ms = 1e3 * ct_median(b->time[2], repeat);
    row->update_gbs = 20e-6 * (double)n / row->update_ms;
    row->triad_gbs = 12e-9 * (double)n / ct_median(b->time[3], repeat);
    return CT_OK;
}

static ct_status time_subject(bench *b, const struct subject *s, ct_codec_row *row)
{
    int64_t k = llround(b->plan->density * (double)b->plan->count);
    ct_selector *sel = NULL;
    ct_select_stats stats;
    ct_status status;

    *row = (ct_codec_row){ .codec = s->codec,
                           .selection = ct_select_name(s->kind),
                           .wire = ct_payload_name(s->wire),
                           .history = s->history };
    CT_TRY(ct_selector_create(s->kind, b->plan->count, (k < 1) ? 1 : k, &sel));
    status = time_steps(b, &(way){ .s = s, .sel = sel }, row);
    ct_selector_stats(sel, &stats);
    row->passes = stats.passes;
    ct_selector_destroy(sel);
    return status;
}

static ct_status time_coder(bench *b, int i, ct_codec_row *row, int *n_p)
{
    coder_state *coder = NULL;
    ct_status status;

    CT_TRY(coder_create(i, b->plan->count, b->plan->n_thread, &coder));
    if (coder == NULL) return CT_OK;
    *row = (ct_codec_row){ .codec = coder_codec(coder),
                           .selection = "none",
                           .wire = coder_wire(coder),
                           .passes = coder_passes(coder) };
    status = time_steps(b, &(way){ .coder = coder }, row);
    coder_destroy(coder);
    *n_p += 1;
    return status;
}

ct_status ct_bench_codec(const ct_codec_bench *plan, ct_codec_row *row, int *n_p)
{
    bench *b = NULL;
    ct_status status = CT_OK;
    int n = 0;

    if ((plan->count < 1) || (plan->count > CT_SPARSE_MAX))
        return CT_FAIL(CT_ERR_CONFIG, "--count=%lld: expected 1 to %lld", (long long)plan->count,
                       (long long)CT_SPARSE_MAX);
    if ((plan->repeat < 1) || (plan->repeat > MAX_REPEAT))
        return CT_FAIL(CT_ERR_CONFIG, "--repeat=%d: expected 1 to %d", plan->repeat, MAX_REPEAT);
    CT_TRY(bench_create(plan, &b));
    for (int i = 0; (i < N_SUBJECT) && (status == CT_OK); ++i) {
        const char *only = plan->selection;

        if ((only != NULL) && (strcmp(only, ct_select_name(subject[i].kind)) != 0)) continue;
        status = time_subject(b, &subject[i], &row[n++]);
    }
    for (int i = 0; (i < CT_CODERS) && (plan->selection == NULL) && (status == CT_OK); ++i)
        status = time_coder(b, i, &row[n], &n);
    bench_destroy(b);
    *n_p = n;
    return status;
}

void ct_bench_codec_print(const ct_codec_bench *plan, const ct_codec_row *row, int n)
{
    printf("%lld elements, density %g, %d threads, medians of %d; decode: one payload\n",
           (long long)plan->count, plan->density, plan->n_thread, plan->repeat);
    printf("%-8s %-9s %-6s %-8s %9s %10s %7s %10s %10s %10s %8s %10s %9s\n", "codec", "selection",
           "wire", "history", "selected", "bytes", "passes", "encode_ms", "decode_ms", "update_ms",
           "ratio", "update_gbs", "triad_gbs");
    for (int i = 0; i < n; ++i) {
        const ct_codec_row *r = &row[i];

        printf("%-8s %-9s %-6s %-8s %9lld %10lld %7d %10.3f %10.3f %10.3f %8.3f %10.2f %9.2f\n",
               r->codec, r->selection, r->wire, r->history ? "true" : "false",
               (long long)r->selected, (long long)r->bytes, r->passes, r->encode_ms, r->decode_ms,
               r->update_ms, r->encode_ms / r->update_ms, r->update_gbs, r->triad_gbs);
    }
}

void ct_bench_codec_json(const ct_codec_bench *plan, const ct_codec_row *row, int n, ct_text *out)
{
    for (int i = 0; i < n; ++i) {
        const ct_codec_row *r = &row[i];
        ct_json_writer w = ct_json_into(out);

        ct_json_begin_object(&w, NULL);
        ct_json_add_text(&w, "codec", r->codec);
        ct_json_add_text(&w, "selection", r->selection);
        ct_json_add_text(&w, "wire", r->wire);
        ct_json_add_integer(&w, "count", plan->count);
        ct_json_add_number(&w, "density", plan->density);
        ct_json_add_integer(&w, "threads", plan->n_thread);
        ct_json_add_integer(&w, "repeats", plan->repeat);
        ct_json_add_integer(&w, "selected", r->selected);
        ct_json_add_integer(&w, "bytes", r->bytes);
        ct_json_add_integer(&w, "passes", r->passes);
        ct_json_add_decimals(&w, "encode_ms", r->encode_ms, 4);
        ct_json_add_decimals(&w, "decode_ms", r->decode_ms, 4);
        ct_json_add_decimals(&w, "update_ms", r->update_ms, 4);
        ct_json_add_decimals(&w, "update_gbs", r->update_gbs, 3);
        ct_json_add_decimals(&w, "triad_gbs", r->triad_gbs, 3);
        ct_json_add_bool(&w, "history", r->history);
        ct_json_end(&w);
        ct_text_add(out, "\n");
    }
}
