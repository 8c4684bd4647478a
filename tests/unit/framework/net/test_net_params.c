/* Parameters: sharing, arena order, READY, accumulation, weights of another net. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/rng.h"
#include "framework/net/step_after.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE                                                                                     \
    "layer { name: 'data' type: 'Source' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n"
#define LINEAR(name, bottom, top, more)                                                            \
    "layer { name: '" name "' type: 'Linear' bottom: '" bottom "' top: '" top "' " more            \
    " inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
#define LOSS(bottom) "layer { name: 'loss' type: 'SumSq' bottom: '" bottom "' top: 'loss' }\n"

/* a and c share their weight; b has its own */
#define SHARED                                                                                     \
    SOURCE LINEAR("a", "x", "ya", "param { name: 'w' }") LINEAR("b", "ya", "yb", "")               \
        LINEAR("c", "yb", "yc", "param { name: 'w' }") LOSS("yc")

static int param(const test_net *t, const char *key)
{
    int k = ct_net_find_param(t->net, key);

    assert_true(k >= 0);
    return k;
}

static void arena_order_and_ready(void **state)
{
    test_net t;
    int last_ready = -1, backward_of[8] = { 0 };

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &t), CT_OK);
    /* w, a[0]: a finishes it last; a[1] after a too */
    assert_int_equal(t.net->n_param, 5);
    assert_int_equal(param(&t, "b[0]"), 1);
    assert_int_equal(param(&t, "c[1]"), 0);
    assert_int_equal(param(&t, "b[1]"), 2);
    assert_int_equal(param(&t, "w"), 3);
    assert_int_equal(param(&t, "a[1]"), 4);
    assert_string_equal(t.net->param[3].layer, "a");
    assert_int_equal(ct_net_param_of(t.net, ct_net_find_layer(t.net, "c"), 0), 3);
    for (int k = 0; k < 5; k++) {
        const ct_param *p = &t.net->param[k];

        assert_int_equal(p->offset % 16, 0);
        assert_ptr_equal(p->blob.data.data, t.net->weight_arena + p->offset);
        assert_ptr_equal(p->blob.diff.data, t.net->grad_arena + p->offset);
        assert_int_equal((uintptr_t)p->blob.data.data % 64, 0);
        for (int64_t e = p->offset + p->count; e % 16 != 0; e++)
            assert_true(t.net->weight_arena[e] == 0.0f);
    }
    for (int s = 0; s < t.net->n_backward; s++) {
        const ct_step *step = &t.net->backward[s];

        if (step->kind == CT_STEP_BACKWARD) backward_of[step->layer] = s;
        if (step->kind != CT_STEP_BEGIN) continue;
        assert_int_equal(step->param, last_ready + 1); /* in arena order */
        last_ready = step->param;
        if (step->param == 3) assert_int_equal(step->layer, ct_net_find_layer(t.net, "a"));
        assert_true(backward_of[step->layer] < s && backward_of[step->layer] > 0);
    }
    assert_int_equal(last_ready, 4);
    test_net_destroy(&t);
}

static void statistics_and_frozen_come_last(void **state)
{
    test_net t;

    (void)state;
    assert_int_equal(
        test_net_create(
            SOURCE "layer { name: 's' type: 'Stat' bottom: 'x' top: 'z' }" LINEAR(
                "f", "z", "y", "param { lr_mult: 0 } param { lr_mult: 2 decay_mult: 0 }") LOSS("y"),
            NULL, &t),
        CT_OK);
    assert_string_equal(t.net->param[0].key, "f[1]");
    assert_string_equal(t.net->param[1].key, "s[0]");
    assert_string_equal(t.net->param[2].key, "f[0]");
    assert_true((t.net->param[0].lr_mult == 2.0f) && (t.net->param[0].decay_mult == 0.0f));
    assert_int_equal(t.net->param[1].kind, CT_WEIGHT_STATISTIC);
    assert_false(t.net->param[1].learns || t.net->param[2].learns);
    assert_int_equal(t.net->grad_count, 16);
    assert_int_equal(t.net->weight_count, 48);
    {
        uint64_t all = ct_net_checksum(t.net, true), some = ct_net_checksum(t.net, false);

        ct_blob_data(&t.net->param[1].blob)[0] = 5.0f;
        assert_true(ct_net_checksum(t.net, true) != all);
        assert_true(ct_net_checksum(t.net, false) == some);
        ct_blob_data(&t.net->param[2].blob)[0] += 5.0f;
        assert_true(ct_net_checksum(t.net, false) != some);
    }
    test_net_destroy(&t);
}

