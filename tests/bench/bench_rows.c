/* Layers that should run at memory's speed: those of language models that are no products.
 *
 *   bench_rows [TOKENS] [ROUNDS] [TYPE]       4096, 15, every type; OMP_NUM_THREADS threads
 *
 * Each layer is made by the tests' harness, on its own blobs; forward and backward run in turns
 * with two maps, y = 2 x by plain stores and by stores past the caches, and caches are swept before
 * each. A line: milliseconds (median, least), the GB/s of the values that must pass (each operand
 * once, whatever the layer moves besides), and their share of the better map's. The arrays of 4096
 * tokens of 3072 are 48 MiB, so they are written past the caches; 1024 tokens are GPT-2's B1 T1024.
 */
#include "tests/test.h"
#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/sort.h"
#include "framework/base/stream.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 101, WARM = 2, SWEEP = 128 << 20, PIECE = 4096, VOCABULARY = 50257 };

/* What passes, in values an element of the first bottom. */
typedef struct bench_row {
    const char *type, *text;
    int n_bottom;
    int64_t c;    /* of the first bottom's last axis               */
    int64_t most; /* tokens at most                                */
    char second;  /* bottom 1: 'x' like the first, 'p' positions, 'l' labels */
    double forward, backward;
} bench_row;

static const bench_row bench_rows[] = {
    { "LayerNorm", NULL, 1, 768, INT64_MAX, 0, 2, 3 },
    { "LayerNorm", NULL, 1, 3072, INT64_MAX, 0, 2, 3 },
    { "RMSNorm", NULL, 1, 768, INT64_MAX, 0, 2, 3 },
    { "GELU", NULL, 1, 3072, INT64_MAX, 0, 2, 3 },
    { "GELU", "gelu_param { approximate: TANH }", 1, 3072, INT64_MAX, 0, 2, 3 },
    { "Swish", NULL, 1, 3072, INT64_MAX, 0, 2, 3 },
    { "SwiGLU", NULL, 2, 3072, INT64_MAX, 'x', 3, 5 },
    { "SwiGLU", NULL, 1, 6144, INT64_MAX, 0, 1.5, 2.5 },
    { "Position", "position_param { max_length: 1024 }", 1, 768, INT64_MAX, 0, 2, 2 },
    { "Position", "position_param { max_length: 1024 }", 2, 768, INT64_MAX, 'p', 2, 2 },
    { "SoftmaxWithLoss", "softmax_param { axis: 2 }", 2, VOCABULARY, 1024, 'l', 2, 2 },
};

typedef struct bench {
    int n_round;
    float *sweep, *x, *y; /* x, y: of the maps */
    int64_t n_map;
    double best; /* of the maps, GB/s */
} bench;

static void sweep(const bench *b)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < SWEEP / 4; i++) b->sweep[i] += 1;
}

static double map(const bench *b, bool past)
{
    double start = ct_clock_s();

#pragma omp parallel
    {
        float made[PIECE];

#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < b->n_map; at += PIECE) {
            int64_t n = (at + PIECE < b->n_map) ? PIECE : b->n_map - at;
            float *to = past ? made : b->y + at;

#pragma omp simd
            for (int64_t i = 0; i < n; i++) to[i] = 2 * b->x[at + i];
            if (past) ct_stream_copy(n, made, b->y + at);
        }
        if (past) ct_stream_end();
    }
    return ct_clock_s() - start;
}

static void print(const char *what, const char *text, double *time, int n, double bytes,
                  double best)
{
    double least = INFINITY, median = ct_median(time, n);

    for (int i = 0; i < n; i++) least = fmin(least, time[i]);
    printf("%-18s %-34s %9.3f %9.3f %7.2f", what, text, 1e3 * median, 1e3 * least,
           bytes / median / 1e9);
    if (best > 0) printf("  %5.2f", bytes / median / 1e9 / best);
    printf("\n");
}

static void measure_maps(bench *b)
{
    for (int past = 0; past < 2; past++) {
        double time[MAX_ROUNDS], bytes = 8.0 * (double)b->n_map, rate;

        for (int r = -WARM; r < b->n_round; r++) {
            sweep(b);
            time[(r < 0) ? 0 : r] = map(b, past == 1);
        }
        rate = bytes / ct_median(time, b->n_round) / 1e9;
        b->best = fmax(b->best, rate);
        print("y = 2 x", (past == 1) ? "past the caches" : "", time, b->n_round, bytes, 0);
    }
}

