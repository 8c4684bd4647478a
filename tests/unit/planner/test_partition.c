/* Partitions of pipelines against all partitions, one by one. */
#include "tests/test.h"

#include <math.h>
#include <string.h>

#include "framework/base/rng.h"
#include "planner/partition.h"
#include "tests/log_capture.h"

enum { MOST_LAYERS = 60, MOST_STAGES = 8, MOST = MOST_LAYERS * MOST_STAGES };

typedef struct made {
    ct_partition p;
    double time_s[MOST], cut_s[MOST], data_s[MOST];
    uint64_t key, drawn;
} made;

static double draw(made *m)
{
    return (double)ct_rng_uniform(ct_rng_philox(m->key, 0, m->drawn++).v[0]);
}

/* steps > 0: times are whole numbers below it, so that many partitions are alike. */
static double draw_time(made *m, double most, int steps)
{
    return (steps > 0) ? floor(draw(m) * steps) : most * draw(m);
}

static void make(made *m, uint64_t key, int n_stage, int n_layer, double cut, double data,
                 int steps)
{
    memset(m, 0, sizeof(*m));
    m->key = key;
    for (int i = 0; i < n_stage * n_layer; i++) {
        m->time_s[i] = draw_time(m, 1, steps);
        m->cut_s[i] = draw_time(m, cut, steps);
        m->data_s[i] = draw_time(m, data, steps);
    }
    for (int s = 0; s < n_stage; s++) m->cut_s[s * n_layer + n_layer - 1] = NAN; /* not read */
    m->p = (ct_partition){ .n_stage = n_stage,
                           .n_layer = n_layer,
                           .micro_batches = 1 + (int64_t)(key % 12),
                           .time_s = m->time_s,
                           .cut_s = m->cut_s,
                           .data_s = m->data_s };
}

/* The formula, from where each layer's stage ends. */
static double time_of(const ct_partition *p, const int *layers)
{
    double sum = 0, slowest = 0, most_data = 0, in = 0;
    int l = 0;

    for (int s = 0; s < p->n_stage; s++) {
        double e = 0, data = 0, out = 0;

        for (int i = 0; i < layers[s]; i++, l++) {
            e += p->time_s[s * p->n_layer + l];
            data += p->data_s[s * p->n_layer + l];
        }
        if (s < p->n_stage - 1) out = p->cut_s[s * p->n_layer + l - 1];
        sum += e + 2 * out;
        slowest = fmax(slowest, e + in + out);
        most_data = fmax(most_data, data);
        in = out;
    }
    assert_int_equal(l, p->n_layer);
    return sum + (double)(p->micro_batches - 1) * slowest + most_data;
}

static void try_from(const ct_partition *p, int stage, int left, int *layers, double *least)
{
    int last = p->n_stage - 1 - stage;

    if (last == 0) {
        layers[stage] = left;
        *least = fmin(*least, time_of(p, layers));
        return;
    }
    for (layers[stage] = 1; layers[stage] <= left - last; layers[stage]++)
        try_from(p, stage + 1, left - layers[stage], layers, least);
}

/* Rounding: each side adds 2 numbers a layer and 4 a stage. */
static void expect_best(const made *m)
{
    const ct_partition *p = &m->p;
    double least = INFINITY, step_s = -1, rounding;
    int layers[MOST_STAGES], tried[MOST_STAGES];

    try_from(p, 0, p->n_layer, tried, &least);
    assert_int_equal(ct_partition_solve(p, layers, &step_s), CT_OK);
    rounding = 2 * (2 * p->n_layer + 4 * p->n_stage) * 0x1p-53 * least;
    for (int s = 0; s < p->n_stage; s++) assert_true(layers[s] >= 1);
    assert_true(fabs(step_s - time_of(p, layers)) <= rounding);
    assert_true(fabs(step_s - ct_partition_time(p, layers)) <= rounding);
    assert_true(fabs(step_s - least) <= rounding);
}

static void test_few_layers(void **state)
{
    static const double most[] = { 0, 0.1, 1, 10 };
    int n = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        int n_layer = 1 + (int)(i % 10), n_stage = 1 + (int)(i / 10 % 5);
        made m;

        if (n_stage > n_layer) continue;
        make(&m, i, n_stage, n_layer, most[i % 3], most[i / 3 % 4], (i % 7 == 0) ? 4 : 0);
        expect_best(&m);
        n++;
    }
    assert_true(n > 700);
}

static void test_more_layers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 24; i++) {
        made m;

        make(&m, 5000 + i, 4, 20 + (int)i, (i % 2 == 0) ? 0.05 : 2, (double)(i % 5),
             (i % 6 == 5) ? 3 : 0);
        expect_best(&m);
    }
    for (uint64_t i = 0; i < 4; i++) {
        made m;

        make(&m, 6000 + i, 8, 16, 1, 1, (i == 3) ? 2 : 0);
        expect_best(&m);
    }
}

/* The slowest stage counts the cuts on both of its sides: by hand. */
static void test_by_hand(void **state)
{
    static const double time_s[] = { 1, 2, 3, 1, 2, 3, 1, 2, 3 };
    static const double cut_s[] = { 10, 20, -1, 40, 80, -1 },
                        data_s[] = { 5, 0, 0, 0, 6, 0, 0, 0, 4 };
    ct_partition p = { .n_stage = 3,
                       .n_layer = 3,
                       .micro_batches = 3,
                       .time_s = time_s,
                       .cut_s = cut_s,
                       .data_s = data_s };
    int layers[3];
    double step_s;

    (void)state;
    assert_int_equal(ct_partition_solve(&p, layers, &step_s), CT_OK);
    for (int s = 0; s < 3; s++) assert_int_equal(layers[s], 1);
    /* 1 + 2 + 3, twice the cuts of 10 and 80, twice the middle stage, the most data */
    assert_true(step_s == 6 + 2 * 90 + 2 * (2 + 10 + 80) + 6);
}

static void test_errors(void **state)
{
    log_capture log;
    int layers[MOST_STAGES] = { 7 };
    double step_s = 0;
    made m;

    (void)state;
    make(&m, 1, 4, 3, 1, 1, 0);
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_OK);
    assert_true(isinf(step_s) && (layers[0] == 7));
    make(&m, 1, 3, 4, 1, 1, 0);
    log_capture_start(&log);
    m.p.micro_batches = 0;
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_ERR_ARG);
    m.p.micro_batches = 1;
    m.cut_s[2] = NAN;
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_ERR_ARG);
    m.cut_s[2] = 0;
    m.data_s[11] = -1;
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_ERR_ARG);
    m.data_s[11] = 0;
    m.time_s[0] = 2 * CT_PARTITION_MOST_S;
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_ERR_ARG);
    log_capture_stop();
    assert_int_equal(log.n_error, 4);
    m.time_s[0] = CT_PARTITION_MOST_S; /* and its multiples are numbers */
    m.p.micro_batches = INT32_MAX;
    assert_int_equal(ct_partition_solve(&m.p, layers, &step_s), CT_OK);
    assert_true(isfinite(step_s) && (step_s >= CT_PARTITION_MOST_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_layers),
        cmocka_unit_test(test_more_layers),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