static void sharing_is_checked(void **state)
{
    (void)state;
    test_net_refused(SOURCE LINEAR("a", "x", "ya", "param { name: 'w' lr_mult: 2 }")
                         LINEAR("c", "ya", "yc", "param { name: 'w' lr_mult: 1 }"),
                     NULL, "\"w\": lr_mult is 1 here and 2 in layer \"a\"");
    test_net_refused(SOURCE LINEAR("a", "x", "ya", "param { name: 'w' decay_mult: 0 }")
                         LINEAR("c", "ya", "yc", "param { name: 'w' decay_mult: 1 }"),
                     NULL, "decay_mult is 1 here and 0 in layer \"a\"");
    test_net_refused(SOURCE LINEAR("a", "x", "ya", "param { name: 'w' } param { name: 'w' }"), NULL,
                     "named for two of its blobs");
    test_net_refused(
        SOURCE LINEAR("a", "x", "ya",
                      "param { name: 'w' }") "layer { name: 'c' type: 'Linear' bottom: 'ya' top: "
                                             "'yc' param { name: 'w' } "
                                             "inner_product_param { num_output: 1 } }",
        NULL, "of layer \"a\" has the shape 3 3 (9), but 1 3 (3) is needed");
    test_net_refused(SOURCE LINEAR("a", "x", "ya", "param { name: 'b[0]' }")
                         LINEAR("b", "ya", "yb", ""),
                     NULL, "parameter name \"b[0]\"");
}

static void permissive_sharing_compares_counts(void **state)
{
    test_net t;

    (void)state;
    /* 1 x 9 and 3 x 3 */
    assert_int_equal(
        test_net_create("layer { name: 'data' type: 'Source' top: 'x' top: 'z' input_param { shape "
                        "{ dim: 2 dim: 9 } shape { dim: 2 dim: 3 } } }"
                        "layer { name: 'a' type: 'Linear' bottom: 'x' top: 'ya' param { name: 'w' "
                        "} inner_product_param { num_output: 1 weight_filler { value: 0.5 } } }"
                        "layer { name: 'c' type: 'Linear' bottom: 'z' top: 'yc' param { name: 'w' "
                        "share_mode: PERMISSIVE } inner_product_param { num_output: 3 } }",
                        NULL, &t),
        CT_OK);
    assert_ptr_equal(t.net->pass->instance[1]->weight[0].data.data,
                     t.net->pass->instance[2]->weight[0].data.data);
    assert_int_equal(t.net->pass->instance[1]->weight[0].data.shape.dim[0], 1);
    assert_int_equal(t.net->pass->instance[2]->weight[0].data.shape.dim[0], 3);
    test_net_destroy(&t);
}

static void multipliers_merge(void **state)
{
    test_net t;

    (void)state;
    /* the second use sets what the first left open; a zero there stops both */
    assert_int_equal(
        test_net_create(SOURCE LINEAR("a", "x", "ya", "param { name: 'w' }")
                            LINEAR("c", "ya", "yc", "param { name: 'w' lr_mult: 0 decay_mult: 3 }")
                                LOSS("yc"),
                        NULL, &t),
        CT_OK);
    assert_true(t.net->param[param(&t, "w")].lr_mult == 0.0f);
    assert_true(t.net->param[param(&t, "w")].decay_mult == 3.0f);
    assert_false(t.net->param[param(&t, "w")].learns);
    assert_null(t.net->pass->instance[1]->weight[0].diff.data);
    test_net_destroy(&t);
}

/* ---- tables of which ranks send rows */

#define TABLE(name, bottom, top, rows, more)                                                       \
    "layer { name: '" name "' type: 'Embed' bottom: '" bottom "' top: '" top "' " more             \
    " embed_param { input_dim: " rows " num_output: 3 bias_term: false } } "
