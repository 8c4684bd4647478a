/* fp16, onebit and powersgd through the pipe: what each promises. */
#include "tests/mpi/codec_rig.h"
#include "tests/log_capture.h"

#include <math.h>

static const ct_grad_pipe_config usual = {
    .bucket_bytes = 65536, .allreduce = "ring", .overlap = true, .codec = &ct_codec_fp16
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

/* ---- onebit and powersgd: nothing is lost, though the rate changes, and replicas are equal */

enum { MANY_STEPS = 1000, MOST_RANK = 64 };

static const struct way {
    const ct_codec_ops *codec;
    int rank;
    bool absorb;
    int resync;
    const char *exchange;
} way[] = {
    { &ct_codec_onebit, 2, true, 0, "split" },       { &ct_codec_powersgd, 2, true, 0, NULL },
    { &ct_codec_onebit, 2, false, 97, "allgather" }, { &ct_codec_powersgd, 1, false, 97, NULL },
    { &ct_codec_onebit, 2, false, 61, "split" },     { &ct_codec_powersgd, 7, true, 61, NULL },
};
enum { N_WAY = (int)(sizeof(way) / sizeof(way[0])) };

static ct_grad_pipe_config config_of(const struct way *w)
{
    ct_grad_pipe_config config = usual;

    config.codec = w->codec;
    config.codec_config.rank = w->rank;
    config.codec_config.exchange = w->exchange;
    config.codec_config.momentum_correction = w->absorb;
    config.codec_config.mask_momentum = true; /* means nothing to them */
    return config;
}

static double largest(const float *v, int n)
{
    double most = 0;

    for (int i = 0; i < n; ++i) most = fmax(most, fabs((double)v[i]));
    return most;
}

/* V of all ranks, summed; and the largest element of this rank's. */
static int look_at_kept(const rig *r, double *kept, double *most_p)
{
    ct_codec_state state;
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_state(r->gp, 0, 0, &state));

    fault += MPI_FAULT_UNLESS(strcmp(state.name, CT_CODEC_RESIDUAL) == 0);
    fault += MPI_FAULT_UNLESS(state.count == RIG_CODED);
    if (fault > 0) return fault;
    *most_p = largest(state.data, RIG_CODED);
    for (int i = 0; (kept != NULL) && (i < RIG_CODED); ++i) kept[i] = state.data[i];
    if (kept != NULL)
        MPI_Allreduce(MPI_IN_PLACE, kept, RIG_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return fault;
}

/* In a step each rank rounds V when the carry, itself rounded, is applied, when the gradient is
 * added, and when what is sent is taken out (a
 * term for each rank of powersgd); what is sent is rounded in as many additions as there are ranks.
 * All terms are as large as V or the sum at most, but those of powersgd may be as large as a
 * column, sqrt(rows) times that. */
static int conserve(ct_comm *c, const struct way *w)
{
    static rig r;
    static float grad[RIG_CODED];
    static double given[RIG_CODED], kept[RIG_CODED], arrived[RIG_CODED];
    ct_grad_pipe_config config = config_of(w);
    double reach = 0, most = 0, last = 0;
    int fault = 0, wrong = 0;

    config.codec_config.resync_iterations = w->resync;
    config.codec_config.warmup_iterations = 10;
    fault += rig_open(&r, c, &config, 0);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r.gp, 0) == w->absorb);
    for (int i = 0; i < RIG_CODED; ++i) given[i] = arrived[i] = 0;
    for (int64_t s = 0; (s < MANY_STEPS) && (fault == 0); ++s) {
        double carry = w->absorb ? rig_carry(s) : 1;

        for (int i = 0; i < RIG_CODED; ++i) {
            grad[i] = rig_noise(c->rank, s, i);
            given[i] *= carry;
            for (int p = 0; p < c->size; ++p)
                given[i] += rig_noise(p, s, i) * (w->absorb ? 0.5 * rig_rate(s) : 1.0);
        }
        fault += rig_step(&r, s, 1, rig_rate(s), grad);
        for (int i = 0; i < RIG_CODED; ++i) arrived[i] = carry * arrived[i] + r.arena[i];
        fault += look_at_kept(&r, NULL, &most);
        reach = carry * reach + most + carry * last + largest(grad, RIG_CODED) +
                largest(r.arena, RIG_CODED);
        last = most;
    }
    fault += look_at_kept(&r, kept, &most);
    MPI_Allreduce(MPI_IN_PLACE, &reach, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    reach *= (c->size + 6 + 2 * w->rank) * (double)rig_eps;
    if (w->codec != &ct_codec_onebit) reach *= sqrt(RIG_ROWS);
    for (int i = 0; i < RIG_CODED; ++i)
        wrong += !(fabs(arrived[i] + kept[i] - given[i]) <= 1.1 * reach);
    if (wrong > 0) fprintf(stderr, "%s: %d elements are not conserved\n", w->codec->name, wrong);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    /* a step that all lose is seen, where its gradient is large */
    last = (w->absorb ? 0.5 * rig_rate(MANY_STEPS) : 1.0) * largest(grad, RIG_CODED) * c->size;
    if (!(reach < 0.5 * last)) fprintf(stderr, "conserved to %g of %g\n", reach, last);
    fault += MPI_FAULT_UNLESS(reach < 0.5 * last);
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static int n_machine, machine;

/* Every way on one machine, whatever the number of ranks. */
static int conservation(ct_comm *c)
{
    int fault = 0, here = machine++;

    for (int at = 0; at < N_WAY; ++at) {
        if (at % n_machine == here) fault += conserve(c, &way[at]);
    }
    return fault;
}

static void test_conservation(void **state)
{
    (void)state;
    n_machine = mpi_count_machines();
    machine = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(conservation)), 0);
}

