/* What AUTO chooses from costs and a step's line, and the rules by which measured steps decide. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/autotune/codec_planner.h"
#include "comm/codec/codec_types.h"
#include "comm/codec/sign.h"
#include "comm/sync/step_timeline.h"
#include "topology/topo.h"

enum { N_RANGE = 3, FC = 4000000, CONV = 400000, SMALL = 100 };

static const double link_s = 1 / 125e6; /* of a byte: 1 Gbit/s */

/* A network of p ranks whose allreduce takes its bytes' time and nothing else. */
typedef struct rig {
    int p;
    double byte_s;
    int64_t count[N_RANGE];
    ct_grad_range range[N_RANGE];
    ct_grad_pipe_config config;
    ct_bucket_sizes sizes;
    ct_codec_candidates ways;
    ct_codec_seconds seconds[N_RANGE * CT_CODEC_CANDIDATES];
    ct_step_timeline_event backward[2 * N_RANGE], forward[2 * N_RANGE];
    ct_step_timeline line;
    ct_codec_planner choose;
} rig;

static double dense_s(void *ctx, int64_t bytes)
{
    const rig *r = ctx;

    return 2.0 * (r->p - 1) / r->p * (double)bytes * r->byte_s;
}

/* A large layer at the end of the net, a smaller one and a bias before it; each computes so long.
 */
static void rig_make(rig *r, int p, double byte_s, double compute_s, float density)
{
    static const char *const key[N_RANGE] = { "fc[0]", "conv[0]", "conv[1]" };
    static const int64_t count[N_RANGE] = { FC, CONV, SMALL };
    int64_t at = 0;

    memset(r, 0, sizeof(*r));
    r->p = p;
    r->byte_s = byte_s;
    for (int i = 0; i < N_RANGE; ++i) {
        r->count[i] = count[i];
        r->range[i] =
            (ct_grad_range){ .key = key[i], .offset = at, .count = count[i], .rows = 100 };
        at += (count[i] + 15) / 16 * 16;
        r->backward[2 * i] =
            (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_RUN, .seconds = compute_s };
        r->backward[2 * i + 1] =
            (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READY, .range = i };
        r->forward[2 * i] =
            (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_READ, .range = N_RANGE - 1 - i };
        r->forward[2 * i + 1] =
            (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_RUN, .seconds = compute_s };
    }
    r->config = (ct_grad_pipe_config){
        .allreduce = "ring",
        .overlap = true,
        .codec = &ct_codec_auto,
        .codec_config = { .density = density, .min_bytes = 4096, .momentum_correction = true }
    };
    r->sizes = (ct_bucket_sizes){ .usual = 1 << 20, .ends = 1 << 18, .most = 8 << 20 };
    assert_int_equal(ct_codec_candidates_list(&r->config.codec_config, false, &r->ways), CT_OK);
    r->line = (ct_step_timeline){ .n_range = N_RANGE,
                                  .count = r->count,
                                  .forward = r->forward,
                                  .backward = r->backward,
                                  .n_forward = 2 * N_RANGE,
                                  .n_backward = 2 * N_RANGE,
                                  .overlap = CT_STEP_TIMELINE_BOTH };
    r->choose = (ct_codec_planner){ .config = &r->config,
                                    .sizes = &r->sizes,
                                    .range = r->range,
                                    .n_range = N_RANGE,
                                    .n_rank = p,
                                    .ways = &r->ways,
                                    .seconds = r->seconds,
                                    .dense_s = dense_s,
                                    .ctx = r,
                                    .line = &r->line,
                                    .margin = 0.02 };
}

/* Every way w of a large range: coding takes so long an element, messages this share of dense. */
static void set_costs(rig *r, int w, double coding_s, double share)
{
    for (int i = 0; i < N_RANGE; ++i) {
        double n = (double)r->count[i];

        r->seconds[i * CT_CODEC_CANDIDATES + w] =
            (ct_codec_seconds){ .encode_s = 0.8 * coding_s * n,
                                .decode_s = 0.2 * coding_s * n,
                                .wire_s = share * dense_s(r, 4 * r->count[i]),
                                .bytes = share * 8 * n };
    }
}

