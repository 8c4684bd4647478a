/* Batches on several replicas of a model, which are fakes: that they run at once, what fails, when
 * none may run, and what is counted. */
#include "tests/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/api/dispatch.h"
#include "serve/api/metrics.h"
#include "tests/log_capture.h"
#include "tests/served_fake.h"

enum { REPLICAS = 3 };

/* Where replicas meet: each batch waits until as many run as are expected. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int expected, inside;
    bool missed;
} meeting;

/* A replica that comes to the meeting, and then answers as the fake does. */
typedef struct replica {
    served_fake fake;
    ct_served_model model;
    meeting *at;
} replica;

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    replica *r = ctx;

    (void)pthread_mutex_lock(&r->at->lock);
    r->at->inside++;
    (void)pthread_cond_broadcast(&r->at->changed);
    while ((r->at->inside < r->at->expected) && !r->at->missed)
        r->at->missed = !ct_cond_wait_for(&r->at->changed, &r->at->lock, 60);
    (void)pthread_mutex_unlock(&r->at->lock);
    return r->fake.model.embed(&r->fake, work, n);
}

typedef struct rig {
    replica replica[REPLICAS];
    meeting at;
    ct_dispatch *d; /* that of the first */
} rig;

static void open_rig(rig *r, int expected)
{
    memset(r, 0, sizeof(*r));
    assert_int_equal(pthread_mutex_init(&r->at.lock, NULL), 0);
    assert_int_equal(ct_cond_init(&r->at.changed), 0);
    r->at.expected = expected;
    for (int i = 0; i < REPLICAS; i++) {
        replica *x = &r->replica[i];

        served_fake_open(&x->fake);
        x->at = &r->at;
        x->model = x->fake.model;
        x->model.ctx = x;
        x->model.embed = embed;
    }
    served_fake_dispatch(&r->replica[0].model, &r->d);
    for (int i = 1; i < REPLICAS; i++)
        assert_int_equal(ct_dispatch_add_replica(r->d, &r->replica[i].model), CT_OK);
    assert_int_equal(ct_dispatch_replicas(r->d), REPLICAS);
    assert_int_equal(ct_dispatch_start(r->d), CT_OK);
}

static void close_rig(rig *r)
{
    ct_dispatch_destroy(r->d);
    for (int i = 0; i < REPLICAS; i++) served_fake_close(&r->replica[i].fake);
    (void)pthread_cond_destroy(&r->at.changed);
    (void)pthread_mutex_destroy(&r->at.lock);
}

/* Texts of ten ids, all of them `id`. */
typedef struct texts {
    ct_work_set set;
    ct_work work[FAKE_QUEUE];
    int32_t ids[10];
    float row[FAKE_QUEUE][FAKE_SIZE];
    atomic_bool done;
} texts;

static void are_done(void *ctx)
{
    atomic_store(&((texts *)ctx)->done, true);
}

static void do_nothing(void *ctx)
{
    (void)ctx;
}

static void submit(rig *r, texts *t, int n, int32_t id)
{
    ct_admission admission = CT_REFUSED_FULL;
    double retry;

    memset(t, 0, sizeof(*t));
    for (int k = 0; k < 10; k++) t->ids[k] = id;
    for (int i = 0; i < n; i++)
        t->work[i] = (ct_work){ .kind = CT_WORK_EMBED, .tokens = 10, .row = t->row[i] };
    for (int i = 0; i < n; i++) t->work[i].ids.id = t->ids;
    for (int i = 0; i < n; i++) t->work[i].ids.n = 10;
    t->set = (ct_work_set){ .work = t->work, .n = n, .done = are_done, .ctx = t };
    assert_int_equal(ct_dispatch_submit(r->d, &t->set, INFINITY, &admission, &retry), CT_OK);
    assert_int_equal(admission, CT_ADMITTED);
}

static void await(texts *t)
{
    double end = ct_clock_s() + 60;

    while (!atomic_load(&t->done) && (ct_clock_s() < end)) (void)usleep(1000);
    assert_true(atomic_load(&t->done));
}