/* ---- overlap, threads and restarts change no bit */

enum { MOST_STATES = 4 };

/* What a snapshot keeps goes into a new pipe. */
static int restart(rig *r, const ct_grad_pipe_config *config, float decay)
{
    static float saved[MOST_STATES][RIG_N], weight[RIG_N];
    ct_codec_state state;
    uint64_t hash = r->hash;
    int fault = 0, n = 0;

    for (; (n < MOST_STATES) && ct_grad_pipe_state(r->gp, 0, n, &state); ++n)
        memcpy(saved[n], state.data, sizeof(float) * (size_t)state.count);
    memcpy(weight, r->weight, sizeof(weight));
    rig_close(r);
    fault += rig_open(r, r->comm, config, decay);
    memcpy(r->weight, weight, sizeof(weight));
    r->hash = hash;
    for (int k = 0; k < n; ++k) {
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(r->gp, 0, k, &state));
        memcpy(state.data, saved[k], sizeof(float) * (size_t)state.count);
    }
    return fault + MPI_FAULT_UNLESS(ct_grad_pipe_restored(r->gp) == CT_OK);
}

static int run_some(ct_comm *c, const ct_grad_pipe_config *config, int64_t stop, uint64_t *hash_p)
{
    static rig r;
    static float grad[RIG_CODED];
    int fault = rig_open(&r, c, config, 0.001f);

    for (int64_t s = 0; (s < 24) && (fault == 0); ++s) {
        if (s == stop) fault += restart(&r, config, 0.001f);
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&r, s, 1, (s < 12) ? 0.1f : 0.03f, grad);
    }
    *hash_p = r.hash;
    fault += rig_same_on_all(r.hash);
    rig_close(&r);
    return fault;
}

static int bits(ct_comm *c)
{
    int fault = 0;

    for (int at = 0; at < N_WAY; ++at) {
        ct_grad_pipe_config config = config_of(&way[at]);
        uint64_t first = 0, other = 0;

        config.momentum = 0.9f;
        config.codec_config.warmup_iterations = 3;
        config.codec_config.resync_iterations = 10;
        fault += run_some(c, &config, -1, &first);
        config.overlap = false;
        fault += run_some(c, &config, -1, &other);
        fault += MPI_FAULT_UNLESS(first == other);
        config.overlap = true;
        config.progress = CT_PROGRESS_THREAD;
        fault += run_some(c, &config, -1, &other);
        fault += MPI_FAULT_UNLESS(first == other);
        fault += run_some(c, &config, 12, &other);
        fault += MPI_FAULT_UNLESS(first == other);
    }
    return fault;
}

