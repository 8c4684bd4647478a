#include "comm/autotune/grad_tune.h"

#include <stdlib.h>
#include <string.h>

#include "comm/autotune/tune_rule.h"
#include "comm/collective/blocking.h"
#include "framework/base/clock.h"
#include "framework/base/text.h"

enum { MOST_WAYS = 6 };

static const double within = 3;    /* times the least predicted cost: what is tried       */
static const double clearly = 0.9; /* of the model's choice's time: another is taken      */

enum { DUEL_STEPS = 2 * CT_TUNE_LEAST_ROUNDS };

typedef struct tune_class {
    ct_dtype dtype;
    int magnitude; /* bytes are 2^magnitude and more */
    int n_bucket, trier;
    int n_way;
    const ct_coll_ops *ops[MOST_WAYS]; /* by predicted cost; the first is the model's      */
    ct_coll_candidate *way[MOST_WAYS]; /* the trier's; NULL: the one that it goes now       */
    double predicted_s[MOST_WAYS];
    int64_t ns[MOST_WAYS * CT_TUNE_MOST_ROUNDS]; /* tune_rule.h                             */
    int64_t duel_ns[2 * CT_TUNE_MOST_ROUNDS];    /* the model's against the challenger's    */
    int challenger, now;
} tune_class;

struct ct_grad_tune {
    ct_grad_pipe *gp;
    int step;                            /* that begins next */
    int n_algorithm, n_duel, n_progress; /* steps that each part takes                        */
    int n_class;
    tune_class *class; /* [n_class]                                                 */
    double begun_at;
    int64_t step_ns[2 * CT_TUNE_MOST_ROUNDS]; /* of steps without and with the thread         */
};

/* ---- classes */

static int magnitude_of(int64_t bytes)
{
    int k = 0;

    while ((bytes >> k) > 1) k += 1;
    return k;
}

static int64_t bytes_of(const ct_persistent_coll *ways)
{
    return ways->count * (int64_t)ct_dtype_size(ways->dtype);
}

static const ct_coll_ops *ops_now(ct_bucket *b)
{
    return atomic_load(&ct_bucket_main_ways(b)->now)->ops;
}

static bool belongs(ct_bucket *b, const tune_class *class)
{
    const ct_persistent_coll *ways = ct_bucket_main_ways(b);

    return (ways != NULL) && (ways->dtype == class->dtype) &&
           (magnitude_of(bytes_of(ways)) == class->magnitude);
}

static void find_classes(ct_grad_tune *t)
{
    for (int i = 0; i < t->gp->n_bucket; ++i) {
        const ct_persistent_coll *ways = ct_bucket_main_ways(&t->gp->bucket[i]);
        int k = 0;

        if ((ways == NULL) || (ways->count == 0)) continue;
        while ((k < t->n_class) && !belongs(&t->gp->bucket[i], &t->class[k])) k += 1;
        if (k == t->n_class) {
            t->class[k].dtype = ways->dtype;
            t->class[k].magnitude = magnitude_of(bytes_of(ways));
            t->n_class += 1;
        }
        t->class[k].n_bucket += 1;
        t->class[k].trier = i; /* the last: the one that forward needs first */
    }
}

/* ---- ways */

/* Puts ops in by its cost; the dearest goes where there is no room. */
static void insert(tune_class *k, const ct_coll_ops *ops, double cost)
{
    int at = k->n_way;

    if ((at == MOST_WAYS) && (cost >= k->predicted_s[at - 1])) return;
    if (at == MOST_WAYS) at -= 1;
    for (; (at > 0) && (k->predicted_s[at - 1] > cost); --at) {
        k->ops[at] = k->ops[at - 1];
        k->predicted_s[at] = k->predicted_s[at - 1];
    }
    k->ops[at] = ops;
    k->predicted_s[at] = cost;
    if (k->n_way < MOST_WAYS) k->n_way += 1;
}

