/* What was left behind does not make a step that dense training would not survive.
 *
 * The loss is curved along one direction, in which a few elements are large and all take part, and
 * ranks' gradients are noisy. Curvature times rate is 0.3: SGD with momentum is stable up to
 * 2 (1 + momentum), and so is sending the largest elements of what was not sent. But all of what
 * was left behind is many times the way to the minimum: T steps of it with momentum m are T rate
 * curvature / (1 - m) times that way, and sent at once end on the other side, farther away. */
#include "tests/mpi/codec_rig.h"

#include <math.h>

#include "comm/sync/grad_pipe_impl.h"

enum { STEPS = 240 };

static const double curvature = 3; /* times a rate of 0.2 and a multiplier of a half: 0.3 */
static const float rate = 0.2f;
static double direction[RIG_CODED]; /* of length 1 */

static void find_direction(void)
{
    double sum = 0;

    for (int i = 0; i < RIG_CODED; ++i) {
        double v = (double)rig_table[i];

        direction[i] = v * fabs(v);
        sum += direction[i] * direction[i];
    }
    for (int i = 0; i < RIG_CODED; ++i) direction[i] /= sqrt(sum);
}

/* How far along: 1 at first. */
static double place(const float *weight)
{
    double sum = 0;

    for (int i = 0; i < RIG_CODED; ++i) sum += (double)weight[i] * direction[i];
    return sum;
}

static void set(rig *r)
{
    find_direction();
    for (int i = 0; i < RIG_CODED; ++i) r->weight[i] = (float)direction[i];
}

static int go(rig *r, int64_t s, bool begins)
{
    double slope = place(r->weight) * curvature / r->comm->size, noise = 0.1 / sqrt(RIG_CODED);
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(r->gp, s, 1, rate) == CT_OK);

    r->gp->step.begins = begins;
    for (int i = 0; i < RIG_CODED; ++i)
        r->arena[i] =
            (float)(slope * direction[i] +
                    noise * (double)rig_noise(r->comm->rank, s + 1, i + 100) / sqrt(r->comm->size));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r->gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r->gp, NULL, NULL) == CT_OK);
    for (int i = 0; i < RIG_CODED; ++i) r->weight[i] -= r->arena[i];
    r->hash = rig_hash(r->hash, r->weight, RIG_CODED);
    return fault;
}

static ct_grad_pipe_config config_of(const ct_codec_ops *codec, bool absorb, int64_t resync)
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
static int stays(ct_comm *c, const ct_codec_ops *codec, bool absorb, int64_t resync)
{
    static rig r;
    const ct_grad_pipe_config config = config_of(codec, absorb, resync);
    double most = 0;
    int fault = rig_open(&r, c, &config, 0);

    set(&r);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        fault += go(&r, s, false);
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

    for (int64_t every = 3; every <= 48; every *= 2)
        fault += stays(c, &ct_codec_redsync, true, every);
    return fault + stays(c, &ct_codec_redsync, true, 0);
}

/* From sparse steps to dense ones for good, as AUTO does: all arrives, soon. */
static int leave(ct_comm *c)
{
    static rig r;
    ct_grad_pipe_config config = config_of(&ct_codec_redsync, true, 1000000);
    double most = 0;
    int64_t s = 0, any = 1, n = 0;
    int fault = rig_open(&r, c, &config, 0);

    set(&r);
    for (; (s < 60) && (fault == 0); ++s) fault += go(&r, s, false);
    r.gp->bucket[0].leaves = true;
    for (; (n < 400) && (fault == 0) && (any > 0); ++n, ++s) {
        fault += go(&r, s, n == 0);
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