static void set_all(rig *r, double coding_s, double share)
{
    for (int w = 1; w < r->ways.n; ++w) set_costs(r, w, coding_s, share);
}

static const ct_codec_plan *run(rig *r)
{
    assert_int_equal(ct_codec_planner_run(&r->choose), CT_OK);
    return &r->choose.plan[0];
}

static void test_what_it_may_take(void **state)
{
    ct_codec_config c = { .density = 0.01f, .momentum_correction = true };
    ct_codec_candidates w;
    int redsync = 0, bf16 = 0, other = 0;

    (void)state;
    assert_int_equal(ct_codec_candidates_list(&c, false, &w), CT_OK);
    assert_ptr_equal(w.way[0].ops, &ct_codec_none);
    for (int i = 1; i < w.n; ++i) {
        assert_true(w.way[i].ops->automatic);
        redsync += (w.way[i].ops == &ct_codec_redsync);
        bf16 += (w.way[i].ops == &ct_codec_bf16);
        other += (w.way[i].ops == &ct_codec_topk);
    }
    assert_int_equal(redsync, CT_SPARSE_ALLREDUCE_KINDS); /* once for each exchange */
    assert_int_equal(bf16, 1);
    assert_int_equal(other, 0); /* without momentum correction accuracy is lost */
    assert_int_equal(ct_codec_candidates_list(&c, true, &w), CT_OK);
    for (int i = 1; i < w.n; ++i)
        assert_true((w.way[i].config.exchange == NULL) ||
                    (strcmp(w.way[i].config.exchange, "oktopk") != 0));
    c.exchange = "gtopk";
    for (uint32_t i = 0; ct_codec_table[i] != NULL; ++i)
        if (ct_codec_table[i] == &ct_codec_topk) c.among = (uint32_t)1 << i;
    assert_int_equal(ct_codec_candidates_list(&c, false, &w), CT_OK);
    assert_int_equal(w.n, 2);
    assert_ptr_equal(w.way[1].ops, &ct_codec_topk);
    assert_string_equal(w.way[1].config.exchange, "gtopk");
    assert_false(w.way[1].config.momentum_correction);
    c.among = 1; /* none: there is nothing to choose */
    assert_int_equal(ct_codec_candidates_list(&c, false, &w), CT_ERR_CONFIG);
}

/* 40 GB/s: coding 5 ns an element takes longer than all the messages. */
static void test_dense_on_a_fast_node(void **state)
{
    rig r;

    (void)state;
    rig_make(&r, 2, 1 / 40e9, 0.010, 0.001f);
    set_all(&r, 5e-9, 0.01);
    assert_int_equal(run(&r)->way[0], 0);
    assert_int_equal(r.choose.n_plan, 1);
    assert_int_equal(r.choose.plan[0].way[1], 0);
    assert_int_equal(r.choose.plan[0].way[2], -1); /* below min_bytes: not up to AUTO */
    ct_codec_planner_release(&r.choose);
}

/* 1 Gbit/s: the large layer's 16 MB take 192 ms, 60 ms of computation hide little of that. */
static void test_codec_on_a_slow_network(void **state)
{
    rig r;
    const ct_codec_plan *best = NULL, *dense = NULL;

    (void)state;
    rig_make(&r, 4, link_s, 0.010, 0.001f);
    set_all(&r, 5e-9, 0.01);
    best = run(&r);
    dense = &r.choose.plan[r.choose.n_plan - 1];
    assert_true(best->way[0] > 0);
    assert_int_equal(best->way[2], -1);
    assert_int_equal(dense->way[0], 0);
    assert_true(best->times.step_s < 0.5 * dense->times.step_s);
    assert_true(best->bytes < 0.2 * dense->bytes);
    /* nothing but computation and coding is left */
    assert_true(best->times.step_s < 0.060 + 5e-9 * (FC + CONV) + 0.01);
    ct_codec_planner_release(&r.choose);
}

