/* Plans of engines: what is chosen by pretended times, what their text holds, and what is refused.
 */
#include "tests/test.h"
#include "framework/base/file.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/net/engine_plan.h"
#include "layers/engine/conv/conv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ct_engine_plan_machine here = {
    .cpu = "Test CPU", .simd = "avx2", .threads = 2, .version = "1.0-a"
};

/* ---- engines whose runs take a pretended time */

enum { MAX_RUN = 1000 };

typedef struct bench {
    double now;
    double s[CT_ENGINE_PLAN_ENGINES];     /* of a run                            */
    double noise[CT_ENGINE_PLAN_ENGINES]; /* every other run takes so much longer */
    int n_run[CT_ENGINE_PLAN_ENGINES], n_prepare;
    bool fails[CT_ENGINE_PLAN_ENGINES], no_memory;
} bench;

static double bench_clock(void *ctx)
{
    return ((bench *)ctx)->now;
}

static ct_status bench_prepare(void *ctx)
{
    bench *b = ctx;

    b->n_prepare++;
    return b->no_memory ? CT_ERR_NOMEM : CT_OK;
}

static ct_status bench_run(void *ctx, int i)
{
    bench *b = ctx;

    assert_true(b->n_run[i] < MAX_RUN);
    b->now += b->s[i] + ((b->n_run[i]++ % 2 == 0) ? b->noise[i] : 0.0);
    return b->fails[i] ? CT_ERR_DEVICE : CT_OK;
}

static ct_engine_plan *make(ct_engine_plan_mode mode, bench *b)
{
    ct_engine_plan_options o = { .machine = here, .mode = mode, .n_rank = 1 };
    ct_engine_plan *p = NULL;

    if (b != NULL) {
        o.clock = bench_clock;
        o.clock_ctx = b;
    }
    assert_int_equal(ct_engine_plan_create(&o, &p), CT_OK);
    return p;
}

/* Asks for `key` among the n engines a, b, c …; the static rule takes `fixed`. */
static int choose(ct_engine_plan *p, bench *b, const char *key, int n, int fixed)
{
    static const char *const name[] = { "a", "b", "c", "d" };
    ct_engine_plan_ask a = { .layer = "conv1",
                             .key = key,
                             .n = n,
                             .fixed = fixed,
                             .prepare = bench_prepare,
                             .run = bench_run,
                             .ctx = b };
    int choice = -1;

    for (int i = 0; i < n; i++) a.name[i] = name[i];
    assert_int_equal(ct_engine_plan_choose(p, &a, &choice), CT_OK);
    return choice;
}

static void fastest_is_chosen_and_remembered(void **state)
{
    bench b = { .s = { 3.0, 1.0, 2.0 } };
    ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, &b);
    ct_engine_plan_counts t;
    int n;

    (void)state;
    assert_int_equal(choose(p, &b, "k1", 3, 0), 1);
    n = b.n_run[1];
    assert_true(n >= 2);
    assert_int_equal(choose(p, &b, "k1", 3, 0), 1); /* an equal shape is timed once */
    assert_int_equal(b.n_run[1], n);
    assert_int_equal(choose(p, &b, "k2", 1, 0), 0); /* without a choice nothing is timed */
    assert_int_equal(b.n_run[1], n);
    t = ct_engine_plan_tally(p);
    assert_int_equal(t.n_row, 1);
    assert_int_equal(t.n_timed, 1);
    assert_int_equal(t.n_changed, 1);
    assert_true(t.seconds == b.now);
    assert_int_equal(ct_engine_plan_row(p, 0)->n_asked, 2);
    assert_string_equal(ct_engine_plan_row(p, 0)->taken, "b");
    assert_null(ct_engine_plan_row(p, 1));
    ct_engine_plan_destroy(p);
}