#define IDS                                                                                        \
    "layer { name: 'ids' type: 'DummyData' top: 'i' dummy_data_param { shape { dim: 4 dim: 5 } } " \
    "} "
#define FULL(name, bottom, top, n, more)                                                           \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top "' " more      \
    " inner_product_param { num_output: " n " axis: 2 bias_term: false } } "
#define SUM(bottom)                                                                                \
    "layer { name: 'loss' type: 'Reduction' bottom: '" bottom "' top: 'loss' loss_weight: 1 } "

/* Where the gradient of `key` is ready: behind the backward of which layer. */
static const char *ready_behind(const test_net *t, const char *key)
{
    const char *last = "";

    for (int i = 0; i < t->net->n_backward; i++) {
        const ct_step *s = &t->net->backward[i];

        if (s->kind == CT_STEP_BACKWARD) last = t->net->layer[s->layer]->name;
        if ((s->kind == CT_STEP_BEGIN) && (s->param == param(t, key))) return last;
    }
    return "";
}

static void open_rows(const char *text, int n_rank, bool send, test_net *t)
{
    ct_net_options options = { .phase = CT_TRAIN,
                               .send_rows = send,
                               .env = { .n_rank = n_rank },
                               .table = test_full_table(NULL) };

    assert_int_equal(test_net_create(text, &options, t), CT_OK);
}

/* 20 rows of a batch beside 2 V / p of a sum: a list of V = 99 is less on 2 ranks, and on 7 not. */
static void a_table_sends_rows(void **state)
{
    static const char alone[] =
        IDS TABLE("e", "i", "e", "99", "") FULL("h", "e", "h", "9", "") SUM("h");
    static const char tied[] = IDS TABLE("e", "i", "e", "99", "param { name: 'w' }")
        FULL("f", "e", "f", "3", "") FULL("h", "f", "h", "99", "param { name: 'w' }") SUM("h");
    test_net t;

    (void)state;
    open_rows(alone, 2, true, &t);
    assert_int_equal(t.net->param[param(&t, "e[0]")].row_most, 20);
    assert_false(t.net->param[param(&t, "e[0]")].row_beside);
    assert_int_equal(t.net->param[param(&t, "h[0]")].row_most, 0);
    assert_string_equal(ready_behind(&t, "e[0]"), "e");
    ct_net_count_rows(t.net, 3); /* 60 (3 + 1) 2 < 2 x 297 */
    assert_int_equal(t.net->param[param(&t, "e[0]")].row_most, 60);
    ct_net_count_rows(t.net, 2);
    assert_int_equal(t.net->param[param(&t, "e[0]")].row_most, 0);
    test_net_destroy(&t);

    open_rows(tied, 2, true, &t);
    assert_int_equal(t.net->param[0].row_most, 20);
    assert_true(t.net->param[0].row_beside);
    assert_int_equal(param(&t, "w"), 0); /* ready first, it lies first */
    assert_string_equal(ready_behind(&t, "w"), "h");
    assert_string_equal(ready_behind(&t, "f[0]"), "f");
    ct_net_count_rows(t.net, 100); /* the last batch's alone are apart */
    assert_int_equal(t.net->param[0].row_most, 20);
    test_net_destroy(&t);

    for (int k = 0; k < 3; k++) { /* one rank; too many; not asked for */
        open_rows(tied, (k == 0) ? 1 : (k == 1) ? 8 : 2, k < 2, &t);
        assert_int_equal(t.net->param[param(&t, "w")].row_most, 0);
        assert_string_equal(ready_behind(&t, "w"), "e");
        test_net_destroy(&t);
    }
}

/* Two layers with rows, a table that comes before the head's gradient, one that says how it is
 * compressed, one that does not learn: as ever. */
