/* The scheduler on a clock that the tests set and a net that is a cost function: what runs when,
 * what ends how, and a load of random arrivals, which is simulated. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/base/sort.h"
#include "serve/schedule/outlook.h"
#include "serve/schedule/scheduler.h"
#include "tests/log_capture.h"

/* A millisecond a token, 10 at least; the best speed from 40 tokens on. */
static const int64_t cost_tokens[] = { 10, 40, 1000 };
static const double cost_s[] = { 0.020, 0.040, 1.000 };

typedef struct rig {
    ct_scheduler *s;
    ct_serve_batch *b;
    double now, wake;
} rig;

static const ct_scheduler_options whole = { .policy = CT_POLICY_PACKED,
                                            .most_waiting = 16,
                                            .most_count = 8,
                                            .most_tokens = 512,
                                            .budget = 100,
                                            .mixed = true };
static const ct_scheduler_options sequences = { .policy = CT_POLICY_PACKED,
                                                .most_waiting = 16,
                                                .most_count = 8,
                                                .most_sequences = 8,
                                                .most_tokens = 512,
                                                .budget = 64,
                                                .cache_tokens = 2000,
                                                .mixed = true };

/* A name of one letter that may be a request's `what`. */
static char *named(const char *name)
{
    static char letter[128][2];

    letter[(int)name[0]][0] = name[0];
    return letter[(int)name[0]];
}

static rig open_rig(const ct_scheduler_options *o)
{
    rig r = { 0 };
    ct_batch_cost cost;

    assert_int_equal(ct_batch_cost_init(&cost, 3, cost_tokens, cost_s), CT_OK);
    assert_int_equal(ct_scheduler_create(o, &cost, &r.s), CT_OK);
    assert_int_equal(ct_serve_batch_create(r.s, &r.b), CT_OK);
    return r;
}

static void close_rig(rig *r)
{
    ct_serve_batch_destroy(r->b);
    ct_scheduler_destroy(r->s);
}

static ct_admission offer_until(rig *r, const char *what, int64_t tokens, int64_t most_new,
                                double deadline, ct_request_id *id)
{
    ct_request request = { tokens, most_new, deadline, named(what), 0 };

    return ct_scheduler_admit(r->s, &request, 1, r->now, id);
}

/* It has until `end`, and the share for its reply. */
static ct_admission offer_to_end(rig *r, const char *what, int64_t tokens, int64_t most_new,
                                 double end, ct_request_id *id)
{
    double deadline = r->now + (1 + CT_REPLY_SHARE) * (end - r->now);

    return offer_until(r, what, tokens, most_new, deadline, id);
}

static ct_request_id ask(rig *r, const char *what, int64_t tokens, int64_t most_new)
{
    ct_request_id id = -1;

    assert_int_equal(offer_until(r, what, tokens, most_new, INFINITY, &id), CT_ADMITTED);
    return id;
}

/* The batch as "a b[0+32) c*": names, with the part of a prompt, or * for a step. */
static const char *next(rig *r, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    if (!ct_scheduler_next(r->s, r->now, r->b, &r->wake)) return "none";
    for (int i = 0; i < r->b->n; i++) {
        const ct_slice *c = &r->b->slice[i];

        at += (size_t)snprintf(text + at, size - at, "%s%s", (i > 0) ? " " : "", (char *)c->what);
        if (c->step)
            at += (size_t)snprintf(text + at, size - at, "*");
        else if (!c->last || (c->first > 0))
            at += (size_t)snprintf(text + at, size - at, "[%d+%d)", (int)c->first, (int)c->n);
    }
    return text;
}

static void expect_next(rig *r, const char *expected)
{
    char text[256];

    assert_string_equal(next(r, text, sizeof(text)), expected);
}

static void finish(rig *r)
{
    r->now += ct_batch_cost_s(ct_scheduler_cost(r->s), r->b->tokens);
    ct_scheduler_finish(r->s, r->b, r->now, false);
}

/* What ended, as "a:done b:expired". */
static void expect_ended(rig *r, const char *expected)
{
    static const char *const name[] = { "done", "expired", "cancelled", "failed" };
    char text[256] = "";
    size_t at = 0;
    ct_outcome outcome;
    void *what;

    while (ct_scheduler_take_ended(r->s, &what, &outcome))
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s:%s", (at > 0) ? " " : "",
                               (char *)what, name[outcome]);
    assert_string_equal(text, expected);
}

/* ---- whole requests */

static void test_runs_what_is_there(void **state)
{
    rig r = open_rig(&whole);

    (void)state;
    expect_next(&r, "none");
    assert_true(isinf(r.wake));
    ask(&r, "a", 60, 0);
    ask(&r, "b", 50, 0); /* does not fit beside a */
    ask(&r, "c", 40, 0); /* does */
    expect_next(&r, "a c");
    assert_int_equal(r.b->tokens, 100);
    ask(&r, "d", 300, 0);
    finish(&r);
    expect_ended(&r, "a:done c:done");
    expect_next(&r, "b");
    finish(&r);
    ask(&r, "e", 1, 0);
    expect_next(&r, "d"); /* longer than the budget: alone */
    finish(&r);
    expect_next(&r, "e");
    finish(&r);
    expect_ended(&r, "b:done d:done e:done");
    assert_true(ct_scheduler_is_idle(r.s));
    close_rig(&r);
}

static void test_most_count(void **state)
{
    static const char *const name[] = { "a", "b", "c", "d", "e", "f", "g", "h", "i" };
    rig r = open_rig(&whole);

    (void)state;
    for (int i = 0; i < 9; i++) ask(&r, name[i], 1, 0);
    expect_next(&r, "a b c d e f g h");
    finish(&r);
    expect_next(&r, "i");
    close_rig(&r);
}

/* Padded to the longest, a group keeps to the budget, and one request may be longer. */
static void test_padded_budget(void **state)
{
    ct_scheduler_options o = whole;
    rig r;

    (void)state;
    o.policy = CT_POLICY_PADDED;
    o.budget = 60;
    r = open_rig(&o);
    ask(&r, "a", 20, 0);
    ask(&r, "b", 20, 0);
    ask(&r, "c", 19, 0);
    ask(&r, "d", 18, 0);
    ask(&r, "e", 70, 0);
    assert_true(ct_scheduler_next(r.s, r.now, r.b, &r.wake));
    assert_true((r.b->n > 1) && (r.b->tokens <= 60));
    assert_int_equal(r.b->tokens, r.b->n * r.b->length);
    finish(&r);
    for (int left = 5 - r.b->n; left > 0; left -= r.b->n) {
        assert_true(ct_scheduler_next(r.s, r.now, r.b, &r.wake));
        assert_true((r.b->tokens <= 60) || (r.b->n == 1));
        finish(&r);
    }
    close_rig(&r);
}

