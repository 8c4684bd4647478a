/* local_clip: every codec does with a gradient what it does with one that was limited before, and
 * those that accumulate do not write it again. */
#include "tests/mpi/codec_rig.h"

#include <math.h>

#include "comm/codec/select.h"

enum { N = RIG_CODED, STEPS = 14 };

static const struct {
    const ct_codec_ops *codec;
    const char *exchange;
    bool corrects;
} way[] = {
    { &ct_codec_none, "auto", false },     { &ct_codec_bf16, "auto", false },
    { &ct_codec_fp16, "auto", false },     { &ct_codec_topk, "allgather", false },
    { &ct_codec_topk, "hier", false },     { &ct_codec_topk, "gtopk", false },
    { &ct_codec_topk, "oktopk", false },   { &ct_codec_redsync, "allgather", true },
    { &ct_codec_redsync, "hier", true },   { &ct_codec_redsync, "gtopk", true },
    { &ct_codec_redsync, "oktopk", true }, { &ct_codec_redsync, "allgather", false },
    { &ct_codec_onebit, "split", true },   { &ct_codec_onebit, "allgather", false },
    { &ct_codec_powersgd, "auto", true },  { &ct_codec_powersgd, "auto", false },
};
enum { N_WAY = (int)(sizeof(way) / sizeof(way[0])) };

static ct_grad_pipe_config config_of(int at)
{
    bool sparse = ct_codec_is_sparse(way[at].codec);

    return (ct_grad_pipe_config){ .bucket_bytes = 65536,
                                  .allreduce = "ring",
                                  .overlap = true,
                                  .momentum = 0.9f,
                                  .codec = way[at].codec,
                                  .codec_config = { .density = sparse ? 0.02f : 1.0f,
                                                    .exchange = way[at].exchange,
                                                    .wire = sparse ? "pairs" : "auto",
                                                    .selection = sparse ? "exact" : "auto",
                                                    .rank = 2,
                                                    .warmup_iterations = 3,
                                                    .resync_iterations = 5,
                                                    .momentum_correction = way[at].corrects } };
}

/* Norms of about 73 times 1, 4 or 16. */
static void fill(int rank, int64_t step, float *grad)
{
    static const float size[] = { 4, 16, 1 };

    for (int i = 0; i < N; ++i) grad[i] = size[(rank + step) % 3] * rig_noise(rank, step, i);
}

/* The hash of all weights, of gradients that were limited before or are by local_clip. The scale is
 * a power of two, so it does not matter what it is multiplied with first. */
static int run(ct_comm *c, int at, bool before, uint64_t *hash_p)
{
    static rig r;
    static float grad[N];
    ct_grad_pipe_config config = config_of(at);
    const float most = 300;
    int fault = 0, n_less = 0;

    if (!before) config.codec_config.local_clip = most;
    fault += rig_open(&r, c, &config, 0.01f);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        fill(c->rank, s, grad);
        if (before) {
            float factor = ct_momentum_correction_limit(grad, N, (double)most / sqrt(c->size), 1);

            n_less += (factor < 1);
            ct_momentum_correction_scale(grad, N, factor, 1);
        }
        fault += rig_step(&r, s, 0.5f, 0.001f, grad);
    }
    fault += MPI_FAULT_UNLESS(!before || ((n_less > 0) && (n_less < STEPS)) || (c->size > 16));
    *hash_p = r.hash;
    rig_close(&r);
    return fault;
}

static int same_bits(ct_comm *c)
{
    int fault = 0;

    for (int at = 0; at < N_WAY; ++at) {
        uint64_t want = 0, got = 0;
        int wrong = run(c, at, true, &want) + run(c, at, false, &got);

        wrong += MPI_FAULT_UNLESS(want == got);
        wrong += rig_same_on_all(got);
        if (wrong > 0)
            fprintf(stderr, "%s, %s: local_clip\n", way[at].codec->name, way[at].exchange);
        fault += wrong;
    }
    return fault;
}

/* Nobody else has left: what rank 0 has encoded is on its way, and the gradient as it was. */
static int left_alone(ct_comm *c, int at)
{
    static rig r;
    static float grad[N];
    ct_grad_pipe_config config = config_of(at);
    int fault = 0;

    config.codec_config.local_clip = 20;
    config.codec_config.warmup_iterations = 0;
    fault += rig_open(&r, c, &config, 0);
    fill(c->rank, 0, grad);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, 0, 1, 1) == CT_OK);
    memcpy(r.arena, grad, sizeof(grad));
    if (c->rank > 0) MPI_Barrier(MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r.gp, 0) == CT_OK);
    if (c->rank == 0) {
        fault += MPI_FAULT_UNLESS(memcmp(r.arena, grad, sizeof(grad)) == 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r.gp, NULL, NULL) == CT_OK);
    rig_close(&r);
    return fault;
}

static int not_written(ct_comm *c)
{
    int fault = 0;

    if (c->size == 1) return 0;
    for (int at = 0; at < N_WAY; ++at) {
        const char *exchange = way[at].exchange;

        /* hier adds gradients up where they lie; what merges begins with the sum there */
        if (!ct_codec_keeps(way[at].codec, &(ct_codec_config){ .density = 0 }) ||
            (strcmp(exchange, "hier") == 0) || (strcmp(exchange, "gtopk") == 0) ||
            (strcmp(exchange, "oktopk") == 0))
            continue;
        fault += left_alone(c, at);
    }
    return fault;
}

static void test_same_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(same_bits)), 0);
}

static void test_not_written(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(not_written)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits),
                                        cmocka_unit_test(test_not_written) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
