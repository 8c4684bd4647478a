/* AUTO of gradients on a device: its plans are tried and changed as on the CPU, lose as little, and
 * by the same bits. Skips where no CUDA device works. */
#include "tests/mpi/auto_rig.h"
#include "tests/log_capture.h"

static const ct_device *dev;

static bool has_device(void)
{
    log_capture log;
    ct_status status;

    if (dev != NULL) return true;
    log_capture_start(&log);
    status = ct_device_open("cuda", 0, &dev);
    log_capture_stop();
    if (status != CT_OK) dev = NULL;
    return dev != NULL;
}

static ct_grad_pipe_config config_on(const ct_codec_ops *codec, const ct_device *where)
{
    ct_grad_pipe_config config = config_of(codec, 0.01f);

    config.allreduce = "ring"; /* the same order of sums on both sides */
    config.codec_config.exchange = "allgather";
    config.progress = CT_PROGRESS_POLL;
    config.dev = where;
    return config;
}

/* ---- one way after the other, by hand: beside the CPU's pipe */

static int same_bits(const rig *a, const rig *b)
{
    int fault = MPI_FAULT_UNLESS(memcmp(a->weight, b->weight, sizeof(float) * N) == 0);

    fault += MPI_FAULT_UNLESS(memcmp(a->history, b->history, sizeof(float) * N) == 0);
    for (int i = 0; i < N_RANGE; ++i) {
        ct_codec_state x, y;

        for (int k = 0; ct_grad_pipe_state(a->gp, i, k, &x); ++k) {
            bool has = ct_grad_pipe_state(b->gp, i, k, &y);

            fault +=
                MPI_FAULT_UNLESS(has && (x.count == y.count) &&
                                 (memcmp(x.data, y.data, sizeof(float) * (size_t)x.count) == 0));
        }
    }
    return fault;
}

typedef struct way {
    const ct_codec_ops *ops;
    ct_codec_config config;
    bool tried; /* what it absorbs moves nothing */
} way;

/* Of both large ranges; from there on. As AUTO's buckets have it, they can be dense in any step. */
static int take(rig *r, const way *w)
{
    r->gp->config.codec = &ct_codec_auto;
    r->gp->range[2].codec = &ct_codec_none;
    r->gp->range[2].codec_config = &w->config;
    for (int i = 0; i < 2; ++i) {
        r->gp->range[i].codec = w->ops;
        r->gp->range[i].codec_config = &w->config;
    }
    return MPI_FAULT_UNLESS((w->tried ? ct_grad_pipe_switch_codecs_to_try(r->gp)
                                      : ct_grad_pipe_switch_codecs(r->gp)) == CT_OK);
}

/* Dense steps until V is with the weights, as both pipes see it. */
static int leave_all(rig *r, int64_t *s)
{
    int64_t any = 1;
    int fault = 0;

    for (int b = 0; b < r->gp->n_bucket; ++b) r->gp->bucket[b].leaves = true;
    for (int n = 0; (n < 200) && (any > 0); ++n) {
        fault += rig_step(r, (*s)++);
        any = ct_grad_pipe_holds(r->gp, 0) || ct_grad_pipe_holds(r->gp, 1);
        MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    return fault + MPI_FAULT_UNLESS(any == 0);
}

static int changes_as_cpu(ct_comm *c)
{
    const ct_grad_pipe_config here = config_on(&ct_codec_none, NULL);
    const ct_grad_pipe_config there = config_on(&ct_codec_none, dev);
    const ct_codec_config sparse = { .density = 0.01f,
                                     .exchange = "allgather",
                                     .momentum_correction = true };
    const ct_codec_config merged = { .density = 0.05f,
                                     .exchange = "gtopk",
                                     .momentum_correction = true };
    const ct_codec_config signs = { .exchange = "allgather", .momentum_correction = true };
    const ct_codec_config plain = { .density = 0.02f, .exchange = "allgather" };
    const way list[] = {
        { &ct_codec_none, plain, true },     { &ct_codec_redsync, sparse, true },
        { &ct_codec_onebit, signs, true },   { &ct_codec_redsync, merged, false },
        { &ct_codec_redsync, sparse, true }, { &ct_codec_bf16, plain, true },
        { &ct_codec_none, plain, true },     { &ct_codec_redsync, merged, false },
        { &ct_codec_onebit, signs, false },  { &ct_codec_redsync, sparse, false },
    };
    enum { N_WAY = sizeof(list) / sizeof(list[0]) };
    rig a, b;
    int64_t s = 0, t = 0;
    int fault = rig_open(&a, c, &here) + rig_open(&b, c, &there);

    for (int w = 0; (w < N_WAY) && (fault == 0); ++w) {
        bool casts = (list[w].ops == &ct_codec_bf16); /* what it rounds is lost */

        fault += take(&a, &list[w]) + take(&b, &list[w]);
        fault +=
            MPI_FAULT_UNLESS(ct_grad_pipe_on_device(b.gp, 0) == (list[w].ops != &ct_codec_none));
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_on_device(b.gp, 2));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_tries(a.gp, 0) == ct_grad_pipe_tries(b.gp, 0));
        for (int k = 0; !casts && (k < 3) && (fault == 0); ++k) {
            fault += rig_step(&a, s++) + rig_step(&b, t++);
            fault += same_bits(&a, &b);
        }
    }
    if (fault == 0) { /* … and dense for good */
        fault += leave_all(&a, &s) + leave_all(&b, &t);
        fault += MPI_FAULT_UNLESS(s == t) + same_bits(&a, &b);
        fault += take(&a, &list[0]) + take(&b, &list[0]);
        fault += rig_step(&a, s++) + rig_step(&b, t++) + same_bits(&a, &b);
    }
    rig_close(&a);
    rig_close(&b);
    return fault;
}

