/* Tables, estimate, memory and simulation of a configuration against figures worked out by hand,
 * and the search over all of them against trying everything. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/pipeline_search.h"

enum { N_LAYER = 6, N_DEGREE = 2, N_CLASS = 2, N_NODE = 4 };

/* A net of 6 layers on 4 nodes of 2 ranks; the last node is of the slower class 1. */
static const int degree[N_DEGREE] = { 1, 2 };
static const double rho[N_DEGREE] = { 0.25, 0.5 };
static const double inside[N_CLASS] = { 100, 50 }, inject[N_CLASS] = { 10, 20 };
static double forward_s[N_CLASS][N_DEGREE][N_LAYER], backward_s[N_CLASS][N_DEGREE][N_LAYER];
static double cut_bytes[N_DEGREE][N_LAYER], sum_bytes[N_DEGREE][N_LAYER];
static double fixed_bytes[N_DEGREE][N_LAYER], kept_bytes[N_DEGREE][N_LAYER];
static double memory[N_CLASS];
static int node_class[N_NODE];
static const int in_order[N_NODE] = { 0, 1, 2, 3 };
static ct_pipeline_net net;
static ct_pipeline_machine machine;
static ct_pipeline_problem problem;

static int set_up(void **state)
{
    (void)state;
    for (int d = 0; d < N_DEGREE; ++d) {
        for (int l = 0; l < N_LAYER; ++l) {
            forward_s[0][d][l] = (1.0 + l) / degree[d];
            backward_s[0][d][l] = 2 * forward_s[0][d][l];
            forward_s[1][d][l] = 3 * forward_s[0][d][l];
            backward_s[1][d][l] = 3 * backward_s[0][d][l];
            cut_bytes[d][l] = 10.0 * (N_LAYER - l) / degree[d];
            sum_bytes[d][l] = 8.0 * (1 + l % 3) / degree[d];
            fixed_bytes[d][l] = 100.0 / degree[d];
            kept_bytes[d][l] = 10.0 / degree[d];
        }
    }
    for (int i = 0; i < N_NODE; ++i) node_class[i] = (i == N_NODE - 1);
    memory[0] = memory[1] = 0;
    net = (ct_pipeline_net){ .n_layer = N_LAYER,
                             .n_class = N_CLASS,
                             .n_degree = N_DEGREE,
                             .degree = degree,
                             .forward_s = &forward_s[0][0][0],
                             .backward_s = &backward_s[0][0][0],
                             .rho = rho,
                             .cut_bytes = &cut_bytes[0][0],
                             .sum_bytes = &sum_bytes[0][0],
                             .fixed_bytes = &fixed_bytes[0][0],
                             .kept_bytes = &kept_bytes[0][0] };
    machine = (ct_pipeline_machine){ .n_node = N_NODE,
                                     .ranks_per_node = 2,
                                     .n_class = N_CLASS,
                                     .node_class = node_class,
                                     .inside = inside,
                                     .inject = inject,
                                     .memory = memory };
    problem = (ct_pipeline_problem){ .net = &net, .machine = &machine, .global_batch = 8 };
    return 0;
}

static double memory_ratio(const ct_pipeline_config *c, const int *layers)
{
    double ratio = NAN;

    assert_int_equal(ct_pipeline_memory_ratio(&problem, c, layers, &ratio), CT_OK);
    return ratio;
}

static void expect_near(double x, double expected)
{
    if (fabs(x - expected) > 1e-9 * fabs(expected)) fail_msg("%.12g, not %.12g", x, expected);
}

static void test_fits_ranks(void **state)
{
    ct_pipeline_config c = { .degree = 0, .data = 4, .n_stage = 2, .micro_batch = 1 };
    static const int three[N_DEGREE] = { 1, 4 };

    (void)state;
    assert_int_equal(ct_pipeline_fits_ranks(&problem, &c), CT_OK);
    c.micro_batch = 2;
    assert_int_equal(ct_pipeline_fits_ranks(&problem, &c), CT_OK);
    assert_int_equal(ct_pipeline_micro_batches(&problem, &c), 1);
    c.micro_batch = 4; /* more than a replica has */
    assert_int_equal(ct_pipeline_fits_ranks(&problem, &c), CT_UNSUPPORTED);
    c = (ct_pipeline_config){ .degree = 0, .data = 1, .n_stage = 8, .micro_batch = 1 };
    assert_int_equal(ct_pipeline_fits_ranks(&problem, &c), CT_UNSUPPORTED); /* 6 layers */
    net.degree = three;
    c = (ct_pipeline_config){ .degree = 1, .data = 1, .n_stage = 2, .micro_batch = 1 };
    assert_int_equal(ct_pipeline_fits_ranks(&problem, &c), CT_UNSUPPORTED); /* 4 ranks on 2 nodes */
    set_up(NULL);
}