/* What is hardly faster may be noise; and one slow run is. */
static void static_rule_needs_a_clear_reason(void **state)
{
    bench close = { .s = { 1.0, 0.99 } }, clear = { .s = { 1.0, 0.9 } };
    bench noisy = { .s = { 1.0, 0.9 }, .noise = { 0.0, 4.0 } };
    bench disturbed = { .s = { 0.9, 1.0 }, .noise = { 4.0, 0.0 } };
    ct_engine_plan *p;

    (void)state;
    p = make(CT_ENGINE_PLAN_TIME, &close);
    assert_int_equal(choose(p, &close, "k", 2, 0), 0);
    ct_engine_plan_destroy(p);
    p = make(CT_ENGINE_PLAN_TIME, &clear);
    assert_int_equal(choose(p, &clear, "k", 2, 0), 1);
    ct_engine_plan_destroy(p);
    p = make(CT_ENGINE_PLAN_TIME, &noisy);
    assert_int_equal(choose(p, &noisy, "k", 2, 0), 1);
    ct_engine_plan_destroy(p);
    p = make(CT_ENGINE_PLAN_TIME, &disturbed);
    assert_int_equal(choose(p, &disturbed, "k", 2, 0), 0);
    ct_engine_plan_destroy(p);
}

/* 30 times the fastest are 3 % of 1000 iterations; what is far slower runs once or twice. */
static void timing_is_bounded(void **state)
{
    static const double s[][4] = { { 1, 1, 1, 1 },
                                   { 1, 1.2, 1.25, 1.29 },
                                   { 1, 100, 2.5, 1.9 },
                                   { 9, 1, 1, 5 },
                                   { 1e-6, 2e-6, 1e-6, 1e-6 } };

    (void)state;
    for (size_t i = 0; i < sizeof(s) / sizeof(s[0]); i++) {
        bench b = { .now = 0.0 };
        ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, &b);
        double best = 1e30, hopeless = 0.0;

        memcpy(b.s, s[i], sizeof(s[i]));
        choose(p, &b, "k", 4, 0);
        for (int e = 0; e < 4; e++) best = (s[i][e] < best) ? s[i][e] : best;
        for (int e = 0; e < 4; e++) {
            if (s[i][e] < 2 * best) continue;
            assert_true(b.n_run[e] <= ((s[i][e] > 6 * best) ? 1 : 2) + (e == 0));
            hopeless += s[i][e] * b.n_run[e];
        }
        if (b.now - hopeless > 30 * best) fail_msg("case %zu: %g for %g", i, b.now, best);
        ct_engine_plan_destroy(p);
    }
}

static void what_cannot_run_is_not_chosen(void **state)
{
    bench fails = { .s = { 2.0, 1.0 }, .fails = { false, true } };
    bench poor = { .s = { 2.0, 1.0 }, .no_memory = true };
    ct_engine_plan *p;

    (void)state;
    p = make(CT_ENGINE_PLAN_TIME, &fails);
    assert_int_equal(choose(p, &fails, "k", 2, 0), 0);
    ct_engine_plan_destroy(p);
    p = make(CT_ENGINE_PLAN_TIME, &poor); /* no memory to time: the static rule, and no row */
    assert_int_equal(choose(p, &poor, "k", 2, 0), 0);
    assert_null(ct_engine_plan_row(p, 0));
    assert_int_equal(poor.n_run[0], 0);
    ct_engine_plan_destroy(p);
}

static void a_survey_changes_nothing(void **state)
{
    bench b = { .s = { 2.0, 1.0 } };
    ct_engine_plan *p = make(CT_ENGINE_PLAN_SURVEY, &b);

    (void)state;
    assert_int_equal(choose(p, &b, "k", 2, 0), 0);
    assert_string_equal(ct_engine_plan_row(p, 0)->engine[0].name, "b");
    assert_string_equal(ct_engine_plan_row(p, 0)->taken, "a");
    assert_int_equal(ct_engine_plan_tally(p).n_changed, 0);
    ct_engine_plan_destroy(p);
}

/* ---- the text */

static ct_status parse(ct_engine_plan *p, const char *text)
{
    return ct_engine_plan_parse(p, "f.plan", text, strlen(text));
}

#define HEAD "cortado plan 1\n"
#define MINE "machine \"Test CPU\" avx2 threads 2 version \"1.0-a\"\n"

