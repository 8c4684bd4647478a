/* Files of nets that several ranks have parts of: the bytes of those that one rank writes, and any
 * division reads those of any other. */
#include "tests/test.h"
#include "framework/base/file.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"
#include "tests/forge_hdf5.h"
#include "tests/parts_rig.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path in the directory; the last two stay valid. */
static const char *at(const char *name)
{
    static char path[2][160];
    static int next;

    next = 1 - next;
    snprintf(path[next], sizeof(path[next]), "%s/%s", test_solver_dir(), name);
    return path[next];
}

/* ---- ranks as threads */

static ct_status run_rank(thread_rank *rank)
{
    ct_net none = { .n_param = 0 };
    ct_exchange x;

    CT_TRY(thread_rank_open(rank, &none, &x));
    return rig_run((rank->job->n > 1) ? &x.job : &(ct_group){ .size = 1 }, rank->out);
}

static ct_status run_on(rig_task *t, int n)
{
    thread_ranks job = { .n = n, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];

    for (int i = 0; i < job.n; i++) rank[i] = (thread_rank){ .out = t };
    return thread_ranks_run(&job, rank);
}

static ct_status run(rig_task *t)
{
    return run_on(t, rig_ranks(t->plan));
}

static void run_well(rig_task *t)
{
    ct_status status = run(t);

    if (status != CT_OK)
        fail_msg("division %d, work %d, %s: %s\n%s", (int)t->plan, (int)t->work, t->path,
                 ct_status_str(status), test_log_all());
}

static bool large, shards; /* of works() */

static uint64_t works(rig_plan plan, rig_work work, const char *path)
{
    rig_task t = { .plan = plan, .work = work, .path = at(path), .large = large, .shards = shards };

    run_well(&t);
    return t.sum;
}

/* ---- the bytes */

enum { N_FILE = 4 };
static const char *const file_of[2][N_FILE] = {
    { "s_iter_7.caffemodel.h5", "s_iter_7.average.caffemodel.h5", "s_iter_7.solverstate.h5" },
    { "s_iter_7.caffemodel", "s_iter_7.average.caffemodel", "s_iter_7.solverstate",
      "s_iter_7.solverstate.h5" },
};

typedef struct set_bytes {
    char *data[N_FILE];
    size_t size[N_FILE];
} set_bytes;

static void take_set(int binary, set_bytes *s)
{
    memset(s, 0, sizeof(*s));
    for (int i = 0; (i < N_FILE) && (file_of[binary][i] != NULL); i++)
        assert_int_equal(ct_file_read(at(file_of[binary][i]), &s->data[i], &s->size[i]), CT_OK);
}

static void drop_set(set_bytes *s)
{
    for (int i = 0; i < N_FILE; i++) free(s->data[i]);
}

static void check_bytes(void)
{
    large = true;
    for (int binary = 0; binary < 2; binary++) {
        rig_work write = (binary == 0) ? RIG_WRITE : RIG_WRITE_BINARY;
        set_bytes want, got;

        works(RIG_WHOLE, write, "s");
        take_set(binary, &want);
        for (int plan = RIG_ALONE; plan < N_RIG; plan++) {
            works((rig_plan)plan, write, "s");
            take_set(binary, &got);
            for (int i = 0; (i < N_FILE) && (file_of[binary][i] != NULL); i++) {
                assert_int_equal(got.size[i], want.size[i]);
                assert_memory_equal(got.data[i], want.data[i], want.size[i]);
            }
            drop_set(&got);
        }
        drop_set(&want);
        large = false;
    }
}

static void test_bytes(void **state)
{
    (void)state;
    check_bytes();
}

/* Replicas that have shared out their states write the same files, and read them. */
static void test_shards(void **state)
{
    (void)state;
    shards = true;
    check_bytes();
    for (int i = 0; i < 2; i++) {
        large = (i == 1);
        works(RIG_WHOLE, RIG_WRITE, "s");
        works(RIG_REPLICAS, RIG_READ, "s_iter_7.solverstate.h5");
        works(RIG_REPLICAS, RIG_WRITE, "s");
        works(RIG_INPUT, RIG_READ, "s_iter_7.solverstate.h5");
    }
    shards = large = false;
}

/* ---- reading */

