/* AUTO: ways that change between steps lose nothing, and all ranks change alike. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "comm/coded_types.h"
#include "comm/grad_auto_impl.h"
#include "framework/base/rng.h"

enum { N_RANGE = 3, N = 3 * 8000, N_TABLE = 1 << 14 };

static const float momentum = 0.9f;
static float table[N_TABLE]; /* normal numbers */

/* Changes just as codecs do when they are changed by hand. */
static float rate_of(int64_t step)
{
    return ((step < 3) || (step >= 21)) ? 0.1f : 0.04f;
}

/* A solver of its own: weights, momentum, and what both would be without any compression. */
typedef struct rig {
    ct_comm *comm;
    ct_grad_pipe *gp;
    float *arena, *weight, *history, *zero;
    double *sum, *want_h, *want_w;
    ct_grad_range range[N_RANGE];
} rig;

static uint32_t alone(const ct_coded_ops *codec)
{
    uint32_t i = 0;

    while (ct_coded_table[i] != codec) i += 1;
    return (uint32_t)1 << i;
}

/* What casts round is lost: not here. */
static uint32_t redsync_alone(void)
{
    return alone(&ct_coded_redsync);
}

static ct_grad_pipe_config config_of(const ct_coded_ops *codec, float density)
{
    return (ct_grad_pipe_config){ .allreduce = "auto",
                                  .overlap = true,
                                  .codec = codec,
                                  .momentum = momentum,
                                  .codec_config = { .density = density,
                                                    .min_bytes = 4096,
                                                    .among = redsync_alone(),
                                                    .momentum_correction = true } };
}

static int rig_open(rig *r, ct_comm *c, const ct_grad_pipe_config *config)
{
    static const char *const key[N_RANGE] = { "c[0]", "b[0]", "a[0]" };
    const ct_arena_ops *mem = ct_comm_arena(c);
    void *block = NULL;
    int fault = 0;

    for (int i = 0; i < N_TABLE; ++i) table[i] = ct_rng_normal_at(11, (uint64_t)i);
    memset(r, 0, sizeof(*r));
    r->comm = c;
    fault += MPI_FAULT_UNLESS(mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block) == CT_OK);
    r->arena = block;
    r->weight = calloc(N, sizeof(float));
    r->zero = calloc(N, sizeof(float));
    r->history = calloc(N, sizeof(float));
    r->sum = calloc(N, sizeof(double));
    r->want_h = calloc(N, sizeof(double));
    r->want_w = calloc(N, sizeof(double));
    for (int i = 0; i < N_RANGE; ++i)
        r->range[i] = (ct_grad_range){ .key = key[i],
                                       .offset = i * (N / N_RANGE),
                                       .count = (i == 2) ? 900 : N / N_RANGE - 7,
                                       .rows = 1,
                                       .weight = r->zero,
                                       .rate_mult = 1 };
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, config, r->arena, r->range, N_RANGE, &r->gp) ==
                              CT_OK);
    if (fault == 0) ct_grad_pipe_share(r->gp, r->history);
    return fault;
}

static void rig_close(rig *r)
{
    const ct_arena_ops *mem = ct_comm_arena(r->comm);

    ct_grad_pipe_destroy(r->gp);
    mem->release(mem->ctx, r->arena);
    free(r->weight);
    free(r->zero);
    free(r->history);
    free(r->sum);
    free(r->want_h);
    free(r->want_w);
}

static float gradient(int rank, int64_t step, int i)
{
    return table[(i * 7 + step * 131 + rank * 977 + i * step % 13) % N_TABLE];
}

/* Gradients that do not hang on weights, so that what is sent late is sent all the same. What is
 * only tried is as if it had not been. */
static void fill(rig *r, int64_t step)
{
    for (int i = 0; i < N_RANGE; ++i) {
        bool tries = ct_grad_pipe_tries(r->gp, i);

        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            r->arena[k] = gradient(r->comm->rank, step, (int)k);
            if (tries) continue;
            r->want_h[k] *= (double)momentum;
            for (int p = 0; p < r->comm->size; ++p)
                r->want_h[k] += (double)rate_of(step) * (double)gradient(p, step, (int)k);
            r->want_w[k] -= r->want_h[k];
        }
    }
}