static void rows_are_replayed(void **state)
{
    bench b = { .s = { 1.0, 2.0 } };
    ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, &b);

    (void)state;
    assert_int_equal(parse(p, HEAD "# a remark\n\n" MINE "k1 | b 1.5 a -\nk 2 | a 3\nend 2\n"),
                     CT_OK);
    assert_int_equal(choose(p, &b, "k1", 2, 0), 1);
    assert_int_equal(choose(p, &b, "k 2", 2, 1), 0);
    assert_int_equal(choose(p, &b, "missing", 2, 1), 1); /* the static rule; nothing is timed */
    assert_int_equal(b.n_run[0] + b.n_run[1], 0);
    assert_true(ct_engine_plan_row(p, 0)->engine[0].ms == 1.5);
    assert_true(ct_engine_plan_row(p, 0)->engine[1].ms < 0.0);
    assert_int_equal(ct_engine_plan_tally(p).n_replayed, 2);
    ct_engine_plan_destroy(p);
}

/* What a run went by, as snapshots keep it, makes the next one choose the same. */
static void text_holds_what_was_asked(void **state)
{
    bench b = { .s = { 3.0, 1.0 } };
    ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, &b), *q;
    ct_text t = { 0 }, again = { 0 };

    (void)state;
    ct_engine_plan_text(p, &t);
    assert_null(t.text);
    assert_int_equal(parse(p, HEAD MINE "never | a 1\nk1 | a 1 b 2\nend 2\n"), CT_OK);
    assert_int_equal(choose(p, &b, "k1", 2, 1), 0);
    assert_int_equal(choose(p, &b, "k2", 2, 0), 1);
    ct_engine_plan_text(p, &t);
    assert_null(strstr(t.text, "never"));
    q = make(CT_ENGINE_PLAN_REPLAY, NULL);
    assert_int_equal(parse(q, t.text), CT_OK);
    assert_int_equal(choose(q, NULL, "k1", 2, 1), 0);
    assert_int_equal(choose(q, NULL, "k2", 2, 0), 1);
    ct_engine_plan_text(q, &again);
    assert_string_equal(again.text, t.text);
    ct_text_destroy(&t);
    ct_text_destroy(&again);
    ct_engine_plan_destroy(p);
    ct_engine_plan_destroy(q);
}

static void first_text_counts(void **state)
{
    ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, NULL);

    (void)state;
    assert_int_equal(parse(p, HEAD MINE "k | b 1\nend 1\n"), CT_OK);
    assert_int_equal(parse(p, HEAD MINE "k | a 1\nk2 | b 1\nend 2\n"), CT_OK);
    assert_int_equal(choose(p, NULL, "k", 2, 0), 1);
    assert_int_equal(choose(p, NULL, "k2", 2, 0), 1);
    ct_engine_plan_destroy(p);
}

/* The log of parsing `text`, whose rows must not be used. */
static void not_used(const char *text, const char *said)
{
    ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, NULL);
    const char *log;

    test_log_start();
    assert_int_equal(parse(p, text), CT_OK);
    log = test_log_stop();
    if (strstr(log, said) == NULL) fail_msg("\"%s\" is not in: %s", said, log);
    assert_int_equal(choose(p, NULL, "k", 2, 0), 0);
    ct_engine_plan_destroy(p);
}

static void stale_and_foreign_rows_are_noticed(void **state)
{
    (void)state;
    not_used(HEAD "machine \"Test CPU\" avx2 threads 2 version \"0.9\"\nk | b 1\nend 1\n",
             "plan f.plan is stale: its rows for this machine are of version 0.9, this is 1.0-a");
    not_used(HEAD "machine \"Other\" avx2 threads 2 version \"1.0-a\"\nk | b 1\nend 1\n",
             "of another machine: \"Other\", avx2, 2 threads; this is \"Test CPU\"");
    not_used(HEAD "machine \"Test CPU\" avx512 threads 2 version \"1.0-a\"\nk | b 1\nend 1\n",
             "of another machine");
    not_used(HEAD "machine \"Test CPU\" avx2 threads 4 version \"1.0-a\"\nk | b 1\nend 1\n",
             "4 threads; this is");
}

static void unusable_engines_are_noticed(void **state)
{
    bench b = { .s = { 2.0, 1.0 } };
    ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, &b);

    (void)state;
    assert_int_equal(parse(p, HEAD MINE "k | gone 1\nend 1\n"), CT_OK);
    test_log_start();
    assert_int_equal(choose(p, &b, "k", 2, 0), 1); /* timed anew */
    assert_non_null(strstr(test_log_stop(), "engine \"gone\" cannot run \"k\""));
    ct_engine_plan_destroy(p);
}