/* The same network, but all of it hides behind a second of computation: a codec would only take
 * the rank's time. */
static void test_what_hides_stays_dense(void **state)
{
    rig r;

    (void)state;
    rig_make(&r, 4, link_s, 1.0, 0.001f);
    set_all(&r, 5e-9, 0.01);
    assert_int_equal(run(&r)->way[0], 0);
    assert_int_equal(r.choose.n_plan, 1);
    assert_true(fabs(r.choose.plan[0].times.step_s - 6.0) < 0.06);
    ct_codec_planner_release(&r.choose);
}

/* Way 2 is the cheaper for the large range, way 3 for the other. */
static void test_each_range_by_its_own(void **state)
{
    rig r;
    const ct_codec_plan *best = NULL;

    (void)state;
    rig_make(&r, 4, link_s, 0.0001, 0.001f);
    set_all(&r, 5e-9, 0.5);
    r.seconds[0 * CT_CODEC_CANDIDATES + 2].wire_s *= 0.02;
    r.seconds[1 * CT_CODEC_CANDIDATES + 3].wire_s *= 0.02;
    best = run(&r);
    assert_int_equal(best->way[0], 2);
    assert_int_equal(best->way[1], 3);
    ct_codec_planner_release(&r.choose);
}

/* Way 1 codes for nothing, and its 58 ms of messages hide behind the other layers; way 2 sends next
 * to nothing and codes 2 ms. Where the messages only just hide, the second goes first. */
static void test_what_just_hides_comes_second(void **state)
{
    static const double compute_s[] = { 0.020, 0.015 };
    rig r;

    (void)state;
    for (int k = 0; k < 2; ++k) { /* 80 and 60 ms to hide behind */
        rig_make(&r, 4, link_s, compute_s[k], 0.001f);
        set_all(&r, 5e-9, 0.9);
        set_costs(&r, 1, 0, 0.3);
        set_costs(&r, 2, 0.002 / FC, 0.001);
        r.seconds[1 * CT_CODEC_CANDIDATES + 1] = r.seconds[1 * CT_CODEC_CANDIDATES + 2];
        assert_int_equal(run(&r)->way[0], 1 + k);
        assert_true(r.choose.n_plan > 2);
        ct_codec_planner_release(&r.choose);
    }
}

/* The same, but messages take cores that computation needs: then 58 ms of them hide behind nothing,
 * and the second goes first, however much there is to hide behind. */
static void test_messages_that_take_cores(void **state)
{
    rig r;

    (void)state;
    for (int k = 0; k < 2; ++k) {
        rig_make(&r, 4, link_s, 0.020, 0.001f);
        set_all(&r, 5e-9, 0.9);
        set_costs(&r, 1, 0, 0.3);
        set_costs(&r, 2, 0.002 / FC, 0.001);
        r.seconds[1 * CT_CODEC_CANDIDATES + 1] = r.seconds[1 * CT_CODEC_CANDIDATES + 2];
        r.line.taken = 0.5 * k;
        assert_int_equal(run(&r)->way[0], 1 + k);
        /* whichever is first: what takes least alone is at hand, to be tried */
        assert_int_equal(r.choose.alone.way[0], 2);
        assert_int_equal(r.choose.alone.way[2], -1);
        assert_true(r.choose.alone.times.step_s > 0.120);
        ct_codec_planner_release(&r.choose);
    }
    /* where messages are free nothing is shorter than dense */
    rig_make(&r, 4, 0, 0.020, 0.001f);
    set_all(&r, 5e-9, 0.9);
    assert_int_equal(run(&r)->way[0], 0);
    assert_int_equal(r.choose.alone.way[0], 0);
    ct_codec_planner_release(&r.choose);
}

/* A gain below the margin is none. */
static void test_margin(void **state)
{
    rig r;

    (void)state;
    rig_make(&r, 4, link_s, 0.0, 0.001f);
    set_all(&r, 0, 0.99);
    (void)run(&r);
    assert_int_equal(r.choose.n_plan, 1);
    ct_codec_planner_release(&r.choose);
    set_all(&r, 0, 0.9);
    (void)run(&r);
    assert_true(r.choose.n_plan > 1);
    ct_codec_planner_release(&r.choose);
}

