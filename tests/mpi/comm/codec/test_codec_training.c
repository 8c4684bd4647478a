/* Coded parameters through the pipe: momentum that is absorbed, nothing lost, the same everywhere.
 */
#include "tests/mpi/codec_rig.h"

#include <math.h>
#include <stdlib.h>

#include "framework/math/math.h"

enum { N = RIG_N, N_CODED = RIG_CODED };

static const ct_grad_pipe_config usual = { .bucket_bytes = 65536,
                                           .allreduce = "ring",
                                           .overlap = true,
                                           .codec = &ct_codec_redsync,
                                           .codec_config = { .density = 0.02f,
                                                             .exchange = "allgather",
                                                             .wire = "pairs",
                                                             .momentum_correction = true } };

/* ---- everything sent in every step is SGD with momentum */

enum { SGD_STEPS = 60 };

static float rate_of(int64_t s)
{
    return (s < 30) ? 0.1f : 0.02f;
}

/* The reference is in double, from the same gradients. Each of its terms goes through one rounding
 * a step in U, five when it is made and added to V, one for each rank; each step rounds w once. */
static int against_sgd(ct_comm *c, const ct_grad_pipe_config *config)
{
    static rig r;
    static float grad[N_CODED], history[N_CODED], twin[N_CODED];
    static double u[N_CODED], w[N_CODED], size_u[N_CODED], size_w[N_CODED];
    const float decay = 0.01f, scale = 0.5f;
    const double m = config->momentum, roundings = 2 * SGD_STEPS + 5 + c->size;
    int fault = rig_open(&r, c, config, decay), wrong = 0;

    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r.gp, 0));
    for (int i = 0; i < N_CODED; ++i) {
        u[i] = size_u[i] = history[i] = 0;
        w[i] = twin[i] = r.weight[i];
        size_w[i] = fabs(w[i]);
    }
    for (int64_t s = 0; (s < SGD_STEPS) && (fault == 0); ++s) {
        double rate = (double)(0.5f * rate_of(s)); /* rate_mult */

        for (int i = 0; i < N_CODED; ++i) {
            double g = 0, size_g = 0, step = 0;

            for (int k = 0; k < c->size; ++k) {
                g += rig_noise(k, s, i);
                size_g += fabs(rig_noise(k, s, i));
            }
            grad[i] = rig_noise(c->rank, s, i);
            g = scale * g + (double)decay * r.weight[i];
            u[i] = m * u[i] + rate * g;
            step = config->nesterov ? m * u[i] + rate * g : u[i];
            w[i] -= step;
            size_u[i] = m * size_u[i] + rate * (scale * size_g + decay * fabs(r.weight[i]));
            size_w[i] += 2 * size_u[i];
        }
        if ((c->size == 1) && !config->nesterov)
            fault += MPI_FAULT_UNLESS(ct_device_cpu()->math->sgd(
                                          NULL, N_CODED, scale, 0.5f * rate_of(s), config->momentum,
                                          decay, 0, grad, history, twin) == CT_OK);
        fault += rig_step(&r, s, scale, rate_of(s), grad);
    }
    for (int i = 0; i < N_CODED; ++i)
        wrong += !(fabs(r.weight[i] - w[i]) <= 1.1 * roundings * (double)rig_eps * size_w[i]);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    if ((c->size == 1) && !config->nesterov) /* Caffe's own order of operations, bit by bit */
        fault += MPI_FAULT_UNLESS(memcmp(r.weight, twin, sizeof(twin)) == 0);
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

/* Dense by density, by warm-up, and by turns. */
static int momentum(ct_comm *c)
{
    int fault = 0;

    for (int v = 0; v < 8; ++v) {
        ct_grad_pipe_config config = usual;
        ct_codec_config *k = &config.codec_config;

        config.momentum = 0.9f;
        config.nesterov = (v % 2 == 1);
        k->density = 1;
        if (v / 2 == 1) k->warmup_iterations = SGD_STEPS;
        if (v / 2 == 1) k->mask_momentum = true; /* dense steps mask nothing */
        if (v / 2 == 2) k->warmup_iterations = 7;
        if (v / 2 == 3) k->exchange = "hier";
        if (v / 2 >= 2) k->resync_iterations = 4;
        fault += against_sgd(c, &config);
    }
    return fault;
}