static void test_bits(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(bits)), 0);
}

/* ---- a quadratic is solved, though the ranks pull apart */

enum { QUADRATIC_STEPS = 1000 };

/* Rank r wants weight i at target(r, i), with a force of its own; together they want the mean,
 * weighted by force, which no rank's gradient leads to. */
static float force(int r, int i)
{
    return 0.3f + 0.7f * (float)((i * 5 + r * 3) % 11) / 10;
}

/* Near low rank, as gradients are. */
static float target(int r, int i)
{
    int cols = RIG_CODED / RIG_ROWS;

    return 2 * rig_noise(r, 5, 100 + i / cols) * rig_noise(r, 7, 200 + i % cols) +
           0.1f * rig_noise(r, 9, 100 + i);
}

static double distance(const float *w, const double *best)
{
    double sum = 0;

    for (int i = 0; i < RIG_CODED; ++i) sum += (w[i] - best[i]) * (w[i] - best[i]);
    return sqrt(sum);
}

static int solve(ct_comm *c, const struct way *w, float momentum)
{
    static rig r;
    static float grad[RIG_CODED], history[RIG_CODED];
    static double best[RIG_CODED];
    ct_grad_pipe_config config = config_of(w);
    double start = 0, end = 0;
    int fault = 0;

    config.momentum = momentum;
    fault += rig_open(&r, c, &config, 0);
    for (int i = 0; i < RIG_CODED; ++i) {
        double pull = 0, all = 0;

        for (int p = 0; p < c->size; ++p) {
            pull += (double)force(p, i) * target(p, i);
            all += force(p, i);
        }
        best[i] = pull / all;
        history[i] = 0;
    }
    start = distance(r.weight, best);
    for (int64_t s = 0; (s < QUADRATIC_STEPS) && (fault == 0); ++s) {
        float rate = 2 * (1 - momentum) * 0.4f / (1 + (float)s / 50); /* rate_mult is 1 / 2 */

        for (int i = 0; i < RIG_CODED; ++i)
            grad[i] = force(c->rank, i) * (r.weight[i] - target(c->rank, i)) / (float)c->size;
        fault += rig_step(&r, s, 1, rate, grad);
        for (int i = 0; !w->absorb && (i < RIG_CODED); ++i) { /* the solver's part */
            history[i] = momentum * history[i] + 0.5f * rate * r.arena[i];
            r.weight[i] += r.arena[i] - history[i];
        }
    }
    end = distance(r.weight, best);
    if (!(end < 0.05 * start))
        fprintf(stderr, "%s, rank %d: %g of %g is left\n", w->codec->name, w->rank, end, start);
    fault += MPI_FAULT_UNLESS(end < 0.05 * start);
    rig_close(&r);
    return fault;
}

static int quadratic(ct_comm *c)
{
    int fault = 0;

    for (int at = 0; at < N_WAY; ++at) {
        fault += solve(c, &way[at], 0);
        fault += solve(c, &way[at], 0.9f);
    }
    return fault;
}