/* Tensor 1, 4 replicas, 2 stages, micro-batches of 2: stage 0 on nodes 0 and 1, stage 1 on 2 and 3.
 * t(2) = 0.75 x 2 + 0.25 = 1.75 t(1). */
static void test_tables(void **state)
{
    ct_pipeline_config c = { .degree = 0, .data = 4, .n_stage = 2, .micro_batch = 2 };
    ct_pipeline_tables t;

    (void)state;
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    assert_int_equal(t.n_micro, 1);
    for (int l = 0; l < N_LAYER; ++l) {
        expect_near(t.time_s[l], 3 * (1 + l) * 1.75);
        expect_near(t.time_s[N_LAYER + l], 9 * (1 + l) * 1.75); /* its slower replicas count */
        /* two replicas of a node send 2 samples each through a card of 10 bytes/s */
        expect_near(t.cut_s[l], 2 * 2 * cut_bytes[0][l] / 10);
        /* a ring of 4: each edge carries 6/4; one edge leaves each node */
        expect_near(t.data_s[l], 1.5 * sum_bytes[0][l] / 10);
        expect_near(t.data_s[N_LAYER + l], 1.5 * sum_bytes[0][l] / 10);
    }
    ct_pipeline_tables_destroy(&t);
    /* tensor 2: one replica a node, both ranks of a group send through its card */
    c = (ct_pipeline_config){ .degree = 1, .data = 2, .n_stage = 2, .micro_batch = 1 };
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    assert_int_equal(t.n_micro, 4);
    expect_near(t.time_s[3], 3 * 4 / 2.0);
    expect_near(t.cut_s[0], 2 * 30 / 10.0);
    expect_near(t.data_s[0], 2 * 1.0 * 4 / 10);
    ct_pipeline_tables_destroy(&t);
}

/* Stages inside a node: neither cut nor ring touches a card. */
static void test_inside(void **state)
{
    ct_pipeline_config c = { .degree = 0, .data = 1, .n_stage = 4, .micro_batch = 1 };
    ct_pipeline_tables t;

    (void)state;
    machine.n_node = 2; /* both of class 0 */
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    expect_near(t.cut_s[1], 50 / 100.0);          /* rank 0 to 1 */
    expect_near(t.cut_s[N_LAYER + 1], 50 / 10.0); /* 1 to 2 */
    expect_near(t.cut_s[2 * N_LAYER + 1], 50 / 100.0);
    assert_true(t.data_s[0] == 0);
    ct_pipeline_tables_destroy(&t);
    c = (ct_pipeline_config){ .degree = 0, .data = 2, .n_stage = 2, .micro_batch = 1 };
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    expect_near(t.data_s[0], 8 / 100.0);
    ct_pipeline_tables_destroy(&t);
    set_up(NULL);
}

/* The formula for layers 4 and 2: e = 30 and 99, c = 4 x 30 / 10, D = the larger of 1.5 x (8 + 16 +
 * 24 + 8) / 10 and 1.5 x (16 + 24) / 10, one micro-batch a replica: m = 2. */
static void test_estimate(void **state)
{
    static const int layers[2] = { 4, 2 }, all[1] = { 6 };
    static const ct_pipeline_tie tie = { 0, 3 };
    ct_pipeline_config c = { .degree = 0, .data = 4, .n_stage = 2, .micro_batch = 1 };
    ct_pipeline_tables t;

    (void)state;
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    expect_near(ct_pipeline_estimate_s(&problem, &t, layers),
                30 + 99 + 2 * 6 + 1 * (99 + 6) + 1.5 * 56 / 10);
    net.n_tie = 1;
    net.tie = &tie; /* layer 3's gradients are layer 0's */
    expect_near(ct_pipeline_estimate_s(&problem, &t, layers),
                30 + 99 + 2 * 6 + 1 * (99 + 6) + 1.5 * 48 / 10);
    ct_pipeline_tables_destroy(&t);
    c = (ct_pipeline_config){ .degree = 0, .data = 8, .n_stage = 1, .micro_batch = 1 };
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    expect_near(ct_pipeline_estimate_s(&problem, &t, all), 9 * 21 + 1.75 * (96 - 8) / 10);
    ct_pipeline_tables_destroy(&t);
    set_up(NULL);
}