static void test_changes_as_on_the_cpu(void **unused)
{
    (void)unused;
    if (!has_device()) skip();
    assert_int_equal(mpi_verdict(mpi_on_machines(changes_as_cpu)), 0);
}

/* ---- AUTO tries, over a slow bus, codecs whose kernels are said to take no time: as loops on the
 * host they take so much that no model would have them tried */

static ct_device slow;
static ct_mark_ops marks;

static ct_status short_time(int from, int to, double *seconds_p)
{
    (void)from, (void)to;
    *seconds_p = 2e-3; /* whatever it was: long enough to be a measurement */
    return CT_OK;
}

static ct_status cross_slowly(ct_stream st, void *host, void *data, size_t bytes, bool down,
                              void **ticket_p)
{
    usleep((useconds_t)(bytes / 2)); /* 2 MB/s */
    return dev->copy_begin(st, host, data, bytes, down, ticket_p);
}

static int tries(ct_comm *c)
{
    ct_grad_pipe_config config = config_on(&ct_codec_auto, &slow);
    rig r;
    int64_t s = 0;
    int fault = 0;

    slow = *dev;
    slow.copy_begin = cross_slowly;
    marks = *dev->marks;
    marks.between = short_time;
    slow.marks = &marks;
    config.tune_iterations = 1;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_on_device(r.gp, 0) == (c->size > 1));
    fault += MPI_FAULT_UNLESS((ct_grad_pipe_n_trial(r.gp) > 0) == (c->size > 1));
    if (c->size > 1) {
        fault += settle_on_codecs(&r, &s);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_on_device(r.gp, 0));
        fault += turn_to_dense(&r, &s);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_is_dense(r.gp));
    }
    rig_close(&r);
    return fault;
}

/* On one machine: where kernels are loops, measuring takes long. */
static void on_one_machine(int (*f)(ct_comm *c))
{
    ct_comm *c = NULL;
    int fault = 0;

    if (!has_device()) skip();
    fault = MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    if (fault == 0) fault = f(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

static void test_tries_and_decides(void **unused)
{
    (void)unused;
    on_one_machine(tries);
}

/* ---- where somebody else adds up what is not compressed */

static int elsewhere(ct_comm *c)
{
    ct_grad_pipe_config config = config_on(&ct_codec_auto, dev);
    log_capture log;
    rig r;
    int fault = 0;

    config.dense_elsewhere = true; /* and steps may not decide: the model knows one side only */
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_is_dense(r.gp));
    for (int64_t s = 0; s < 2; ++s) { /* steps that are somebody else's, and the pipe's */
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, s, 1, 1) == CT_OK);
        ct_grad_pipe_skip(r.gp);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r.gp, NULL, NULL) == CT_OK);
    }
    fault += rig_step(&r, 2);
    rig_close(&r);
    config.deterministic = (c->size > 1); /* refused all the same */
    log_capture_start(&log);
    if (c->size > 1)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, NULL, r.range, N_RANGE, &r.gp) ==
                                  CT_ERR_CONFIG);
    log_capture_stop();
    return fault;
}

static void test_dense_elsewhere(void **unused)
{
    (void)unused;
    on_one_machine(elsewhere);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_changes_as_on_the_cpu),
                                        cmocka_unit_test(test_tries_and_decides),
                                        cmocka_unit_test(test_dense_elsewhere) };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 180);
}