static void test_quadratic(void **state)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)state;
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    if (fault == 0) fault += quadratic(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* ---- what travels is what theory says */

enum { BYTES_N = 1 << 17, BYTES_ROWS = 256, BYTES_STEPS = 3 };

static int run_codec(ct_comm *c, const ct_codec_ops *ops, const ct_codec_config *config,
                     ct_codec_stats *out)
{
    static float grad[BYTES_N];
    ct_codec_setup setup = { .comm = c,
                             .config = config,
                             .key = "fc[0]",
                             .n = BYTES_N,
                             .rows = BYTES_ROWS,
                             .grad = grad,
                             .tag = ct_comm_take_tags(c, CT_COLL_TAGS),
                             .allreduce = "ring" };
    void *obj = NULL;
    int fault = MPI_FAULT_UNLESS(ct_codec_create(ops, &setup, &obj) == CT_OK), idle = 0;

    for (int64_t s = 0; (s < BYTES_STEPS) && (fault == 0); ++s) {
        ct_status status = CT_OK;

        for (int i = 0; i < BYTES_N; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += MPI_FAULT_UNLESS(
            ops->start(obj, &(ct_codec_step){ .iteration = s, .scale = 1, .clip = 1, .rate = 1 }) ==
            CT_OK);
        while ((fault == 0) && ((status = ops->progress(obj)) == CT_INPROGRESS))
            ct_comm_relax(c, &idle);
        fault += MPI_FAULT_UNLESS(status == CT_OK);
    }
    fault += rig_same_on_all(rig_hash(1, grad, BYTES_N));
    if (fault == 0) ops->stats(obj, out);
    ops->destroy(obj);
    return fault;
}

/* sent: of all ranks together in a step; slack: of small messages that come with it, and of rings
 * whose parts differ. */
static int expect_bytes(ct_comm *c, const ct_codec_ops *ops, const char *exchange, double slack)
{
    const ct_codec_config config = { .rank = 2, .exchange = exchange };
    double p = c->size, payload = (double)ops->payload_bytes(&config, BYTES_N, BYTES_ROWS);
    bool gathers = (exchange != NULL) && (strcmp(exchange, "allgather") == 0);
    double theory = (p - 1) * (gathers ? p : 2) * payload, sum[1] = { 0 };
    ct_codec_stats s = { .n_step = 0 };
    int64_t most = 0;
    int fault = run_codec(c, ops, &config, &s);

    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(s.n_step == BYTES_STEPS);
    fault += MPI_FAULT_UNLESS(s.bytes_dense == (int64_t)4 * BYTES_N * BYTES_STEPS);
    fault +=
        MPI_FAULT_UNLESS(fabs((double)s.bytes_coded / BYTES_STEPS - payload) <= slack * payload);
    most = s.bytes_sent;
    sum[0] = (double)s.bytes_sent;
    MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(fabs(sum[0] / BYTES_STEPS - theory) <= slack * theory);
    return fault + MPI_FAULT_UNLESS((double)most <= 1.3 * sum[0] / p);
}

static int bytes(ct_comm *c)
{
    int fault = 0;

    fault += expect_bytes(c, &ct_codec_bf16, NULL, 0);
    fault += expect_bytes(c, &ct_codec_fp16, NULL, 1e-4); /* the exponent */
    fault += expect_bytes(c, &ct_codec_onebit, "allgather", 0);
    fault += expect_bytes(c, &ct_codec_onebit, "split", 0.01); /* a head for each part */
    return fault + expect_bytes(c, &ct_codec_powersgd, NULL, 0);
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(bytes)), 0);
}

/* ---- a gradient that is not finite ends the run */

static int not_finite(ct_comm *c)
{
    static const ct_codec_ops *const codec[] = { &ct_codec_fp16, &ct_codec_onebit,
                                                 &ct_codec_powersgd };
    static float grad[RIG_CODED];
    static rig r;
    int fault = 0;

    for (size_t k = 0; k < sizeof(codec) / sizeof(codec[0]); ++k) {
        ct_grad_pipe_config config = usual;
        ct_status status = CT_OK;

        config.codec = codec[k];
        config.codec_config.rank = 2;
        if (k == 1) config.codec_config.exchange = "split";
        for (int v = 0; v < 2; ++v) {
            fault += rig_open(&r, c, &config, 0);
            for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, 0, i);
            fault += rig_step(&r, 0, 1, 0.1f, grad);
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, 1, 1, 0.1f) == CT_OK);
            memcpy(r.arena, grad, sizeof(grad));
            r.arena[RIG_CODED - 1 - c->rank] = (v == 0) ? NAN : -INFINITY;
            log_capture_start(NULL);
            status = ct_grad_pipe_ready(r.gp, 0);
            log_capture_stop();
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp16),         cmocka_unit_test(test_bits),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_quadratic),
        cmocka_unit_test(test_conservation), cmocka_unit_test(test_not_finite)
    };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 180);
}