/* A codec of the user's for one parameter is none of AUTO's business. */
static void test_own_codec_stays(void **state)
{
    rig r;
    ct_codec_config own = { .density = 1 };

    (void)state;
    rig_make(&r, 4, link_s, 0, 0.001f);
    r.range[0].codec = &ct_codec_bf16;
    r.range[0].codec_config = &own;
    set_all(&r, 5e-9, 0.01);
    assert_int_equal(run(&r)->way[0], -1);
    assert_true(r.choose.plan[0].way[1] > 0);
    ct_codec_planner_release(&r.choose);
}

/* ---- the crossover */

static ct_sparse_allreduce_model *model_of(int p, ct_machine **m, ct_topo **t)
{
    char text[256];
    ct_sparse_allreduce_model *model = NULL;

    snprintf(text, sizeof(text),
             "level { name: \"node\" size: 1 latency_us: 0.001 bandwidth_gbs: 100 } "
             "level { name: \"machine\" size: %d latency_us: 0.000001 bandwidth_gbs: 0.125 }",
             p);
    assert_int_equal(ct_machine_parse("m", text, strlen(text), m), CT_OK);
    assert_int_equal(ct_topo_place(*m, p, 1, "block", t), CT_OK);
    assert_int_equal(ct_sparse_allreduce_model_create(*t, &model), CT_OK);
    return model;
}

static double no_allreduce(void *ctx, ct_dtype dtype, int64_t bytes, bool own)
{
    (void)ctx, (void)dtype, (void)bytes, (void)own;
    return 0;
}

/* Gradients on a device: what a codec's payloads take over the bus counts as messages do. */
static void test_the_way_to_the_host(void **state)
{
    enum { P = 4, N = 1 << 20, ROWS = 1024, R = 2 };
    const int64_t k = N / 1000 + 1, pairs = (int64_t)ct_payload_bytes(CT_PAYLOAD_PAIRS, N, k);
    const int64_t any = llround(N * (1 - pow(1 - (double)k / N, P))); /* of the sum */
    const int64_t signs = (int64_t)ct_sign_bytes(N), thin = 4 * R * ROWS;
    const struct {
        const ct_codec_ops *ops;
        const char *exchange;
        int64_t down, up;
    } way[] = { { &ct_codec_topk, "allgather", pairs, 3 * pairs },
                { &ct_codec_topk, "auto", pairs, 3 * pairs },
                { &ct_codec_topk, "gtopk", pairs, CT_PAYLOAD_HEAD + 16 * k },
                { &ct_codec_topk, "oktopk", pairs, CT_PAYLOAD_HEAD + 16 * k },
                { &ct_codec_topk, "dense", pairs, CT_PAYLOAD_HEAD + 8 * any },
                { &ct_codec_topk, "hier", pairs + 4 * N, CT_PAYLOAD_HEAD + 16 * k + 4 * N },
                { &ct_codec_onebit, "allgather", signs, 3 * signs },
                { &ct_codec_onebit, "split", signs, 3 * signs / 2 },
                { &ct_codec_powersgd, "auto", 2 * thin, 3 * thin },
                { &ct_codec_bf16, "auto", 2 * N, 2 * N },
                { &ct_codec_fp16, "auto", 2 * N + 4, 2 * N } };
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_codec_costs costs = {
        .n_rank = P, .sum_factor = 1, .wire_factor = 1, .allreduce_s = no_allreduce
    };

    (void)state;
    costs.exch = model_of(P, &m, &t);
    costs.bus.there = true;
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); ++i) {
        ct_codec_config c = {
            .density = (float)k / N, .wire = "pairs", .exchange = way[i].exchange, .rank = R
        };
        const ct_codec_ops *ops = way[i].ops;
        ct_codec_seconds free_bus, down, up;

        costs.bus.down_s = costs.bus.up_s = 0;
        ops->seconds(&costs, &c, N, ROWS, &free_bus);
        costs.bus.down_s = 1e-6;
        ops->seconds(&costs, &c, N, ROWS, &down);
        costs.bus.down_s = 0;
        costs.bus.up_s = 1e-6;
        ops->seconds(&costs, &c, N, ROWS, &up);
        assert_true(down.encode_s == free_bus.encode_s);
        assert_true(fabs(1e6 * (down.wire_s - free_bus.wire_s) - (double)way[i].down) < 1);
        assert_true(fabs(1e6 * (up.wire_s - free_bus.wire_s) - (double)way[i].up) < 1);
    }
    ct_sparse_allreduce_model_destroy((ct_sparse_allreduce_model *)(uintptr_t)costs.exch);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

