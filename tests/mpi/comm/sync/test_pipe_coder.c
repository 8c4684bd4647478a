/* What codecs compute apart, on the pipe's own thread: it runs beside the main thread, which goes
 * on with sums of its own, and changes no bit of any codec; what goes wrong there the main thread
 * says.
 */
#include "tests/mpi/codec_rig.h"
#include "tests/log_capture.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/collective/blocking.h"

/* ---- bits */

enum { N_WAY = 15, N_STEP = 5, ROWS = 64, COLS = 96, EACH = ROWS * COLS, STRIDE = EACH + 16 };

static const struct way {
    const ct_codec_ops *codec;
    ct_codec_config config;
} way[N_WAY] = {
    { &ct_codec_topk, { .density = 0.05f, .exchange = "allgather", .wire = "half" } },
    { &ct_codec_redsync,
      { .density = 0.05f,
        .exchange = "allgather",
        .momentum_correction = true,
        .mask_momentum = true } },
    { &ct_codec_none, { .density = 0 } },
    { &ct_codec_redsync,
      { .density = 0.05f, .exchange = "gtopk", .momentum_correction = true, .local_clip = 0.5f } },
    { &ct_codec_redsync, { .density = 0.05f, .exchange = "oktopk", .quantize = true } },
    { &ct_codec_redsync, { .density = 0.2f, .exchange = "dense", .momentum_correction = true } },
    { &ct_codec_topk, { .density = 0.05f, .exchange = "hier", .local_clip = 0.5f } },
    { &ct_codec_bf16, { .local_clip = 0.5f } },
    { &ct_codec_fp16, { .density = 0 } },
    { &ct_codec_onebit, { .exchange = "split", .momentum_correction = true } },
    { &ct_codec_onebit, { .exchange = "allgather", .resync_iterations = 3 } },
    { &ct_codec_powersgd, { .rank = 3, .momentum_correction = true } },
    { &ct_codec_int8, { .error_feedback = true } },
    { &ct_codec_int4, { .error_feedback = false } },
    { &ct_codec_redsync,
      { .density = 0.05f,
        .exchange = "allgather",
        .warmup_iterations = 2,
        .momentum_correction = true } },
};

typedef struct many {
    ct_comm *comm;
    ct_grad_pipe *gp;
    float *arena;
    float weight[N_WAY * STRIDE];
} many;

static int open_many(many *m, ct_comm *c, ct_progress_kind progress)
{
    static ct_grad_range range[N_WAY];
    static char key[N_WAY][16];
    const ct_arena_ops *mem = ct_comm_arena(c);
    ct_grad_pipe_config config = { .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .momentum = 0.9f,
                                   .progress = progress };
    void *block = NULL;
    int fault = 0;

    memset(m, 0, sizeof(*m));
    m->comm = c;
    for (int i = 0; i < N_WAY * STRIDE; ++i) m->weight[i] = 0.01f * (float)(i % 17 - 8);
    for (int i = 0; i < N_WAY; ++i) {
        snprintf(key[i], sizeof(key[i]), "fc%d[0]", i);
        range[i] = (ct_grad_range){ .key = key[i],
                                    .offset = (int64_t)i * STRIDE,
                                    .count = EACH,
                                    .rows = ROWS,
                                    .weight = m->weight + (size_t)i * STRIDE,
                                    .decay = 0.001f,
                                    .rate_mult = 0.5f,
                                    .codec = way[i].codec,
                                    .codec_config = &way[i].config };
    }
    fault += MPI_FAULT_UNLESS(
        mem->acquire(mem->ctx, sizeof(float) * N_WAY * STRIDE, "arena", &block) == CT_OK);
    m->arena = block;
    return fault + MPI_FAULT_UNLESS(
                       ct_grad_pipe_create(c, &config, m->arena, range, N_WAY, &m->gp) == CT_OK);
}

static void close_many(many *m)
{
    const ct_arena_ops *mem = ct_comm_arena(m->comm);

    ct_grad_pipe_destroy(m->gp);
    mem->release(mem->ctx, m->arena);
}

static ct_status update(void *ctx, int first, int n)
{
    many *m = ctx;

    for (int i = first * STRIDE; i < (first + n) * STRIDE; ++i) m->weight[i] -= m->arena[i];
    return CT_OK;
}

/* Backward, and then forward, which waits in the other order. Statistics are asked for while codecs
 * are at work. */