/* 40 tokens of four samples, beside one of 12: five of 12, not two of 40. */
static void test_padded_samples(void **state)
{
    ct_request request = { 40, 0, INFINITY, named("a"), 4 };
    ct_scheduler_options o = whole;
    ct_scheduler_stats stats;
    ct_request_id id;
    rig r;

    (void)state;
    o.policy = CT_POLICY_PADDED;
    r = open_rig(&o);
    assert_int_equal(ct_scheduler_admit(r.s, &request, 1, 0, &id), CT_ADMITTED);
    ask(&r, "b", 12, 0);
    expect_next(&r, "a b");
    assert_int_equal(r.b->length, 12);
    assert_int_equal(r.b->tokens, 60);
    finish(&r);
    expect_ended(&r, "a:done b:done");
    ct_scheduler_read_stats(r.s, &stats);
    assert_int_equal(stats.padding, 8);
    /* a deadline that five of 20 would miss, and four of 10 keep */
    request.deadline_s = r.now + 0.08;
    assert_int_equal(ct_scheduler_admit(r.s, &request, 1, r.now, &id), CT_ADMITTED);
    ask(&r, "c", 20, 0);
    expect_next(&r, "a");
    close_rig(&r);
}

/* Without a budget it is the knee: 0.95 x 1000 tokens/s are reached where t = 950 (0.02 +
 * (t - 10) 0.02 / 30), t = 12.67 / 0.3667 = 34.5. */
static void test_budget_is_the_knee(void **state)
{
    ct_scheduler_options o = whole;
    ct_scheduler_stats stats;
    rig r;

    (void)state;
    o.budget = 0;
    r = open_rig(&o);
    ct_scheduler_read_stats(r.s, &stats);
    assert_int_equal(stats.budget, 35);
    ask(&r, "a", 20, 0);
    ask(&r, "b", 16, 0);
    ask(&r, "c", 15, 0);
    expect_next(&r, "a c");
    close_rig(&r);
}

/* A table that was made while something else ran, ten times too slow but for its first point: the
 * budget comes to the knee of what batches really take. 10 ms and 0.2 ms a token up to 512 tokens:
 * t = 0.95 x 512 / 0.1124 (0.01 + 0.0002 t), t = 321. */
static void test_wrong_costs(void **state)
{
    static const int64_t at[] = { 8, 16, 32, 64, 128, 256, 512 };
    ct_scheduler_options o = whole;
    ct_scheduler_stats stats;
    ct_batch_cost cost;
    double s[7];
    rig r = { 0 };

    (void)state;
    o.budget = 0;
    o.most_count = 100;
    o.most_waiting = 128;
    o.most_tokens = 512;
    for (int i = 0; i < 7; i++) s[i] = (0.01 + 0.0002 * (double)at[i]) * ((i > 0) ? 10 : 1);
    assert_int_equal(ct_batch_cost_init(&cost, 7, at, s), CT_OK);
    assert_int_equal(ct_scheduler_create(&o, &cost, &r.s), CT_OK);
    assert_int_equal(ct_serve_batch_create(r.s, &r.b), CT_OK);
    ct_scheduler_read_stats(r.s, &stats);
    assert_int_equal(stats.budget, 8);
    for (int turn = 0; turn < 20000; turn++) {
        ct_outcome outcome;
        void *what;

        do ct_scheduler_read_stats(r.s, &stats);
        while ((stats.waiting < 100) && (ask(&r, "a", 8, 0) >= 0));
        assert_true(ct_scheduler_next(r.s, r.now, r.b, &r.wake));
        assert_true(r.b->tokens <= 2 * stats.budget);
        r.now += 0.01 + 0.0002 * (double)r.b->tokens;
        ct_scheduler_finish(r.s, r.b, r.now, false);
        while (ct_scheduler_take_ended(r.s, &what, &outcome)) continue;
    }
    ct_scheduler_read_stats(r.s, &stats);
    if ((stats.budget < 300) || (stats.budget > 342)) fail_msg("%d", (int)stats.budget);
    close_rig(&r);
}

static void test_max_wait(void **state)
{
    ct_scheduler_options o = whole;
    ct_request_id id;
    rig r;

    (void)state;
    o.max_wait_s = 0.5;
    r = open_rig(&o);
    ask(&r, "a", 40, 0);
    expect_next(&r, "none");
    assert_true(r.wake == 0.5);
    r.now = 0.25;
    ask(&r, "b", 40, 0);
    expect_next(&r, "none");
    assert_true(r.wake == 0.5);
    r.now = 0.5;
    expect_next(&r, "a b"); /* the first one's time is up */
    finish(&r);
    ask(&r, "c", 40, 0);
    ask(&r, "d", 60, 0);
    expect_next(&r, "c d"); /* the budget is full */
    finish(&r);
    r.now = 2;
    assert_int_equal(offer_until(&r, "e", 40, 0, 2.2, &id), CT_ADMITTED);
    expect_next(&r, "none"); /* it takes 0.04 s and is wanted by 2.2 */
    assert_true(fabs(r.wake - 2.16) < 1e-9);
    r.now = r.wake;
    expect_next(&r, "e");
    finish(&r);
    ask(&r, "f", 1, 0);
    ct_scheduler_drain(r.s);
    expect_next(&r, "f"); /* nothing more will come */
    close_rig(&r);
}

static void test_refusals(void **state)
{
    ct_scheduler_options o = whole;
    ct_request pair[2] = { { 10, 0, INFINITY, named("a"), 0 }, { 10, 0, INFINITY, named("b"), 0 } };
    ct_scheduler_stats stats;
    ct_request_id id[2];
    rig r;

    (void)state;
    o.most_waiting = 3;
    r = open_rig(&o);
    assert_int_equal(offer_until(&r, "x", 513, 0, INFINITY, id), CT_REFUSED_LONG);
    assert_int_equal(offer_until(&r, "x", 0, 0, INFINITY, id), CT_REFUSED_LONG);
    assert_int_equal(offer_until(&r, "x", 10, 1, INFINITY, id), CT_REFUSED_LONG); /* no sequences */
    assert_int_equal(ct_scheduler_admit(r.s, pair, 2, 0, id), CT_ADMITTED);
    assert_int_equal(ct_scheduler_admit(r.s, pair, 2, 0, id), CT_REFUSED_FULL); /* all or none */
    ask(&r, "c", 512, 0);
    assert_int_equal(offer_until(&r, "x", 1, 0, INFINITY, id), CT_REFUSED_FULL);
    expect_next(&r, "a b"); /* they leave the queue */
    ask(&r, "d", 1, 0);
    ct_scheduler_drain(r.s);
    assert_int_equal(offer_until(&r, "x", 1, 0, INFINITY, id), CT_REFUSED_DRAINING);
    ct_scheduler_read_stats(r.s, &stats);
    assert_int_equal(stats.admitted, 4);
    assert_int_equal(stats.refused[CT_REFUSED_LONG], 3);
    assert_int_equal(stats.refused[CT_REFUSED_FULL], 3);
    assert_int_equal(stats.refused[CT_REFUSED_DRAINING], 1);
    assert_int_equal(stats.waiting, 2);
    close_rig(&r);
}