/* Six texts on three free replicas: two on each, at the same time. */
static void test_share(void **state)
{
    ct_replica_stats s;
    texts t;
    rig r;

    (void)state;
    open_rig(&r, REPLICAS);
    submit(&r, &t, 6, 7);
    await(&t);
    assert_false(r.at.missed);
    assert_int_equal(t.set.outcome, CT_OUTCOME_DONE);
    for (int i = 0; i < 6; i++) assert_true(t.row[i][10 % FAKE_SIZE] == 1);
    for (int i = 0; i < REPLICAS; i++) {
        ct_dispatch_read_replica(r.d, i, &s);
        assert_int_equal(s.batches, 1);
        assert_int_equal(s.tokens, 20);
        assert_int_equal(s.failed, 0);
        assert_true(s.busy_s > 0);
        assert_int_equal(r.replica[i].fake.n_embedded, 2);
    }
    close_rig(&r);
}

/* One text after the other: the first replica has them all. */
static void test_first(void **state)
{
    ct_replica_stats s;
    rig r;

    (void)state;
    open_rig(&r, 1);
    for (int i = 0; i < 5; i++) {
        texts t;

        submit(&r, &t, 1, 2);
        await(&t);
    }
    for (int i = 0; i < REPLICAS; i++) {
        ct_dispatch_read_replica(r.d, i, &s);
        assert_int_equal(s.batches, (i == 0) ? 5 : 0);
    }
    close_rig(&r);
}

/* More than can run at once, again and again: nothing stays behind. */
static void test_many(void **state)
{
    texts *t = calloc(400, sizeof(*t));
    int64_t all = 0;
    rig r;

    (void)state;
    assert_non_null(t);
    open_rig(&r, 1);
    for (int i = 0; i < 400; i++) {
        submit(&r, &t[i], 1 + i % 2, 2);
        if (i >= 3) await(&t[i - 3]); /* FAKE_QUEUE may wait */
    }
    for (int i = 0; i < 400; i++) await(&t[i]);
    for (int i = 0; i < REPLICAS; i++) all += r.replica[i].fake.n_embedded;
    assert_int_equal(all, 600);
    assert_true(ct_dispatch_is_idle(r.d));
    close_rig(&r);
    free(t);
}

/* The batch of one fails; what the others had is answered. */
static void test_failure(void **state)
{
    ct_replica_stats s;
    texts t[REPLICAS];
    int64_t failed = 0;
    int outcomes = 0;
    rig r;

    (void)state;
    open_rig(&r, REPLICAS);
    r.replica[1].fake.fails = true;
    log_capture_start(NULL);
    for (int i = 0; i < REPLICAS; i++) submit(&r, &t[i], 1, 3);
    for (int i = 0; i < REPLICAS; i++) await(&t[i]);
    log_capture_stop();
    for (int i = 0; i < REPLICAS; i++) outcomes += (t[i].set.outcome == CT_OUTCOME_FAILED);
    assert_int_equal(outcomes, 1);
    for (int i = 0; i < REPLICAS; i++) {
        ct_dispatch_read_replica(r.d, i, &s);
        assert_int_equal(s.failed, i == 1);
        failed += s.failed;
    }
    assert_int_equal(failed, 1);
    close_rig(&r);
}

typedef struct stillness {
    rig *r;
    texts *t; /* submitted meanwhile */
    int64_t before, after;
} stillness;

static int64_t count_batches(rig *r)
{
    ct_scheduler_stats s;

    ct_dispatch_read_stats(r->d, &s);
    return s.batches;
}

/* No lock is held, so it may ask; and what waits goes on waiting. */
static void look(void *ctx)
{
    stillness *p = ctx;

    p->before = count_batches(p->r);
    submit(p->r, p->t, 2, 5);
    (void)usleep(50000);
    p->after = count_batches(p->r);
    assert_false(atomic_load(&p->t->done));
}

static void test_between(void **state)
{
    texts first, second;
    rig r;
    stillness p = { &r, &second, 0, -1 };

    (void)state;
    open_rig(&r, 1);
    submit(&r, &first, 6, 1);
    ct_dispatch_between(r.d, look, &p);
    assert_int_equal(p.before, p.after);
    await(&first);
    await(&second);
    assert_true(count_batches(&r) > p.after);
    close_rig(&r);
}