static void update(rig *r, int64_t step)
{
    for (int i = 0; i < N_RANGE; ++i) {
        bool absorbed = ct_grad_pipe_absorbs(r->gp, i);

        if (ct_grad_pipe_tries(r->gp, i)) continue;
        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            if (!absorbed) r->history[k] = momentum * r->history[k] + rate_of(step) * r->arena[k];
            r->weight[k] -= absorbed ? r->arena[k] : r->history[k];
        }
    }
}

/* r->sum = V, summed over the ranks; how many elements this rank has not sent. */
static int sum_kept(rig *r)
{
    int n_left = 0;

    memset(r->sum, 0, sizeof(double) * N);
    for (int i = 0; i < N_RANGE; ++i) {
        ct_coded_state s;

        if (!ct_grad_pipe_state(r->gp, i, 0, &s)) continue;
        for (int64_t k = 0; k < s.count; ++k) {
            r->sum[r->range[i].offset + k] = (double)s.data[k];
            n_left += (s.data[k] != 0);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, r->sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return n_left;
}

/* What was not sent yet counts in the new rate from now on. */
static void change_rate(rig *r, int64_t step)
{
    double carry = (step > 0) ? (double)rate_of(step) / (double)rate_of(step - 1) : 1;

    if (carry == 1) return;
    (void)sum_kept(r);
    for (int k = 0; k < N; ++k) r->want_w[k] += (1 - carry) * r->sum[k];
}

/* weights - sum over ranks of V: what they would be without compression. */
static int nothing_is_lost(rig *r, int64_t step)
{
    double worst = 0, scale = 1;
    int n_left = sum_kept(r);

    for (int k = 0; k < N; ++k) {
        double is = (double)r->weight[k] - r->sum[k];

        worst = fmax(worst, fabs(is - r->want_w[k]));
        scale = fmax(scale, fabs(r->want_w[k]));
    }
    /* each step rounds sums, momentum and weight; momentum carries tenfold */
    if (worst > (double)(10 * (step + 1) * (r->comm->size + 4)) * 0x1p-24 * scale) {
        fprintf(stderr, "step %lld: off by %g of %g, %d elements not sent\n", (long long)step,
                worst, scale, n_left);
        return 1;
    }
    return 0;
}

static int same_on_all(const rig *r)
{
    uint64_t h = 14695981039346656037u, least = 0, most = 0;

    for (size_t i = 0; i < sizeof(float) * N; ++i)
        h = (h ^ ((const unsigned char *)r->weight)[i]) * 1099511628211u;
    MPI_Allreduce(&h, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&h, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return MPI_FAULT_UNLESS(least == most);
}

static int rig_step(rig *r, int64_t s)
{
    int fault = 0;

    change_rate(r, s);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r->gp, s, 1, rate_of(s)) == CT_OK);
    fill(r, s);
    for (int i = 0; i < N_RANGE; ++i)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r->gp, i) == CT_OK);
    for (int i = N_RANGE - 1; i >= 0; --i) ct_grad_pipe_reads(r->gp, i);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r->gp, NULL, NULL) == CT_OK);
    update(r, s);
    return fault + nothing_is_lost(r, s) + same_on_all(r);
}

/* ---- one codec after the other, by hand */