static void find_ways(const ct_grad_tune *t, tune_class *k)
{
    const ct_persistent_coll *ways = ct_bucket_main_ways(&t->gp->bucket[k->trier]);
    const ct_coll_ops *now = ops_now(&t->gp->bucket[k->trier]);
    const ct_comm *c = t->gp->comm;
    int most = t->gp->config.tune_iterations;

    k->ops[0] = now;
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (((*at)->automatic || (*at == now)) && (*at)->supports(c, ways->count, ways->dtype))
            insert(k, *at, ct_coll_cost_s(*at, c, bytes_of(ways), ways->dtype));
    }
    for (int i = 1; i < k->n_way; ++i) {
        const ct_coll_ops *ops = k->ops[i];
        double cost = k->predicted_s[i];

        if (ops != now) continue; /* of equal costs the model's own stands first */
        k->ops[i] = k->ops[0];
        k->predicted_s[i] = k->predicted_s[0];
        k->ops[0] = ops;
        k->predicted_s[0] = cost;
    }
    while ((k->n_way > 1) &&
           ((k->n_way > most) || (k->predicted_s[k->n_way - 1] > within * k->predicted_s[0])))
        k->n_way -= 1;
}

/* The trier takes way `to`. */
static void go(ct_grad_tune *t, tune_class *k, int to)
{
    ct_coll_candidate *old = NULL;

    if (k->now == to) return;
    ct_persistent_coll_go(ct_bucket_main_ways(&t->gp->bucket[k->trier]), k->way[to], &old);
    k->way[k->now] = old;
    k->way[to] = NULL;
    k->now = to;
}

static void close_ways(ct_grad_tune *t, tune_class *k)
{
    for (int i = 0; i < k->n_way; ++i) {
        ct_persistent_coll_close(ct_bucket_main_ways(&t->gp->bucket[k->trier]), k->way[i]);
        k->way[i] = NULL;
    }
}

static ct_status open_ways(ct_grad_tune *t)
{
    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];

        find_ways(t, k);
        for (int w = 1; w < k->n_way; ++w)
            CT_TRY(ct_persistent_coll_open(ct_bucket_main_ways(&t->gp->bucket[k->trier]), k->ops[w],
                                           &k->way[w]));
        if (k->n_way < 2) continue;
        t->n_algorithm = t->gp->config.tune_iterations;
        t->n_duel = DUEL_STEPS;
    }
    return CT_OK;
}