static void test_deadlines(void **state)
{
    ct_request pair[2] = { { 50, 0, 0.14, named("a"), 0 }, { 50, 0, 0.14, named("b"), 0 } };
    ct_request_id id[2];
    rig r = open_rig(&whole);

    (void)state;
    /* 50 tokens take 0.05 s, and those in front of them as long */
    assert_int_equal(offer_until(&r, "x", 50, 0, 0.049, id), CT_REFUSED_LATE);
    assert_int_equal(offer_until(&r, "a", 50, 0, 0.06, id), CT_ADMITTED);
    assert_int_equal(offer_until(&r, "x", 50, 0, 0.099, id), CT_REFUSED_LATE);
    assert_int_equal(offer_until(&r, "b", 50, 0, 0.11, id), CT_ADMITTED);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0) - 0.1) < 1e-9);
    assert_int_equal(offer_until(&r, "c", 10, 0, 0.9, id), CT_ADMITTED);
    expect_next(&r, "a c"); /* with b it would end after 0.06 */
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0.01) - 0.1) < 1e-9);
    finish(&r);
    expect_ended(&r, "a:done c:done");
    r.now = 0.061; /* 50 tokens more would end at 0.111 */
    expect_next(&r, "none");
    expect_ended(&r, "b:expired");
    /* two together: the second ends after both */
    r.now = 0;
    pair[1].deadline_s = 0.099;
    assert_int_equal(ct_scheduler_admit(r.s, pair, 2, 0, id), CT_REFUSED_LATE);
    close_rig(&r);
}

/* Runs a sequence alone until it has made so many tokens, and ends it there. */
static void make_tokens(rig *r, const char *name, int n)
{
    char ended[16];

    for (int i = 0; i < n; i++) {
        assert_true(ct_scheduler_next(r->s, r->now, r->b, &r->wake));
        assert_int_equal(r->b->n, 1);
        r->b->slice[0].ended = (i == n - 1);
        finish(r);
    }
    (void)snprintf(ended, sizeof(ended), "%s:done", name);
    expect_ended(r, ended);
}

/* Tokens that are to be made count, as many as sequences have made so far. Two run side by side, a
 * batch of their steps takes 0.02 s, a token of a prompt a millisecond. */
static void test_tokens_to_be_made(void **state)
{
    ct_scheduler_options o = sequences;
    ct_request_id id[4];
    rig r;

    (void)state;
    o.most_sequences = 2;
    r = open_rig(&o);
    /* nothing is known: its first token */
    assert_int_equal(offer_to_end(&r, "a", 10, 1000, 0.019, id), CT_REFUSED_LATE);
    assert_int_equal(offer_to_end(&r, "a", 10, 1000, 0.021, id), CT_ADMITTED);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0) - (0.01 + 0.02)) < 1e-12);
    ct_scheduler_cancel(r.s, id[0]);
    expect_ended(&r, "a:cancelled");
    ask(&r, "a", 10, 1000);
    make_tokens(&r, "a", 5);
    /* five of each, or as few as it may have: a prompt of 0.02 s, and four more batches */
    r.now = 0;
    assert_int_equal(offer_to_end(&r, "b", 10, 1000, 0.099, id), CT_REFUSED_LATE);
    assert_int_equal(offer_to_end(&r, "b", 10, 1000, 0.101, id), CT_ADMITTED);
    assert_int_equal(offer_to_end(&r, "c", 10, 3, 0.01 + 0.059, id), CT_REFUSED_LATE);
    assert_int_equal(offer_to_end(&r, "c", 10, 3, 0.01 + 0.061, id), CT_ADMITTED);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0) - (0.02 + 5 * 0.02)) < 1e-12);
    /* the third has room when c ends, after three batches; one that is whole need not wait */
    assert_int_equal(offer_to_end(&r, "d", 10, 1000, 0.02 + 0.159, id), CT_REFUSED_LATE);
    assert_int_equal(offer_to_end(&r, "d", 10, 1000, 0.02 + 0.161, id), CT_ADMITTED);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0) - (0.03 + 8 * 0.02)) < 1e-12);
    assert_int_equal(offer_to_end(&r, "e", 10, 0, 0.03 + 0.021, id), CT_ADMITTED);
    /* tokens that were made are not to be made; the two steps take room from the prompt */
    expect_next(&r, "b c e");
    finish(&r);
    expect_ended(&r, "e:done");
    assert_true(fabs(ct_scheduler_backlog_s(r.s, r.now) - (0.01 * 64 / 62 + 7 * 0.02)) < 1e-12);
    close_rig(&r);
}

/* Where the cache has room for one of such sequences, they run one after the other. */
static void test_cache_is_waited_for(void **state)
{
    ct_scheduler_options o = sequences;
    ct_request_id id[4];
    rig r;

    (void)state;
    o.cache_tokens = 50;
    r = open_rig(&o);
    ask(&r, "a", 10, 30);
    make_tokens(&r, "a", 10);
    r.now = 0;
    ask(&r, "b", 10, 30);
    ask(&r, "c", 10, 30);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, 0) - (0.02 + 20 * 0.02)) < 1e-12);
    assert_int_equal(offer_to_end(&r, "d", 10, 30, 0.02 + 0.02 + 29 * 0.02 - 1e-6, id),
                     CT_REFUSED_LATE);
    assert_int_equal(offer_to_end(&r, "d", 10, 30, 0.02 + 0.02 + 29 * 0.02 + 1e-6, id),
                     CT_ADMITTED);
    close_rig(&r);
}

/* As many as were made of late, and lanes that are taken where they are free first. */
static void test_growth(void **state)
{
    ct_growth g;

    (void)state;
    assert_int_equal(ct_growth_create(&g, 5), CT_OK);
    assert_true(ct_growth_expect(&g, 100, 0) == 1);
    ct_growth_note(&g, 8);
    assert_true((ct_growth_expect(&g, 100, 0) == 8) && (ct_growth_expect(&g, 5, 0) == 5));
    assert_true((ct_growth_expect(&g, 100, 6) == 2) && (ct_growth_expect(&g, 100, 50) == 1));
    ct_growth_note(&g, 16);
    assert_true(ct_growth_expect(&g, 100, 0) == 9);
    for (int n = 1; n <= 6; n++) { /* beside a plain search; there are five at most */
        double lane[5] = { 0 }, last = 0;
        int most = (n < 5) ? n : 5;

        ct_growth_clear(&g, n);
        for (int i = 0; i < 200; i++) {
            double steps = 1 + (i * i * 7) % 23;
            int least = 0;

            for (int k = 1; k < most; k++)
                if (lane[k] < lane[least]) least = k;
            assert_true(ct_growth_free(&g) == lane[least]);
            lane[least] += steps;
            last = fmax(last, lane[least]);
            ct_growth_add(&g, steps);
            assert_true(g.last == last);
        }
    }
    ct_growth_destroy(&g);
}

static void test_cancel(void **state)
{
    rig r = open_rig(&whole);
    ct_request_id a = ask(&r, "a", 10, 0), b = ask(&r, "b", 10, 0), c;

    (void)state;
    ct_scheduler_cancel(r.s, b);
    expect_ended(&r, "b:cancelled");
    expect_next(&r, "a");
    c = ask(&r, "c", 10, 0);
    ct_scheduler_cancel(r.s, a);
    ct_scheduler_cancel(r.s, b); /* of none by now, whoever has its place */
    expect_ended(&r, "");
    finish(&r);
    expect_ended(&r, "a:cancelled");
    ct_scheduler_cancel(r.s, a);
    expect_next(&r, "c");
    finish(&r);
    ct_scheduler_cancel(r.s, c); /* done, and not taken yet */
    expect_ended(&r, "c:done");
    close_rig(&r);
}

