/* What a run before left behind, on its way to the weights: it arrives whole, no step goes farther
 * by it than by itself, and the number of threads changes no bit. */
#include "tests/solver_harness.h"
#include "tests/test.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "framework/snapshot/residual_drain.h"

enum { N_INNER = 300 * 250 }; /* enough that a team sums and adds them */

#define NET                                                                                        \
    "net_param { name: 'late' layer { name: 'data' type: 'DummyData' top: 'x' top: 'z' "           \
    "dummy_data_param { shape { dim: 2 dim: 250 } shape { dim: 2 dim: 300 } } } layer { name: "    \
    "'ip' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { num_output: 300 "        \
    "weight_filler { type: 'gaussian' std: 1 } } } layer { name: 'loss' type: 'EuclideanLoss' "    \
    "bottom: 'y' bottom: 'z' top: 'loss' } } "                                                     \
    "base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 snapshot_after_train: false random_seed: 1 "

static double norm(const double *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

typedef struct walk {
    ct_net *net;
    ct_residual_drain late;
    double v[N_INNER], moved[N_INNER], start[N_INNER]; /* what is left; by updates; weights */
    int param, n_step;
} walk;

static float *weight_of(const walk *k)
{
    return ct_blob_data(&k->net->param[k->param].blob);
}

static void begin(walk *k, ct_net *net, float rate, float size)
{
    static float v[N_INNER];
    const float *w = NULL;

    memset(k, 0, sizeof(*k));
    k->net = net;
    while (net->param[k->param].count != N_INNER) k->param++;
    assert_true(net->param[k->param].learns);
    w = weight_of(k);
    for (int i = 0; i < N_INNER; i++) {
        v[i] = size * ct_rng_normal_at(5, (uint64_t)i);
        k->v[i] = v[i];
        k->start[i] = w[i];
    }
    assert_int_equal(ct_residual_drain_add(net, &k->late, k->param, rate, v), CT_OK);
    for (int i = 0; i < net->n_param; i++)
        assert_int_equal(ct_residual_drain_has(&k->late, i), i == k->param);
}

/* An update of a given size; the weights then are where it and a share of V bring them. */
static void step(walk *k, float rate, float carry, float size)
{
    static double before[N_INNER], extra[N_INNER], update[N_INNER];
    float *w = weight_of(k);
    double share = 0;

    for (int i = 0; i < N_INNER; i++) before[i] = w[i];
    assert_int_equal(ct_residual_drain_begin(k->net, &k->late, NULL, k->param), CT_OK);
    for (int i = 0; i < N_INNER; i++)
        w[i] -= size * ct_rng_normal_at(100 + (uint64_t)k->n_step, (uint64_t)i);
    for (int i = 0; i < N_INNER; i++) {
        update[i] = before[i] - w[i];
        before[i] = w[i];
        k->moved[i] += update[i];
        k->v[i] *= carry;
    }
    share = fmin(1, norm(update, N_INNER) / norm(k->v, N_INNER));
    assert_int_equal(ct_residual_drain_end(k->net, &k->late, NULL, k->param, rate), CT_OK);
    for (int i = 0; i < N_INNER; i++) {
        extra[i] = before[i] - w[i];
        /* the weight, below 16, is rounded; V and its share a few times in every step */
        assert_true(fabs(extra[i] - share * k->v[i]) <=
                    8 * 0x1p-24 + 6 * (k->n_step + 2) * 0x1p-24 * fabs(k->v[i]));
        k->v[i] -= share * k->v[i];
    }
    assert_true(norm(extra, N_INNER) <= norm(update, N_INNER) * (1 + 1e-5));
    k->n_step++;
}

static void test_arrives(void **state)
{
    static walk k;
    test_solver t;
    ct_net *net = NULL;
    const float *w = NULL;

    (void)state;
    assert_int_equal(test_solver_create(NET, NULL, NULL, NULL, &t), CT_OK);
    net = ct_solver_net(t.solver);
    begin(&k, net, 0.1f, 1.0f);
    w = weight_of(&k);
    /* 20 updates of a twentieth, and a little more for what is rounded */
    for (int s = 0; (s < 21) && (k.late.v != NULL); s++) step(&k, 0.1f, 1, 0.05f);
    assert_null(k.late.v);
    assert_in_range(k.n_step, 19, 21);
    for (int i = 0; i < N_INNER; i++) {
        double want = k.start[i] - k.moved[i] - ct_rng_normal_at(5, (uint64_t)i);

        assert_true(fabs(want - w[i]) <= 2 * 21 * 16 * 0x1p-24);
    }
    /* a new rate: a tenth of it arrives; where the rate is 0 nothing happens to it */
    begin(&k, net, 0.1f, 1.0f);
    step(&k, 0.1f, 1, 0.05f);
    step(&k, 0.0f, 1, 0.0f);
    assert_true(ct_residual_drain_has(&k.late, k.param));
    step(&k, 0.01f, 0.1f, 0.05f);
    step(&k, 0.01f, 1, 0.2f);
    assert_null(k.late.v);
    /* also where the first step has it */
    begin(&k, net, 0.1f, 1.0f);
    step(&k, 0.01f, 0.1f, 0.05f);
    ct_residual_drain_close(net, &k.late);
    /* a rate that is not known counts as the first */
    begin(&k, net, 0, 0.1f);
    step(&k, 0.3f, 1, 0.01f);
    step(&k, 0.3f, 1, 1);
    assert_null(k.late.v);
    test_solver_destroy(&t);
}

/* Of two parameters one arrives first, and the other waits on. What is added twice counts at the
 * rate of the first. */
static void test_two(void **state)
{
    enum { N_BIAS = 300 };
    static const float v[N_INNER] = { 1, -2 };
    ct_residual_drain late = { .v = NULL };
    test_solver t;
    ct_net *net = NULL;
    float *w, *b;

    (void)state;
    assert_int_equal(test_solver_create(NET, NULL, NULL, NULL, &t), CT_OK);
    net = ct_solver_net(t.solver);
    assert_int_equal(net->n_param, 2);
    assert_int_equal(net->param[1].count, N_BIAS);
    w = ct_blob_data(&net->param[0].blob);
    b = ct_blob_data(&net->param[1].blob);
    assert_int_equal(ct_residual_drain_add(net, &late, 0, 0.5f, v), CT_OK);
    assert_int_equal(ct_residual_drain_add(net, &late, 1, 0.5f, v), CT_OK);
    assert_int_equal(ct_residual_drain_add(net, &late, 1, 1.0f, v), CT_OK);
    for (int param = 0; param < 2; param++) {
        float *x = (param == 0) ? w : b, before[2] = { x[0], x[1] };
        double scale = (param == 0) ? 1 : 1.5;

        assert_true(ct_residual_drain_has(&late, param));
        assert_int_equal(ct_residual_drain_begin(net, &late, NULL, param), CT_OK);
        x[2] += 64; /* an update larger than what is late */
        assert_int_equal(ct_residual_drain_end(net, &late, NULL, param, 0.5f), CT_OK);
        assert_false(ct_residual_drain_has(&late, param));
        for (int i = 0; i < 2; i++)
            assert_true(fabs(before[i] - scale * v[i] - x[i]) <= 8 * 0x1p-24);
        assert_true((late.v != NULL) == (param == 0));
    }
    test_solver_destroy(&t);
}

static void test_threads(void **state)
{
    static float first[N_INNER];
    static walk k;
    int most = omp_get_max_threads();

    (void)state;
    for (int n = 1; n <= 4; n++) {
        test_solver t;
        ct_net *net = NULL;

        omp_set_num_threads(n);
        assert_int_equal(test_solver_create(NET, NULL, NULL, NULL, &t), CT_OK);
        net = ct_solver_net(t.solver); /* with the same weights, of the same seed */
        begin(&k, net, 0.1f, 1.0f);
        for (int s = 0; s < 5; s++)
            step(&k, 0.1f / (float)(s + 1), (s > 0) ? (float)s / (float)(s + 1) : 1, 0.01f);
        if (n == 1) memcpy(first, weight_of(&k), sizeof(first));
        assert_memory_equal(first, weight_of(&k), sizeof(first));
        ct_residual_drain_close(net, &k.late);
        test_solver_destroy(&t);
    }
    omp_set_num_threads(most);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_arrives), cmocka_unit_test(test_two),
                                        cmocka_unit_test(test_threads) };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