static void test_reading(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        large = (i == 0);
        works(RIG_BOTH, RIG_WRITE, "s");
        for (int plan = 0; plan < N_RIG; plan++)
            works((rig_plan)plan, RIG_READ, "s_iter_7.solverstate.h5");
    }
    works(RIG_BOTH, RIG_WRITE_BINARY, "s");
    for (int plan = 0; plan < N_RIG; plan++) {
        works((rig_plan)plan, RIG_READ, "s_iter_7.solverstate.h5");
        works((rig_plan)plan, RIG_LOAD, "s_iter_7.caffemodel");
    }
}

static void test_weights(void **state)
{
    static const char *const file[] = { "w.caffemodel.h5", "w.npz", "w.safetensors" };

    (void)state;
    works(RIG_WHOLE, RIG_WRITE, "s");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(test_weights_convert(at("s_iter_7.caffemodel.h5"), at(file[i])), CT_OK);
        for (int plan = 0; plan < N_RIG; plan++) works((rig_plan)plan, RIG_LOAD, file[i]);
    }
}

static void test_checksum(void **state)
{
    uint64_t want = works(RIG_WHOLE, RIG_CHECKSUM, "");

    (void)state;
    for (int plan = RIG_ALONE; plan < N_RIG; plan++)
        assert_true(works((rig_plan)plan, RIG_CHECKSUM, "") == want);
}

/* ---- errors are everyone's, and nobody waits for the others */

static void fails(rig_work work, const char *path, bool small, ct_status want)
{
    rig_task t = { .work = work, .path = at(path), .large = !small };

    for (t.plan = RIG_ALONE; t.plan <= RIG_REPLICAS; t.plan++) assert_int_equal(run(&t), want);
}

static void test_errors(void **state)
{
    (void)state;
    fails(RIG_WRITE, "nowhere/s", true, CT_ERR_IO);
    fails(RIG_READ, "s_iter_7.solverstate.h5", true, CT_ERR_IO);
    works(RIG_WHOLE, RIG_WRITE, "s");
    fails(RIG_READ, "s_iter_7.caffemodel.h5", true, CT_ERR_DATA); /* weights alone */
    fails(RIG_READ, "s_iter_7.solverstate.h5", false, CT_ERR_SHAPE);
    fails(RIG_LOAD, "s_iter_7.caffemodel.h5", false, CT_ERR_SHAPE);
    test_log_holds("fb/0 is 70 61 (4270) in the file, 1030 1021 (1051630) in the net");
}

/* Ranks that do not have a whole net together. */
static void test_missing_parts(void **state)
{
    rig_task t = { .plan = RIG_INPUT, .work = RIG_CHECKSUM, .path = "" };

    (void)state;
    assert_int_equal(run_on(&t, 2), CT_ERR_CONFIG);
    test_log_holds("no rank has element 41 of axis 1 of parameter fb[0]");
    t.plan = RIG_STAGES;
    assert_int_equal(run_on(&t, 1), CT_ERR_CONFIG);
    test_log_holds("no rank has parameter fb[0]");
}

/* ---- what codecs keep: its sum over the ranks stays what it was */

enum { MOST_PARAM = 16 };

/* Sums over all ranks, by elements of the whole net's parameters. */
typedef struct ledger {
    pthread_mutex_t lock;
    int64_t count[MOST_PARAM];
    float *then[MOST_PARAM], *now[MOST_PARAM];
    rig_plan written_by;
    bool absorbed;
    int64_t n_wrong;
} ledger;

/* While one rank looks at its elements. */
typedef struct look {
    ledger *l;
    const rig_rank *r;
    float *v; /* as its arenas */
} look;

static bool is_divided(rig_plan plan)
{
    return (plan != RIG_WHOLE) && (plan != RIG_DATA);
}

static void each(ledger *l, const rig_rank *r, float *v,
                 void (*visit)(void *ctx, int i, int64_t e, int64_t at))
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < r->whole->n_param; i++) {
        l->count[i] = r->whole->param[i].count;
        if (l->then[i] == NULL) l->then[i] = calloc((size_t)l->count[i], sizeof(float));
        if (l->now[i] == NULL) l->now[i] = calloc((size_t)l->count[i], sizeof(float));
    }
    rig_each_learned(r, visit, &(look){ l, r, v });
    pthread_mutex_unlock(&l->lock);
}

static void close_ledger(ledger *l)
{
    for (int i = 0; i < MOST_PARAM; i++) {
        free(l->then[i]);
        free(l->now[i]);
    }
}

/* Copies keep the same, which counts once. */
static bool counts(const look *k, int i)
{
    return (k->r->parts == NULL) || !ct_parts_repeats(k->r->parts, i);
}

