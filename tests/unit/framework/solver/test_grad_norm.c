/* The norm of gradients that land in any order and in any parts has the bits of the whole arena's
 * sum, and knows what is missing. Those of the sum itself: test_square_tree.c. */
#include "tests/test.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/solver/grad_norm.h"

/* Sizes that are no multiples of a line; the third is longer than a block. */
#define IP(name, bottom, n)                                                                        \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name "' "          \
    "inner_product_param { num_output: " n " weight_filler { type: 'gaussian' std: 1 } } } "
#define NET                                                                                        \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 1 dim: 7 } "  \
    "} } " IP("a", "x", "5") IP("b", "a", "2001") IP("c", "b", "37")                               \
        IP("d", "c", "3") "layer { name: 'loss' type: 'Reduction' bottom: 'd' top: 'loss' "        \
                          "loss_weight: 1 } "

static void open_net(test_net *t)
{
    const ct_net_options options = { .phase = CT_TRAIN, .table = test_full_table(NULL) };
    uint64_t key = ct_rng_key(7, 0, 0);

    assert_int_equal(test_net_create(NET, &options, t), CT_OK);
    for (int i = 0; i < t->net->n_param; i++) {
        const ct_param *p = &t->net->param[i];

        assert_true(p->learns);
        for (int64_t k = 0; k < p->count; k++) {
            uint32_t bits = ct_rng_philox(key, (uint64_t)i, (uint64_t)k).v[0];

            ct_blob_diff(&p->blob)[k] = (float)bits * 0x1p-30f - 2.0f;
        }
    }
}

/* All of a parameter in n parts. */
static void land_in_parts(test_net *t, ct_grad_norm *n, int i, int parts)
{
    ct_exec *ex = &t->net->pass->exec;
    int64_t count = t->net->param[i].count, at = 0;

    for (int k = parts; k > 0; k--) { /* the last first */
        int64_t from = count * (k - 1) / parts / CT_SQUARE_LINE * CT_SQUARE_LINE;
        int64_t to = (k == parts) ? count : count * k / parts / CT_SQUARE_LINE * CT_SQUARE_LINE;

        assert_int_equal(ct_grad_norm_part(t->net, n, ex, i, from, to - from,
                                           ct_blob_diff(&t->net->param[i].blob) + from),
                         CT_OK);
        at += to - from;
    }
    assert_int_equal(at, count);
    assert_int_equal(ct_grad_norm_landed(t->net, n, ex, i, 1), CT_OK);
}

static void check(ct_grad_norm *n, double want)
{
    double got = 0;

    assert_int_equal(ct_grad_norm_square(n, &got), CT_OK);
    if (got != want) fail_msg("%.17g, not %.17g", got, want);
}

static void bits_are_those_of_the_sum(void **state)
{
    int threads = omp_get_max_threads();
    ct_square_sums whole;
    ct_grad_norm n;
    double want = 0;
    test_net t;
    int n_param;

    (void)state;
    open_net(&t);
    n_param = t.net->n_param;
    assert_int_equal(ct_square_sums_open(&t.net->grad_count, 1, &whole), CT_OK);
    assert_int_equal(ct_square_sums_add(&whole, 0, 0, t.net->grad_count, t.net->grad_arena), CT_OK);
    assert_int_equal(ct_square_sums_of(&whole, 0, &want), CT_OK);
    ct_square_sums_close(&whole);
    assert_int_equal(ct_grad_norm_open(t.net, NULL, &n), CT_OK);
    assert_true(n.sums.n_block > 1);
    for (int run = 0; run < 24; run++) {
        uint64_t key = ct_rng_key((uint64_t)run, 1, 0);

        omp_set_num_threads(1 + run % 3);
        ct_grad_norm_begin(t.net, &n);
        for (int k = 0; k < n_param; k++) {
            int i = (int)ct_rng_permute(key, (uint64_t)k, (uint64_t)n_param);

            if (run % 2 == 0)
                assert_int_equal(ct_grad_norm_landed(t.net, &n, &t.net->pass->exec, i, 1), CT_OK);
            else
                land_in_parts(&t, &n, i, 1 + run % 7);
        }
        check(&n, want);
    }
    ct_grad_norm_begin(t.net, &n); /* all at once, as on one rank */
    assert_int_equal(ct_grad_norm_landed(t.net, &n, &t.net->pass->exec, 0, n_param), CT_OK);
    check(&n, want);
    omp_set_num_threads(threads);
    ct_grad_norm_close(&n);
    test_net_destroy(&t);
}

/* What is not there yet makes no norm, and nothing of the step before stays. */
static void what_is_missing_is_said(void **state)
{
    ct_grad_norm n;
    test_net t;
    double got = 7;

    (void)state;
    open_net(&t);
    assert_int_equal(ct_grad_norm_open(t.net, NULL, &n), CT_OK);
    for (int lost = 0; lost < t.net->n_param; lost++) {
        log_capture log;

        ct_grad_norm_begin(t.net, &n);
        for (int i = 0; i < t.net->n_param; i++)
            if (i != lost)
                assert_int_equal(ct_grad_norm_landed(t.net, &n, &t.net->pass->exec, i, 1), CT_OK);
        log_capture_start(&log);
        assert_int_equal(ct_grad_norm_square(&n, &got), CT_ERR_ARG);
        log_capture_stop();
        if (strstr(log.error, "the norm of the gradients lacks ") == NULL)
            fail_msg("it says: %s", log.error);
        assert_true(got == 7);
    }
    ct_grad_norm_close(&n);
    test_net_destroy(&t);
}

/* As a sum of doubles has it: not a number, or without bound. */
static void what_is_not_finite_shows(void **state)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    ct_grad_norm n;
    test_net t;

    (void)state;
    open_net(&t);
    assert_int_equal(ct_grad_norm_open(t.net, NULL, &n), CT_OK);
    for (int k = 0; k < 3; k++) {
        double got = 0;

        ct_blob_diff(&t.net->param[2].blob)[1] = odd[k];
        ct_grad_norm_begin(t.net, &n);
        assert_int_equal(ct_grad_norm_landed(t.net, &n, &t.net->pass->exec, 0, t.net->n_param),
                         CT_OK);
        assert_int_equal(ct_grad_norm_square(&n, &got), CT_OK);
        assert_true((k == 0) ? isnan(got) : (isinf(got) && (got > 0)));
    }
    ct_grad_norm_close(&n);
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_sum),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(what_is_not_finite_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
