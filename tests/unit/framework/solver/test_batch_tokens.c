/* batch_tokens: as many micro-batches as make so many tokens, on any number of ranks, bit by bit
 * what iter_size gives; clip_gradients is a limit of their mean. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "framework/solver/solver_private.h"

enum { T = 6 };

/* N sequences of T words, of which two layers read: the longer counts. */
#define TEXT(shape, words)                                                                         \
    "net_param { name: 'text' layer { name: 'data' type: 'DummyData' top: 'w' top: 'p' top: 'y' "  \
    "dummy_data_param { shape { " shape " } shape { dim: %d dim: 1 } shape { dim: %d dim: 5 } "    \
    "data_filler { value: 3 } data_filler { value: 2 } data_filler { type: 'gaussian' std: 1 } "   \
    "} } " words "layer { name: 'f' type: 'InnerProduct' bottom: 'e' top: 'f' "                    \
    "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } } "                    \
    "layer { name: 'g' type: 'Embed' bottom: 'p' top: 'g' embed_param { num_output: 5 "            \
    "input_dim: 4 weight_filler { type: 'uniform' min: -1 } } } "                                  \
    "layer { name: 'r' type: 'Reshape' bottom: 'g' top: 'r' reshape_param { shape { dim: 0 dim: "  \
    "5 } } } layer { name: 's' type: 'Eltwise' bottom: 'f' bottom: 'r' top: 's' } "                \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 's' bottom: 'y' top: 'loss' } } "
#define EMBED                                                                                      \
    "layer { name: 'e' type: 'Embed' bottom: 'w' top: 'e' embed_param { num_output: 3 input_dim: " \
    "8 weight_filler { type: 'uniform' min: -1 } } } "
#define NET TEXT("dim: %d dim: 6", EMBED)
#define SOLVER                                                                                     \
    "base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 random_seed: 3 max_iter: 5 "                    \
    "snapshot_after_train: false "

typedef struct outcome {
    char text[4096];
    uint64_t checksum;
    int iter_size;
    double per_s;
} outcome;

static ct_status run_rank(thread_rank *r)
{
    outcome *o = r->out;
    test_solver t;
    ct_status status = test_solver_create(o->text, r, NULL, NULL, &t);

    if (status == CT_OK) status = ct_solver_run(t.solver);
    if (status == CT_OK) {
        o->checksum = ct_net_checksum(ct_solver_net(t.solver), true);
        o->iter_size = ct_solver_iter_size(t.solver);
        o->per_s = ct_solver_tokens_per_s(t.solver) / ct_solver_images_per_s(t.solver);
    }
    test_solver_destroy(&t);
    return status;
}

/* On n ranks of `batch` sequences each. */
static ct_status run(const char *fields, int n, int batch, outcome *o)
{
    thread_ranks job = { .n = n, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];
    outcome all[4];
    ct_status status;

    for (int r = 0; r < n; r++) {
        int used = snprintf(all[r].text, sizeof(all[r].text), "%s " SOLVER, fields);

        snprintf(all[r].text + used, sizeof(all[r].text) - (size_t)used, NET, batch, batch, batch);
        rank[r] = (thread_rank){ .out = &all[r] };
    }
    status = thread_ranks_run(&job, rank);
    *o = all[0];
    return status;
}

static void same_as_iter_size(void **state)
{
    outcome tokens, micro;

    (void)state;
    for (int n = 1; n <= 4; n++) {
        char fields[2][128];

        snprintf(fields[0], sizeof(fields[0]), "batch_tokens: %d", 3 * n * 2 * T);
        snprintf(fields[1], sizeof(fields[1]), "iter_size: 3");
        assert_int_equal(run(fields[0], n, 2, &tokens), CT_OK);
        assert_int_equal(run(fields[1], n, 2, &micro), CT_OK);
        assert_int_equal(tokens.iter_size, 3);
        assert_true(tokens.checksum == micro.checksum);
        assert_true(fabs(tokens.per_s - T) < 1e-12 * T);
    }
    /* the tokens of a step, not of a rank: twice the ranks, half the batches */
    assert_int_equal(run("batch_tokens: 96", 1, 2, &tokens), CT_OK);
    assert_int_equal(tokens.iter_size, 8);
    assert_int_equal(run("batch_tokens: 96", 2, 2, &tokens), CT_OK);
    assert_int_equal(tokens.iter_size, 4);
}

/* A sum of three has three times the norm of their mean. */
static void clips_the_mean(void **state)
{
    outcome tokens, micro, other;

    (void)state;
    for (int n = 1; n <= 2; n++) {
        char fields[128];

        snprintf(fields, sizeof(fields), "clip_gradients: 0.25 batch_tokens: %d", 4 * n * 2 * T);
        test_log_all_start();
        assert_int_equal(run(fields, n, 2, &tokens), CT_OK);
        test_log_holds("Gradient clipping: scaling down gradients (L2 norm ");
        test_log_holds(" > 0.25) by scale factor ");
        test_log_all_stop();
        assert_int_equal(run("clip_gradients: 1 iter_size: 4", n, 2, &micro), CT_OK);
        assert_int_equal(run("clip_gradients: 0.25 iter_size: 4", n, 2, &other), CT_OK);
        assert_true(tokens.checksum == micro.checksum);
        assert_true(tokens.checksum != other.checksum);
    }
}

static void refused(const char *text, const char *says)
{
    test_solver t;

    test_log_all_start();
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_ERR_CONFIG);
    test_log_holds(says);
    test_log_all_stop();
    test_solver_destroy(&t);
}

static void what_does_not_fit_is_said(void **state)
{
    char net[4096], text[4096 + 256];

    (void)state;
    snprintf(net, sizeof(net), NET, 2, 2, 2);
    snprintf(text, sizeof(text), "batch_tokens: 100 " SOLVER "%s", net);
    refused(text,
            "batch_tokens is 100, but a batch of 2 samples on all ranks has 12 tokens: take a "
            "multiple of that, such as 96");
    snprintf(text, sizeof(text), "batch_tokens: 5 " SOLVER "%s", net);
    refused(text, "has 12 tokens: take a multiple of that, such as 12");
    snprintf(text, sizeof(text), "batch_tokens: 24 iter_size: 2 " SOLVER "%s", net);
    refused(text, "batch_tokens is 24 and iter_size 2: both say");
    snprintf(text, sizeof(text), "batch_tokens: -1 " SOLVER "%s", net);
    refused(text, "batch_tokens is -1, needs at least 0");
    /* one number a sample is no sequence */
    snprintf(net, sizeof(net),
             TEXT("dim: %d dim: 3", "layer { name: 'e' type: 'TanH' bottom: 'w' top: 'e' } "), 2, 2,
             2);
    snprintf(text, sizeof(text), "batch_tokens: 24 " SOLVER "%s", net);
    refused(text, "no layer of net \"text\" reads any (Embed does); take iter_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_iter_size),
        cmocka_unit_test(clips_the_mean),
        cmocka_unit_test(what_does_not_fit_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