/* ---- nothing is lost, though the rate changes: in the rate of now, sent + V is what was given */

enum { MANY_STEPS = 1000 };

/* REDSYNC, REDSYNC with one mean, TOPK; each with all exchanges, and so that each wire, selection
 * and resync meets each of the codecs. */
static const struct {
    const char *exchange, *wire, *selection;
    bool quantize, plain;
    int resync;
} way[] = {
    { "allgather", "pairs", "exact", false, false, 0 },
    { "hier", "half", "exact", false, false, 97 },
    { "gtopk", "pairs", "trimmed", false, false, 0 },
    { "oktopk", "half", "exact", false, false, 61 },
    { "allgather", "auto", "search", true, false, 0 },
    { "hier", "auto", "exact", true, false, 0 },
    { "gtopk", "auto", "sampled", true, false, 83 },
    { "oktopk", "auto", "trimmed", true, false, 0 },
    { "allgather", "half", "redsync_sizes", false, true, 0 },
    { "hier", "pairs", "redsync_sizes", false, true, 71 },
    { "gtopk", "half", "sampled", false, true, 0 },
    { "oktopk", "pairs", "search", false, true, 0 },
    { "dense", "half", "exact", false, false, 31 },
};
enum { N_WAY = (int)(sizeof(way) / sizeof(way[0])) };