static float kept_by(const rig_rank *r, int i, int64_t e)
{
    int who = (r->plan == RIG_COPIES) ? 0 : r->job.rank;

    return (float)((who + 1) * (int)(1 + (e + i) % 5));
}

static void keep(void *ctx, int i, int64_t e, int64_t place)
{
    const look *k = ctx;

    k->v[place] = kept_by(k->r, i, e);
    if (counts(k, i)) k->l->then[i][e] += k->v[place];
}

static void begin_keeping(void *ctx, rig_rank *r)
{
    each(ctx, r, r->residual, keep);
}

/* Its own where ranks are those of then; else an equal share of a sum of small numbers, rounded
 * once. Ranks that know of no parts take the files of ranks as they come. */
static void share(void *ctx, int i, int64_t e, int64_t place)
{
    const look *k = ctx;
    ledger *l = k->l;
    int n = (k->r->parts != NULL) ? k->r->parts->n_sharer[i] : k->r->job.size;
    bool own = (k->r->residual != NULL) && (k->r->plan == l->written_by);
    float want = own ? kept_by(k->r, i, e) : l->then[i][e] / (float)n;
    bool known = own || is_divided(k->r->plan) || is_divided(l->written_by);

    if (known && (fabsf(k->v[place] - want) > 1e-6f * want)) l->n_wrong++;
    if (counts(k, i)) l->now[i][e] += k->v[place];
}

static void all_of_it(void *ctx, int i, int64_t e, int64_t place)
{
    const look *k = ctx;

    if (k->v[place] != k->l->then[i][e]) k->l->n_wrong++;
    k->l->now[i][e] = k->v[place];
}

static void end_reading(void *ctx, rig_rank *r)
{
    ledger *l = ctx;
    bool late = (r->residual == NULL) && l->absorbed;
    float *v = (r->residual != NULL) ? r->residual : late ? r->state.late.v : r->state.owed;
    int64_t n_wrong = (v == NULL);

    if ((r->state.late.v != NULL) != late) n_wrong++;
    if ((r->state.owed != NULL) != ((r->residual == NULL) && !late)) n_wrong++;
    if (r->absorbs && (r->residual != NULL) && (r->rate != RIG_RATE)) n_wrong++;
    for (int k = 0; late && (k < r->net->n_param); k++)
        if (ct_param_has_history(r->net, &r->net->param[k]) && (r->state.late.rate[k] != RIG_RATE))
            n_wrong++;
    if (n_wrong == 0) each(l, r, v, late ? all_of_it : share);
    pthread_mutex_lock(&l->lock);
    l->n_wrong += n_wrong;
    pthread_mutex_unlock(&l->lock);
}

/* Each sum is of at most 4 shares. */
static void check_sums(ledger *l, const rig_task *t)
{
    if (l->n_wrong > 0)
        fail_msg("written by division %d, read by %d, keeps %d: %d numbers are wrong",
                 (int)l->written_by, (int)t->plan, (int)t->keeps, (int)l->n_wrong);
    for (int i = 0; (i < MOST_PARAM) && (l->then[i] != NULL); i++) {
        for (int64_t e = 0; e < l->count[i]; e++) {
            if (fabsf(l->now[i][e] - l->then[i][e]) > 4e-6f * l->then[i][e])
                fail_msg("written by division %d: element %d of parameter %d sums up to %g, not %g",
                         (int)l->written_by, (int)e, i, (double)l->now[i][e],
                         (double)l->then[i][e]);
            l->now[i][e] = 0;
        }
    }
}

static void read_back(ledger *l, int to, bool keeps)
{
    rig_task read = { .plan = (rig_plan)to,
                      .work = RIG_READ,
                      .path = at("s_iter_7.solverstate.h5"),
                      .large = large,
                      .keeps = keeps,
                      .absorbs = l->absorbed,
                      .end = end_reading,
                      .ctx = l };

    run_well(&read);
    check_sums(l, &read);
}

static void residuals(rig_plan from, bool absorbed)
{
    ledger l = { .lock = PTHREAD_MUTEX_INITIALIZER, .written_by = from, .absorbed = absorbed };
    rig_task write = { .plan = from,
                       .work = RIG_WRITE,
                       .path = at("s"),
                       .large = large,
                       .keeps = true,
                       .absorbs = absorbed,
                       .begin = begin_keeping,
                       .ctx = &l };

    run_well(&write);
    for (int to = 0; to < N_RIG; to++) {
        if (large && (to != RIG_INPUT)) continue;
        read_back(&l, to, true);
        read_back(&l, to, false);
    }
    close_ledger(&l);
}

