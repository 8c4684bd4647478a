/* A warm-up in which the density falls: as many elements as it says travel, nothing is lost, all
 * ranks get the same bits, and a restart in the middle changes none of them. */
#include "tests/mpi/codec_rig.h"

#include <math.h>

#include "comm/codec/codec_sparse.h"

enum { N_CODED = RIG_CODED, WARMUP = 60, N_STEP = 90 };

static const ct_grad_pipe_config usual = { .bucket_bytes = 65536,
                                           .allreduce = "ring",
                                           .overlap = true,
                                           .codec = &ct_codec_redsync,
                                           .codec_config = { .density = 0.01f,
                                                             .warmup_iterations = WARMUP,
                                                             .warmup_density = 0.25f,
                                                             .mask_momentum = true,
                                                             .momentum_correction = true } };

static const struct {
    const char *exchange, *wire, *selection;
    bool quantize, plain;
    int resync;
} way[] = {
    { "allgather", "pairs", "exact", false, false, 0 },
    { "hier", "half", "exact", false, false, 0 },
    { "gtopk", "pairs", "trimmed", false, false, 23 },
    { "oktopk", "half", "exact", false, false, 0 },
    { "allgather", "auto", "search", true, false, 17 },
    { "hier", "pairs", "sampled", false, true, 0 },
    { "gtopk", "half", "sampled", false, true, 0 },
    { "oktopk", "auto", "search", true, false, 0 },
};
enum { N_WAY = (int)(sizeof(way) / sizeof(way[0])) };

static ct_grad_pipe_config config_of(int at)
{
    ct_grad_pipe_config config = usual;
    ct_codec_config *k = &config.codec_config;

    k->exchange = way[at].exchange;
    k->wire = way[at].wire;
    k->selection = way[at].selection;
    k->quantize = way[at].quantize;
    k->resync_iterations = way[at].resync;
    if (way[at].plain) {
        config.codec = &ct_codec_topk;
        k->momentum_correction = k->mask_momentum = false;
    }
    return config;
}

/* Elements of this rank's that the step just made selected, against the law of the fall in pow().
 * Noise has no equal magnitudes and no zeros, so exact selections take all that they are to; with
 * one sign there may be fewer. hier: each rank of a node takes its slice's share, rounded up. */
static int check_selected(ct_comm *c, const ct_grad_pipe_config *config, int64_t s,
                          int64_t selected)
{
    const ct_codec_config *k = &config->codec_config;
    double fall = (double)k->warmup_density *
                  pow((double)k->density / (double)k->warmup_density, (double)s / WARMUP);
    double want = N_CODED * ((s < WARMUP) ? fall : (double)k->density), all = (double)selected;
    bool exact = (strcmp(k->selection, "exact") == 0) || (strcmp(k->selection, "trimmed") == 0);
    double least = 0, most = 0, nodes = c->size;

    if (strcmp(k->exchange, "hier") == 0) {
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        nodes = (c->size > 1) ? c->topo->n_node : 1;
        want *= nodes;
    }
    /* want is rounded to a whole number, once a node; a slice's share up */
    least = want - 0.5 * nodes - 1e-6;
    most = want + 0.5 * nodes + ((strcmp(k->exchange, "hier") == 0) ? c->size : 0) + 1e-6;
    if (!exact) most = 1.25 * most + nodes;
    if (!exact) least = 0;
    if ((all >= least) && (all <= most)) return 0;
    fprintf(stderr, "%s, step %lld: %g selected, not %g to %g\n", k->exchange, (long long)s, all,
            least, most);
    return 1;
}

/* sent + V is what was given, to rounding: tests/mpi/comm/codec/test_codec_training.c says how
 * much. */
static int conserve(ct_comm *c, int at)
{
    static rig r;
    static float grad[N_CODED];
    static double given[N_CODED], size[N_CODED], kept[N_CODED], arrived[N_CODED];
    ct_grad_pipe_config config = config_of(at);
    ct_sync_stats before, now;
    ct_codec_state state;
    int64_t n_coded = 0;
    int fault = rig_open(&r, c, &config, 0), wrong = 0;

    for (int i = 0; i < N_CODED; ++i) given[i] = size[i] = arrived[i] = 0;
    ct_grad_pipe_get_stats(r.gp, true, &before);
    for (int64_t s = 0; (s < N_STEP) && (fault == 0); ++s) {
        for (int i = 0; i < N_CODED; ++i) {
            grad[i] = rig_noise(c->rank, s, i);
            for (int p = 0; p < c->size; ++p) {
                double v = rig_noise(p, s, i) * (way[at].plain ? 1.0 : 0.5 * rig_rate(s));

                given[i] += v;
                size[i] += fabs(v);
            }
        }
        fault += rig_step(&r, s, 1, rig_rate(s), grad);
        for (int i = 0; i < N_CODED; ++i) arrived[i] += r.arena[i];
        ct_grad_pipe_get_stats(r.gp, true, &now);
        if (now.codec.elements > before.codec.elements)
            fault += check_selected(c, &config, s, now.codec.selected - before.codec.selected);
        n_coded += (now.codec.elements > before.codec.elements);
        /* the report tells them apart */
        if (s == WARMUP - 1)
            fault += MPI_FAULT_UNLESS(now.codec.warm_selected == now.codec.selected);
        if (s == WARMUP - 1)
            fault += MPI_FAULT_UNLESS(now.codec.warm_elements == now.codec.elements);
        if (s >= WARMUP)
            fault += MPI_FAULT_UNLESS(now.codec.warm_elements == before.codec.warm_elements);
        before = now;
    }
    fault += MPI_FAULT_UNLESS(now.codec.warm_elements < now.codec.elements);
    /* among so few ranks all of the fall is cheaper than dense sums, but for the first steps in
     * pairs; the last of the warm-up is never dense */
    fault += MPI_FAULT_UNLESS(n_coded >= N_STEP - WARMUP / 2 - N_STEP / 10);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r.gp, 0, 0, &state));
    for (int i = 0; (fault == 0) && (i < N_CODED); ++i) kept[i] = state.data[i];
    MPI_Allreduce(MPI_IN_PLACE, kept, N_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N_CODED; ++i)
        wrong += !(fabs(arrived[i] + kept[i] - given[i]) <=
                   1.1 * (5 * N_STEP + c->size) * (double)rig_eps * size[i]);
    if (wrong > 0) fprintf(stderr, "way %d: %d elements are not conserved\n", at, wrong);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static int conservation(ct_comm *c)
{
    int fault = 0;

    for (int at = 0; at < N_WAY; ++at) fault += conserve(c, at);
    return fault;
}

