/* Updates against Caffe's rule written down again in double precision. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_WEIGHT = 8, N_STEP = 6 };

/* Fields, then a net with one Probe; lr_mult and decay_mult of its two weights. */
#define NET                                                                                        \
    "net_param { name: 'probe' layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param "  \
    "{ "                                                                                           \
    "shape { dim: 4 dim: 1 } } } layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "         \
    "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0.5 } } } "                 \
    "random_seed: 3 snapshot_after_train: false max_iter: 6 "

typedef struct sgd_rule { /* what the text says */
    double lr, gamma, momentum, decay, clip;
    bool l1;
    int iter_size;
} sgd_rule;

/* element i of the two weights, 5 and 3 long */
static int weight_of(int i)
{
    return (i < 5) ? 0 : 1;
}

static double sign(double v)
{
    return (double)(v > 0) - (double)(v < 0);
}

/* Caffe: ClipGradients, Normalize, Regularize, ComputeUpdateValue, Update. */
static void reference_step(const sgd_rule *r, int64_t step, double *w, double *h)
{
    static const double lr_mult[] = { 1, 2 }, decay_mult[] = { 1, 0.5 };
    double g[N_WEIGHT] = { 0 }, norm = 0, rate = r->lr * pow(r->gamma, (double)step);

    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);

        for (int m = 0; m < r->iter_size; m++)
            g[i] += probe_gradient(k, i - 5 * k, step * r->iter_size + m, w[i]);
        norm += g[i] * g[i];
    }
    norm = sqrt(norm);
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);
        double decay = r->decay * decay_mult[k];

        if ((r->clip >= 0) && (norm > r->clip)) g[i] *= r->clip / norm;
        g[i] /= r->iter_size;
        g[i] += decay * (r->l1 ? sign(w[i]) : w[i]);
        h[i] = rate * lr_mult[k] * g[i] + r->momentum * h[i];
        w[i] -= h[i];
    }
}

static void get_weights(ct_solver *s, double *w)
{
    ct_net *net = ct_solver_net(s);

    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i), p = ct_net_find_param(net, (k == 0) ? "p[0]" : "p[1]");

        assert_true(p >= 0);
        w[i] = (double)ct_blob_data(&net->param[p].blob)[i - 5 * k];
    }
}

/* Each step rounds a weight, a history element and a gradient a handful of times, each time by at
 * most half an epsilon of values below `size`; the gradient feeds a deviation back with a factor
 * below 1 per step. */
static void check(const char *fields, const sgd_rule *r)
{
    double w[N_WEIGHT], got[N_WEIGHT], h[N_WEIGHT] = { 0 }, size = 1, start[N_WEIGHT];
    char text[2048];
    test_solver t;

    snprintf(text, sizeof(text), "%s " NET, fields);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    get_weights(t.solver, w);
    memcpy(start, w, sizeof(w));
    for (int step = 0; step < N_STEP; step++) {
        reference_step(r, step, w, h);
        for (int i = 0; i < N_WEIGHT; i++) size = fmax(size, fmax(fabs(w[i]), fabs(h[i])));
    }
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), N_STEP);
    get_weights(t.solver, got);
    for (int i = 0; i < N_WEIGHT; i++) {
        double tolerance = N_STEP * 16 * (r->iter_size + 1) * (double)FLT_EPSILON * size;

        if (!(fabs(got[i] - w[i]) <= tolerance))
            fail_msg("weight %d: %.9g, expected %.9g +- %.2g", i, got[i], w[i], tolerance);
        if (r->lr > 0) assert_true(fabs(got[i] - start[i]) > 1e-3); /* it did learn */
    }
    test_solver_destroy(&t);
}

static void test_plain(void **state)
{
    (void)state;
    check("base_lr: 0.1 lr_policy: 'fixed'",
          &(sgd_rule){ .lr = 0.1, .gamma = 1, .clip = -1, .iter_size = 1 });
}

static void test_momentum_and_l2(void **state)
{
    (void)state;
    check(
        "base_lr: 0.1 lr_policy: 'exp' gamma: 0.5 momentum: 0.9 weight_decay: 0.25",
        &(sgd_rule){
            .lr = 0.1, .gamma = 0.5, .momentum = 0.9, .decay = 0.25, .clip = -1, .iter_size = 1 });
}

static void test_l1(void **state)
{
    (void)state;
    check("base_lr: 0.1 lr_policy: 'fixed' momentum: 0.5 weight_decay: 0.25 regularization_type: "
          "'L1'",
          &(sgd_rule){ .lr = 0.1,
                       .gamma = 1,
                       .momentum = 0.5,
                       .decay = 0.25,
                       .clip = -1,
                       .l1 = true,
                       .iter_size = 1 });
}

static void test_iter_size(void **state)
{
    (void)state;
    check("base_lr: 0.2 lr_policy: 'fixed' momentum: 0.5 weight_decay: 0.25 iter_size: 3",
          &(sgd_rule){
              .lr = 0.2, .gamma = 1, .momentum = 0.5, .decay = 0.25, .clip = -1, .iter_size = 3 });
}

static void test_clip(void **state)
{
    sgd_rule r = {
        .lr = 0.2, .gamma = 1, .momentum = 0.5, .decay = 0.25, .clip = 0.7, .iter_size = 1
    };

    (void)state;
    test_log_all_start();
    check("base_lr: 0.2 lr_policy: 'fixed' momentum: 0.5 weight_decay: 0.25 clip_gradients: 0.7",
          &r);
    assert_non_null(strstr(test_log_all(), "Gradient clipping: scaling down gradients (L2 norm "));
    test_log_all_stop();
    /* the norm is taken before the division by iter_size */
    r.iter_size = 3;
    check("base_lr: 0.2 lr_policy: 'fixed' momentum: 0.5 weight_decay: 0.25 clip_gradients: 0.7 "
          "iter_size: 3",
          &r);
    r.clip = 1e6; /* never reached */
    check("base_lr: 0.2 lr_policy: 'fixed' momentum: 0.5 weight_decay: 0.25 clip_gradients: 1e6 "
          "iter_size: 3",
          &r);
}

static void test_types(void **state)
{
    const ct_update_rule *rule = NULL;

    (void)state;
    assert_int_equal(ct_update_rule_find(NULL, &rule), CT_OK);
    assert_string_equal(rule->type, "SGD");
    test_log_all_start();
    assert_int_equal(ct_update_rule_find("SGDD", &rule), CT_ERR_CONFIG);
    assert_non_null(strstr(test_log_all(), "\"SGDD\" is unknown; did you mean \"SGD\"?"));
    test_log_all_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_momentum_and_l2),
        cmocka_unit_test(test_l1),    cmocka_unit_test(test_iter_size),
        cmocka_unit_test(test_clip),  cmocka_unit_test(test_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