static void other_tables_do_not(void **state)
{
    static const char *const text[] = {
        IDS TABLE("e", "i", "e", "99", "param { name: 'w' }")
            TABLE("g", "i", "g", "99",
                  "param { name: 'w' }") "layer { name: 's' type: 'Eltwise' "
                                         "bottom: 'e' bottom: 'g' top: 's' } " SUM("s"),
        IDS "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 5 "
            "dim: 3 } } } " FULL(
                "h", "x", "h", "99",
                "param { name: 'w' }") "layer { name: 'r' type: 'Reduction' bottom: 'h' top: 'r' "
                                       "loss_weight: 1 } " TABLE("e", "i", "e", "99",
                                                                 "param { name: 'w' }") SUM("e"),
        IDS TABLE("e", "i", "e", "99", "param { name: 'w' compress { type: BF16 } }") SUM("e"),
        IDS TABLE("e", "i", "e", "99", "param { name: 'w' lr_mult: 0 }")
            FULL("h", "e", "h", "9", "") SUM("h"),
    };
    test_net t;

    (void)state;
    for (size_t k = 0; k < sizeof(text) / sizeof(text[0]); k++) {
        open_rows(text[k], 2, true, &t);
        if (t.net->param[param(&t, "w")].row_most != 0) fail_msg("net %zu sends rows", k);
        assert_false(t.net->param[param(&t, "w")].row_beside);
        test_net_destroy(&t);
    }
}

/* Matrices alone decay where no entry says; of a shared one the entry that does counts. */
static void one_axis_is_spared(void **state)
{
    const ct_net_options options = { .phase = CT_TRAIN, .decay_matrices = true };
    test_net t;

    (void)state;
    assert_int_equal(
        test_net_create(
            SOURCE LINEAR("a", "x", "ya", "param { name: 'w' } param { name: 'v' }")
                LINEAR("b", "ya", "yb", "param { lr_mult: 2 } param { lr_mult: 2 }")
                    LINEAR("c", "yb", "yc", "param { name: 'w' } param { name: 'v' decay_mult: 3 }")
                        LINEAR("d", "yc", "yd", "") LOSS("yd"),
            &options, &t),
        CT_OK);
    assert_true(t.net->param[param(&t, "w")].decay_mult == 1.0f);
    assert_true(t.net->param[param(&t, "v")].decay_mult == 3.0f);
    assert_true(t.net->param[param(&t, "b[0]")].decay_mult == 1.0f);
    assert_true(t.net->param[param(&t, "b[1]")].decay_mult == 0.0f);
    assert_true(t.net->param[param(&t, "d[0]")].decay_mult == 1.0f);
    assert_true(t.net->param[param(&t, "d[1]")].decay_mult == 0.0f);
    test_net_destroy(&t);
}

/* Sharing adds the users' gradients: the same net with separate weights of the same values. */
static void shared_gradients_add_up(void **state)
{
    static const char separate[] = SOURCE LINEAR("a", "x", "ya", "") LINEAR("b", "ya", "yb", "")
        LINEAR("c", "yb", "yc", "") LOSS("yc");
    test_net s, t;
    int w, a, c;

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &s), CT_OK);
    assert_int_equal(test_net_create(separate, NULL, &t), CT_OK);
    w = param(&s, "w");
    a = param(&t, "a[0]");
    c = param(&t, "c[0]");
    /* the same fill: owner's name and index are the key */
    test_same(ct_blob_data(&s.net->param[w].blob), ct_blob_data(&t.net->param[a].blob), 9, "fill");
    memcpy(t.net->param[c].blob.data.data, s.net->param[w].blob.data.data, 9 * sizeof(float));
    for (int round = 0; round < 2; round++) { /* the second finds old gradients */
        test_net_pass(&s, 3, false);
        test_net_pass(&t, 3, false);
        for (int e = 0; e < 9; e++) {
            double sum = (double)ct_blob_diff(&t.net->param[a].blob)[e] +
                         (double)ct_blob_diff(&t.net->param[c].blob)[e];
            double d = (double)ct_blob_diff(&s.net->param[w].blob)[e] - sum;

            assert_true(d < 1e-6 && d > -1e-6);
        }
    }
    test_net_destroy(&s);
    test_net_destroy(&t);
}