static void test_failed_batch(void **state)
{
    rig r = open_rig(&sequences);
    double before = ct_batch_cost_s(ct_scheduler_cost(r.s), 20);

    (void)state;
    ask(&r, "a", 10, 0);
    ask(&r, "b", 10, 5);
    expect_next(&r, "a b");
    ct_scheduler_finish(r.s, r.b, 100, true);
    expect_ended(&r, "a:failed b:failed");
    assert_true(ct_scheduler_is_idle(r.s));
    assert_true(ct_batch_cost_s(ct_scheduler_cost(r.s), 20) == before);
    close_rig(&r);
}

/* Sixteen replicas that run, and a queue that was full before each batch: it may be full again. */
static void test_many_replicas(void **state)
{
    enum { N = 16 };
    ct_serve_batch *b[N];
    rig r = open_rig(&whole);
    int running = 0;

    (void)state;
    assert_int_equal(ct_scheduler_run_at_once(r.s, N), CT_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ct_serve_batch_create(r.s, &b[i]), CT_OK);
        while (ct_scheduler_waiting(r.s) < whole.most_waiting) ask(&r, "a", 10, 0);
        assert_true(ct_scheduler_next(r.s, r.now, b[i], &r.wake));
        running += b[i]->n;
    }
    while (ct_scheduler_waiting(r.s) < whole.most_waiting) ask(&r, "a", 10, 0);
    assert_true(running + whole.most_waiting > 2 * (whole.most_waiting + whole.most_count));
    for (int i = 0; i < N; i++) ct_serve_batch_destroy(b[i]);
    close_rig(&r);
}

/* Four of ten tokens, two replicas that are free: two on each. Then one is free, and takes what its
 * budget allows. */
static void test_replicas(void **state)
{
    ct_serve_batch *second;
    double alone;
    rig r = open_rig(&whole);

    (void)state;
    assert_int_equal(ct_serve_batch_create(r.s, &second), CT_OK);
    assert_int_equal(ct_scheduler_run_at_once(r.s, 2), CT_OK);
    ask(&r, "a", 10, 0);
    ask(&r, "b", 10, 0);
    /* 20 tokens, each in the hundredth of a batch of the budget, on two replicas */
    alone = 20 * ct_batch_cost_s(ct_scheduler_cost(r.s), 100) / 100;
    assert_true(fabs(ct_scheduler_backlog_s(r.s, r.now) - alone / 2) < 1e-12);
    ask(&r, "c", 10, 0);
    ask(&r, "d", 10, 0);
    expect_next(&r, "a b");
    ask(&r, "e", 10, 0);
    ask(&r, "f", 10, 0);
    assert_true(ct_scheduler_next(r.s, r.now, second, &r.wake));
    assert_int_equal(second->n, 4);
    /* as if what runs were shared out evenly */
    alone =
        ct_batch_cost_s(ct_scheduler_cost(r.s), 20) + ct_batch_cost_s(ct_scheduler_cost(r.s), 40);
    assert_true(fabs(ct_scheduler_backlog_s(r.s, r.now) - alone / 2) < 1e-12);
    finish(&r);
    ct_scheduler_finish(r.s, second, r.now + 0.02, false);
    expect_ended(&r, "a:done b:done c:done d:done e:done f:done");
    assert_true(ct_scheduler_backlog_s(r.s, r.now) == 0);
    ct_serve_batch_destroy(second);
    close_rig(&r);
}

static void test_bad_options(void **state)
{
    static const struct {
        ct_scheduler_options o;
        const char *says;
    } bad[] = {
        { { .most_waiting = 0, .most_count = 1, .most_tokens = 1 },
          "scheduler: max_queue 0, 1 requests and 1 tokens a batch, expected at least 1 of each" },
        { { .most_waiting = 1, .most_count = 1, .most_tokens = 64, .budget = 65 },
          "scheduler: max_batch_tokens is 65, expected 1 to 64, what the net is planned for" },
        { { .most_waiting = 1, .most_count = 1, .most_tokens = 1, .max_wait_s = -1 },
          "scheduler: max_wait_ms is -1000, expected 0 or more" },
        { { .policy = CT_POLICY_PADDED,
            .most_waiting = 1,
            .most_count = 1,
            .most_tokens = 9,
            .most_sequences = 1 },
          "scheduler: sequences are packed, not padded" },
        { { .most_waiting = 1, .most_count = 1, .most_tokens = 9, .most_sequences = 1 },
          "scheduler: 1 sequences in a cache of 0 tokens, expected at least 1" },
        { { .most_waiting = 1,
            .most_count = 1,
            .most_tokens = 9,
            .most_sequences = 4,
            .cache_tokens = 1 },
          "scheduler: 4 sequences need batches of at least 12 tokens, three for each; the net is "
          "planned for 9" },
    };
    ct_batch_cost cost;
    ct_scheduler *s = NULL;
    log_capture log;

    (void)state;
    assert_int_equal(ct_batch_cost_init(&cost, 3, cost_tokens, cost_s), CT_OK);
    log_capture_start(&log);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(ct_scheduler_create(&bad[i].o, &cost, &s), CT_ERR_CONFIG);
        assert_string_equal(log.error, bad[i].says);
    }
    log_capture_stop();
}

/* ---- sequences */

static void test_prompt_in_chunks(void **state)
{
    rig r = open_rig(&sequences);

    (void)state;
    ask(&r, "a", 100, 3);
    expect_next(&r, "a[0+64)"); /* alone: the whole budget */
    finish(&r);
    ask(&r, "b", 10, 2);
    expect_next(&r, "a[64+36) b");
    finish(&r);
    ask(&r, "c", 500, 1);
    expect_next(&r, "a* b* c[0+62)");
    r.b->slice[0].ended = true; /* an end token */
    finish(&r);
    expect_ended(&r, "a:done b:done");
    ask(&r, "d", 20, 0);
    expect_next(&r, "c[62+44) d"); /* half of the room first, then what d leaves */
    close_rig(&r);
}

/* A cache that is full: who needs it waits in order, others pass. */
static void test_cache(void **state)
{
    ct_scheduler_options o = sequences;
    ct_scheduler_stats stats;
    ct_request_id id;
    rig r;

    (void)state;
    o.cache_tokens = 50;
    r = open_rig(&o);
    assert_int_equal(offer_until(&r, "x", 30, 21, INFINITY, &id), CT_REFUSED_LONG);
    assert_int_equal(offer_until(&r, "x", 1, INT64_MAX, INFINITY, &id), CT_REFUSED_LONG);
    ask(&r, "a", 10, 30);
    ask(&r, "b", 10, 10); /* needs 20, 10 are left */
    ask(&r, "c", 5, 1);   /* would fit, but came later */
    ask(&r, "d", 9, 0);   /* needs none */
    expect_next(&r, "a d");
    ct_scheduler_read_stats(r.s, &stats);
    assert_int_equal(stats.cache_taken, 40);
    r.b->slice[0].ended = true;
    finish(&r);
    expect_ended(&r, "a:done d:done");
    expect_next(&r, "b c");
    close_rig(&r);
}