static int conserve(ct_comm *c, int at)
{
    static rig r;
    static float grad[N_CODED];
    static double given[N_CODED], size[N_CODED], kept[N_CODED], arrived[N_CODED];
    ct_grad_pipe_config config = usual;
    ct_codec_config *k = &config.codec_config;
    ct_codec_state state;
    int fault = 0, wrong = 0;

    k->exchange = way[at].exchange;
    k->wire = way[at].wire;
    k->selection = way[at].selection;
    k->quantize = way[at].quantize;
    k->resync_iterations = way[at].resync;
    k->warmup_iterations = 10;
    k->mask_momentum = true;
    if (way[at].plain) {
        config.codec = &ct_codec_topk;
        k->momentum_correction = false;
    }
    fault += rig_open(&r, c, &config, 0);
    for (int i = 0; i < N_CODED; ++i) given[i] = size[i] = arrived[i] = 0;
    for (int64_t s = 0; (s < MANY_STEPS) && (fault == 0); ++s) {
        double carry = way[at].plain ? 1 : rig_carry(s);

        for (int i = 0; i < N_CODED; ++i) {
            grad[i] = rig_noise(c->rank, s, i);
            given[i] *= carry;
            size[i] *= carry;
            arrived[i] *= carry;
            for (int p = 0; p < c->size; ++p) {
                double v = rig_noise(p, s, i) * (way[at].plain ? 1.0 : 0.5 * rig_rate(s));

                given[i] += v;
                size[i] += fabs(v);
            }
        }
        fault += rig_step(&r, s, 1, rig_rate(s), grad);
        for (int i = 0; i < N_CODED; ++i) arrived[i] += r.arena[i];
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r.gp, 0, 0, &state));
    fault += MPI_FAULT_UNLESS(strcmp(state.name, CT_CODEC_RESIDUAL) == 0);
    for (int i = 0; (fault == 0) && (i < N_CODED); ++i) kept[i] = state.data[i];
    MPI_Allreduce(MPI_IN_PLACE, kept, N_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    /* each of the additions on the way, at most three a step and one a rank, has terms of at most
     * what was given in all; the carry is rounded, and what is multiplied by it */
    for (int i = 0; i < N_CODED; ++i)
        wrong += !(fabs(arrived[i] + kept[i] - given[i]) <=
                   1.1 * (5 * MANY_STEPS + c->size) * (double)rig_eps * size[i]);
    if (wrong > 0) fprintf(stderr, "way %d: %d elements are not conserved\n", at, wrong);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static int n_machine, machine;

/* Every way on one machine, whatever the number of ranks; the three of an exchange on others. */
static int conservation(ct_comm *c)
{
    int fault = 0, here = machine++;

    for (int at = 0; at < N_WAY; ++at) {
        if ((at % 4 + at / 4) % n_machine == here) fault += conserve(c, at);
    }
    return fault;
}

/* ---- overlap, threads and restarts change no bit */

static int bits(ct_comm *c)
{
    static const char *const exchange[] = { "allgather", "hier", "gtopk", "oktopk", "dense" };
    int fault = 0;

    for (int e = 0; e < 5; ++e) {
        ct_grad_pipe_config config = usual;

        config.momentum = 0.9f;
        config.codec_config.exchange = exchange[e];
        config.codec_config.mask_momentum = true;
        config.codec_config.warmup_iterations = 3;
        config.codec_config.resync_iterations = 10;
        fault += rig_bits(c, config, 12);
    }
    return fault;
}

/* ---- codecs of their own, and clipping before compression */

static int each_its_own(ct_comm *c)
{
    enum { LARGE = 2000, SMALL = 100 };
    static float arena[2 * LARGE + SMALL + 64], weight[LARGE];
    const ct_codec_config sparse = { .density = 0.1f,
                                     .exchange = "allgather",
                                     .momentum_correction = true };
    const ct_codec_config none = { .min_bytes = 0, .local_clip = 2 };
    ct_grad_range range[3] = {
        { .key = "a[0]", .offset = 0, .count = LARGE, .codec = &ct_codec_redsync },
        { .key = "b[0]", .offset = 2000, .count = SMALL, .codec = &ct_codec_none },
        { .key = "c[0]", .offset = 2112, .count = LARGE },
    };
    ct_grad_pipe_config config = usual;
    ct_grad_pipe *gp = NULL;
    ct_codec_state s;
    float norm = 0;
    int fault = 0, wrong = 0;

    range[0].codec_config = &sparse;
    range[0].weight = weight;
    range[0].rate_mult = 1;
    range[1].codec_config = &none;
    config.codec = &ct_codec_bf16;
    config.codec_config = (ct_codec_config){ .local_clip = 3 };
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, range, 3, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(gp, 0) && !ct_grad_pipe_absorbs(gp, 2));
    fault +=
        MPI_FAULT_UNLESS(ct_grad_pipe_state(gp, 0, 1, &s) && !ct_grad_pipe_state(gp, 1, 0, &s));
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_state(gp, 2, 0, &s));
    for (int i = 0; i < LARGE; ++i) arena[i] = arena[2112 + i] = 0.5f;
    for (int i = 0; i < SMALL; ++i) arena[2000 + i] = 0.5f; /* norm 5 */
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    for (int i = 0; i < 3; ++i) fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
    for (int i = 0; i < LARGE; ++i) wrong += (i < 200) ? (arena[i] == 0) : (arena[i] != 0);
    fault += MPI_FAULT_UNLESS(wrong == 0); /* equal ones: the first tenth went */
    for (int i = 0; i < SMALL; ++i) norm += arena[2000 + i] * arena[2000 + i];
    /* each rank's norm became 2 / sqrt(ranks): its own limit, not the pipe's */
    fault += MPI_FAULT_UNLESS(fabsf(sqrtf(norm) - 2 * sqrtf((float)c->size)) < 1e-4f);
    ct_grad_pipe_destroy(gp);
    return fault;
}

/* ---- one mean, of one sign and then of the other; the layer that the loss reads keeps its values
 */

enum { OF_QUANTIZED = 1000, TENTH = 100 };

/* As many elements are of either sign, and no two are as large: +1000, -999, +998 … on every rank.
 */