static void test_residuals(void **state)
{
    (void)state;
    for (int from = 0; from < N_RIG; from++) residuals((rig_plan)from, from % 2 == 1);
    residuals(RIG_REPLICAS, true);
    residuals(RIG_STAGES, false);
    large = true;
    residuals(RIG_STAGES, true);
    large = false;
}

/* The list of a set's files is made anew, as a forger would. */
static void list_again(const char *const *name, int n)
{
    ct_text parts = { 0 };

    for (int i = 0; i < n; i++) {
        uint64_t hash = 0;
        int64_t size = 0;

        assert_int_equal(ct_h5_file_hash(at(name[i]), 0, &hash, &size), CT_OK);
        ct_state_add_part(&parts, name[i], size, hash);
    }
    assert_true(forge_words(at("s_iter_7.solverstate.h5"), "/parts", parts.text));
    assert_true(forge_seal(at("s_iter_7.solverstate.h5")));
    ct_text_destroy(&parts);
}

/* A part may have as many ranges as the gates of an LSTM: here what was one range is four. */
static void test_most_ranges(void **state)
{
    static const char *const name[] = { "s_iter_7.caffemodel.h5", "s_iter_7.average.caffemodel.h5",
                                        "s_iter_7.rank0.h5", "s_iter_7.rank1.h5" };
    static const double part[2 + 2 * CT_MAX_RANGE] = { 0, 0, 0, 8, 8, 8, 16, 8, 24, 7 };
    ledger l = { .lock = PTHREAD_MUTEX_INITIALIZER, .written_by = RIG_OUTPUT };
    rig_task write = { .plan = RIG_OUTPUT,
                       .work = RIG_WRITE,
                       .path = at("s"),
                       .keeps = true,
                       .begin = begin_keeping,
                       .ctx = &l };
    ct_text path = ct_state_path("/state", CT_RANK_PART, "in/a[1]");
    ct_h5_reader *r = NULL;
    double was[2 + 2 * CT_MAX_RANGE];
    int64_t n = 0;

    (void)state;
    run_well(&write);
    assert_int_equal(ct_h5_reader_create(at(name[2]), NULL, &r), CT_OK);
    assert_int_equal(ct_h5_get_doubles(r, path.text, 2 + 2 * CT_MAX_RANGE, was, &n), CT_OK);
    ct_h5_reader_destroy(r);
    assert_int_equal(n, 4);
    assert_true((was[2] == 0) && (was[3] == 31)); /* of 61 */
    assert_true(forge_doubles(at(name[2]), path.text, 2 + 2 * CT_MAX_RANGE, part));
    list_again(name, 4);
    read_back(&l, RIG_WHOLE, true);
    read_back(&l, RIG_INPUT, true);
    ct_text_destroy(&path);
    close_ledger(&l);
}

/* ---- what is on its way to the weights: a run that has it and keeps nothing hands it on */

static void put_late(void *ctx, int i, int64_t e, int64_t place)
{
    const look *k = ctx;

    k->v[place] = (float)(1 + (e + i) % 7);
    k->l->then[i][e] = k->v[place];
}

static void begin_late(void *ctx, rig_rank *r)
{
    float *v = calloc((size_t)r->net->grad_count + 1, sizeof(*v));

    each(ctx, r, v, put_late);
    for (int k = 0; k < r->net->n_param; k++)
        if (ct_param_has_history(r->net, &r->net->param[k]))
            (void)ct_residual_drain_add(r->net, &r->state.late, k, RIG_RATE,
                                        v + r->net->param[k].offset);
    free(v);
}

static void test_late(void **state)
{
    (void)state;
    for (int from = 0; from < N_RIG; from++) {
        ledger l = { .lock = PTHREAD_MUTEX_INITIALIZER,
                     .written_by = (rig_plan)from,
                     .absorbed = true };
        rig_task write = { .plan = (rig_plan)from,
                           .work = RIG_WRITE,
                           .path = at("s"),
                           .begin = begin_late,
                           .ctx = &l };

        run_well(&write);
        for (int to = 0; to < N_RIG; to++) read_back(&l, to, false);
        close_ledger(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_shards, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_reading, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_weights, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_errors, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_missing_parts, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_residuals, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_most_ranges, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_late, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_checksum, test_solver_setup, test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
