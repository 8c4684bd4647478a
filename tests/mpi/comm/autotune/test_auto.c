/* AUTO: ways that change between steps lose nothing, and all ranks change alike. */
#include "tests/mpi/auto_rig.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "comm/autotune/codec_speed.h"

/* ---- one codec after the other, by hand */

static int change_by_hand(ct_comm *c)
{
    const ct_grad_pipe_config base = config_of(&ct_codec_none, 0.02f);
    const ct_codec_config gtopk = { .density = 0.01f,
                                    .exchange = "gtopk",
                                    .momentum_correction = true };
    const ct_codec_config hier = { .density = 0.03f,
                                   .exchange = "hier",
                                   .momentum_correction = true };
    const ct_codec_config plain = { .density = 0.02f };
    /* what both large ranges go by, and whether the step before must send everything */
    const struct {
        const ct_codec_ops *ops;
        const ct_codec_config *config;
    } way[] = { { &ct_codec_redsync, &gtopk }, { &ct_codec_redsync, &hier },
                { &ct_codec_none, &plain },    { &ct_codec_redsync, &gtopk },
                { &ct_codec_none, &plain },    { &ct_codec_redsync, &hier },
                { &ct_codec_redsync, &gtopk } };
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
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_switch_codecs(r.gp) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_absorbs(r.gp, 0) == (way[w].ops != &ct_codec_none));
        fault += MPI_FAULT_UNLESS(!ct_grad_pipe_absorbs(r.gp, 2));
        for (int k = 0; k < 3 + w % 2; ++k) fault += rig_step(&r, s++);
        absorbed += ct_grad_pipe_absorbs(r.gp, 1);
        if (way[w].ops == &ct_codec_none) continue;
        /* all that is not sent goes to the weights, as a dense step would bring it there */
        if ((w + 1 < N_WAY) && (way[w + 1].ops == &ct_codec_none)) {
            for (int b = 0; b < r.gp->n_bucket; ++b) {
                ct_codec_state v;

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

/* ---- AUTO tries */

static int n_tried, n_decided;

static int tries(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
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

/* A plan has its kind of progress while it is tried. The plans' kinds are set by hand: every other
 * one has the thread. */
static int n_threaded;

static int tries_kinds(ct_comm *c, ct_progress_kind progress)
{
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
    const char *why = NULL;
    ct_codec_tuner *a = NULL;
    int64_t s = 0, most = 80;
    rig r;
    int fault = 0, begun = -1;

    config.deterministic = true; /* the figures count, not this machine's */
    config.tune_iterations = 1;
    config.progress = progress;
    promise(c, 1e4);
    if ((c->size == 1) || !ct_comm_may_thread(c, &why)) return 0;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    a = ct_autotune_codecs(r.gp);
    for (; (s < most) && (a->phase <= CT_AUTO_TRY); ++s) {
        bool on = false;

        fault += auto_step(&r, s);
        if (a->phase != CT_AUTO_TRY) continue;
        if (begun < 0) { /* the first plan has its kind already; the next ones go by this */
            begun = a->trial.now;
            for (int k = 0; k < a->n_plan; ++k) a->plan[k].apart = (k % 2 == 0);
        }
        if (a->trial.now != begun) begun = a->n_plan;
        on = atomic_load(&r.gp->threaded);
        if (progress == CT_PROGRESS_THREAD) {
            fault += MPI_FAULT_UNLESS(on);
        } else if (begun == a->n_plan) {
            fault += MPI_FAULT_UNLESS(on == a->plan[a->trial.now].apart);
            n_threaded += on;
        }
    }
    fault += MPI_FAULT_UNLESS(s < most);
    rig_close(&r);
    return fault;
}

static int tries_both_kinds(ct_comm *c)
{
    return tries_kinds(c, CT_PROGRESS_AUTO) + tries_kinds(c, CT_PROGRESS_THREAD);
}

static void test_plans_have_their_progress(void **state)
{
    int size = 0;

    (void)state;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    n_threaded = 0;
    assert_int_equal(mpi_verdict(mpi_on_machines(tries_both_kinds)), 0);
    if (size > 1) assert_true(n_threaded > 0);
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
    ct_codec_tuner *a = ct_autotune_codecs(r->gp);
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
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
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
        get_longer(ct_autotune_codecs(r.gp));
        fault += plain_step(&r, s++);
        fault += MPI_FAULT_UNLESS(ct_autotune_codecs(r.gp)->phase == CT_AUTO_TRY);
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
    const ct_codec_ops *const codec[] = { &ct_codec_bf16, &ct_codec_redsync };
    int fault = 0;

    if (c->size == 1) return 0;
    promise(c, 1e4);
    for (int k = 0; k < 2; ++k) {
        ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
        log_capture log;
        rig r;

        config.codec_config.among = alone(codec[k]);
        config.deterministic = true;
        log_capture_start(&log);
        fault += rig_open(&r, c, &config);
        log_capture_stop();
        if (fault > 0) return fault;
        fault += MPI_FAULT_UNLESS((ct_autotune_codecs(r.gp)->way[0] > 0) == (k == 1));
        if (c->rank == 0)
            fault += MPI_FAULT_UNLESS((strstr(log.warning, "not verified") != NULL) == (k == 1));
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_n_trial(r.gp) == 0);
        log_capture_start(&log);
        for (int64_t s = 0; s < 2 * CT_STEP_OBSERVER_CYCLES; ++s) fault += rig_step(&r, s);
        log_capture_stop();
        fault += MPI_FAULT_UNLESS(ct_autotune_codecs(r.gp)->phase == CT_AUTO_MODEL);
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
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
    log_capture log;
    rig r;
    int fault = 0;

    if (c->size == 1) return 0;
    slow_links(c);
    config.deterministic = true;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_autotune_codecs(r.gp)->phase == CT_AUTO_LOOK);
    log_capture_start(&log);
    for (int64_t s = 0; s <= CT_STEP_OBSERVER_CYCLES; ++s) {
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
    fault += MPI_FAULT_UNLESS(ct_autotune_codecs(r.gp)->way[0] > 0);
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
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
    rig r;
    int fault = 0;

    config.deterministic = true;
    config.tune_iterations = 1;
    c->topo->machine.coding =
        (ct_codec_speed){ .memory = 1e6, .update_s = 1, .select_s = 1, .measured = true };
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
    ct_grad_pipe_config config = config_of(&ct_codec_auto, 0.01f);
    ct_codec_speed *s = &c->topo->machine.coding;
    int64_t bits[2];
    rig r;
    int fault = 0;

    config.tune_iterations = 1;
    fault = rig_open(&r, c, &config);
    if (fault > 0) return fault;
    for (int64_t k = 0; k < 12; ++k) fault += rig_step(&r, k);
    if (c->size > 1) {
        fault += MPI_FAULT_UNLESS(s->measured && (s->memory > 1e8) && (s->update_s > 0));
        fault += MPI_FAULT_UNLESS((s->int8_s > 0) && (s->unint8_s > 0) && (s->int4_s > 0) &&
                                  (s->unint4_s > 0));
        fault += MPI_FAULT_UNLESS((s->one_core >= 1));
        fault += MPI_FAULT_UNLESS((c->n_thread > 1) || (s->one_core == 1));
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

/* What is measured here is what costs are made of, whatever speed the file gives the nodes: the
 * machine's figures are those of a node of speed 1. */
static int slow_class(ct_comm *c)
{
    ct_topo *t = c->topo;
    double memory = 0;
    int fault = 0;

    free(t->node_class);
    t->node_class = calloc((size_t)t->n_node, sizeof(*t->node_class));
    if (t->node_class == NULL) return 1;
    t->machine.n_node_class = 1;
    t->machine.node_class[0] = (ct_node_class){ .name = "slow", .speed = 1e-4 };
    t->machine.coding = (ct_codec_speed){ .measured = false };
    fault += MPI_FAULT_UNLESS(ct_codec_speed_find(c) == CT_OK);
    memory = ct_topo_codec_speed(t).memory;
    fault += MPI_FAULT_UNLESS((memory > 1e8) && (memory < 1e12));
    fault += MPI_FAULT_UNLESS(fabs(t->machine.coding.memory - 1e4 * memory) < 1e-6 * memory * 1e4);
    return fault;
}

static void test_measured_on_slow_nodes(void **state)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)state;
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault = slow_class(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_lose_nothing),
        cmocka_unit_test(test_auto_tries_and_decides),
        cmocka_unit_test(test_plans_have_their_progress),
        cmocka_unit_test(test_plain_codecs_are_tried),
        cmocka_unit_test(test_untried_has_to_halve),
        cmocka_unit_test(test_untried_says_what_it_costs),
        cmocka_unit_test(test_dense_is_not_tried_against),
        cmocka_unit_test(test_measured_at_start),
        cmocka_unit_test(test_measured_on_slow_nodes),
    };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