ct_status ct_grad_tune_create(ct_grad_pipe *gp, ct_grad_tune **tune_p)
{
    const ct_grad_pipe_config *config = &gp->config;
    ct_grad_tune *t = NULL;
    ct_status status = CT_OK;

    if ((config->tune_iterations == 0) || (gp->comm->size == 1) || (gp->n_bucket == 0) ||
        (config->dense_elsewhere && ct_grad_pipe_is_dense(gp)))
        return CT_OK;
    t = calloc(1, sizeof(*t));
    if (t != NULL) t->class = calloc((size_t)gp->n_bucket, sizeof(*t->class));
    if ((t == NULL) || (t->class == NULL)) {
        free(t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to try algorithms");
    }
    t->gp = gp;
    if ((config->progress == CT_PROGRESS_AUTO) && (gp->thread != NULL))
        t->n_progress = (config->tune_iterations > DUEL_STEPS)
                            ? 2 * ((config->tune_iterations + 1) / 2)
                            : DUEL_STEPS;
    if (strcmp(config->allreduce, "auto") == 0) {
        find_classes(t);
        CT_TRY_GOTO(status, err_destroy, open_ways(t));
    }
    *tune_p = t;
    return CT_OK;

err_destroy:
    ct_grad_tune_destroy(t);
    return status;
}

void ct_grad_tune_destroy(ct_grad_tune *t)
{
    if (t == NULL) return;
    for (int i = 0; i < t->n_class; ++i) close_ways(t, &t->class[i]);
    free(t->class);
    free(t);
}

/* ---- deciding */

static void log_choice(const tune_class *k)
{
    ct_text tried = { .text = NULL };

    if (ct_tune_best(k->ns, CT_TUNE_MOST_ROUNDS) == 0) return; /* never went: a long warm-up */
    for (int w = 0; w < k->n_way; ++w)
        ct_text_add(&tried, "%s%s %.3f ms (predicted %.3f)", (w > 0) ? ", " : "", k->ops[w]->name,
                    1e-6 *
                        (double)ct_tune_best(k->ns + w * CT_TUNE_MOST_ROUNDS, CT_TUNE_MOST_ROUNDS),
                    1e3 * k->predicted_s[w]);
    CT_INFO("allreduce of %d bucket%s of %.4g to %.4g KB: %s%s; tried: %s", k->n_bucket,
            (k->n_bucket == 1) ? "" : "s", 1e-3 * (double)((int64_t)1 << k->magnitude),
            1e-3 * (double)((int64_t)2 << k->magnitude), k->ops[k->now]->name,
            (k->now == 0) ? "" : ", not what the model says",
            (tried.text != NULL) ? tried.text : "");
    ct_text_destroy(&tried);
}

/* The class goes as its trier does. Collective. */
static ct_status spread(ct_grad_tune *t, tune_class *k)
{
    close_ways(t, k);
    for (int i = 0; i < t->gp->n_bucket; ++i) {
        ct_bucket *b = &t->gp->bucket[i];
        ct_coll_candidate *way = NULL, *old = NULL;

        if ((i == k->trier) || !belongs(b, k) || (ops_now(b) == k->ops[k->now])) continue;
        CT_TRY(ct_persistent_coll_open(ct_bucket_main_ways(b), k->ops[k->now], &way));
        ct_persistent_coll_go(ct_bucket_main_ways(b), way, &old);
        ct_persistent_coll_close(ct_bucket_main_ways(b), old);
    }
    log_choice(k);
    return CT_OK;
}

/* Who meets the model's choice again; where nobody does, there are no further steps. */
static ct_status find_challengers(ct_grad_tune *t)
{
    int n = 0;

    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];

        if (k->n_way < 2) continue;
        CT_TRY(ct_comm_max(t->gp->comm, k->ns, k->n_way * CT_TUNE_MOST_ROUNDS));
        k->challenger = ct_tune_challenger(k->ns, k->n_way, CT_TUNE_MOST_ROUNDS, clearly);
        n += (k->challenger > 0);
        go(t, k, 0);
    }
    if (n == 0) t->n_duel = 0;
    return CT_OK;
}

static ct_status choose_algorithms(ct_grad_tune *t)
{
    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];

        if (k->n_way < 2) continue;
        if (k->challenger > 0) {
            CT_TRY(ct_comm_max(t->gp->comm, k->duel_ns, 2 * CT_TUNE_MOST_ROUNDS));
            go(t, k,
               ct_tune_wins(k->duel_ns + CT_TUNE_MOST_ROUNDS, k->duel_ns, CT_TUNE_MOST_ROUNDS,
                            clearly)
                   ? k->challenger
                   : 0);
        }
        CT_TRY(spread(t, k));
    }
    return CT_OK;
}

static ct_status choose_progress(ct_grad_tune *t)
{
    const int64_t *poll = t->step_ns, *threaded = t->step_ns + CT_TUNE_MOST_ROUNDS;
    bool thread = false;

    CT_TRY(ct_comm_max(t->gp->comm, t->step_ns, 2 * CT_TUNE_MOST_ROUNDS));
    for (int k = 0; k < CT_TUNE_MOST_ROUNDS; ++k) {
        if ((poll[k] > 0) && (threaded[k] > 0))
            CT_DEBUG("progress: round %d: %.3f ms with polls, %.3f ms with a thread", k,
                     1e-6 * (double)poll[k], 1e-6 * (double)threaded[k]);
    }
    thread = ct_tune_shorter(threaded, poll, CT_TUNE_MOST_ROUNDS);
    ct_grad_pipe_use_thread(t->gp, thread);
    CT_INFO("progress: %s; a step took %.3f ms with polls, %.3f ms with a thread",
            thread ? "THREAD" : "POLL", 1e-6 * (double)ct_tune_median(poll, CT_TUNE_MOST_ROUNDS),
            1e-6 * (double)ct_tune_median(threaded, CT_TUNE_MOST_ROUNDS));
    return CT_OK;
}