static int change_by_hand(ct_comm *c)
{
    const ct_grad_pipe_config base = config_of(&ct_coded_none, 0.02f);
    const ct_codec_config gtopk = { .density = 0.01f,
                                    .exchange = "gtopk",
                                    .momentum_correction = true };
    const ct_codec_config hier = { .density = 0.03f,
                                   .exchange = "hier",
                                   .momentum_correction = true };
    const ct_codec_config plain = { .density = 0.02f };
    /* what both large ranges go by, and whether the step before must send everything */
    const struct {
        const ct_coded_ops *ops;
        const ct_codec_config *config;
    } way[] = { { &ct_coded_redsync, &gtopk }, { &ct_coded_redsync, &hier },
                { &ct_coded_none, &plain },    { &ct_coded_redsync, &gtopk },
                { &ct_coded_none, &plain },    { &ct_coded_redsync, &hier },
                { &ct_coded_redsync, &gtopk } };
    enum { N_WAY = sizeof(way) / sizeof(way[0]) };
    rig r;
    int64_t s = 0;
    int fault = rig_open(&r, c, &base), absorbed = 0;

    if (fault > 0) return fault;
    for (int w = 0; w < N_WAY; ++w) {
        for (int i = 0; i < 2; ++i) {
            r.gp->range[i].codec = way[w].ops;
            r.gp->range[i].codec_config = way[w].config;
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_recode(r.gp) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r.gp, 0) == (way[w].ops != &ct_coded_none));
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r.gp, 2));
        for (int k = 0; k < 3 + w % 2; ++k) fault += rig_step(&r, s++);
        absorbed += ct_grad_pipe_absorbs(r.gp, 1);
        if (way[w].ops == &ct_coded_none) continue;
        /* all that is not sent goes to the weights, as a dense step would bring it there */
        if ((w + 1 < N_WAY) && (way[w + 1].ops == &ct_coded_none)) {
            for (int b = 0; b < r.gp->n_bucket; ++b) {
                ct_coded_state v;

                if (!ct_grad_pipe_state(r.gp, r.gp->bucket[b].cut.first, 0, &v)) continue;
                memset(r.sum, 0, sizeof(double) * N);
                for (int64_t k = 0; k < v.count; ++k) r.sum[k] = (double)v.data[k];
                MPI_Allreduce(MPI_IN_PLACE, r.sum, (int)v.count, MPI_DOUBLE, MPI_SUM,
                              MPI_COMM_WORLD);
                for (int64_t k = 0; k < v.count; ++k) {
                    r.weight[r.gp->bucket[b].cut.offset + k] -= (float)r.sum[k];
                    v.data[k] = 0;
                }
            }
        }
    }
    fault += MPI_FAULT_UNLESS(absorbed == 5);
    rig_close(&r);
    return fault;
}

static void test_changes_lose_nothing(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(change_by_hand)), 0);
}

/* ---- AUTO tries, on a machine whose figures promise much */

static void promise(ct_comm *c, double slower)
{
    ct_machine *m = &c->topo->machine;

    for (int l = 0; l < m->n_level; ++l) {
        m->level[l].bandwidth /= slower;
        m->level[l].uplink /= slower;
        m->level[l].bus /= slower;
    }
    m->coding = (ct_coding_speed){ .memory = 1e12, .measured = true };
}

static int n_tried, n_decided;

/* The way that is to win was faster in all steps so far. */
static void turn_out(ct_grad_auto *a, bool coded)
{
    for (int k = 0; k < a->n_plan; ++k) {
        for (int j = 0; j < a->trials.times[k].n; ++j)
            a->trials.times[k].ns[j] = ((k < a->n_plan - 1) == coded) ? 1000 : 1000000000;
    }
}

static int auto_step(rig *r, int64_t s)
{
    int64_t least = ct_grad_pipe_generation(r->gp), most = least;
    int fault = rig_step(r, s);

    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return fault + MPI_FAULT_UNLESS(least == most);
}

/* While plans are tried no weight moves that a codec has absorbed, and none of them is kept. */
static int try_all(rig *r, int64_t *s, bool coded)
{
    ct_grad_auto *a = r->gp->choice;
    int fault = 0, n = 0;
    int64_t before = 0;

    for (; (n < 80) && ((a->phase == CT_AUTO_WATCH) || (a->phase == CT_AUTO_TRY)); ++n) {
        ct_grad_pipe_counters now;

        fault += auto_step(r, (*s)++);
        turn_out(a, coded);
        ct_grad_pipe_get_counters(r->gp, &now); /* never less than it was */
        fault += MPI_FAULT_UNLESS(now.bytes_sent >= before);
        before = now.bytes_sent;
    }
    return fault + MPI_FAULT_UNLESS((n > 4) && (n < 80));
}

