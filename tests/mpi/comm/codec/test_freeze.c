/* 1-bit Adam: after the warm-up what ranks send is signs of the rule's mean, and nothing is lost.
 */
#include "tests/mpi/codec_rig.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/sign.h"
#include "framework/tensor/device.h"
#include "framework/tensor/storage.h"

enum { WARMUP = 5, STEPS = 45 };

static const float momentum = 0.9f;

/* Of all ranks' V, in double. */
static void sum_residuals(const rig *r, double *sum)
{
    ct_codec_state s;

    for (int i = 0; i < RIG_CODED; ++i) sum[i] = 0;
    if (ct_grad_pipe_state(r->gp, 0, 0, &s))
        for (int i = 0; i < RIG_CODED; ++i) sum[i] = (double)s.data[i];
    MPI_Allreduce(MPI_IN_PLACE, sum, RIG_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static int by_value(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;

    return (d > 0) - (d < 0);
}

/* How many values there are but for rounding, to `tolerance`. */
static int count_values(const double *x, double tolerance)
{
    static double sorted[RIG_CODED];
    int n = 1;

    memcpy(sorted, x, sizeof(sorted));
    qsort(sorted, RIG_CODED, sizeof(*sorted), by_value);
    for (int i = 1; i < RIG_CODED; ++i) n += (sorted[i] - sorted[i - 1] > tolerance);
    return n;
}

typedef struct job {
    rig r;
    ct_storage store;
    float scale;
    float mean[RIG_N], grad[RIG_CODED];
    double before[RIG_CODED], after[RIG_CODED], sum[RIG_CODED];
} job;

/* Adam's mean of what has come, as the solver makes it. */
static void move_mean(job *j)
{
    for (int i = 0; i < RIG_CODED; ++i)
        j->mean[i] = momentum * j->mean[i] + (1 - momentum) * (j->scale * j->r.arena[i]);
}

static int step(job *j, int64_t s)
{
    static double sent[RIG_CODED];
    int p = j->r.comm->size, fault = 0;
    double f = (double)momentum / ((1 - (double)momentum) * (double)j->scale), most = 0;
    bool frozen = (s >= WARMUP);

    for (int i = 0; i < RIG_CODED; ++i) {
        j->grad[i] = rig_noise(j->r.comm->rank, s, i);
        j->sum[i] = 0;
        for (int k = 0; k < p; ++k) j->sum[i] += (double)rig_noise(k, s, i);
    }
    sum_residuals(&j->r, j->before);
    fault += rig_step(&j->r, s, j->scale, 0.1f, j->grad);
    sum_residuals(&j->r, j->after);
    fault += MPI_FAULT_UNLESS((ct_grad_pipe_variance_steps(j->r.gp, 0) == WARMUP) == frozen);
    for (int i = 0; i < RIG_CODED; ++i) {
        double m = frozen ? f * (double)j->mean[i] : 0;

        sent[i] = (double)j->r.arena[i] + m;
        most = fmax(most, fmax(fabs(sent[i]), fabs(j->before[i]) + fabs(j->sum[i]) + fabs(m)));
    }
    /* who drops, keeps: each rank rounds V, its share of the mean and the gradient, and what goes
     * twice; the sum and the mean's way back are rounded once more */
    for (int i = 0; (i < RIG_CODED) && (fault == 0); ++i) {
        double m = frozen ? f * (double)j->mean[i] : 0;
        double lost = j->before[i] + j->sum[i] + m - sent[i] - j->after[i];

        fault += MPI_FAULT_UNLESS(fabs(lost) <= 8 * (p + 2) * (double)rig_eps * most);
    }
    if (frozen)
        fault += MPI_FAULT_UNLESS(count_values(sent, 8 * (double)rig_eps * most) <=
                                  2 * (p + (RIG_CODED + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK) *
                                      ((p > 1) ? p : 1));
    move_mean(j);
    return fault;
}

static int run(ct_comm *c, const char *exchange, float scale)
{
    static job j;
    ct_grad_pipe_config config = { .allreduce = "ring",
                                   .codec = &ct_codec_onebit,
                                   .codec_config = { .warmup_iterations = WARMUP,
                                                     .freeze_variance = true,
                                                     .exchange = exchange },
                                   .momentum = momentum };
    int fault = 0;

    memset(&j, 0, sizeof(j));
    j.scale = scale;
    j.store = ct_storage_at(ct_device_cpu(), j.mean, RIG_N);
    fault += rig_open(&j.r, c, &config, 0);
    ct_grad_pipe_share(j.r.gp, &j.store);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) fault += step(&j, s);
    fault += rig_same_on_all(j.r.hash);
    rig_close(&j.r);
    return fault + MPI_FAULT_UNLESS(ct_storage_close(&j.store) == CT_OK);
}

static int nothing_is_lost(ct_comm *c)
{
    return run(c, "allgather", 1) + run(c, "split", 1) + run(c, "split", 0.25f);
}

/* It reads the mean where it lies, and must have it. */
static int a_mean_is_needed(ct_comm *c)
{
    static rig r;
    ct_grad_pipe_config config = { .allreduce = "ring",
                                   .codec = &ct_codec_onebit,
                                   .codec_config = { .warmup_iterations = WARMUP,
                                                     .freeze_variance = true },
                                   .momentum = momentum };
    int fault = rig_open(&r, c, &config, 0);

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, 0, 1, 0.1f) == CT_ERR_CONFIG);
    rig_close(&r);
    return fault;
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(nothing_is_lost)), 0);
}

static void test_a_mean_is_needed(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(a_mean_is_needed)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_nothing_is_lost),
                                        cmocka_unit_test(test_a_mean_is_needed) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