/* ---- sequences on two replicas */

typedef struct two {
    rig r;                 /* whose batch is of replica 0 */
    ct_serve_batch *other; /* … of replica 1              */
    int64_t kept[2];       /* what the cache of each has of any prompt */
    int began[128];        /* by name: on which replica; -1: on none   */
} two;

static int64_t begin_there(void *ctx, void *what, int replica)
{
    two *t = ctx;

    t->began[(int)*(const char *)what] = replica;
    return t->kept[replica];
}

static int64_t peek_there(void *ctx, void *what, int replica)
{
    (void)what;
    return ((const two *)ctx)->kept[replica];
}

static void open_two(two *t, const ct_scheduler_options *options)
{
    ct_scheduler_options o = *options;

    memset(t, 0, sizeof(*t));
    for (int i = 0; i < 128; i++) t->began[i] = -1;
    o.begin = begin_there;
    o.peek = peek_there;
    o.ctx = t;
    t->r = open_rig(&o);
    assert_int_equal(ct_scheduler_run_at_once(t->r.s, 2), CT_OK);
    assert_int_equal(ct_serve_batch_create(t->r.s, &t->other), CT_OK);
    t->other->replica = 1;
}

static void close_two(two *t)
{
    ct_serve_batch_destroy(t->other);
    close_rig(&t->r);
}

static void swap_batches(two *t)
{
    ct_serve_batch *b = t->r.b;

    t->r.b = t->other;
    t->other = b;
}

/* As expect_next(), of replica 1. */
static void expect_other(two *t, const char *expected)
{
    swap_batches(t);
    expect_next(&t->r, expected);
    swap_batches(t);
}

static void finish_other(two *t)
{
    swap_batches(t);
    finish(&t->r);
    swap_batches(t);
}

static void expect_load(const two *t, int replica, int sequences_there, int64_t cache, int due)
{
    ct_replica_load load;

    ct_scheduler_read_replica(t->r.s, replica, &load);
    assert_int_equal(load.sequences, sequences_there);
    assert_int_equal(load.cache_taken, cache);
    assert_int_equal(ct_scheduler_due(t->r.s, replica), due);
}

/* Each goes to the replica with less to do, and stays there. */
static void test_sequences_apart(void **state)
{
    two t;

    (void)state;
    open_two(&t, &sequences);
    ask(&t.r, "a", 10, 3); /* to 0: both are free                             */
    ask(&t.r, "b", 10, 3); /* to 1: 0 has a                                   */
    ask(&t.r, "c", 90, 3); /* to 0: both have as much                         */
    ask(&t.r, "d", 10, 3); /* to 1: 0 has a prompt of 90 more                 */
    expect_next(&t.r, "a c[0+54)");
    assert_int_equal(ct_scheduler_given(t.r.s), 4);
    expect_load(&t, 0, 2, 106, 0);
    expect_load(&t, 1, 0, 0, 2);
    expect_other(&t, "b d");
    expect_load(&t, 1, 2, 26, 0);
    finish(&t.r);
    expect_load(&t, 0, 2, 106, 2);
    expect_next(&t.r, "a* c[54+36)");
    finish_other(&t);
    expect_other(&t, "b* d*");
    finish_other(&t);
    expect_other(&t, "b* d*");
    finish_other(&t);
    expect_ended(&t.r, "b:done d:done");
    expect_other(&t, "none");
    finish(&t.r);
    ask(&t.r, "e", 10, 1);
    expect_next(&t.r, "a* c*"); /* gives e to 1, which is idle */
    assert_int_equal(ct_scheduler_given(t.r.s), 5);
    expect_other(&t, "e");
    finish(&t.r);
    finish_other(&t);
    expect_next(&t.r, "c*");
    finish(&t.r);
    expect_ended(&t.r, "a:done e:done c:done");
    assert_true(ct_scheduler_is_idle(t.r.s));
    close_two(&t);
}

/* A replica whose cache has most of a prompt gets it, though it has another to do. */
static void test_prefix_is_found(void **state)
{
    ct_scheduler_stats stats;
    two t;

    (void)state;
    open_two(&t, &sequences);
    ask(&t.r, "a", 10, 9);
    ask(&t.r, "b", 10, 9);
    expect_next(&t.r, "a");
    expect_other(&t, "b");
    t.kept[1] = 90;
    ask(&t.r, "c", 100, 1); /* 64 + 10, as on 0, but only 10 of its own */
    ask(&t.r, "d", 100, 1); /* 2 x 64 + 20 + 10 there, 64 + 10 + 100 on 0 */
    ask(&t.r, "e", 100, 1); /* more there now */
    finish(&t.r);
    finish_other(&t);
    expect_other(&t, "b* c[90+10) d[90+10)");
    expect_next(&t.r, "a* e[0+63)");
    ct_scheduler_read_stats(t.r.s, &stats);
    assert_int_equal(stats.cached, 180);
    assert_int_equal(t.began['c'], 1);
    assert_int_equal(t.began['e'], 0);
    close_two(&t);
}

/* Room is held from when a sequence is given to a replica; what comes later does not pass. */
static void test_room_is_held(void **state)
{
    ct_scheduler_options o = sequences;
    ct_request_id b, id;
    two t;

    (void)state;
    o.cache_tokens = 50;
    open_two(&t, &o);
    ask(&t.r, "a", 10, 30);
    b = ask(&t.r, "b", 10, 30); /* the other replica's, which has not begun it */
    ask(&t.r, "c", 10, 30);     /* fits on neither   */
    ask(&t.r, "d", 5, 4);       /* fits on both, but came later */
    ask(&t.r, "e", 9, 0);
    expect_next(&t.r, "a e");
    expect_load(&t, 1, 0, 0, 1);
    finish(&t.r);
    expect_next(&t.r, "a*");
    ct_scheduler_cancel(t.r.s, b); /* leaves its room to c */
    expect_other(&t, "c");
    assert_int_equal(t.began['b'], -1);
    finish(&t.r);
    finish_other(&t);
    expect_next(&t.r, "a* d");
    finish(&t.r);
    expect_ended(&t.r, "e:done b:cancelled");
    /* one that is too late leaves it, too */
    assert_int_equal(offer_until(&t.r, "f", 10, 35, t.r.now + 0.5, &id), CT_ADMITTED);
    ask(&t.r, "g", 1, 1);
    expect_next(&t.r, "a* d*");
    finish(&t.r);
    expect_other(&t, "c*");
    finish_other(&t);
    t.r.now += 1;
    expect_other(&t, "c* g"); /* has one sequence, the other two */
    expect_ended(&t.r, "f:expired");
    close_two(&t);
}