static double simulated(const ct_pipeline_config *c, const int *layers)
{
    double step_s = NAN;

    assert_int_equal(ct_pipeline_simulate_s(&problem, c, layers, &step_s), CT_OK);
    return step_s;
}

/* One micro-batch through a pipeline without replicas: nothing overlaps, and the estimate is the
 * simulation, whatever the cuts. */
static void test_one_micro_batch(void **state)
{
    static const int layers[4] = { 1, 3, 1, 1 };
    ct_pipeline_config c = { .degree = 1, .data = 1, .n_stage = 4, .micro_batch = 8 };
    ct_pipeline_tables t;

    (void)state;
    c.order = in_order;
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    expect_near(simulated(&c, layers), ct_pipeline_estimate_s(&problem, &t, layers));
    ct_pipeline_tables_destroy(&t);
}

/* One stage: 9 s a layer and sample on the slowest node, then the sum over 8 replicas. With buckets
 * it leaves during the last backward of the slowest replica (126 s, layers 5 to 0 take 36, 30, 24,
 * 18, 12, 6): each bucket takes less than the layer behind it, so only layer 0's is left, 8 bytes.
 */
static void test_one_stage(void **state)
{
    static const int layers[1] = { 6 };
    ct_pipeline_config c = { .degree = 0, .data = 8, .n_stage = 1, .micro_batch = 1 };

    (void)state;
    c.order = in_order;
    expect_near(simulated(&c, layers), 9 * 21 + 1.75 * 96 / 10);
    problem.bucket_bytes = 1;
    expect_near(simulated(&c, layers), 9 * 21 + 1.75 * 8 / 10);
    problem.bucket_bytes = 1000;
    expect_near(simulated(&c, layers), 9 * 21 + 1.75 * 96 / 10);
    set_up(NULL);
}

/* Equal layers on equal nodes without bytes: (m + S - 1) t. */
static void test_equal_stages(void **state)
{
    static const int layers[3] = { 2, 2, 2 };
    ct_pipeline_config c = { .degree = 1, .data = 1, .n_stage = 3, .micro_batch = 2 };

    (void)state;
    for (int l = 0; l < N_LAYER; ++l) {
        forward_s[0][1][l] = 1;
        backward_s[0][1][l] = 2;
        cut_bytes[1][l] = 0;
    }
    machine.n_node = 3;
    c.order = in_order;
    expect_near(simulated(&c, layers), (4 + 3 - 1) * 6 * 1.5);
    set_up(NULL);
}

/* Stages of 4 and 2 layers, 4 micro-batches of 1 sample: the first holds 2 of them, the second 1.
 */
static void test_memory(void **state)
{
    static const int layers[2] = { 4, 2 };
    ct_pipeline_config c = { .degree = 0, .data = 4, .n_stage = 2, .micro_batch = 1 };

    (void)state;
    c.order = in_order;
    problem.global_batch = 16;
    assert_true(memory_ratio(&c, layers) == 0);
    memory[0] = 400;
    expect_near(memory_ratio(&c, layers), (4 * 100 + 2 * 40) / 400.0);
    memory[1] = 100; /* nodes of class 1 have the second stage */
    expect_near(memory_ratio(&c, layers), (2 * 100 + 20) / 100.0);
    problem.global_batch = 4; /* one micro-batch: no more can be in flight */
    memory[1] = 0;
    expect_near(memory_ratio(&c, layers), (4 * 100 + 40) / 400.0);
    set_up(NULL);
}

/* Stage 1 has two replicas on node 2 and two on node 3, three times slower; 8 samples, t(b) = 0.75
 * b
 * + 0.25. One each; then t(2) = 1.75 against 5.25, t(3) = 2.5, t(4) = 3.25: 3 3 1 1. */