static void micro_batches_accumulate(void **state)
{
    test_net t;
    float one[64], two[64];
    int64_t n;

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &t), CT_OK);
    n = t.net->grad_count;
    assert_true(n <= 64 * 2);
    n = 64;
    test_net_pass(&t, 1, false);
    memcpy(one, t.net->grad_arena, sizeof(one));
    test_net_pass(&t, 2, false);
    memcpy(two, t.net->grad_arena, sizeof(two));
    test_net_pass(&t, 1, false);
    test_net_pass(&t, 2, true);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)t.net->grad_arena[i] - (double)one[i] - (double)two[i];

        assert_true(d < 1e-5 && d > -1e-5);
    }
    assert_true(memcmp(one, two, sizeof(one)) != 0);
    test_net_destroy(&t);
}

typedef struct trace {
    const ct_net *net;
    float seen[8];
    int n;
} trace;

static ct_status note(void *ctx, int k)
{
    trace *t = ctx;

    assert_int_equal(k, t->n);
    t->seen[t->n++] = ct_blob_diff(&t->net->param[k].blob)[0];
    return CT_OK;
}

static ct_status refuse(void *ctx, int k)
{
    (void)ctx;
    return (k == 2) ? CT_ERR_COMM : CT_OK;
}

static ct_status count_poll(void *ctx)
{
    (*(int *)ctx)++;
    return CT_OK;
}

static void ready_gradients_are_final(void **state)
{
    test_net t;
    trace tr = { NULL, { 0 }, 0 };
    int polls = 0;

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &t), CT_OK);
    tr.net = t.net;
    t.net->pass->exec.poll = count_poll;
    t.net->pass->exec.poll_ctx = &polls;
    assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_OK);
    assert_int_equal(polls, t.net->n_layer); /* not after a wait */
    assert_int_equal(t.net->pass->exec.batch_local, 2);
    assert_int_equal(t.net->pass->exec.batch_global, 2);
    assert_int_equal(ct_pass_backward(t.net->pass, note, &tr), CT_OK);
    assert_int_equal(tr.n, 5);
    for (int k = 0; k < 5; k++) assert_true(tr.seen[k] == ct_blob_diff(&t.net->param[k].blob)[0]);
    assert_int_equal(ct_pass_backward(t.net->pass, refuse, NULL), CT_ERR_COMM);
    test_net_destroy(&t);
}

/* Each parameter that learns is waited for once, in front of the first layer that reads it; others
 * are not; a net that shares them waits for none. */
static void waits_stand_before_the_first_reader(void **state)
{
    ct_net_options test = { .phase = CT_TEST };
    int waits[16] = { 0 }, n_learned = 0;
    test_net t, sharing;

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &t), CT_OK);
    assert_true(t.net->n_param <= 16);
    for (int i = 0, layer = 0; i < t.net->n_forward; i++) {
        const ct_step *s = &t.net->forward[i];

        assert_true((s->kind == CT_STEP_WAIT) || (s->kind == CT_STEP_FORWARD));
        assert_int_equal(s->layer, layer); /* in order: WAITs, then their layer */
        if (s->kind == CT_STEP_FORWARD) {
            for (int w = 0; w < t.net->layer[layer]->n_weight; w++) {
                int k = ct_net_param_of(t.net, layer, w);

                assert_int_equal(waits[k], t.net->param[k].learns);
            }
            layer++;
            continue;
        }
        assert_true(t.net->param[s->param].learns);
        waits[s->param]++;
    }
    for (int k = 0; k < t.net->n_param; k++) {
        assert_int_equal(waits[k], t.net->param[k].learns);
        n_learned += t.net->param[k].learns;
    }
    assert_int_equal(t.net->n_forward, t.net->n_layer + n_learned);
    test.share = t.net;
    assert_int_equal(test_net_create(SHARED, &test, &sharing), CT_OK);
    assert_int_equal(sharing.net->n_forward, sharing.net->n_layer);
    test_net_destroy(&sharing);
    test_net_destroy(&t);
}