/* Codecs win, and take part for a while. */
static int settle_on_codecs(rig *r, int64_t *s)
{
    int fault = try_all(r, s, true), n_kept = 0;

    fault += MPI_FAULT_UNLESS(r->gp->choice->phase == CT_AUTO_FIXED);
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_tries(r->gp, 0));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r->gp, 0));
    for (int k = 0; k < 40; ++k) fault += auto_step(r, (*s)++);
    n_kept = sum_kept(r);
    return fault + MPI_FAULT_UNLESS(n_kept > 0);
}

/* In the next step all is tried once more. */
static void get_longer(ct_grad_auto *a)
{
    a->drift.rest = 0;
    a->drift.skip = 0;
    a->drift.longer = CT_AUTO_WINDOWS - 1;
    a->drift.reference_s = 1e-12;
    a->drift.n = CT_AUTO_WINDOW - 1;
    for (int k = 0; k < CT_AUTO_WINDOW; ++k) a->drift.step_s[k] = 1;
}

/* Steps get longer, all is tried once more, and dense wins: what was left behind leaves before. */
static int turn_to_dense(rig *r, int64_t *s)
{
    ct_grad_auto *a = r->gp->choice;
    int fault = 0, n = 0, kept = sum_kept(r);

    get_longer(a);
    fault += auto_step(r, (*s)++);
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_TRY);
    fault += MPI_FAULT_UNLESS(sum_kept(r) == kept); /* aside */
    fault += try_all(r, s, false);
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_LEAVE);
    for (; (n < CT_AUTO_MOST_LEAVING) && (a->phase == CT_AUTO_LEAVE); ++n)
        fault += auto_step(r, (*s)++);
    fault += MPI_FAULT_UNLESS((n > 3) && (n < CT_AUTO_MOST_LEAVING));
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_FIXED);
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r->gp, 0));
    for (int k = 0; k < 5; ++k) fault += auto_step(r, (*s)++);
    return fault;
}

static int tries(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
    rig r;
    int64_t s = 0;
    int fault = 0;

    config.deterministic = true; /* the figures count, not this machine's */
    config.tune_iterations = 1;
    promise(c, 1e4);
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    if (c->size == 1) { /* nothing travels */
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r.gp, 0));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_n_trial(r.gp) == 0);
        rig_close(&r);
        return fault;
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r.gp, 0));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_n_trial(r.gp) > 0);
    fault += settle_on_codecs(&r, &s);
    n_tried += (ct_grad_pipe_generation(r.gp) > 0);
    fault += turn_to_dense(&r, &s);
    n_decided += (ct_grad_pipe_n_trial(r.gp) == 0);
    rig_close(&r);
    return fault;
}

static void test_auto_tries_and_decides(void **state)
{
    int size = 0;

    (void)state;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    n_tried = n_decided = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(tries)), 0);
    if (size > 1) {
        assert_true(n_tried > 0);
        assert_int_equal(n_tried, n_decided);
    }
}

/* ---- plain codecs, of a solver that shares no momentum: whose rule is not SGD */

/* want_w: given by all ranks; want_h: what sums brought; history: of all ranks' gradients the
 * magnitudes, added up. */
static int plain_step(rig *r, int64_t s)
{
    int fault = MPI_FAULT_UNLESS(ct_grad_pipe_begin(r->gp, s, 1, 1) == CT_OK);

    for (int i = 0; i < N_RANGE; ++i) {
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_tries(r->gp, i));
        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            r->arena[k] = gradient(r->comm->rank, s, (int)k);
            for (int p = 0; p < r->comm->size; ++p) {
                r->want_w[k] += (double)gradient(p, s, (int)k);
                r->history[k] += fabsf(gradient(p, s, (int)k));
            }
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r->gp, i) == CT_OK);
    }
    for (int i = N_RANGE - 1; i >= 0; --i) ct_grad_pipe_reads(r->gp, i);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r->gp, NULL, NULL) == CT_OK);
    for (int i = 0; i < N_RANGE; ++i) {
        for (int64_t k = r->range[i].offset; k < r->range[i].offset + r->range[i].count; ++k) {
            r->want_h[k] += (double)r->arena[k];
            r->weight[k] -= r->arena[k];
        }
    }
    return fault + same_on_all(r);
}