static void test_shares(void **state)
{
    static const int expected[4] = { 3, 3, 1, 1 }, layers[2] = { 4, 2 };
    ct_pipeline_config c = { .degree = 0, .data = 4, .n_stage = 2, .micro_batch = 2 };
    ct_pipeline_tables t;
    int share[4];

    (void)state;
    c.order = in_order;
    assert_int_equal(ct_pipeline_shares(&problem, &c, 1, share), CT_OK);
    for (int j = 0; j < 4; ++j) assert_int_equal(share[j], 2);
    problem.uneven = true;
    assert_int_equal(ct_pipeline_shares(&problem, &c, 0, share), CT_OK);
    for (int j = 0; j < 4; ++j) assert_int_equal(share[j], 2); /* nodes alike */
    assert_int_equal(ct_pipeline_shares(&problem, &c, 1, share), CT_OK);
    for (int j = 0; j < 4; ++j) assert_int_equal(share[j], expected[j]);
    assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
    for (int l = 0; l < N_LAYER; ++l) {
        expect_near(t.time_s[N_LAYER + l], 9 * (1 + l));   /* t(3) of the fast is 2.5 / 3 of that */
        expect_near(t.cut_s[l], 6 * cut_bytes[0][l] / 10); /* 6 samples enter node 2 */
    }
    ct_pipeline_tables_destroy(&t);
    memory[1] = 100;
    expect_near(memory_ratio(&c, layers), (2 * 100 + 1 * 20) / 100.0);
    memory[0] = 60;
    expect_near(memory_ratio(&c, layers), (4 * 100 + 2 * 40) / 60.0);
    /* without bytes: forward of stage 0, both ways on the slow replicas, stage 0 back */
    memset(cut_bytes, 0, sizeof(cut_bytes));
    memset(sum_bytes, 0, sizeof(sum_bytes));
    expect_near(simulated(&c, layers), 1.75 * 10 + 3 * 33 + 2 * 1.75 * 10);
    set_up(NULL);
}

/* The least estimate of all partitions from `stage` on that fit their memory. */
static double try_layers(const ct_pipeline_config *c, const ct_pipeline_tables *t, int *layers,
                         int stage, int left)
{
    double best = INFINITY;

    if (stage + 1 == c->n_stage) {
        layers[stage] = left;
        return ct_pipeline_estimate_s(&problem, t, layers);
    }
    for (int n = 1; n < left; ++n) {
        layers[stage] = n;
        best = fmin(best, try_layers(c, t, layers, stage + 1, left - n));
    }
    return best;
}

/* The least estimate of all configurations, orders and partitions; counts configurations. */
static double try_everything(int *n_config)
{
    double best = INFINITY;

    *n_config = 0;
    for (int slow = 0; slow < N_NODE; ++slow) {
        int order[N_NODE], n = 0, layers[N_LAYER];

        for (int i = 0; i < N_NODE; ++i) order[i] = (i == slow) ? N_NODE - 1 : n++;
        for (int k = 0; k < N_DEGREE * 8 * 8; ++k) {
            ct_pipeline_config c = { .degree = k / 64, .data = k / 8 % 8 + 1 };
            ct_pipeline_tables t;
            double least, bound;

            c.micro_batch = k % 8 + 1;
            c.n_stage = 8 / (degree[c.degree] * c.data);
            c.order = order;
            if (ct_pipeline_fits_ranks(&problem, &c) != CT_OK) continue;
            ++*n_config;
            assert_int_equal(ct_pipeline_tables_create(&problem, &c, &t), CT_OK);
            least = try_layers(&c, &t, layers, 0, N_LAYER);
            assert_int_equal(ct_pipeline_bound_s(&problem, &t, &bound), CT_OK);
            assert_true(bound <= least * (1 + 1e-12));
            best = fmin(best, least);
            ct_pipeline_tables_destroy(&t);
        }
    }
    return best;
}

static int by_estimate(const void *a, const void *b)
{
    const ct_pipeline_plan *x = a, *y = b;

    return (x->estimate_s > y->estimate_s) - (x->estimate_s < y->estimate_s);
}

static void test_search(void **state)
{
    ct_pipeline_plans plans;
    int n_config;
    double least = INFINITY, expected = try_everything(&n_config), few[3];

    (void)state;
    assert_int_equal(ct_pipeline_search(&problem, 1000, &plans), CT_OK);
    assert_int_equal(plans.n_config, n_config);
    assert_int_equal(plans.n, n_config); /* memory is not limited */
    for (int i = 0; i < plans.n; ++i) {
        const ct_pipeline_plan *plan = &plans.plan[i];

        least = fmin(least, plan->estimate_s);
        expect_near(simulated(&plan->config, plan->layers), plan->step_s);
        assert_true((i == 0) || (plan->step_s >= plans.plan[i - 1].step_s));
    }
    expect_near(least, expected);
    qsort(plans.plan, (size_t)plans.n, sizeof(plans.plan[0]), by_estimate);
    for (int i = 0; i < 3; ++i) few[i] = plans.plan[i].estimate_s;
    ct_pipeline_plans_destroy(&plans);
    /* few are kept: those of the least estimates, though most configurations are not cut then */
    assert_int_equal(ct_pipeline_search(&problem, 3, &plans), CT_OK);
    assert_int_equal(plans.n, 3);
    assert_int_equal(plans.n_config, n_config);
    qsort(plans.plan, 3, sizeof(plans.plan[0]), by_estimate);
    for (int i = 0; i < 3; ++i) expect_near(plans.plan[i].estimate_s, few[i]);
    ct_pipeline_plans_destroy(&plans);
}