/* Chunks and steps take turns on each replica by itself. */
static void test_turns_apart(void **state)
{
    ct_scheduler_options o = sequences;
    two t;

    (void)state;
    o.mixed = false;
    open_two(&t, &o);
    ask(&t.r, "a", 10, 9);
    ask(&t.r, "b", 10, 9);
    expect_next(&t.r, "a");
    expect_other(&t, "b");
    finish(&t.r);
    finish_other(&t);
    ask(&t.r, "c", 200, 1);
    ask(&t.r, "d", 200, 1);
    for (int turn = 0; turn < 2; turn++) {
        expect_next(&t.r, "a*");
        finish(&t.r);
        expect_next(&t.r, (turn == 0) ? "c[0+64)" : "c[64+64)");
        finish(&t.r);
    }
    expect_other(&t, "b*");
    finish_other(&t);
    expect_other(&t, "d[0+64)");
    finish_other(&t);
    expect_other(&t, "b*");
    close_two(&t);
}

/* The longest time between two tokens of eight sequences while prompts of 500 tokens come. */
static double longest_gap(bool mixed)
{
    static const char *const name[] = { "0", "1", "2", "3", "4", "5", "6", "7" };
    ct_scheduler_options o = sequences;
    double last[8], gap = 0;
    int n_prompt = 0;
    rig r;

    o.mixed = mixed;
    o.most_sequences = 16;
    o.cache_tokens = 100000;
    r = open_rig(&o);
    for (int i = 0; i < 8; i++) {
        ask(&r, name[i], 1, 1000);
        last[i] = -1;
    }
    for (int turn = 0; turn < 400; turn++) {
        void *what;
        ct_outcome outcome;

        if ((turn > 4) && (turn % 20 == 0)) {
            ask(&r, "p", 500, 1);
            n_prompt++;
        }
        assert_true(ct_scheduler_next(r.s, r.now, r.b, &r.wake));
        assert_true(r.b->tokens <= 64);
        finish(&r);
        for (int k = 0; k < r.b->n; k++) {
            const char *of = r.b->slice[k].what;
            int i = of[0] - '0';

            if (of[0] == 'p') continue;
            if (last[i] >= 0) gap = fmax(gap, r.now - last[i]);
            last[i] = r.now;
        }
        while (ct_scheduler_take_ended(r.s, &what, &outcome)) n_prompt--;
    }
    assert_true(n_prompt <= 1); /* prompts get on, too */
    close_rig(&r);
    return gap;
}

static void test_steps_go_on(void **state)
{
    double chunk_s = 0.064; /* of 64 tokens */

    (void)state;
    assert_true(longest_gap(true) <= chunk_s * (1 + 1e-9));
    assert_true(longest_gap(false) <= 2 * chunk_s * (1 + 1e-9));
}

/* ---- whatever comes */

enum { N_ASKED = 3000 };

typedef struct asked {
    int64_t tokens, most_new, run, made, stop_at; /* stop_at: the token that ends it */
    double deadline, arrival;
    ct_request_id id;
    int n_end, replica; /* that it began on */
    bool admitted, begun, running, cancelled;
} asked;

/* Against a record of every request: nothing runs twice or out of order, all steps are in, batches
 * keep to the budget, the oldest whole request that may run does, each ends once, and one that is
 * done is in time, since here batches take what is expected. */
typedef struct world {
    rig r;
    ct_scheduler_options o;
    asked a[N_ASKED];
    int n;
    uint64_t key, drawn;
} world;

static double draw(world *w)
{
    return ct_rng_uniform_at(w->key, w->drawn++);
}

static void arrive(world *w)
{
    asked *a = &w->a[w->n];
    bool sequence = (w->o.most_sequences > 0) && (draw(w) < 0.4);
    ct_request request;
    ct_admission admission;

    memset(a, 0, sizeof(*a));
    a->tokens = 1 + (int64_t)((draw(w) < 0.1 ? 300 : 40) * draw(w));
    a->most_new = sequence ? 1 + (int64_t)(30 * draw(w)) : 0;
    a->stop_at = 1 + (int64_t)(60 * draw(w));
    a->deadline = (draw(w) < 0.3) ? w->r.now + 3 * draw(w) : INFINITY;
    a->arrival = w->r.now;
    request = (ct_request){ a->tokens, a->most_new, a->deadline, a, 0 };
    admission = ct_scheduler_admit(w->r.s, &request, 1, w->r.now, &a->id);
    a->admitted = (admission == CT_ADMITTED);
    if (a->admitted) w->n++;
}

static void take_ended(world *w, int n_outcome[4])
{
    ct_outcome outcome;
    void *what;

    while (ct_scheduler_take_ended(w->r.s, &what, &outcome)) {
        asked *a = what;

        assert_int_equal(++a->n_end, 1);
        assert_false(a->running);
        n_outcome[outcome]++;
        if (outcome == CT_OUTCOME_CANCELLED) assert_true(a->cancelled);
        if (outcome == CT_OUTCOME_EXPIRED) assert_true(isfinite(a->deadline));
        if (outcome != CT_OUTCOME_DONE) continue;
        assert_int_equal(a->run, a->tokens + ((a->most_new > 0) ? a->made - 1 : 0));
        if (a->most_new == 0)
            assert_true(w->r.now <= a->deadline + 1e-9);
        else
            assert_int_equal(a->made, (a->stop_at < a->most_new) ? a->stop_at : a->most_new);
    }
}

static void check_batch(world *w)
{
    const ct_serve_batch *b = w->r.b;
    int64_t tokens = 0;
    int n_whole = 0, n_step = 0, steps = 0, begun = 0;
    asked *oldest = NULL;

    for (int i = 0; i < w->n; i++) {
        asked *a = &w->a[i];

        steps += (a->n_end == 0) && a->begun && (a->run >= a->tokens);
        if ((oldest == NULL) && (a->n_end == 0) && (a->most_new == 0)) oldest = a;
    }
    for (int k = 0; k < b->n; k++) {
        asked *a = b->slice[k].what;

        assert_int_equal(b->slice[k].id, a->id);
        assert_int_equal(b->slice[k].first, a->run);
        assert_true((b->slice[k].n >= 1) && !a->running && (a->n_end == 0));
        a->running = true;
        tokens += b->slice[k].n;
        if (b->slice[k].step) {
            assert_true((a->run >= a->tokens) && (b->slice[k].n == 1));
            n_step++;
        } else {
            n_whole++;
            if (a->most_new == 0) assert_true((a->run == 0) && (b->slice[k].n == a->tokens));
            if (a->most_new > 0) a->begun = true;
            assert_true(a->run + b->slice[k].n <= a->tokens);
            assert_true(b->slice[k].last == (a->run + b->slice[k].n == a->tokens));
        }
    }
    assert_int_equal(tokens + ((b->length > 0) ? b->tokens - tokens : 0), b->tokens);
    assert_true((n_whole <= w->o.most_count) && (b->tokens <= w->o.most_tokens));
    assert_int_equal(n_step, b->n_step);
    for (int i = 0; i < w->n; i++) begun += w->a[i].begun && (w->a[i].n_end == 0);
    assert_true(begun <= w->o.most_sequences);
    if (w->o.policy == CT_POLICY_PADDED) {
        assert_true((oldest != NULL) && oldest->running); /* no starvation */
        return;
    }
    if (w->o.mixed || (n_step > 0)) assert_int_equal(n_step, steps);
    if (!w->o.mixed) assert_true((n_step == 0) || (n_whole == 0));
    if (b->tokens > w->o.budget) { /* then by one request, the first of them */
        const asked *first = b->slice[n_step].what;

        assert_true((n_whole == 1) && (first->most_new == 0));
    }
    /* no starvation: no other whole request of this batch came before the oldest */
    if ((oldest != NULL) && !oldest->running)
        for (int k = 0; k < b->n; k++) {
            const asked *a = b->slice[k].what;

            if (k == n_step) assert_true((a->most_new > 0) && (a->arrival <= oldest->arrival));
        }
}