static void damage_is_told_by_line(void **state)
{
    static const char *const text[][2] = {
        { "", ":1: " },
        { "cortado plan 2\nend 0\n", ":1: " },
        { HEAD, ":2: " },
        { HEAD MINE "k | b 1\n", ":4: " },
        { HEAD MINE "k | b 1\nend 2\n", ":4: " },
        { HEAD MINE "k | b 1\nend 1", ":4: " },
        { HEAD MINE "k | b 1\nend 1\nmore\n", ":5: " },
        { HEAD "k | b 1\nend 1\n", ":2: " },
        { HEAD "machine \"Test CPU\" avx2 threads 0 version \"1\"\nend 0\n", ":2: " },
        { HEAD "machine Test avx2 threads 2 version \"1\"\nend 0\n", ":2: " },
        { HEAD "machine \"T\" avx2 threads 2 version \"1\" x\nend 0\n", ":2: " },
        { HEAD MINE "k b 1\nend 1\n", ":3: " },
        { HEAD MINE "k |\nend 1\n", ":3: " },
        { HEAD MINE " | b 1\nend 1\n", ":3: " },
        { HEAD MINE "k | b\nend 1\n", ":3: " },
        { HEAD MINE "k | b 1 b 2\nend 1\n", ":3: " },
        { HEAD MINE "k | b -1\nend 1\n", ":3: " },
        { HEAD MINE "k | b nan\nend 1\n", ":3: " },
        { HEAD MINE "k | b 1e99\nend 1\n", ":3: " },
        { HEAD MINE "k | b 1x\nend 1\n", ":3: " },
        { HEAD MINE "k | an_engine_with_a_name_that_is_too_long_for_any_plan 1\nend 1\n", ":3: " },
        { HEAD MINE "k | a 1 b 1 c 1 d 1 e 1 f 1 g 1 h 1 i 1\nend 1\n", ":3: " },
        { HEAD MINE "k\t| b 1\nend 1\n", ":3: " },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, NULL);
        ct_status status;
        const char *log;

        test_log_start();
        status = parse(p, text[i][0]);
        log = test_log_stop();
        if (status != CT_ERR_DATA) fail_msg("case %zu was taken", i);
        if (strstr(log, text[i][1]) == NULL) fail_msg("case %zu: %s", i, log);
        assert_non_null(strstr(log, "damaged plan"));
        ct_engine_plan_destroy(p);
    }
}

static void files_are_completed(void **state)
{
    static const char old[] = HEAD
        "machine \"Test CPU\" avx2 threads 2 version \"0.9\"\nk | b 1\n"
        "machine \"Other\" avx2 threads 2 version \"1.0-a\"\nk9 | b 1\n" MINE "k1 | a 1\nend 3\n";
    bench b = { .s = { 3.0, 1.0 } };
    char path[] = "/tmp/cortado-plan-XXXXXX";
    int fd = mkstemp(path);
    ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, &b), *other;
    char *data;
    size_t size;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ct_file_write(path, old, strlen(old)), CT_OK);
    assert_int_equal(ct_engine_plan_read(p, path), CT_OK);
    assert_int_equal(ct_engine_plan_write(p, path), CT_OK); /* nothing new: as it was */
    assert_int_equal(ct_file_read(path, &data, &size), CT_OK);
    assert_string_equal(data, old);
    free(data);
    assert_int_equal(choose(p, &b, "k2", 2, 0), 1);
    other = make(CT_ENGINE_PLAN_TIME, &b); /* meanwhile somebody else adds a row */
    assert_int_equal(ct_engine_plan_read(other, path), CT_OK);
    assert_int_equal(choose(other, &b, "k3", 2, 0), 1);
    assert_int_equal(ct_engine_plan_write(other, path), CT_OK);
    assert_int_equal(ct_engine_plan_write(p, path), CT_OK);
    assert_int_equal(ct_file_read(path, &data, &size), CT_OK);
    assert_non_null(strstr(data, "\nk1 | a 1\n"));
    assert_non_null(strstr(data, "\nk2 | b 1000 a 3000\n"));
    assert_non_null(strstr(data, "\nk3 | b 1000 a 3000\n"));
    assert_non_null(strstr(data, "\nk9 | b 1\n")); /* other machines' stay            */
    assert_null(strstr(data, "0.9"));              /* what is stale for this one goes */
    assert_non_null(strstr(data, "\nend 4\n"));
    free(data);
    ct_engine_plan_destroy(p);
    ct_engine_plan_destroy(other);
    unlink(path);
}