/* Who runs a padded batch is told what is beside each request's own tokens; the last one has them
 * in two samples. */
static void test_padding(void **state)
{
    static const int64_t tokens[] = { 1, 128 };
    static const double s[] = { 1e-3, 2e-3 };
    const ct_scheduler_options o = {
        .policy = CT_POLICY_PADDED, .most_waiting = 4, .most_count = 4, .most_tokens = 128
    };
    int32_t ids[10] = { 0 };
    float row[3][FAKE_SIZE];
    ct_work work[3];
    ct_work_set set = { .work = work, .n = 3, .done = do_nothing };
    ct_scheduler_stats stats;
    ct_admission admission;
    ct_dispatch *d = NULL;
    ct_batch_cost cost;
    served_fake fake;
    double retry;

    (void)state;
    served_fake_open(&fake);
    assert_int_equal(ct_batch_cost_init(&cost, 2, tokens, s), CT_OK);
    assert_int_equal(ct_dispatch_create(&fake.model, &o, &cost, &d), CT_OK);
    for (int i = 0; i < 3; i++)
        work[i] = (ct_work){ .kind = CT_WORK_EMBED,
                             .tokens = 10 - 3 * i,
                             .ids = { .id = ids, .n = 10 - 3 * i },
                             .samples = (i == 2) ? 2 : 0,
                             .row = row[i] };
    assert_int_equal(ct_dispatch_submit(d, &set, INFINITY, &admission, &retry), CT_OK);
    ct_dispatch_step(d);
    assert_int_equal(fake.n_embedded, 3);
    assert_int_equal(work[0].padding, 0);
    assert_int_equal(work[1].padding, 3);
    assert_int_equal(work[2].padding, 16);
    ct_dispatch_read_stats(d, &stats);
    assert_int_equal(stats.padding, 19);
    assert_int_equal(stats.tokens, 40);
    ct_dispatch_destroy(d);
    served_fake_close(&fake);
}

/* ---- sequences: each replica counts what it is asked, and its next token follows from the last */

enum { VOCABULARY = 50, MOST_NEW = 12, TEXTS = 60, SEQUENCES = 4 };

/* That opens, closes or grows when it must not is a fault. */
typedef struct grower {
    ct_served_model model;
    float score[SEQUENCES][VOCABULARY];
    atomic_int n_open, n_grown, growing, fault;
} grower;

typedef struct grown {
    const grower *of;
    int64_t n, capacity;
} grown;

static ct_status open_grown(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                            void **sequence_p, int64_t *kept_p)
{
    grower *g = ctx;
    grown *s = calloc(1, sizeof(*s));

    (void)id;
    (void)n;
    if (s == NULL) abort();
    *s = (grown){ .of = g, .n = 1, .capacity = capacity }; /* the cache has the first one */
    atomic_fetch_add(&g->fault, atomic_load(&g->growing));
    atomic_fetch_add(&g->n_open, 1);
    *sequence_p = s;
    *kept_p = s->n;
    return CT_OK;
}

static void close_grown(void *ctx, void *sequence)
{
    grower *g = ctx;

    atomic_fetch_add(&g->fault, atomic_load(&g->growing) + (((grown *)sequence)->of != g));
    atomic_fetch_sub(&g->n_open, 1);
    free(sequence);
}

static int64_t peek_grown(void *ctx, const int32_t *id, int64_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
    return 1;
}

static ct_status grow_all(void *ctx, ct_work_piece *piece, int n)
{
    grower *g = ctx;

    atomic_fetch_add(&g->fault, atomic_exchange(&g->growing, 1));
    for (int i = 0; i < n; i++) {
        grown *s = piece[i].sequence;

        s->n += piece[i].n;
        atomic_fetch_add(&g->fault, (s->of != g) + (s->n > s->capacity));
        memset(g->score[i], 0, sizeof(g->score[i]));
        g->score[i][(7 * piece[i].id[piece[i].n - 1] + s->n) % VOCABULARY] = 1;
        piece[i].score = g->score[i];
    }
    (void)usleep(200);
    atomic_fetch_add(&g->n_grown, n);
    atomic_store(&g->growing, 0);
    return CT_OK;
}