static void run_batch(world *w)
{
    ct_serve_batch *b = w->r.b;

    w->r.now += ct_batch_cost_s(ct_scheduler_cost(w->r.s), b->tokens);
    for (int k = 0; k < b->n; k++) {
        ct_slice *c = &b->slice[k];
        asked *a = c->what;

        a->running = false;
        a->run += c->n;
        if ((a->most_new > 0) && c->last) c->ended = (++a->made == a->stop_at);
    }
    if (draw(w) < 0.2) { /* while it ran */
        asked *a = b->slice[(int)(b->n * draw(w))].what;

        a->cancelled = true;
        ct_scheduler_cancel(w->r.s, a->id);
    }
    ct_scheduler_finish(w->r.s, b, w->r.now, false);
}

static void live(const ct_scheduler_options *o, uint64_t seed, int n_outcome[4])
{
    world *w = calloc(1, sizeof(*w));
    int idle = 0;

    assert_non_null(w);
    w->o = *o;
    w->key = ct_rng_key(31, seed, 0);
    w->r = open_rig(o);
    for (int turn = 0; w->n < N_ASKED - 8; turn++) {
        assert_true(turn < 100 * N_ASKED); /* else nothing runs any more */
        for (int i = (int)(4 * draw(w)) * (draw(w) < 0.5); i > 0; i--) arrive(w);
        if (draw(w) < 0.05) {
            asked *a = &w->a[(int)(w->n * draw(w))];

            a->cancelled = a->cancelled || (a->n_end == 0);
            if (w->n > 0) ct_scheduler_cancel(w->r.s, a->id);
        }
        take_ended(w, n_outcome);
        if (ct_scheduler_next(w->r.s, w->r.now, w->r.b, &w->r.wake)) {
            take_ended(w, n_outcome); /* those that expired */
            check_batch(w);
            run_batch(w);
        } else if (isfinite(w->r.wake)) {
            assert_true(w->r.wake > w->r.now);
            w->r.now = w->r.wake;
        } else {
            w->r.now += 0.05 * draw(w);
        }
    }
    ct_scheduler_drain(w->r.s);
    while (!ct_scheduler_is_idle(w->r.s) && (idle < 100000)) {
        take_ended(w, n_outcome);
        if (ct_scheduler_next(w->r.s, w->r.now, w->r.b, &w->r.wake)) {
            take_ended(w, n_outcome);
            check_batch(w);
            run_batch(w);
        }
        take_ended(w, n_outcome);
        idle++;
    }
    assert_true(ct_scheduler_is_idle(w->r.s));
    for (int i = 0; i < w->n; i++) assert_int_equal(w->a[i].n_end, 1);
    close_rig(&w->r);
    free(w);
}

/* On three replicas, each of which runs a batch until it is over: a sequence stays where it began,
 * no replica has more of them or of their tokens than it has room for, and all its steps are in
 * each of its batches. */
enum { REPLICAS = 3 };

typedef struct fleet {
    world w;
    ct_serve_batch *b[REPLICAS];
    bool running[REPLICAS];
    double end[REPLICAS];
    int64_t n_begun[REPLICAS];
} fleet;

static int64_t begin_in_fleet(void *ctx, void *what, int replica)
{
    fleet *f = ctx;
    asked *a = what;

    assert_false(f->running[replica] || a->begun || (a->n_end > 0));
    a->begun = true;
    a->replica = replica;
    f->n_begun[replica]++;
    return 0;
}

static void check_replica(fleet *f, int replica)
{
    const ct_serve_batch *b = f->b[replica];
    int64_t cache = 0, page = f->w.o.page_tokens;
    int steps = 0, begun = 0;

    for (int k = 0; k < b->n; k++) {
        asked *a = b->slice[k].what;

        assert_int_equal(b->slice[k].first, a->run);
        assert_true(!a->running && (a->n_end == 0));
        assert_true((a->most_new == 0) || (a->begun && (a->replica == replica)));
        if (a->most_new == 0) assert_true((a->run == 0) && (b->slice[k].n == a->tokens));
    }
    for (int i = 0; i < f->w.n; i++) {
        const asked *a = &f->w.a[i];

        if (!a->begun || (a->replica != replica) || (a->n_end > 0)) continue;
        begun++;
        cache += (a->tokens + a->most_new + page - 1) / page * page;
        steps += (a->run >= a->tokens);
    }
    assert_int_equal(b->n_step, steps);
    assert_true((begun <= f->w.o.most_sequences) && (cache <= f->w.o.cache_tokens));
    for (int k = 0; k < b->n; k++) ((asked *)b->slice[k].what)->running = true;
}

static void start_batches(fleet *f, int n_outcome[4])
{
    world *w = &f->w;

    for (int i = 0; i < REPLICAS; i++) {
        if (f->running[i]) continue;
        f->running[i] = ct_scheduler_next(w->r.s, w->r.now, f->b[i], &w->r.wake);
        take_ended(w, n_outcome); /* those that expired */
        if (!f->running[i]) continue;
        check_replica(f, i);
        f->end[i] = w->r.now + ct_batch_cost_s(ct_scheduler_cost(w->r.s), f->b[i]->tokens);
    }
}

/* The one that is over first; false: none runs. */
static bool end_batch(fleet *f, int n_outcome[4])
{
    world *w = &f->w;
    int first = -1;

    for (int i = 0; i < REPLICAS; i++)
        if (f->running[i] && ((first < 0) || (f->end[i] < f->end[first]))) first = i;
    if (first < 0) return false;
    w->r.now = f->end[first];
    for (int k = 0; k < f->b[first]->n; k++) {
        ct_slice *c = &f->b[first]->slice[k];
        asked *a = c->what;

        a->running = false;
        a->run += c->n;
        if ((a->most_new > 0) && c->last) c->ended = (++a->made == a->stop_at);
    }
    f->running[first] = false;
    ct_scheduler_finish(w->r.s, f->b[first], w->r.now, false);
    take_ended(w, n_outcome);
    return true;
}