/* Given = delivered + left behind, also what trials left. A step rounds V and the payload on each
 * rank, and the sum as often. */
static int plain_is_kept(rig *r, int64_t steps)
{
    double worst = 0, most = 0;
    int n_left = sum_kept(r);

    for (int k = 0; k < N; ++k) {
        worst = fmax(worst, fabs(r->want_w[k] - r->want_h[k] - r->sum[k]));
        most = fmax(most, (double)r->history[k]);
    }
    if (worst <= (double)(3 * steps * r->comm->size) * 0x1p-24 * most) return 0;
    fprintf(stderr, "after %lld steps %g of %g is lost, %d elements not sent\n", (long long)steps,
            worst, most, n_left);
    return 1;
}

/* All trials, which turn out so; then n steps more. */
static int plain_trials(rig *r, int64_t *s, bool coded, int n)
{
    ct_grad_auto *a = r->gp->choice;
    int64_t most = *s + 80 + CT_AUTO_MOST_LEAVING;
    int fault = 0;

    for (; (a->phase != CT_AUTO_FIXED) && (a->phase != CT_AUTO_MODEL) && (*s < most); *s += 1) {
        fault += plain_step(r, *s);
        turn_out(a, coded);
    }
    fault += MPI_FAULT_UNLESS(a->phase == CT_AUTO_FIXED);
    fault += MPI_FAULT_UNLESS((a->way[0] > 0) == coded);
    for (int k = 0; k < n; ++k) fault += plain_step(r, (*s)++);
    return fault + plain_is_kept(r, *s);
}

static int tries_plain(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
    rig r;
    int64_t s = 0;
    int fault = 0;

    if (c->size == 1) return 0;
    config.codec_config.momentum_correction = false;
    config.deterministic = true; /* the figures count, not this machine's */
    config.tune_iterations = 1;
    promise(c, 1e4);
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    ct_grad_pipe_share(r.gp, NULL);
    fault += plain_trials(&r, &s, true, 10);
    fault += MPI_FAULT_UNLESS(s > 20);     /* real steps decided */
    for (int turn = 0; turn < 2; ++turn) { /* from codecs to dense, and from dense back to dense */
        get_longer(r.gp->choice);
        fault += plain_step(&r, s++);
        fault += MPI_FAULT_UNLESS(r.gp->choice->phase == CT_AUTO_TRY);
        fault += plain_trials(&r, &s, false, 2);
        fault += MPI_FAULT_UNLESS(sum_kept(&r) == 0);
    }
    rig_close(&r);
    return fault;
}

static void test_plain_codecs_are_tried(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(tries_plain)), 0);
}

/* ---- where real steps may not decide */

/* Casts at best halve what is exposed, and computation may hide that. What takes a hundredth is
 * taken, and the log says that nobody has verified it. */
static int untried(ct_comm *c)
{
    const ct_coded_ops *const codec[] = { &ct_coded_bf16, &ct_coded_redsync };
    int fault = 0;

    if (c->size == 1) return 0;
    promise(c, 1e4);
    for (int k = 0; k < 2; ++k) {
        ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
        log_capture log;
        rig r;

        config.codec_config.among = alone(codec[k]);
        config.deterministic = true;
        log_capture_start(&log);
        fault += rig_open(&r, c, &config);
        log_capture_stop();
        if (fault > 0) return fault;
        fault += MPI_FAULT_UNLESS((r.gp->choice->way[0] > 0) == (k == 1));
        if (c->rank == 0)
            fault += MPI_FAULT_UNLESS((strstr(log.warning, "not verified") != NULL) == (k == 1));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_n_trial(r.gp) == 0);
        log_capture_start(&log);
        for (int64_t s = 0; s < 2 * CT_WATCH_CYCLES; ++s) fault += rig_step(&r, s);
        log_capture_stop();
        fault += MPI_FAULT_UNLESS(r.gp->choice->phase == CT_AUTO_MODEL);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_generation(r.gp) == 0);
        rig_close(&r);
    }
    return fault;
}