static int step_many(many *m, int64_t s)
{
    ct_sync_stats stats;
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(m->gp, s, 1, (s < 3) ? 0.1f : 0.03f) == CT_OK);

    memset(m->arena, 0, sizeof(float) * N_WAY * STRIDE);
    for (int i = 0; (i < N_WAY) && (fault == 0); ++i) {
        for (int k = 0; k < EACH; ++k)
            m->arena[i * STRIDE + k] = rig_noise(m->comm->rank, s, i * EACH + k);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(m->gp, i) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_poll(m->gp) == CT_OK);
    }
    ct_grad_pipe_get_stats(m->gp, s == 1, &stats);
    for (int i = N_WAY - 1; (i >= 0) && (fault == 0); --i)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_wait(m->gp, i, 1, update, m) == CT_OK);
    return fault + MPI_FAULT_UNLESS(ct_grad_pipe_finish(m->gp, update, m) == CT_OK);
}

/* The hash of all weights, and of what is kept. */
static int run_many(ct_comm *c, ct_progress_kind progress, uint64_t hash[N_WAY])
{
    static many m;
    ct_codec_state state;
    int fault = open_many(&m, c, progress);

    for (int64_t s = 0; (s < N_STEP) && (fault == 0); ++s) fault += step_many(&m, s);
    for (int i = 0; i < N_WAY; ++i) {
        hash[i] = rig_hash(1, m.weight + (size_t)i * STRIDE, EACH);
        fault += rig_same_on_all(hash[i]);
        for (int k = 0; ct_grad_pipe_state(m.gp, i, k, &state); ++k)
            hash[i] = rig_hash(hash[i], state.data, (size_t)state.count);
    }
    close_many(&m);
    return fault;
}

static int bits(ct_comm *c)
{
    uint64_t without[N_WAY], with[N_WAY];
    int fault = run_many(c, CT_PROGRESS_POLL, without);

    fault += run_many(c, CT_PROGRESS_THREAD, with);
    for (int i = 0; i < N_WAY; ++i) {
        if (with[i] != without[i]) fprintf(stderr, "fc%d, %s\n", i, way[i].codec->name);
        fault += MPI_FAULT_UNLESS(with[i] == without[i]);
    }
    return fault;
}

static void test_bits(void **state)
{
    (void)state;
    rig_make_table();
    assert_int_equal(mpi_verdict(mpi_on_machines(bits)), 0);
}

/* ---- beside the main thread */

enum { PATIENCE = 50000 /* times 100 us */ };

/* A codec whose first computation goes on until the main thread has done something else. */
static struct gate {
    _Atomic bool opens, gave_up;
    _Atomic int passed;
    _Atomic bool apart; /* not by the main thread */
    pthread_t main;
} gate;

static ct_status gated_code(void *obj)
{
    int n = 0;

    if (!pthread_equal(pthread_self(), gate.main)) atomic_store(&gate.apart, true);
    while (!atomic_load(&gate.opens) && (n++ < PATIENCE)) usleep(100);
    if (n >= PATIENCE) atomic_store(&gate.gave_up, true);
    (void)atomic_fetch_add(&gate.passed, 1);
    return ct_codec_redsync.code(obj);
}

/* Both ranges are encoded by the coder, which stands at the first until the ranks have met. The
 * sums of both are asked for afterwards. */