static void test_search_fixed(void **state)
{
    ct_pipeline_plans plans;

    (void)state;
    problem.fix = (ct_pipeline_fix){ .tensor = 2, .micro_batches = 4 };
    assert_int_equal(ct_pipeline_search(&problem, 1000, &plans), CT_OK);
    assert_int_equal(plans.n, 2 * N_NODE); /* 4 and 2 stages, in every order of the nodes */
    for (int i = 0; i < plans.n; ++i) {
        assert_int_equal(degree[plans.plan[i].config.degree], 2);
        assert_int_equal(ct_pipeline_micro_batches(&problem, &plans.plan[i].config), 4);
    }
    ct_pipeline_plans_destroy(&plans);
    problem.fix = (ct_pipeline_fix){ .n_stage = 2, .data = 4 };
    assert_int_equal(ct_pipeline_search(&problem, 1000, &plans), CT_OK);
    assert_int_equal(plans.n, 2 * N_NODE); /* micro-batches of 1 and 2 */
    for (int i = 0; i < plans.n; ++i) {
        assert_int_equal(plans.plan[i].config.n_stage, 2);
        assert_int_equal(plans.plan[i].config.data, 4);
    }
    ct_pipeline_plans_destroy(&plans);
    set_up(NULL);
}

static void test_search_memory(void **state)
{
    ct_pipeline_plans plans;
    double worst = 0;

    (void)state;
    memory[0] = memory[1] = 250; /* a whole net of tensor 1 has 600 in weights alone */
    assert_int_equal(ct_pipeline_search(&problem, 1000, &plans), CT_OK);
    assert_in_range(plans.n, 1, plans.n_config - 1);
    for (int i = 0; i < plans.n; ++i)
        worst = fmax(worst, memory_ratio(&plans.plan[i].config, plans.plan[i].layers));
    assert_true(worst <= 1);
    ct_pipeline_plans_destroy(&plans);
    memory[0] = memory[1] = 1;
    assert_int_equal(ct_pipeline_search(&problem, 32, &plans), CT_OK);
    assert_int_equal(plans.n, 0);
    assert_true(plans.least_ratio > 1);
    ct_pipeline_plans_destroy(&plans);
    set_up(NULL);
}

/* 20 nodes of 2 classes have 184 756 sequences; those in blocks are 2. */
static void test_many_orders(void **state)
{
    int many[20], first = 0;
    ct_pipeline_plans plans;

    (void)state;
    for (int i = 0; i < 20; ++i) many[i] = i % 2;
    machine.n_node = 20;
    machine.ranks_per_node = 1;
    machine.node_class = many;
    problem.global_batch = 20;
    assert_int_equal(ct_pipeline_search(&problem, 1000, &plans), CT_OK);
    assert_true(plans.n > 0);
    for (int i = 0; i < plans.n; ++i) {
        const int *order = plans.plan[i].order;

        for (int k = 1; k < 20; ++k) /* one change of class */
            assert_int_equal(many[order[k]] != many[order[k - 1]], k == 10);
        first += (many[order[0]] == 1);
    }
    assert_int_equal(2 * first, plans.n);
    ct_pipeline_plans_destroy(&plans);
    set_up(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits_ranks),      cmocka_unit_test(test_tables),
        cmocka_unit_test(test_inside),          cmocka_unit_test(test_estimate),
        cmocka_unit_test(test_one_micro_batch), cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_equal_stages),    cmocka_unit_test(test_memory),
        cmocka_unit_test(test_search),          cmocka_unit_test(test_search_memory),
        cmocka_unit_test(test_many_orders),     cmocka_unit_test(test_shares),
        cmocka_unit_test(test_search_fixed),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