static void open_growers(grower *g, ct_dispatch **d_p)
{
    static const int64_t tokens[] = { 1, 128 };
    static const double s[] = { 1e-4, 1e-3 };
    const ct_scheduler_options o = { .most_waiting = TEXTS,
                                     .most_count = SEQUENCES,
                                     .most_sequences = SEQUENCES,
                                     .most_tokens = 64,
                                     .mixed = true,
                                     .cache_tokens = 100 };
    ct_batch_cost cost;

    memset(g, 0, REPLICAS * sizeof(*g));
    assert_int_equal(ct_batch_cost_init(&cost, 2, tokens, s), CT_OK);
    for (int i = 0; i < REPLICAS; i++) {
        g[i].model = (ct_served_model){ .name = "grower",
                                        .n_id = VOCABULARY,
                                        .most_context = 100,
                                        .ctx = &g[i],
                                        .open = open_grown,
                                        .close = close_grown,
                                        .peek = peek_grown,
                                        .grow = grow_all };
        if (i == 0) assert_int_equal(ct_dispatch_create(&g[0].model, &o, &cost, d_p), CT_OK);
        if (i > 0) assert_int_equal(ct_dispatch_add_replica(*d_p, &g[i].model), CT_OK);
    }
    assert_int_equal(ct_dispatch_start(*d_p), CT_OK);
}

/* One text of a few ids, and what follows. */
typedef struct growth {
    ct_work_set set;
    ct_work *work;
    ct_dispatch *d;
    int on;        /* the replica of its first token */
    int64_t n_new; /* tokens of its own              */
    bool moved, cancels;
    atomic_bool done;
} growth;

static ct_status next_token(void *ctx, ct_work *w, const float *score, bool *ended_p)
{
    growth *t = ctx;
    int32_t id = 0;

    while (score[id] == 0) id++;
    if (t->n_new == 0) t->on = w->replica;
    t->moved = t->moved || (t->on != w->replica);
    *ended_p = (++t->n_new == 100);
    if (t->cancels && (t->n_new == 3)) ct_dispatch_cancel(t->d, &t->set);
    return ct_ids_add(&w->ids, &id, 1);
}

static void is_grown(void *ctx)
{
    atomic_store(&((growth *)ctx)->done, true);
}

/* n texts that are admitted together, of first, first + 1 … ids. */
static void submit_growths(ct_dispatch *d, growth *t, ct_work *work, int n, int64_t first)
{
    ct_admission admission = CT_REFUSED_FULL;
    double retry;

    for (int i = 0; i < n; i++) {
        t[i].d = d;
        t[i].work = &work[i];
        work[i] = (ct_work){ .kind = CT_WORK_COMPLETE,
                             .tokens = first + i,
                             .most_new = MOST_NEW,
                             .next = next_token,
                             .ctx = &t[i] };
        for (int32_t k = 0; k < first + i; k++)
            assert_int_equal(ct_ids_add(&work[i].ids, &k, 1), CT_OK);
    }
    t->set = (ct_work_set){ .work = work, .n = n, .done = is_grown, .ctx = t };
    assert_int_equal(ct_dispatch_submit(d, &t->set, INFINITY, &admission, &retry), CT_OK);
    assert_int_equal(admission, CT_ADMITTED);
}

static void await_growths(growth *t)
{
    double end = ct_clock_s() + 60;

    while (!atomic_load(&t->done) && (ct_clock_s() < end)) (void)usleep(1000);
    assert_true(atomic_load(&t->done));
}

static void expect_growth(const growth *t)
{
    int64_t n = t->work->tokens;

    assert_false(t->moved);
    assert_int_equal(t->work->ids.n, n + MOST_NEW);
    for (int64_t k = n; k < n + MOST_NEW; k++)
        assert_int_equal(t->work->ids.id[k], (7 * t->work->ids.id[k - 1] + k) % VOCABULARY);
}

/* Many texts on three replicas, some of which nobody waits for in the middle: each grows on one of
 * them, which opens and closes it while it does nothing else. */