static void test_conservation(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(conservation)), 0);
}

/* ---- overlap, threads, and a restart in the middle of the fall change no bit */

static int bits(ct_comm *c)
{
    int fault = 0;

    for (int at = 0; at < 4; ++at) {
        ct_grad_pipe_config config = config_of(at);

        config.momentum = 0.9f;
        config.codec_config.warmup_iterations = 16;
        fault += rig_bits(c, config, 9);
    }
    return fault;
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(bits)), 0);
}

/* ---- no step of the warm-up sends more than a dense one, which it then is */

static int no_more_than_dense(ct_comm *c)
{
    static const char *const exchange[] = { "allgather", "gtopk" };
    static rig r;
    static float grad[N_CODED];
    int fault = 0;

    for (int e = 0; e < 2; ++e) {
        ct_grad_pipe_config config = config_of(0);
        ct_sync_stats before, now;
        double dense = 8.0 * N_CODED * (c->size - 1) / c->size, least = dense;

        config.codec_config.exchange = exchange[e];
        config.codec_config.warmup_density = 1;
        fault += rig_open(&r, c, &config, 0);
        ct_grad_pipe_get_stats(r.gp, false, &before);
        for (int64_t s = 0; (s < WARMUP + 2) && (fault == 0); ++s) {
            double sent = 0;

            for (int i = 0; i < N_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
            fault += rig_step(&r, s, 1, 0.1f, grad);
            ct_grad_pipe_get_stats(r.gp, false, &now);
            sent = (double)(now.bytes_sent - before.bytes_sent);
            before = now;
            /* parts of a ring begin at multiples of 16 elements; a gtopk's ranks differ by 1.3 */
            fault += MPI_FAULT_UNLESS(sent <= ((e == 0) ? 1 : 1.3) * dense + 128.0 * c->size);
            if (s == 0) fault += MPI_FAULT_UNLESS(sent >= dense - 128.0 * c->size);
            least = fmin(least, sent);
        }
        if (c->size > 1) fault += MPI_FAULT_UNLESS(least < 0.1 * dense);
        fault += rig_same_on_all(r.hash);
        rig_close(&r);
    }
    return fault;
}

static void test_no_more_than_dense(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(no_more_than_dense)), 0);
}

/* ---- the law itself */

static void test_fall(void **state)
{
    ct_codec_config c = { .density = 0.001f, .warmup_iterations = 4000, .warmup_density = 0.25f };
    double last = 1;

    (void)state;
    assert_true(ct_sparse_density(&c, 0) == (double)c.warmup_density);
    assert_true(ct_sparse_density(&c, 4000) == (double)c.density);
    assert_true(ct_sparse_density(&c, 1000000) == (double)c.density);
    for (int64_t i = 0; i <= 4000; ++i) {
        double d = ct_sparse_density(&c, i);
        double want = (double)c.density *
                      pow((double)c.warmup_density / (double)c.density, (double)(4000 - i) / 4000);

        assert_true(d < last);
        /* 32 digits of the exponent, of a ratio of 250: 2^-32 ln 250; 64 roundings are less */
        assert_true(fabs(d / want - 1) <= 1.5 * 0x1p-32 * log(250));
        last = d;
    }
    /* a fourth an epoch, of four (Lin et al., section 3.3): 25, 6.25, 1.5625, 0.4, 0.1 % */
    assert_true(fabs(ct_sparse_density(&c, 1000) / 0.0625 - 1) < 0.01);
    assert_true(fabs(ct_sparse_density(&c, 2000) / 0.015625 - 1) < 0.02);
    assert_true(fabs(ct_sparse_density(&c, 3000) / 0.004 - 1) < 0.02);
    c.warmup_density = 0;
    assert_true(ct_sparse_density(&c, 0) == (double)c.density);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fall), cmocka_unit_test(test_bits),
                                        cmocka_unit_test(test_no_more_than_dense),
                                        cmocka_unit_test(test_conservation) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 180);
}