static void live_in_fleet(uint64_t seed, int n_outcome[4])
{
    fleet *f = calloc(1, sizeof(*f));
    world *w = &f->w;
    int idle = 0;

    assert_non_null(f);
    w->o = sequences;
    w->o.cache_tokens = 400;
    w->o.page_tokens = 4;
    w->o.begin = begin_in_fleet;
    w->o.ctx = f;
    w->key = ct_rng_key(34, seed, 0);
    w->r = open_rig(&w->o);
    assert_int_equal(ct_scheduler_run_at_once(w->r.s, REPLICAS), CT_OK);
    for (int i = 0; i < REPLICAS; i++) {
        assert_int_equal(ct_serve_batch_create(w->r.s, &f->b[i]), CT_OK);
        f->b[i]->replica = i;
    }
    while (w->n < N_ASKED - 8) {
        for (int i = (int)(4 * draw(w)) * (draw(w) < 0.5); i > 0; i--) arrive(w);
        if ((w->n > 0) && (draw(w) < 0.1)) {
            asked *a = &w->a[(int)(w->n * draw(w))];

            a->cancelled = a->cancelled || (a->n_end == 0);
            ct_scheduler_cancel(w->r.s, a->id);
            take_ended(w, n_outcome);
        }
        start_batches(f, n_outcome);
        if (!end_batch(f, n_outcome)) w->r.now += 0.01;
    }
    ct_scheduler_drain(w->r.s);
    for (; !ct_scheduler_is_idle(w->r.s) && (idle < 100000); idle++) {
        start_batches(f, n_outcome);
        (void)end_batch(f, n_outcome);
    }
    assert_true(ct_scheduler_is_idle(w->r.s));
    for (int i = 0; i < w->n; i++) assert_int_equal(w->a[i].n_end, 1);
    for (int i = 0; i < REPLICAS; i++) {
        assert_true(f->n_begun[i] > w->n / 20);
        assert_int_equal(ct_scheduler_due(w->r.s, i), 0);
        ct_serve_batch_destroy(f->b[i]);
    }
    close_rig(&w->r);
    free(f);
}

static void test_whatever_comes_to_replicas(void **state)
{
    int n_outcome[4] = { 0 };

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) live_in_fleet(seed, n_outcome);
    for (int e = 0; e < CT_OUTCOME_FAILED; e++) assert_true(n_outcome[e] > 20);
}

static void test_whatever_comes(void **state)
{
    ct_scheduler_options o[] = { whole, sequences, sequences, whole, whole };
    int n_outcome[4] = { 0 };

    (void)state;
    o[2].mixed = false;
    o[2].cache_tokens = 400;
    o[3].max_wait_s = 0.03;
    o[4].policy = CT_POLICY_PADDED;
    for (uint64_t seed = 0; seed < 4; seed++)
        for (size_t i = 0; i < sizeof(o) / sizeof(o[0]); i++) live(&o[i], 10 * i + seed, n_outcome);
    for (int e = 0; e < CT_OUTCOME_FAILED; e++) assert_true(n_outcome[e] > 20);
}

/* ---- a load, simulated: Poisson arrivals of 2 to 100 tokens on a net that is a cost function */

enum { N_LOAD = 4000 };

typedef struct load {
    double arrival[N_LOAD], took[N_LOAD];
    int64_t tokens[N_LOAD];
} load;

/* Runs it with arrivals at `rate` a second, INFINITY: all at once but for the queue's limit. The
 * median and the 99th percentile of what requests took; requests a second. */
static double simulate(load *l, ct_policy policy, double rate, double *p50_p, double *p99_p)
{
    /* BERT-base on 2 threads: onnxruntime's ms of 1 x 10 to 20 x 40 tokens */
    static const int64_t tokens[] = { 10, 40, 100, 200, 800 };
    static const double s[] = { 0.0165, 0.0415, 0.0959, 0.191, 0.737 };
    ct_scheduler_options o = { .policy = policy,
                               .most_waiting = N_LOAD,
                               .most_count = 20,
                               .most_tokens = 2048,
                               .mixed = true };
    ct_batch_cost cost;
    ct_scheduler *scheduler;
    ct_serve_batch *b;
    ct_outcome outcome;
    void *what;
    double now = 0, wake;
    int n_in = 0, n_out = 0;

    assert_int_equal(ct_batch_cost_init(&cost, 5, tokens, s), CT_OK);
    assert_int_equal(ct_scheduler_create(&o, &cost, &scheduler), CT_OK);
    assert_int_equal(ct_serve_batch_create(scheduler, &b), CT_OK);
    for (int i = 0; i < N_LOAD; i++) {
        double gap = -log(1 - (double)ct_rng_uniform_at(32, (uint64_t)i)) / rate;

        l->arrival[i] = ((i > 0) ? l->arrival[i - 1] : 0) + gap;
        l->tokens[i] = 2 + (int64_t)(99 * ct_rng_uniform_at(33, (uint64_t)i));
    }
    while (n_out < N_LOAD) {
        for (; (n_in < N_LOAD) && (l->arrival[n_in] <= now); n_in++) {
            ct_request request = { l->tokens[n_in], 0, INFINITY, &l->took[n_in], 0 };
            ct_request_id id;

            assert_int_equal(ct_scheduler_admit(scheduler, &request, 1, now, &id), CT_ADMITTED);
        }
        if (!ct_scheduler_next(scheduler, now, b, &wake)) {
            now = l->arrival[n_in];
            continue;
        }
        now += ct_batch_cost_s(&cost, b->tokens);
        ct_scheduler_finish(scheduler, b, now, false);
        for (; ct_scheduler_take_ended(scheduler, &what, &outcome); n_out++) {
            double *took = what;

            *took = now - l->arrival[took - l->took];
        }
    }
    ct_serve_batch_destroy(b);
    ct_scheduler_destroy(scheduler);
    ct_sort(l->took, N_LOAD);
    *p50_p = l->took[N_LOAD / 2];
    *p99_p = l->took[N_LOAD * 99 / 100];
    return N_LOAD / now;
}

/* At 0.9 of what padded groups reach, packed requests wait less, in the median and at the end. */
static void test_simulated_load(void **state)
{
    load *l = calloc(1, sizeof(*l));
    double p50[2], p99[2], most;

    (void)state;
    assert_non_null(l);
    most = simulate(l, CT_POLICY_PADDED, INFINITY, p50, p99);
    (void)simulate(l, CT_POLICY_PACKED, 0.9 * most, &p50[0], &p99[0]);
    (void)simulate(l, CT_POLICY_PADDED, 0.9 * most, &p50[1], &p99[1]);
    print_message("simulated, %.1f requests/s: p50 %.0f ms packed, %.0f padded; p99 %.0f, %.0f\n",
                  0.9 * most, 1e3 * p50[0], 1e3 * p50[1], 1e3 * p99[0], 1e3 * p99[1]);
    assert_true(p50[0] <= 0.8 * p50[1]);
    assert_true(p99[0] <= 0.8 * p99[1]);
    free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_costs),
        cmocka_unit_test(test_runs_what_is_there),
        cmocka_unit_test(test_most_count),
        cmocka_unit_test(test_padded_budget),
        cmocka_unit_test(test_padded_samples),
        cmocka_unit_test(test_budget_is_the_knee),
        cmocka_unit_test(test_max_wait),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_failed_batch),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_many_replicas),
        cmocka_unit_test(test_prompt_in_chunks),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_tokens_to_be_made),
        cmocka_unit_test(test_cache_is_waited_for),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_steps_go_on),
        cmocka_unit_test(test_sequences_apart),
        cmocka_unit_test(test_prefix_is_found),
        cmocka_unit_test(test_room_is_held),
        cmocka_unit_test(test_turns_apart),
        cmocka_unit_test(test_whatever_comes),
        cmocka_unit_test(test_whatever_comes_to_replicas),
        cmocka_unit_test(test_simulated_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