static void test_sequences(void **state)
{
    growth *t = calloc(TEXTS, sizeof(*t));
    ct_work *w = calloc(TEXTS, sizeof(*w));
    grower *g = calloc(REPLICAS, sizeof(*g));
    int64_t prompt = 0, cached = 0;
    ct_scheduler_stats all;
    ct_dispatch *d = NULL;

    (void)state;
    assert_true((t != NULL) && (w != NULL) && (g != NULL));
    open_growers(g, &d);
    for (int i = 0; i < TEXTS; i++) {
        t[i].cancels = (i % 7 == 3);
        submit_growths(d, &t[i], &w[i], 1, 2 + i % 5);
    }
    for (int i = 0; i < TEXTS; i++) {
        await_growths(&t[i]);
        assert_int_equal(t[i].set.outcome, t[i].cancels ? CT_OUTCOME_CANCELLED : CT_OUTCOME_DONE);
        if (!t[i].cancels) expect_growth(&t[i]);
    }
    for (int i = 0; i < REPLICAS; i++) {
        ct_replica_stats s;

        assert_int_equal(atomic_load(&g[i].fault), 0);
        assert_int_equal(atomic_load(&g[i].n_open), 0);
        ct_dispatch_read_replica(d, i, &s);
        assert_int_equal(s.sequences, 0);
        assert_int_equal(s.cache_taken, 0);
        prompt += s.prompt;
        cached += s.cached;
    }
    ct_dispatch_read_stats(d, &all);
    assert_true((prompt == all.prompt) && (cached == all.cached) && (cached == TEXTS));
    ct_dispatch_destroy(d);
    for (int i = 0; i < TEXTS; i++) ct_ids_destroy(&w[i].ids);
    free(t);
    free(w);
    free(g);
}

/* Three texts at once: one on each. A replica that sleeps, while those in front of it have nothing
 * to do, goes on with what it has. */
static void test_sequences_meet(void **state)
{
    grower *g = calloc(REPLICAS, sizeof(*g));
    ct_dispatch *d = NULL;

    (void)state;
    assert_non_null(g);
    open_growers(g, &d);
    for (int round = 0; round < 20; round++) {
        growth t[REPLICAS];
        ct_work w[REPLICAS];

        memset(t, 0, sizeof(t));
        submit_growths(d, t, w, REPLICAS, 9);
        await_growths(t);
        assert_int_equal(t->set.outcome, CT_OUTCOME_DONE);
        for (int i = 0; i < REPLICAS; i++) {
            assert_int_equal(t[i].on, i);
            expect_growth(&t[i]);
            ct_ids_destroy(&w[i].ids);
        }
    }
    ct_dispatch_destroy(d);
    free(g);
}

static void test_metrics(void **state)
{
    const ct_replica_stats s[] = { { 3, 40, 0, 0.5, 50, 32, 2, 96 },
                                   { 2, 30, 1, 0.25, 60, 0, 1, 64 } };
    ct_text text = { 0 };

    (void)state;
    ct_metrics_write_replicas(s, 2, &text);
    assert_non_null(strstr(text.text, "\ncortado_replica_batches_total{replica=\"0\"} 3\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_batches_total{replica=\"1\"} 2\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_batch_tokens_total{replica=\"1\"} 30\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_prompt_tokens_total{replica=\"1\"} 60\n"));
    assert_non_null(
        strstr(text.text, "\ncortado_replica_prompt_cached_tokens_total{replica=\"0\"} 32\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_sequences{replica=\"0\"} 2\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_cache_tokens{replica=\"1\"} 64\n"));
    assert_non_null(strstr(text.text, "\ncortado_replica_failed_total{replica=\"1\"} 1\n"));
    assert_non_null(
        strstr(text.text, "\ncortado_replica_busy_seconds_total{replica=\"1\"} 0.25\n"));
    ct_text_destroy(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),          cmocka_unit_test(test_first),
        cmocka_unit_test(test_many),           cmocka_unit_test(test_failure),
        cmocka_unit_test(test_between),        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_sequences_meet), cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_padding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