/* By the rank itself coding takes a third of what dense messages take; by a thread it hides. */
static void test_both_kinds_of_progress(void **state)
{
    rig r;
    ct_step_timeline apart;
    ct_step_timeline_times times;
    double by_rank_s = 0;

    (void)state;
    rig_make(&r, 4, link_s, 0.03, 0.01f);
    set_all(&r, 0.3 * dense_s(&r, 4), 0.02);
    assert_false(run(&r)->apart);
    by_rank_s = r.choose.plan[0].times.step_s;
    ct_codec_planner_release(&r.choose);
    apart = r.line;
    ct_step_timeline_code_apart(&apart, 1, 1); /* no core is free: the same */
    r.choose.apart = &apart;
    assert_false(run(&r)->apart);
    assert_true(r.choose.plan[0].times.step_s == by_rank_s);
    ct_codec_planner_release(&r.choose);
    ct_step_timeline_code_apart(&apart, 8, 0); /* one core takes eight times as long, at most */
    assert_true(apart.alone == 8);
    ct_step_timeline_code_apart(&apart, 8, 9);
    assert_true(apart.alone == 8);
    /* memory limits all cores: one takes hardly longer */
    ct_step_timeline_code_apart(&apart, 8, 1.1);
    assert_true(run(&r)->apart);
    assert_true(r.choose.plan[0].way[0] > 0);
    assert_true(r.choose.plan[0].times.step_s < by_rank_s);
    assert_false(r.choose.plan[r.choose.n_plan - 1].apart); /* dense: nothing to encode */
    times = r.choose.plan[0].times;
    r.choose.apart = NULL; /* … and these are that line's own times */
    r.choose.line = &apart;
    assert_int_equal(ct_codec_planner_cost(&r.choose, &r.choose.plan[0]), CT_OK);
    assert_true(r.choose.plan[0].times.step_s == times.step_s);
    assert_true(r.choose.plan[0].times.exposed_s == times.exposed_s);
    ct_codec_planner_release(&r.choose);
}

/* Twice n (p - 1) / p f32 at the links' 0.125 GB/s, as of a ring without latency. */
static double ring_s(void *ctx, ct_dtype dtype, int64_t bytes, bool own)
{
    int p = *(const int *)ctx;

    assert_int_equal(dtype, CT_F32);
    assert_true(own); /* ranks begin it in any order */
    return 2 * (double)bytes * (p - 1) / p / 0.125e9;
}