static test_layer *make_layer(const bench_row *row, int64_t tokens)
{
    int64_t length = (tokens < 1024) ? tokens : 1024, n = tokens / length;
    test_layer_spec spec = { .type = row->type,
                             .text = row->text,
                             .n_bottom = row->n_bottom,
                             .bottom = { TEST_SHAPE(n, length, row->c) } };
    test_layer *t;

    if (row->second == 'x') spec.bottom[1] = spec.bottom[0];
    if ((row->second == 'p') || (row->second == 'l')) spec.bottom[1] = TEST_SHAPE(n, length);
    t = test_layer_make(&spec);
    for (int64_t i = 0; (row->second == 'p') && (i < n * length); i++)
        t->input[1][i] = (float)(i % length);
    for (int64_t i = 0; (row->second == 'l') && (i < n * length); i++)
        t->input[1][i] = (float)(i * 31 % VOCABULARY);
    if (row->second != 'l') test_random(t->top_diff[0], t->top_count[0], 1, -1, 1);
    /* The blobs have their values from here on, but what backward may not read: forward again. */
    test_layer_pass(t);
    assert_int_equal(test_layer_forward(t), CT_OK);
    return t;
}

static void measure_layer(const bench *b, const bench_row *row, int64_t tokens)
{
    int64_t few = (tokens < row->most) ? tokens : row->most;
    test_layer *t = make_layer(row, few);
    double time[2][MAX_ROUNDS], element = 4.0 * (double)t->input_count[0];
    char what[2][48];

    for (int r = -WARM; r < b->n_round; r++) {
        for (int back = 0; back < 2; back++) {
            double start;
            ct_status status;

            sweep(b);
            start = ct_clock_s();
            status = (back == 1) ? ct_layer_backward(&t->layer, &t->instance, &t->ex)
                                 : ct_layer_forward(&t->layer, &t->instance, &t->ex);
            time[back][(r < 0) ? 0 : r] = ct_clock_s() - start;
            assert_int_equal(status, CT_OK);
        }
    }
    for (int back = 0; back < 2; back++) {
        snprintf(what[back], sizeof(what[back]), "%s, %lld x %lld",
                 (back == 1) ? "backward" : "forward", (long long)few, (long long)row->c);
        print((row->text != NULL) && (strstr(row->text, "TANH") != NULL) ? "GELU (TANH)"
                                                                         : row->type,
              what[back], time[back], b->n_round,
              element * ((back == 1) ? row->backward : row->forward), b->best);
    }
    test_layer_destroy(t);
}

static void run(void **state)
{
    char **argv = *state;
    bench b = { .n_round = (argv[1] != NULL) && (argv[2] != NULL) ? atoi(argv[2]) : 15 };
    int64_t tokens = (argv[1] != NULL) ? atoll(argv[1]) : 4096;
    const char *only = ((argv[1] != NULL) && (argv[2] != NULL)) ? argv[3] : NULL;

    if ((tokens < 1) || ((tokens > 1024) && (tokens % 1024 != 0)) || (b.n_round < 1) ||
        (b.n_round > MAX_ROUNDS))
        fail_msg("expected TOKENS up to 1024 or a multiple of it, ROUNDS of 1 to %d", MAX_ROUNDS);
    b.n_map = (int64_t)16 << 20;
    b.sweep = ct_mem_acquire(SWEEP);
    b.x = ct_mem_acquire((size_t)b.n_map * sizeof(float));
    b.y = ct_mem_acquire((size_t)b.n_map * sizeof(float));
    assert_true((b.sweep != NULL) && (b.x != NULL) && (b.y != NULL));
    memset(b.sweep, 0, SWEEP);
    test_random(b.x, b.n_map, 1, -1, 1);
    printf("%d threads, %d rounds; ms: median, least; GB/s; share of the better map\n",
           omp_get_max_threads(), b.n_round);
    measure_maps(&b);
    for (size_t i = 0; i < sizeof(bench_rows) / sizeof(bench_rows[0]); i++) {
        if ((only == NULL) || (strcmp(only, bench_rows[i].type) == 0))
            measure_layer(&b, &bench_rows[i], tokens);
    }
    ct_mem_release(b.sweep);
    ct_mem_release(b.x);
    ct_mem_release(b.y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = { cmocka_unit_test_prestate(run, argv) };

    (void)argc;
    return cmocka_run_group_tests_name("rows", all, NULL, NULL);
}
