/* Running statistics of ranks whose batches differ: their mean is one of samples, not of ranks, and
 * equal ones keep their bits. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>

#include "framework/solver/solver_private.h"

static const char text[] =
    "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 display: 0 random_seed: 7 "
    "snapshot_after_train: false net_param { name: 'uneven' "
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 2 } "
    "data_filler { type: 'gaussian' } } } "
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'x' top: 'b' } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'b' top: 'z' inner_product_param { "
    "num_output: 2 weight_filler { type: 'xavier' } } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'x' top: 'loss' } }";

static const int64_t samples[] = { 4, 3, 3 }; /* of a rank */

typedef struct averaged {
    bool copies; /* as from a device, whose memory the ranks do not look at */
    double mean;
    int moved; /* of numbers that all ranks have alike */
} averaged;

/* A mean would round them, as 0.4 v + 0.3 v + 0.3 v of three ranks. */
static ct_status average_equal(ct_solver *s, float *first, int *moved_p)
{
    for (int k = 1; k <= 100; k++) {
        float value = 1.0f / (float)k;

        first[0] = first[1] = value;
        CT_TRY(ct_solver_average_statistics(s));
        *moved_p += (first[0] != value) || (first[1] != value);
    }
    return CT_OK;
}

static ct_status average(thread_rank *r)
{
    test_solver t;
    ct_status status = test_solver_create(text, r, NULL, NULL, &t);
    double *mean = &((averaged *)r->out)->mean;
    ct_device other = *ct_device_cpu();

    other.kind = CT_DEVICE_CUDA;
    if (status == CT_OK) {
        const ct_net *net = ct_solver_net(t.solver);
        float *first = NULL;

        /* as a data set of 7 or 10 samples a batch is shared out */
        t.solver->net->batch_local = samples[r->rank];
        t.solver->net->batch_global = (r->job->n == 2) ? 7 : 10;
        for (int i = 0; i < net->n_param; i++) {
            const ct_param *p = &net->param[i];

            for (int64_t e = 0; (p->kind == CT_WEIGHT_STATISTIC) && (e < p->count); e++)
                ct_blob_data(&p->blob)[e] = (float)((r->rank + 1) * (r->rank + 1));
            if (p->kind == CT_WEIGHT_STATISTIC) first = ct_blob_data(&p->blob);
        }
        if (((const averaged *)r->out)->copies) t.solver->dev = &other;
        if (status == CT_OK) status = ct_solver_average_statistics(t.solver);
        if (first != NULL) *mean = (double)first[0];
        /* the shares are those of before; the numbers are now alike on all ranks */
        if ((status == CT_OK) && (first != NULL))
            status = average_equal(t.solver, first, &((averaged *)r->out)->moved);
    }
    test_solver_destroy(&t);
    return status;
}

static void mean_is_of_samples(void **state)
{
    /* (4 x 1 + 3 x 4) / 7, (4 x 1 + 3 x 4 + 3 x 9) / 10; of ranks it would be 2.5, 4.67. Each share
     * is rounded, each product and each sum: 8 roundings of values below 8 */
    static const double want[] = { 16.0 / 7.0, 4.3 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        int n = 2 + i / 2;
        thread_ranks job = { .n = n, .run = average };
        thread_rank rank[3];
        averaged got[3] = { 0 };

        for (int r = 0; r < n; r++) {
            got[r].copies = (i % 2 == 1);
            rank[r] = (thread_rank){ .out = &got[r] };
        }
        assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
        for (int r = 0; r < n; r++) {
            assert_true(fabs(got[r].mean - want[n - 2]) <= 8 * 8 * 0x1p-24);
            assert_int_equal(got[r].moved, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mean_is_of_samples, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