/* Where all payloads together are larger than the vector, or nearly so, the vector goes. */
static void test_high_fill_goes_dense(void **state)
{
    enum { P = 64, N = 1 << 22 };
    static const int n_rank = P;
    static const struct {
        float density;
        bool dense;
    } at[] = { { 0.0001f, false }, { 0.05f, false }, { 0.6f, true }, { 1.0f, true } };
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_codec_costs costs = { .n_rank = P,
                             .sum_factor = 3,
                             .wire_factor = 3,
                             .allreduce_s = ring_s,
                             .ctx = (void *)(uintptr_t)&n_rank };

    (void)state;
    costs.exch = model_of(P, &m, &t);
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); ++i) {
        ct_codec_config c = { .density = at[i].density, .wire = "pairs" };
        ct_codec_seconds any, dense, gather;

        ct_codec_topk.seconds(&costs, &c, N, 1, &any);
        assert_true((strcmp(any.exchange, "dense") == 0) == at[i].dense);
        c.exchange = "dense";
        ct_codec_topk.seconds(&costs, &c, N, 1, &dense);
        assert_true(any.wire_s + any.decode_s <= dense.wire_s + dense.decode_s);
        c.exchange = "allgather"; /* it grows with the ranks: below 2 / 2 P entries it sends less */
        ct_codec_topk.seconds(&costs, &c, N, 1, &gather);
        assert_true((dense.bytes < gather.bytes) == (at[i].density > 1.0 / P));
        assert_true((dense.wire_s < gather.wire_s) == (at[i].density > 1.0 / P));
        assert_true(dense.bytes == 2.0 * 4 * N / P * (P - 1));
        assert_true(fabs(dense.wire_s / (3 * dense.bytes / 0.125e9) - 1) < 1e-9);
    }
    ct_sparse_allreduce_model_destroy((ct_sparse_allreduce_model *)(uintptr_t)costs.exch);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

/* Whether RedSync's allgather pays between p ranks, coding being free. */
static bool pays(int p, float density, const char *wire)
{
    rig r;
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_sparse_allreduce_model *model = model_of(p, &m, &t);
    ct_codec_costs costs = { .n_rank = p, .sum_factor = 1, .wire_factor = 1 };
    bool coded;

    rig_make(&r, p, link_s, 0, density);
    costs.exch = model;
    r.config.codec_config.exchange = "allgather";
    r.config.codec_config.wire = wire;
    for (uint32_t i = 0; ct_codec_table[i] != NULL; ++i)
        if (ct_codec_table[i] == &ct_codec_redsync) r.config.codec_config.among = (uint32_t)1 << i;
    assert_int_equal(ct_codec_candidates_list(&r.config.codec_config, false, &r.ways), CT_OK);
    ct_codec_planner_seconds(&costs, &r.config, r.range, N_RANGE, &r.ways, r.seconds);
    r.choose.margin = 0;
    coded = (run(&r)->way[0] > 0);
    ct_codec_planner_release(&r.choose);
    ct_sparse_allreduce_model_destroy(model);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
    return coded;
}

/* p* = 2 / (w D): 8 bytes an entry are w = 2 words, 4 bytes one. */
static void test_crossover(void **state)
{
    (void)state;
    assert_true(pays(48, 0.02f, "pairs"));
    assert_false(pays(52, 0.02f, "pairs"));
    assert_true(pays(96, 0.02f, "half"));
    assert_false(pays(104, 0.02f, "half"));
}

/* ---- the line, as it is watched */

static void one_cycle(ct_step_observer *w, double *now, double compute, bool reads)
{
    for (int i = 0; i < 2; ++i) {
        *now += compute;
        ct_step_observer_enter(w, *now);
        ct_step_observer_note(w, CT_STEP_TIMELINE_READY, i);
        *now += 5; /* in the pipe: not the rank's own */
        ct_step_observer_leave(w, *now);
    }
    for (int i = 1; i >= 0; --i) {
        *now += 2 * compute;
        ct_step_observer_enter(w, *now);
        if (reads) ct_step_observer_note(w, CT_STEP_TIMELINE_READ, i);
        ct_step_observer_enter(w, *now); /* called back: an update that polls */
        ct_step_observer_leave(w, *now);
        *now += 7;
        ct_step_observer_leave(w, *now);
    }
    *now += compute;
    ct_step_observer_enter(w, *now);
    ct_step_observer_turn(w, false);
    ct_step_observer_leave(w, *now);
}