static void weights_of_another_net(void **state)
{
    static const char test_text[] = SOURCE LINEAR("a", "x", "ya", "param { name: 'w' }")
        LINEAR("b", "ya", "yb", "") LINEAR("c", "yb", "yc", "param { name: 'w' }")
            LINEAR("extra", "yc", "yd", "") LOSS("yd");
    ct_net_options o = { .phase = CT_TEST };
    test_net train, t;
    int64_t version;
    const char *log;

    (void)state;
    assert_int_equal(test_net_create(SHARED, NULL, &train), CT_OK);
    o.share = train.net;
    test_log_start();
    assert_int_equal(test_net_create(test_text, &o, &t), CT_OK);
    log = test_log_stop();
    assert_non_null(strstr(log, "layer \"extra\" (Linear): the net whose weights"));
    assert_null(strstr(log, "\"b\""));
    for (int k = 0; k < t.net->n_param; k++) {
        const ct_param *p = &t.net->param[k];
        int other = ct_net_find_param(train.net, p->key);

        assert_int_equal(p->borrowed, other >= 0);
        assert_false(p->learns);
        if (other >= 0) assert_ptr_equal(p->blob.data.data, train.net->param[other].blob.data.data);
    }
    assert_int_equal(t.net->weight_count, 32);
    assert_null(t.net->grad_arena);
    assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_OK);
    version = t.net->pass->instance[1]->weight_version;
    ct_net_weights_changed(train.net);
    assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_OK);
    assert_true(t.net->pass->instance[1]->weight_version > version);
    test_net_destroy(&t);

    test_net_refused(SOURCE "layer { name: 'a' type: 'Linear' bottom: 'x' top: 'y' "
                            "inner_product_param { num_output: 4 } }",
                     &o, "weight blob 0 has the shape 4 3 (12), but 3 3 (9) in the net");
    test_net_refused(SOURCE "layer { name: 'a' type: 'Stat' bottom: 'x' top: 'y' }", &o,
                     "it has 1 weight blobs, but 2 in the net");
    test_net_destroy(&train);
}

/* An arena that counts, and whose base is aligned to 4 bytes only, as a window's may be. */
typedef struct window {
    char *block;
    int n_acquire, n_release;
} window;

static ct_status window_acquire(void *ctx, size_t bytes, const char *what, void **block_p)
{
    window *w = ctx;

    assert_string_equal(what, "gradients");
    w->block = calloc(1, bytes + 64);
    w->n_acquire++;
    *block_p = w->block + 4;
    return CT_OK;
}

static void window_release(void *ctx, void *block)
{
    window *w = ctx;

    assert_ptr_equal(block, w->block + 4);
    free(w->block);
    w->n_release++;
}

static void gradients_in_a_window(void **state)
{
    window w = { NULL, 0, 0 };
    ct_arena_ops arena = { CT_ARENA_SHARED, &w, window_acquire, window_release };
    ct_net_options o = { .phase = CT_TRAIN, .grad_arena = &arena };
    test_net t, plain;

    (void)state;
    assert_int_equal(test_net_create(SHARED, &o, &t), CT_OK);
    assert_int_equal(test_net_create(SHARED, NULL, &plain), CT_OK);
    assert_ptr_equal(t.net->grad_arena, w.block + 4);
    test_net_pass(&t, 0, false);
    test_net_pass(&plain, 0, false);
    test_same(t.net->grad_arena, plain.net->grad_arena, t.net->grad_count, "gradients");
    test_net_destroy(&plain);
    test_net_destroy(&t);
    assert_int_equal(w.n_acquire, 1);
    assert_int_equal(w.n_release, 1);
}

/* ---- gradients that share memory: ct_net_options.window */

#define DEEP                                                                                       \
    SOURCE LINEAR("a", "x", "ya", "param { name: 'w' }") LINEAR("b", "ya", "yb", "")               \
        LINEAR("c", "yb", "yc", "") LINEAR("d", "yc", "yd", "param { name: 'w' }")                 \
            LINEAR("e", "yd", "ye", "") LOSS("ye")

/* A chunk of every learned parameter, or of every so many. */
static ct_status cut_every(void *ctx, const ct_net *net, bool *begins)
{
    for (int i = 0; (i < net->n_param) && net->param[i].learns; i++)
        begins[i] = (i % *(const int *)ctx == 0);
    return CT_OK;
}

