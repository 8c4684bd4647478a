/* What was left behind does not make a step that dense training would not survive.
 *
 * The loss is curved along one direction that all elements share, curvature times rate is far below
 * 2 (1 + momentum), up to which SGD with momentum is stable, and codecs that send a part of the
 * elements move little along it. All that they left behind, though, is many times the way to the
 * minimum: T steps of it with momentum m are T rate curvature / (1 - m) times that way. */
#include "tests/mpi/coded_rig.h"

#include <math.h>

#include "comm/grad_pipe_impl.h"

enum { STEPS = 240 };

static const double curvature = 4; /* times a rate of 0.1: 0.4 */
static const float rate = 0.2f;    /* and a multiplier of a half  */

/* How far along: 1 at first. */
static double place(const float *weight)
{
    double sum = 0;

    for (int i = 0; i < RIG_CODED; ++i) sum += weight[i];
    return sum / RIG_CODED;
}

static void set(rig *r)
{
    for (int i = 0; i < RIG_CODED; ++i) r->weight[i] = 1 + 0.01f * rig_noise(7, 3, i);
}

static int go(rig *r, int64_t s)
{
    static float grad[RIG_CODED];
    double at = place(r->weight) * curvature / r->comm->size;

    /* a little of each rank's own decides who is selected */
    for (int i = 0; i < RIG_CODED; ++i)
        grad[i] = (float)(at * (1 + 0.1 * (double)rig_noise(r->comm->rank, s, i)));
    return rig_step(r, s, 1, rate, grad);
}

static ct_grad_pipe_config config_of(const ct_coded_ops *codec, bool absorb, int64_t resync)
{
    return (ct_grad_pipe_config){ .allreduce = "ring",
                                  .overlap = true,
                                  .codec = codec,
                                  .momentum = 0.9f,
                                  .codec_config = { .density = 0.01f,
                                                    .exchange = "allgather",
                                                    .momentum_correction = absorb,
                                                    .mask_momentum = absorb,
                                                    .resync_iterations = resync } };
}

/* Never farther than twice as far as at the start. */
static int stays(ct_comm *c, const ct_coded_ops *codec, bool absorb, int64_t resync)
{
    static rig r;
    const ct_grad_pipe_config config = config_of(codec, absorb, resync);
    double most = 0;
    int fault = rig_open(&r, c, &config, 0);

    set(&r);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        fault += go(&r, s);
        most = fmax(most, fabs(place(r.weight)));
        if (!(most < 2)) break;
    }
    if (!(most < 2))
        fprintf(stderr, "%s, resync %lld: as far as %g\n", codec->name, (long long)resync, most);
    fault += MPI_FAULT_UNLESS(most < 2);
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static int resync(ct_comm *c)
{
    int fault = 0;

    for (int64_t every = 2; every <= 48; every *= 2)
        fault += stays(c, &ct_coded_redsync, true, every);
    fault += stays(c, &ct_coded_redsync, true, 0);
    return fault;
}

/* From sparse steps to dense ones for good, as AUTO does: all arrives, soon. */
static int leave(ct_comm *c)
{
    static rig r;
    const ct_grad_pipe_config config = config_of(&ct_coded_auto, true, 0);
    double most = 0;
    int64_t s = 0, any = 1, n = 0;
    int fault = 0;
    ct_grad_pipe_config own = config;

    own.codec = &ct_coded_redsync;
    own.codec_config.resync_iterations = 1000000; /* so that dense ways are there */
    fault = rig_open(&r, c, &own, 0);
    set(&r);
    for (; (s < 60) && (fault == 0); ++s) fault += go(&r, s);
    r.gp->bucket[0].leaves = true;
    for (; (n < 400) && (fault == 0) && (any > 0); ++n, ++s) {
        fault += go(&r, s);
        most = fmax(most, fabs(place(r.weight)));
        any = ct_grad_pipe_holds(r.gp, 0);
        MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    if (!(most < 2) || (any > 0))
        fprintf(stderr, "as far as %g, in %lld steps\n", most, (long long)n);
    fault += MPI_FAULT_UNLESS((most < 2) && (any == 0));
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static void test_resync_does_not_overshoot(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(resync)), 0);
}

static void test_leaving_does_not_overshoot(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(leave)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_resync_does_not_overshoot),
                                        cmocka_unit_test(test_leaving_does_not_overshoot) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