static void test_untried_has_to_halve(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(untried)), 0);
}

/* 6 ms and more for a dense sum, 1 for the coding. */
static void slow_links(ct_comm *c)
{
    ct_machine *m = &c->topo->machine;

    promise(c, 1);
    for (int l = 0; l < m->n_level; ++l)
        m->level[l].bandwidth = m->level[l].uplink = m->level[l].bus = 1e7;
    m->coding.update_s = 1e-7;
}

/* A long computation hides dense sums and not the coding: the choice stays, and the log says what
 * it costs. */
static int hidden(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
    log_capture log;
    rig r;
    int fault = 0;

    if (c->size == 1) return 0;
    slow_links(c);
    config.deterministic = true;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(r.gp->choice->phase == CT_AUTO_LOOK);
    log_capture_start(&log);
    for (int64_t s = 0; s <= CT_WATCH_CYCLES; ++s) {
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(r.gp, s, 1, rate_of(s)) == CT_OK);
        fill(&r, s);
        for (int i = 0; i < N_RANGE; ++i) {
            fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(r.gp, i) == CT_OK);
            usleep(20000);
        }
        for (int i = N_RANGE - 1; i >= 0; --i) {
            usleep(20000);
            ct_grad_pipe_reads(r.gp, i);
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(r.gp, NULL, NULL) == CT_OK);
        update(&r, s);
    }
    log_capture_stop();
    if (c->rank == 0) fault += MPI_FAULT_UNLESS(strstr(log.warning, "dense is not slower") != NULL);
    fault += MPI_FAULT_UNLESS(r.gp->choice->way[0] > 0);
    rig_close(&r);
    return fault;
}

static void test_untried_says_what_it_costs(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(hidden)), 0);
}

/* Coding that takes for ever: the model alone says dense, and nothing is tried. */
static int stays(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
    rig r;
    int fault = 0;

    config.deterministic = true;
    config.tune_iterations = 1;
    c->topo->machine.coding =
        (ct_coding_speed){ .memory = 1e6, .update_s = 1, .select_s = 1, .measured = true };
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    for (int64_t s = 0; s < 3; ++s) fault += rig_step(&r, s);
    fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r.gp, 0));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_generation(r.gp) == 0);
    rig_close(&r);
    return fault;
}

static void test_dense_is_not_tried_against(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(stays)), 0);
}

/* The real start: codecs and network are measured, and all ranks come to the same. */
static int real(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_coded_auto, 0.01f);
    ct_coding_speed *s = &c->topo->machine.coding;
    int64_t bits[2];
    rig r;
    int fault = 0;

    config.tune_iterations = 1;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    for (int64_t k = 0; k < 12; ++k) fault += rig_step(&r, k);
    if (c->size > 1) {
        fault += MPI_FAULT_UNLESS(s->measured && (s->memory > 1e8) && (s->update_s > 0));
        bits[0] = (int64_t)s->memory;
        bits[1] = -bits[0];
        MPI_Allreduce(MPI_IN_PLACE, bits, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
        fault += MPI_FAULT_UNLESS(bits[0] == -bits[1]);
    }
    rig_close(&r);
    return fault;
}

static void test_measured_at_start(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(real)), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_lose_nothing),
        cmocka_unit_test(test_auto_tries_and_decides),
        cmocka_unit_test(test_plain_codecs_are_tried),
        cmocka_unit_test(test_untried_has_to_halve),
        cmocka_unit_test(test_untried_says_what_it_costs),
        cmocka_unit_test(test_dense_is_not_tried_against),
        cmocka_unit_test(test_measured_at_start),
    };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