/* The steps of backward in which a parameter's gradient is written first, and waited for. */
static void life_of(const ct_net *net, int k, int *first_p, int *last_p)
{
    *first_p = *last_p = net->n_backward;
    for (int s = net->n_backward - 1; s >= 0; s--) {
        const ct_step *step = &net->backward[s];

        if ((step->kind == CT_STEP_WAIT) && (step->param == k)) *last_p = s;
        if (step->kind != CT_STEP_BACKWARD) continue;
        for (int w = 0; w < net->layer[step->layer]->n_weight; w++)
            if (ct_net_param_of(net, step->layer, w) == k) *first_p = s;
    }
}

static bool lie_apart(const ct_param *a, const ct_param *b)
{
    int64_t x = a->offset + a->grad_shift, y = b->offset + b->grad_shift;

    return (x + a->count <= y) || (y + b->count <= x);
}

/* What its BEGIN finds, behind which others may write there. */
typedef struct copies {
    const ct_net *net;
    float *final; /* as the gradients of a net without a window */
    int n;
} copies;

static ct_status copy_final(void *ctx, int k)
{
    copies *c = ctx;
    const ct_param *p = &c->net->param[k];

    memcpy(c->final + p->offset, ct_blob_diff(&p->blob), (size_t)p->count * sizeof(float));
    c->n++;
    return CT_OK;
}

static void window_is_as_whole(int every, int lag)
{
    const ct_net_window share = { .cut = cut_every, .ctx = &every, .gradients = true, .lag = lag };
    test_net t, whole;
    copies c = { .net = NULL };
    const ct_step_after after = { .ready = copy_final, .ready_ctx = &c };

    assert_int_equal(test_net_create(DEEP, NULL, &whole), CT_OK);
    assert_int_equal(test_net_create(DEEP, &(ct_net_options){ .window = &share }, &t), CT_OK);
    assert_int_equal(whole.net->grad_memory, whole.net->grad_count);
    assert_int_equal(t.net->grad_count, whole.net->grad_count);
    assert_true(t.net->grad_memory < t.net->grad_count);
    assert_int_equal(t.net->memory.allocated, t.net->memory.planned + t.net->memory.weights);
    for (int i = 0; i < t.net->n_param; i++) {
        int first, last;

        life_of(t.net, i, &first, &last);
        assert_true(first < last);
        for (int k = 0; k < i; k++) {
            int other, end;

            life_of(t.net, k, &other, &end);
            assert_true(lie_apart(&t.net->param[i], &t.net->param[k]) || (end < first) ||
                        (last < other));
        }
    }
    test_net_pass(&whole, 0, false);
    c = (copies){ t.net, calloc((size_t)t.net->grad_count, sizeof(float)), 0 };
    assert_int_equal(ct_pass_forward_begin(t.net->pass), CT_OK);
    assert_int_equal(ct_pass_backward_and(t.net->pass, &after), CT_OK);
    assert_int_equal(c.n, t.net->n_param);
    test_same(c.final, whole.net->grad_arena, t.net->grad_count, "gradients");
    free(c.final);
    test_net_destroy(&t);
    test_net_destroy(&whole);
}

static void gradients_share_memory(void **state)
{
    (void)state;
    setenv("CORTADO_POISON", "1", 1);
    window_is_as_whole(1, 0);
    window_is_as_whole(1, 2);
    window_is_as_whole(2, 1);
    unsetenv("CORTADO_POISON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_order_and_ready),
        cmocka_unit_test(statistics_and_frozen_come_last),
        cmocka_unit_test(sharing_is_checked),
        cmocka_unit_test(permissive_sharing_compares_counts),
        cmocka_unit_test(multipliers_merge),
        cmocka_unit_test(one_axis_is_spared),
        cmocka_unit_test(a_table_sends_rows),
        cmocka_unit_test(other_tables_do_not),
        cmocka_unit_test(shared_gradients_add_up),
        cmocka_unit_test(micro_batches_accumulate),
        cmocka_unit_test(ready_gradients_are_final),
        cmocka_unit_test(waits_stand_before_the_first_reader),
        cmocka_unit_test(weights_of_another_net),
        cmocka_unit_test(gradients_in_a_window),
        cmocka_unit_test(gradients_share_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
