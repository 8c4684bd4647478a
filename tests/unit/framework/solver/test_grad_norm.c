/* The norm of gradients that land in any order and in any parts has the bits of the whole arena's
 * sum, and knows what is missing. Those of the sum itself: test_square_tree.c. */
#include "tests/test.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"
#include "tests/thread_ranks.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static ct_status look_after(void *ctx)
{
    (void)ctx;
    return CT_OK;
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
        t.net->pass->exec.poll = (run % 4 < 2) ? look_after : NULL; /* communication meanwhile */
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

/* ---- ranks that have some lines each */

enum { N_LIST = 3 };
static const int64_t list_count[N_LIST] = { 3 * CT_SQUARE_BLOCK + 77, CT_SQUARE_LINE + 3, 1 };

static float number_of(int list, int64_t i)
{
    return (float)ct_rng_philox(11, (uint64_t)list, (uint64_t)i).v[0] * 0x1p-30f - 2.0f;
}

/* The numbers of lists that rank r of n has. */
static ct_status add_own(ct_square_sums *s, int r, int n)
{
    for (int l = 0; l < N_LIST; l++) {
        int64_t lines = (list_count[l] + CT_SQUARE_LINE - 1) / CT_SQUARE_LINE;
        int64_t from = lines * r / n * CT_SQUARE_LINE, to = lines * (r + 1) / n * CT_SQUARE_LINE;
        float *v = malloc((size_t)(to - from + 1) * sizeof(*v));
        ct_status status;

        if (to > list_count[l]) to = list_count[l];
        for (int64_t i = from; i < to; i++) v[i - from] = number_of(l, i);
        status = ct_square_sums_add(s, l, from, to - from, v);
        free(v);
        CT_TRY(status);
    }
    return CT_OK;
}

static ct_status sum_of_ranks(const ct_group *g, double *sum)
{
    ct_square_sums s;
    ct_status status = ct_square_sums_open(list_count, N_LIST, &s);

    ct_square_sums_begin(&s, 0, N_LIST);
    if (status == CT_OK) status = add_own(&s, g->rank, g->size);
    /* of no lists, of one, and of the others */
    if (status == CT_OK) status = ct_square_sums_share(g, &s, 1, 0);
    if (status == CT_OK) status = ct_square_sums_share(g, &s, 1, 1);
    if (status == CT_OK) status = ct_square_sums_share(g, &s, 0, 1);
    if (status == CT_OK) status = ct_square_sums_share(g, &s, 2, 1);
    for (int l = 0; (l < N_LIST) && (status == CT_OK); l++)
        status = ct_square_sums_of(&s, l, &sum[l]);
    ct_square_sums_close(&s);
    return status;
}

static ct_status share_sums(thread_rank *rank)
{
    ct_net none = { .n_param = 0 };
    ct_exchange x;

    CT_TRY(thread_rank_open(rank, &none, &x));
    return sum_of_ranks(&x.job, rank->out);
}

/* Whoever has which lines: all have the bits of one that has all. */
static void ranks_have_the_same_sums(void **state)
{
    double want[N_LIST], got[4][N_LIST];

    (void)state;
    assert_int_equal(sum_of_ranks(&(ct_group){ .size = 1 }, want), CT_OK);
    for (int l = 0; l < N_LIST; l++) {
        double sum = 0;

        for (int64_t i = 0; i < list_count[l]; i++)
            sum += (double)number_of(l, i) * (double)number_of(l, i);
        assert_true(fabs(want[l] - sum) <= (double)list_count[l] * 0x1p-52 * sum);
    }
    for (int n = 2; n <= 4; n++) {
        thread_ranks job = { .n = n, .run = share_sums };
        thread_rank rank[4];

        memset(got, 0, sizeof(got));
        for (int r = 0; r < n; r++) rank[r] = (thread_rank){ .out = got[r] };
        assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
        for (int r = 0; r < n; r++) assert_memory_equal(got[r], want, sizeof(want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_sum),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(ranks_have_the_same_sums),
    };

    alarm(60);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