static int beside(ct_comm *c)
{
    static float arena[2 * STRIDE];
    static const ct_codec_config sparse = { .density = 0.1f, .exchange = "allgather" };
    ct_codec_ops gated = ct_codec_redsync;
    ct_grad_range two[2] = { { .key = "a[0]", .count = EACH },
                             { .key = "b[0]", .offset = STRIDE, .count = EACH } };
    ct_grad_pipe_config config = { .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &gated,
                                   .codec_config = sparse,
                                   .progress = CT_PROGRESS_THREAD };
    ct_sync_stats stats = { .exposed_s = 0 };
    ct_grad_pipe *gp = NULL;
    int64_t one = 1;
    int fault = 0;

    gated.code = gated_code;
    gate.main = pthread_self();
    atomic_store(&gate.opens, false);
    atomic_store(&gate.gave_up, false);
    atomic_store(&gate.apart, false);
    atomic_store(&gate.passed, 0);
    for (int k = 0; k < 2 * STRIDE; ++k) arena[k] = rig_noise(c->rank, 1, k);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, arena, two, 2, &gp) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(gp, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_max(c, &one, 1) == CT_OK); /* MPI is free for it */
    for (int k = 0; (k < PATIENCE) && !atomic_load(&gate.apart); ++k) usleep(100);
    fault += MPI_FAULT_UNLESS(atomic_load(&gate.apart));
    fault += MPI_FAULT_UNLESS(atomic_load(&gate.passed) == 0);
    fault += MPI_FAULT_UNLESS(ct_comm_max(c, &one, 1) == CT_OK);
    atomic_store(&gate.opens, true);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK);
    fault += MPI_FAULT_UNLESS(!atomic_load(&gate.gave_up));
    fault += MPI_FAULT_UNLESS(atomic_load(&gate.passed) == 4); /* encoded and decoded, both */
    ct_grad_pipe_get_stats(gp, true, &stats);
    fault += MPI_FAULT_UNLESS(stats.codec.n_coded == 2);
    ct_grad_pipe_destroy(gp);
    return fault;
}

static void test_beside(void **state)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)state;
    rig_make_table();
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    if ((fault == 0) && (c->size > 1)) fault += beside(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* ---- what is exposed */

enum { SLOW_US = 20000 };

/* A codec whose encoding and decoding take so long each, apart or not, and who says so. */
static ct_status slow_code(void *obj)
{
    usleep(SLOW_US);
    return ct_codec_topk.code(obj);
}

static ct_status slow_start(void *obj, const ct_codec_step *step)
{
    if (!step->apart) usleep(2 * SLOW_US);
    return ct_codec_topk.start(obj, step);
}

static void slow_stats(const void *obj, ct_codec_stats *out)
{
    ct_codec_topk.stats(obj, out);
    out->select_s += 2e-6 * SLOW_US * (double)out->n_step;
}

/* Layers compute for a while after the gradient is ready; what the exchange exposes of a step. */
static double exposed(ct_comm *c, ct_progress_kind progress, useconds_t layers_us)
{
    static float arena[STRIDE];
    ct_codec_ops slow = ct_codec_topk;
    ct_grad_range one = { .key = "a[0]", .count = EACH };
    ct_grad_pipe_config config = { .allreduce = "auto",
                                   .overlap = true,
                                   .codec = &slow,
                                   .codec_config = { .density = 0.1f, .exchange = "allgather" },
                                   .progress = progress };
    ct_sync_stats stats = { .exposed_s = NAN };
    ct_grad_pipe *gp = NULL;

    slow.code = slow_code;
    slow.start = slow_start;
    slow.stats = slow_stats;
    for (int k = 0; k < STRIDE; ++k) arena[k] = rig_noise(c->rank, 1, k);
    if (ct_grad_pipe_create(c, &config, arena, &one, 1, &gp) != CT_OK) return NAN;
    if ((ct_grad_pipe_begin(gp, 0, 1, 1) == CT_OK) && (ct_grad_pipe_ready(gp, 0) == CT_OK)) {
        usleep(layers_us);
        if (ct_grad_pipe_finish(gp, NULL, NULL) == CT_OK) ct_grad_pipe_get_stats(gp, false, &stats);
    }
    ct_grad_pipe_destroy(gp);
    return stats.exposed_s;
}

/* Apart, and with enough to hide behind, nothing is exposed; with nothing, all of it. The main
 * thread hides nothing of its own. */
static int exposes(ct_comm *c)
{
    double hidden = INFINITY, open = 0, own = 0;

    for (int k = 0; k < 3; ++k) /* other programs keep ranks waiting for each other */
        hidden = fmin(hidden, exposed(c, CT_PROGRESS_THREAD, 10 * SLOW_US));
    open = exposed(c, CT_PROGRESS_THREAD, 0);
    own = exposed(c, CT_PROGRESS_POLL, 10 * SLOW_US);
    return MPI_FAULT_UNLESS(hidden < 1e-6 * SLOW_US) + MPI_FAULT_UNLESS(open > 1.9e-6 * SLOW_US) +
           MPI_FAULT_UNLESS(own > 1.9e-6 * SLOW_US);
}

static void test_exposed(void **state)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)state;
    rig_make_table();
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    if ((fault == 0) && (c->size > 1)) fault += exposes(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_exposed),
    };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