/* ---- step by step: 0 warms up; n_algorithm steps look for challengers, n_duel steps put them
 * against the model's choice in turns, n_progress steps go without and with the thread in turns,
 * each first in every other pair, so that what grows or falls meanwhile speaks for neither.
 * Each step is read when the next begins. */

int ct_grad_tune_most(int n)
{
    if (n == 0) return 0;
    return 1 + n + DUEL_STEPS + ((n > DUEL_STEPS) ? n + 1 : DUEL_STEPS);
}

int ct_grad_tune_n_step(const ct_grad_tune *t)
{
    return 1 + t->n_algorithm + t->n_duel + t->n_progress;
}

/* Does step `at` of the last part go with the thread? */
static bool goes_with_thread(int at)
{
    return (at % 4 == 1) || (at % 4 == 2);
}

/* Puts a time into a list of rounds, where there is room. */
static void put(int64_t *ns, int way, int round, int64_t time)
{
    if (round < CT_TUNE_MOST_ROUNDS) ns[way * CT_TUNE_MOST_ROUNDS + round] = time;
}

/* What step `at` of the first part, or of the duels, took. */
static void note_algorithms(ct_grad_tune *t, int at, bool duel)
{
    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];
        const ct_bucket *b = &t->gp->bucket[k->trier];
        int64_t ns = (int64_t)(1e9 * b->last_s);

        if (atomic_load(&b->dense_now) == b->cut.coded) continue; /* a codec that warms up */
        if (!duel)
            put(k->ns, k->now, at / k->n_way, ns);
        else if (k->challenger > 0)
            put(k->duel_ns, k->now != 0, at / 2, ns);
    }
}

/* Reads step `done`, which is over. */
static void note(ct_grad_tune *t, int done, int64_t ns)
{
    int duels = 1 + t->n_algorithm, progress = duels + t->n_duel;

    if ((done >= 1) && (done < duels)) note_algorithms(t, done - 1, false);
    if ((done >= duels) && (done < progress)) note_algorithms(t, done - duels, true);
    if ((done >= progress) && (done < ct_grad_tune_n_step(t)))
        put(t->step_ns, goes_with_thread(done - progress), (done - progress) / 2, ns);
}

ct_status ct_grad_tune_step(ct_grad_tune *t)
{
    int step = t->step++, duels = 1 + t->n_algorithm, progress = 0, end = 0;
    double now = ct_clock_s();

    if (step > ct_grad_tune_n_step(t)) return CT_OK;
    note(t, step - 1, (int64_t)(1e9 * (now - t->begun_at)));
    t->begun_at = now;
    if ((step == duels) && (t->n_algorithm > 0)) CT_TRY(find_challengers(t));
    progress = duels + t->n_duel;
    end = ct_grad_tune_n_step(t);
    if ((step == progress) && (t->n_algorithm > 0)) CT_TRY(choose_algorithms(t));
    for (int i = 0; (step >= 1) && (step < progress) && (i < t->n_class); ++i) {
        tune_class *k = &t->class[i];

        if (step < duels)
            go(t, k, (step - 1) % k->n_way);
        else
            go(t, k, ((step - duels) % 2 == 0) ? 0 : k->challenger);
    }
    if ((step >= progress) && (step < end))
        ct_grad_pipe_use_thread(t->gp, goes_with_thread(step - progress));
    if ((step == end) && (t->n_progress > 0)) CT_TRY(choose_progress(t));
    return CT_OK;
}
