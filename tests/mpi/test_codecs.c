/* fp16, onebit and powersgd through the pipe: what each promises. */
#include "tests/mpi/coded_rig.h"

#include <math.h>

static const ct_grad_pipe_config usual = {
    .bucket_bytes = 65536, .allreduce = "ring", .overlap = true, .codec = &ct_coded_fp16
};

/* ---- fp16 */

/* Each element against its sum in double: rounded once by each rank, and once at each addition, by
 * 2^-11 of what is there; what lies below fp16's least number is off by half of that. */
static int fp16_step(rig *r, int64_t s, double size)
{
    static float grad[RIG_CODED];
    int fault = 0, wrong = 0, p = r->comm->size;
    double most = 0;

    for (int i = 0; i < RIG_CODED; ++i) {
        grad[i] = (float)(size * rig_noise(r->comm->rank, s, i) * ((i % 7 == 0) ? 1e-7 : 1));
        most = fmax(most, fabs((double)grad[i]));
    }
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    fault += rig_step(r, s, 1, 0.1f, grad);
    for (int i = 0; i < RIG_CODED; ++i) {
        double sum = 0, sizes = 0;

        for (int k = 0; k < p; ++k) {
            double v = (double)(float)(size * rig_noise(k, s, i) * ((i % 7 == 0) ? 1e-7 : 1));

            sum += v;
            sizes += fabs(v);
        }
        wrong += !(fabs((double)r->arena[i] - sum) <=
                   1.1 * (p + 1) * (0x1p-11 * sizes + 0x1p-37 * p * most));
    }
    return fault + MPI_FAULT_UNLESS(wrong == 0);
}

static int fp16(ct_comm *c)
{
    static rig r;
    static const double size[] = { 1, 1e5, 1e-8, 1e30, 1e-30, 0, 3e4, 1e36, 1e-37 };
    static const char *const allreduce[] = { "ring", "auto", "rhd", "hier" };
    int fault = 0;

    for (int a = 0; a < 4; ++a) {
        ct_grad_pipe_config config = usual;

        config.allreduce = allreduce[a];
        fault += rig_open(&r, c, &config, 0);
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r.gp, 0));
        for (int s = 0; (fault == 0) && (s < 9); ++s) fault += fp16_step(&r, s, size[s]);
        fault += rig_same_on_all(r.hash);
        rig_close(&r);
    }
    return fault;
}

static void test_fp16(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(fp16)), 0);
}

/* ---- a gradient that is not finite ends the run */

static void swallow(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static int not_finite(ct_comm *c)
{
    static const ct_coded_ops *const codec[] = { &ct_coded_fp16 };
    static float grad[RIG_CODED];
    static rig r;
    int fault = 0;

    for (size_t k = 0; k < sizeof(codec) / sizeof(codec[0]); ++k) {
        ct_grad_pipe_config config = usual;
        ct_status status = CT_OK;

        config.codec = codec[k];
        config.codec_config.rank = 2;
        for (int v = 0; v < 2; ++v) {
            fault += rig_open(&r, c, &config, 0);
            for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, 0, i);
            fault += rig_step(&r, 0, 1, 0.1f, grad);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, 1, 1, 0.1f) == CT_OK);
            memcpy(r.arena, grad, sizeof(grad));
            r.arena[RIG_CODED - 1 - c->rank] = (v == 0) ? NAN : -INFINITY;
            ct_log_set_sink(swallow, NULL);
            status = ct_grad_pipe_ready(r.gp, 0);
            ct_log_set_sink(NULL, NULL);
            fault += MPI_FAULT_UNLESS(status == CT_ERR_DIVERGED);
            rig_close(&r);
        }
    }
    return fault;
}

static void test_not_finite(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(not_finite)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fp16),
                                        cmocka_unit_test(test_not_finite) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 180);
}