static void test_watched_line(void **state)
{
    ct_step_observer w = { .on = true };
    ct_step_timeline line = { .overlap = CT_STEP_TIMELINE_BOTH };
    double now = 100;

    (void)state;
    assert_false(ct_step_observer_line(&w, &line));
    ct_step_observer_turn(&w, true);
    ct_step_observer_leave(&w, now);
    one_cycle(&w, &now, 3, true);
    one_cycle(&w, &now, 1, true);
    one_cycle(&w, &now, 2, true);
    assert_int_equal(w.n_cycle, CT_STEP_OBSERVER_CYCLES);
    assert_true(ct_step_observer_line(&w, &line));
    assert_int_equal(line.overlap, CT_STEP_TIMELINE_BOTH);
    assert_int_equal(line.n_backward, 4);
    assert_int_equal(line.n_forward, 5);
    assert_int_equal(line.backward[3].kind, CT_STEP_TIMELINE_READY);
    assert_int_equal(line.backward[3].range, 1);
    /* the middle cycle's: 2 in backward, 4 in forward, 2 at the end */
    assert_true(fabs(line.backward[0].seconds - 2) < 1e-9);
    assert_true(fabs(line.backward[2].seconds - 2) < 1e-9);
    assert_true(fabs(line.forward[0].seconds - 4) < 1e-9);
    assert_int_equal(line.forward[1].range, 1);
    assert_true(fabs(line.forward[4].seconds - 2) < 1e-9);
    ct_step_observer_release(&w);
    w.on = true;
    ct_step_observer_turn(&w, true);
    ct_step_observer_leave(&w, now);
    one_cycle(&w, &now, 1, false);
    assert_true(ct_step_observer_line(&w, &line));
    assert_int_equal(line.overlap, CT_STEP_TIMELINE_BACKWARD); /* nobody reads: all lands before */
    ct_step_observer_release(&w);
}

/* Two ranges, of a second's work each in either direction. */
typedef struct two_ranges {
    int64_t count[2];
    ct_step_timeline_event backward[4], forward[4];
} two_ranges;

static ct_step_timeline make_two(two_ranges *r)
{
    *r = (two_ranges){ .count = { 10, 10 },
                       .backward = { { CT_STEP_TIMELINE_RUN, 0, 1 },
                                     { CT_STEP_TIMELINE_READY, 0, 0 },
                                     { CT_STEP_TIMELINE_RUN, 0, 1 },
                                     { CT_STEP_TIMELINE_READY, 1, 0 } },
                       .forward = { { CT_STEP_TIMELINE_READ, 1, 0 },
                                    { CT_STEP_TIMELINE_RUN, 0, 1 },
                                    { CT_STEP_TIMELINE_READ, 0, 0 },
                                    { CT_STEP_TIMELINE_RUN, 0, 1 } } };
    return (ct_step_timeline){ .n_range = 2,
                               .count = r->count,
                               .forward = r->forward,
                               .backward = r->backward,
                               .n_forward = 4,
                               .n_backward = 4,
                               .overlap = CT_STEP_TIMELINE_BOTH };
}

/* Coding is the rank's own time, and the link waits for it: done by hand. */
static void test_line_with_coding(void **state)
{
    two_ranges r;
    ct_step_timeline line = make_two(&r);
    ct_step_timeline_message parcel[2] = {
        { .first = 0, .n = 1, .n_part = 1, .encode_s = 0.5, .wire_s = 4, .decode_s = 0.25 },
        { .first = 1, .n = 1, .n_part = 1, .encode_s = 0.5, .wire_s = 1, .decode_s = 0.25 }
    };
    ct_step_timeline_times t;

    (void)state;
    /* 0 leaves at 1.5, 1 at 3 and has the link until 4; decoded at 4.25; forward until 5.25; 0 has
     * 4 - 1.5 s left at 4 and lands at 6.5; decoded at 6.75; forward until 7.75 */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - 7.75) < 1e-9);
    assert_true(fabs(t.exposed_s - (1 + 1.25 + 1.5)) < 1e-9); /* coding is exposed, too */
    line.overlap =
        CT_STEP_TIMELINE_BACKWARD; /* all is waited for at 3: 1 at 4.25, 0 at 6.5 + 0.25, then 2 */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - 8.75) < 1e-9);
}