/* ---- convolutions */

/* Four channels: too few for blocks of any processor. */
static const char net_text[] =
    "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 2 dim: 3 "
    "dim: 9 dim: 9 } data_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'labels' type: 'DummyData' top: 'label' dummy_data_param { shape { dim: 2 } "
    "data_filler { value: 1 } } }\n"
    "layer { name: 'c1' type: 'Convolution' bottom: 'data' top: 'c1' convolution_param { "
    "num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'c2' type: 'Convolution' bottom: 'c1' top: 'c2' convolution_param { num_output: "
    "4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'c3' type: 'Convolution' bottom: 'c2' top: 'c3' convolution_param { num_output: "
    "4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'c3' top: 'ip' inner_product_param { "
    "num_output: 4 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

/* Times of what has no choice of engines are rows like others; a later one takes the place. */
static void times_are_kept(void **state)
{
    static const char path[] = "test_engine_plan_kept.tmp";
    static const char *const bad[] = { "", "a|b", "line\n", "machine \"x\"", "end 3", "# note" };
    char text[512];
    FILE *f;
    size_t n;
    ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, NULL);

    (void)state;
    (void)remove(path);
    assert_int_equal(ct_engine_plan_write(p, path), CT_OK); /* there is nothing */
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(ct_engine_plan_keep(p, "batch 8", "pass", 1.5), CT_OK);
    assert_int_equal(ct_engine_plan_keep(p, "batch 64", "pass", 2.0), CT_OK);
    assert_int_equal(ct_engine_plan_keep(p, "batch 8", "pass", 1.25), CT_OK);
    assert_int_equal(ct_engine_plan_write(p, path), CT_OK);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    fclose(f);
    assert_string_equal(text,
                        "cortado plan 1\nmachine \"Test CPU\" avx2 threads 2 version \"1.0-a\"\n"
                        "batch 8 | pass 1.25\nbatch 64 | pass 2\nend 2\n");
    (void)remove(path);
    assert_int_equal(ct_engine_plan_write(p, path), CT_OK); /* nothing new */
    assert_int_equal(access(path, F_OK), -1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ct_engine_plan_keep(p, bad[i], "pass", 1), CT_ERR_ARG);
    assert_int_equal(ct_engine_plan_keep(p, "batch 9", "a pass", 1), CT_ERR_ARG);
    assert_int_equal(ct_engine_plan_keep(p, "batch 9", "pass", -1), CT_ERR_ARG);
    assert_int_equal(ct_engine_plan_keep(p, "batch 9", "pass", 0.0 / 0.0), CT_ERR_ARG);
    assert_null(ct_engine_plan_row(p, 2));
    ct_engine_plan_destroy(p);
}

/* c1: forward, by weights; c2 and c3 are equal: five computations. */
static void nets_ask_once_for_equal_shapes(void **state)
{
    ct_engine_plan *p = make(CT_ENGINE_PLAN_TIME, NULL);
    const ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .env.plan = p };
    ct_engine_plan_counts t;
    test_net n;

    (void)state;
    assert_int_equal(test_net_create(net_text, &o, &n), CT_OK);
    t = ct_engine_plan_tally(p);
    assert_int_equal(t.n_row, 5);
    assert_int_equal(t.n_timed, 5);
    for (int i = 0; i < 5; i++) {
        const ct_engine_plan_entry *row = ct_engine_plan_row(p, i);

        assert_non_null(row);
        assert_memory_equal(row->key, "conv ", 5);
        assert_int_equal(row->n_asked, (strstr(row->key, " c3 ") != NULL) ? 1 : 2);
        assert_true(row->n >= 2);
        assert_string_equal(row->taken, row->engine[0].name);
    }
    (void)test_net_pass(&n, 0, false); /* what was chosen runs */
    test_net_destroy(&n);
    ct_engine_plan_destroy(p);
}

/* Every engine named in a plan is what the layer then runs, and gives the same loss up to rounding.
 */