static float signed_value(int i)
{
    return (float)(OF_QUANTIZED - i) * ((i % 2 == 0) ? 1.0f : -1.0f);
}

/* Everyone sent the mean of TENTH elements from `first` on, all of its sign, and no others. */
static int expect_mean(const ct_comm *c, const float *sum, int first)
{
    double mean = 0;
    int wrong = 0;

    for (int k = 0; k < TENTH; ++k) mean += signed_value(first + 2 * k) / TENTH;
    for (int i = 0; i < OF_QUANTIZED; ++i) {
        bool sent = ((i - first) % 2 == 0) && (i >= first) && (i < first + 2 * TENTH);

        /* a rounding for each value that the mean is of, and for each rank */
        wrong += !(fabs(sum[i] - (sent ? c->size * mean : 0)) <=
                   sent * (TENTH + c->size) * (double)rig_eps * c->size * OF_QUANTIZED);
    }
    return MPI_FAULT_UNLESS(wrong == 0);
}

/* … the TENTH elements from `first` on themselves, in bf16: to half of the last of 8 bits. */
static int expect_values(const ct_comm *c, const float *sum, int first)
{
    int wrong = 0;

    for (int i = 0; i < OF_QUANTIZED; ++i) {
        bool sent = (i >= first) && (i < first + TENTH);

        wrong += !(fabsf(sum[i] - (sent ? (float)c->size * signed_value(i) : 0)) <=
                   (float)(sent * c->size * OF_QUANTIZED) * 0x1p-8f);
    }
    return MPI_FAULT_UNLESS(wrong == 0);
}

static int step_of_two(ct_grad_pipe *gp, int64_t s)
{
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, s, 1, 1) == CT_OK);

    for (int i = 0; i < 2; ++i) fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, i) == CT_OK);
    return fault + MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
}

static int quantized(ct_comm *c)
{
    static float arena[2 * OF_QUANTIZED + 64], weight[OF_QUANTIZED];
    float *inner = arena, *output = arena + 1024;
    ct_grad_range range[2] = {
        { .key = "in[0]", .offset = 0, .count = OF_QUANTIZED, .rate_mult = 1 },
        { .key = "out[0]", .offset = 1024, .count = OF_QUANTIZED, .rate_mult = 1, .output = true },
    };
    ct_grad_pipe_config config = usual;
    ct_grad_pipe *gp = NULL;
    int fault = 0;

    config.momentum = 0;
    config.codec_config.density = 0.1f;
    config.codec_config.quantize = true;
    config.codec_config.wire = "auto";
    range[0].weight = range[1].weight = weight;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, range, 2, &gp) == CT_OK);
    if (fault > 0) return fault;
    for (int i = 0; i < OF_QUANTIZED; ++i) inner[i] = output[i] = signed_value(i);
    fault += step_of_two(gp, 0);
    fault += expect_mean(c, inner, 0) + expect_values(c, output, 0);
    memset(arena, 0, sizeof(arena)); /* nothing new: what was left behind goes */
    fault += step_of_two(gp, 1);
    fault += expect_mean(c, inner, 1) + expect_values(c, output, TENTH);
    memset(arena, 0, sizeof(arena)); /* the first sign again */
    fault += step_of_two(gp, 2);
    fault += expect_mean(c, inner, 2 * TENTH) + expect_values(c, output, 2 * TENTH);
    ct_grad_pipe_destroy(gp);
    return fault;
}

static void test_quantized(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(quantized)), 0);
}

static void test_momentum(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(momentum)), 0);
}

static void test_conservation(void **state)
{
    (void)state;
    n_machine = mpi_count_machines();
    machine = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(conservation)), 0);
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(bits)), 0);
}

static void test_each_its_own(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(each_its_own)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_momentum),
                                        cmocka_unit_test(test_bits),
                                        cmocka_unit_test(test_each_its_own),
                                        cmocka_unit_test(test_quantized),
                                        cmocka_unit_test(test_conservation) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 180);
}