/* Another thread codes: done by hand. */
static void test_line_that_codes_apart(void **state)
{
    two_ranges r;
    ct_step_timeline line = make_two(&r);
    ct_step_timeline_message parcel[2] = {
        { .first = 0, .n = 1, .n_part = 1, .encode_s = 0.25, .wire_s = 4, .decode_s = 0.125 },
        { .first = 1, .n = 1, .n_part = 1, .encode_s = 0.25, .wire_s = 1, .decode_s = 0.125 }
    };
    ct_step_timeline_times t;

    (void)state;
    line.alone = line.cores = 2;
    /* 0 is encoded from 1 to 1.5, which takes a quarter of a second from backward: until 2.25; 1 is
     * encoded while the rank waits, until 2.5, and has the link until 3.5; decoded at 3.625, while
     * 0 goes on; forward until 4.625; 0 lands at 6.5; decoded at 6.625; forward until 7.625 */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - 7.625) < 1e-9);
    assert_true(fabs(t.exposed_s - (1.375 + 2)) < 1e-9);
    /* one core is as fast as all: what the rank has to itself is three of four cores */
    line.alone = 1;
    line.cores = 4;
    /* encoded from 1 to 1.25, backward until 2.0625; 1 until 2.3125, there at 3.3125, decoded at
     * 3.4375; forward until 4.4375; 0 has had 1.1875 by 3.4375 and lands at 6.25; decoded at 6.375
     */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - 7.375) < 1e-9);
    assert_true(fabs(t.exposed_s - (1.375 + 1.9375)) < 1e-9);
    /* all of it hides, where backward goes on long enough */
    parcel[0].wire_s = 0.25;
    parcel[1].encode_s = parcel[1].wire_s = parcel[1].decode_s = 0;
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(t.exposed_s < 1e-9);
    assert_true(fabs(t.step_s - 4.0625) < 1e-9);
    line.alone = 0;
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - (4 + 0.375)) < 1e-9);
    assert_true(fabs(t.exposed_s - 0.375) < 1e-9);
    ct_step_timeline_code_apart(&line, 1, 0);
    assert_true(line.alone == 0);
    ct_step_timeline_code_apart(&line, 8, 0);
    assert_true((line.alone == 8) && (line.cores == 8));
}

/* While the link works, half of the rank's work stands still; where it waits nothing is lost. */
static void test_line_that_takes(void **state)
{
    two_ranges r;
    ct_step_timeline line = make_two(&r);
    ct_step_timeline_message parcel[2] = { { .first = 0, .n = 1, .n_part = 1, .wire_s = 4 },
                                           { .first = 1, .n = 1, .n_part = 1, .wire_s = 1 } };
    ct_step_timeline_times t;

    (void)state;
    line.taken = 0.5;
    /* 0 leaves at 1; backward until 3; 1 leaves and has the link until 4; forward takes 2 until 6,
     * when 0, of which 2 were left at 4, lands; the last second alone: 7 */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - 7) < 1e-9);
    assert_true(fabs(t.exposed_s - 1) < 1e-9);
    parcel[0].wire_s = 0.5; /* lands in backward, whose second half takes 1.25; 1 as before */
    assert_int_equal(ct_step_timeline_run(&line, parcel, 2, &t), CT_OK);
    assert_true(fabs(t.step_s - (1 + 1.25 + 1 + 2)) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_may_take),
        cmocka_unit_test(test_dense_on_a_fast_node),
        cmocka_unit_test(test_codec_on_a_slow_network),
        cmocka_unit_test(test_what_hides_stays_dense),
        cmocka_unit_test(test_each_range_by_its_own),
        cmocka_unit_test(test_what_just_hides_comes_second),
        cmocka_unit_test(test_messages_that_take_cores),
        cmocka_unit_test(test_margin),
        cmocka_unit_test(test_own_codec_stays),
        cmocka_unit_test(test_the_way_to_the_host),
        cmocka_unit_test(test_high_fill_goes_dense),
        cmocka_unit_test(test_both_kinds_of_progress),
        cmocka_unit_test(test_crossover),
        cmocka_unit_test(test_watched_line),
        cmocka_unit_test(test_line_with_coding),
        cmocka_unit_test(test_line_that_codes_apart),
        cmocka_unit_test(test_line_that_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