static void nets_replay_plans(void **state)
{
    static const char *const engine[] = { "direct", "gemm" };
    double loss[2];

    (void)state;
    for (int e = 0; e < 2; e++) {
        ct_engine_plan *p = make(CT_ENGINE_PLAN_REPLAY, NULL);
        const ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .env.plan = p };
        ct_text t = { 0 };
        ct_estimate est;
        test_net n;

        ct_text_add(&t,
                    HEAD MINE "conv forward n2 g1 c4 9x9 m4 9x9 k3x3 s1x1 p1x1 d1x1 x0 y0 t4 | %s "
                              "1\nend 1\n",
                    engine[e]);
        assert_int_equal(parse(p, t.text), CT_OK);
        ct_text_destroy(&t);
        assert_int_equal(test_net_create(net_text, &o, &n), CT_OK);
        ct_net_estimate(n.net, ct_net_find_layer(n.net, "c2"), &est);
        assert_string_equal(est.engine[CT_RUN_FORWARD], engine[e]);
        assert_int_equal(ct_engine_plan_tally(p).n_replayed, 1);
        loss[e] = test_net_pass(&n, 0, false);
        test_net_destroy(&n);
        ct_engine_plan_destroy(p);
    }
    assert_true((loss[0] > 0.0) && (loss[0] < 100.0));
    assert_true((loss[0] - loss[1] < 1e-4) && (loss[1] - loss[0] < 1e-4));
}

/* All that tells two convolutions apart is in the key. */
static void keys_differ_where_shapes_do(void **state)
{
    enum { N_FIELD = 17 };
    ct_conv_desc base = { .n = 2, .group = 3, .c = 4, .h = 5, .w = 6, .m = 7, .oh = 8, .ow = 9 };
    char key[N_FIELD + 3][CT_ENGINE_PLAN_KEY];
    int64_t *field[N_FIELD] = { &base.n,  &base.group, &base.c,  &base.h,  &base.w,  &base.m,
                                &base.oh, &base.ow,    &base.kh, &base.kw, &base.sh, &base.sw,
                                &base.ph, &base.pw,    &base.dh, &base.dw, NULL };

    (void)state;
    for (int i = 0; i < N_FIELD; i++) {
        if (field[i] != NULL) *field[i] += 100;
        if (field[i] == NULL) base.x_block += 8;
        ct_conv_key(&base, CT_RUN_FORWARD, key[i], sizeof(key[i]));
        if (field[i] != NULL) *field[i] -= 100;
        if (field[i] == NULL) base.x_block -= 8;
    }
    base.y_block = 8;
    ct_conv_key(&base, CT_RUN_FORWARD, key[N_FIELD], sizeof(key[0]));
    ct_conv_key(&base, CT_RUN_BACKWARD_DATA, key[N_FIELD + 1], sizeof(key[0]));
    base.winograd = 2;
    ct_conv_key(&base, CT_RUN_FORWARD, key[N_FIELD + 2], sizeof(key[0]));
    for (int i = 0; i < N_FIELD + 3; i++) {
        assert_null(strstr(key[i], " |"));
        assert_true(strlen(key[i]) < CT_ENGINE_PLAN_KEY - 1);
        for (int j = 0; j < i; j++) assert_string_not_equal(key[i], key[j]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fastest_is_chosen_and_remembered),
        cmocka_unit_test(static_rule_needs_a_clear_reason),
        cmocka_unit_test(timing_is_bounded),
        cmocka_unit_test(what_cannot_run_is_not_chosen),
        cmocka_unit_test(a_survey_changes_nothing),
        cmocka_unit_test(rows_are_replayed),
        cmocka_unit_test(text_holds_what_was_asked),
        cmocka_unit_test(first_text_counts),
        cmocka_unit_test(stale_and_foreign_rows_are_noticed),
        cmocka_unit_test(unusable_engines_are_noticed),
        cmocka_unit_test(damage_is_told_by_line),
        cmocka_unit_test(files_are_completed),
        cmocka_unit_test(times_are_kept),
        cmocka_unit_test(nets_ask_once_for_equal_shapes),
        cmocka_unit_test(nets_replay_plans),
        cmocka_unit_test(keys_differ_where_shapes_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
