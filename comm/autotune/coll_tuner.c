/* Algorithms of classes of buckets, and the thread: what the model chose, refined by the first
 * steps of a pipe. */
#include "comm/autotune/tuner.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/clock.h"
#include "framework/base/text.h"

static const double within = 3; /* times the least predicted cost: what is tried */

/* An algorithm that a class may go by. */
typedef struct coll_way {
    const ct_coll_ops *ops;
    ct_coll_candidate *way; /* the trier's; NULL: the one that it goes now */
    double predicted_s;
} coll_way;

typedef struct tune_class {
    ct_grad_pipe *gp;
    bool second; /* of what a bucket goes by: ct_bucket_main_ways() */
    ct_dtype dtype;
    int magnitude; /* bytes are 2^magnitude and more */
    int n_bucket, trier;
    int n_way;
    coll_way *way; /* [n_way] by predicted cost; the first is the model's */
    int now;       /* of them, that the trier goes                        */
    ct_trial trial;
} tune_class;

struct ct_coll_tuner {
    ct_grad_pipe *gp;
    int step;                       /* that begins next */
    int n_look, n_duel, n_progress; /* steps that each part takes */
    int n_class;
    tune_class *class; /* [n_class] */
    ct_trial thread;   /* candidate 0: polls; 1: the thread */
    bool tries_thread; /* now */
    double begun_at;
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

static const ct_coll_ops *ops_now(const ct_persistent_coll *ways)
{
    return atomic_load(&ways->now)->ops;
}

static ct_persistent_coll *trier_of(const tune_class *k)
{
    return ct_bucket_main_ways(&k->gp->bucket[k->trier], k->second);
}

static bool belongs(ct_bucket *b, const tune_class *class)
{
    const ct_persistent_coll *ways = ct_bucket_main_ways(b, class->second);

    return (ways != NULL) && (ways->dtype == class->dtype) &&
           (magnitude_of(bytes_of(ways)) == class->magnitude);
}

/* Of sums, or of their second halves. */
static void find_classes(ct_coll_tuner *t, bool second)
{
    for (int i = 0, first = t->n_class; i < t->gp->n_bucket; ++i) {
        const ct_persistent_coll *ways = ct_bucket_main_ways(&t->gp->bucket[i], second);
        int k = first;

        if ((ways == NULL) || (ways->count == 0)) continue;
        while ((k < t->n_class) && !belongs(&t->gp->bucket[i], &t->class[k])) k += 1;
        if (k == t->n_class) {
            t->class[k].gp = t->gp;
            t->class[k].second = second;
            t->class[k].dtype = ways->dtype;
            t->class[k].magnitude = magnitude_of(bytes_of(ways));
            t->n_class += 1;
        }
        t->class[k].n_bucket += 1;
        t->class[k].trier = i; /* the last: the one that forward needs first */
    }
}

/* ---- candidates */

/* Puts ops in by its cost, behind those of the same. */
static void insert(tune_class *k, const ct_coll_ops *ops, double cost)
{
    int at = k->n_way++;

    for (; (at > 0) && (k->way[at - 1].predicted_s > cost); --at) k->way[at] = k->way[at - 1];
    k->way[at] = (coll_way){ .ops = ops, .predicted_s = cost };
}

/* An allgather begins when a rank is ready, in any order: not by MPI's own. */
static bool may_try(const ct_coll_ops *ops, const ct_persistent_coll *w, const ct_coll_ops *now)
{
    if ((ops == NULL) || (!ct_coll_is_automatic(ops, w->comm->topo) && (ops != now))) return false;
    if (ops->by_mpi && (w->kind == CT_COLL_ALLGATHER)) return false;
    return ops->supports(w->comm, w->count, w->dtype);
}

/* Of the trier w, which now goes by `now`; at most `most`. */
static ct_status find_ways(const ct_persistent_coll *w, const ct_coll_ops *now, int most,
                           tune_class *k)
{
    int n = 0;

    while (ct_coll_table[n] != NULL) n += 1;
    k->way = calloc((size_t)n, sizeof(*k->way));
    if (k->way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to try %d algorithms", n);
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        const ct_coll_ops *ops = ct_coll_of_kind(*at, w->kind);

        if (may_try(ops, w, now))
            insert(k, ops, ct_coll_cost_s(ops, w->comm, bytes_of(w), w->dtype));
    }
    for (int i = 1; i < k->n_way; ++i) {
        coll_way way = k->way[i];

        if (way.ops != now) continue; /* of equal costs the model's own stands first */
        k->way[i] = k->way[0];
        k->way[0] = way;
    }
    while ((k->n_way > 1) && ((k->n_way > most) ||
                              (k->way[k->n_way - 1].predicted_s > within * k->way[0].predicted_s)))
        k->n_way -= 1;
    return CT_OK;
}

static void close_ways(tune_class *k)
{
    for (int i = 0; i < k->n_way; ++i) {
        ct_persistent_coll_close(trier_of(k), k->way[i].way);
        k->way[i].way = NULL;
    }
}

static ct_status open_ways(ct_coll_tuner *t)
{
    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];

        CT_TRY(find_ways(trier_of(k), ops_now(trier_of(k)), t->gp->config.tune_iterations, k));
        for (int w = 1; w < k->n_way; ++w)
            CT_TRY(ct_persistent_coll_open(trier_of(k), k->way[w].ops, &k->way[w].way));
        if (k->n_way < 2) continue;
        t->n_look = t->gp->config.tune_iterations;
        t->n_duel = CT_TRIAL_DUEL_STEPS;
        CT_TRY(ct_trial_begin(&k->trial, &ct_trial_duels, k->n_way, t->n_look, -1));
    }
    return CT_OK;
}

/* What open_ways() takes for the class whose trier has `count` elements: its ways have one room,
 * which is as large as the way that it goes needs it before. */
static ct_status count_ways(const ct_grad_pipe_load *load, ct_coll_kind kind, int64_t count,
                            int64_t *bytes_p)
{
    const ct_persistent_coll w = {
        .comm = load->comm, .count = count, .dtype = CT_F32, .kind = kind
    };
    bool weights = (kind == CT_COLL_ALLGATHER);
    tune_class k = { .dtype = CT_F32 };
    ct_coll_size size = { .shared = load->shared && !weights }, first = size;
    const ct_coll_ops *now = NULL;
    ct_status status;

    CT_TRY(ct_persistent_coll_find(&w, "auto", false, &now));
    CT_TRY(ct_coll_count(now, load->comm, count, w.dtype, &first));
    size.room = first.room;
    status = find_ways(&w, now, load->config->tune_iterations, &k);
    for (int i = 1; (status == CT_OK) && (i < k.n_way); ++i)
        status = ct_coll_count(k.way[i].ops, load->comm, count, w.dtype, &size);
    free(k.way);
    *bytes_p += size.bytes + size.room - first.room;
    return status;
}

ct_status ct_coll_tuner_count(const ct_grad_pipe_load *load, const int64_t *dense, int n_dense,
                              int64_t *bytes_p)
{
    const ct_grad_pipe_config *config = load->config;
    const int64_t element = (int64_t)ct_dtype_size(CT_F32);

    if ((config->tune_iterations == 0) || (config->reproducible && !load->shards) ||
        (config->codec == &ct_codec_auto) || (strcmp(config->allreduce, "auto") != 0))
        return CT_OK;
    for (int i = 0; i < n_dense; ++i) {
        int k = i + 1;

        while ((k < n_dense) &&
               (magnitude_of(dense[k] * element) != magnitude_of(dense[i] * element)))
            k += 1;
        /* the last of a class tries for it */
        if ((k < n_dense) || (dense[i] == 0)) continue;
        if (!config->reproducible)
            CT_TRY(count_ways(load, load->shards ? CT_COLL_REDUCE_SCATTER : CT_COLL_ALLREDUCE,
                              dense[i], bytes_p));
        if (load->shards) CT_TRY(count_ways(load, CT_COLL_ALLGATHER, dense[i], bytes_p));
    }
    return CT_OK;
}

/* ---- a class on trial */

/* From its bucket's leaving to its landing; nothing where a codec warms up. */
static int64_t class_took(void *ctx, int64_t step_ns)
{
    const tune_class *k = ctx;
    const ct_bucket *b = &k->gp->bucket[k->trier];

    (void)step_ns;
    if (k->second) return (int64_t)(1e9 * b->gather_s);
    return (atomic_load(&b->dense_now) == b->cut.coded) ? 0 : (int64_t)(1e9 * b->last_s);
}

/* The trier takes way `to`. */
static ct_status class_go(void *ctx, int to)
{
    tune_class *k = ctx;
    ct_coll_candidate *old = NULL;

    if (k->now == to) return CT_OK;
    ct_persistent_coll_go(trier_of(k), k->way[to].way, &old);
    k->way[k->now].way = old;
    k->way[to].way = NULL;
    k->now = to;
    return CT_OK;
}

static double best_ms(const tune_class *k, int way)
{
    return 1e-6 * (double)ct_trial_best(ct_trial_row(&k->trial, way), CT_TRIAL_ROUNDS);
}

static void log_choice(const tune_class *k)
{
    ct_text tried = { .text = NULL };

    if (best_ms(k, 0) == 0) return; /* never went: a long warm-up */
    for (int w = 0; w < k->n_way; ++w)
        ct_text_add(&tried, "%s%s %.3f ms (predicted %.3f)", (w > 0) ? ", " : "",
                    k->way[w].ops->name, best_ms(k, w), 1e3 * k->way[w].predicted_s);
    CT_INFO("%s of %d bucket%s of %.4g to %.4g KB: %s%s; tried: %s",
            ct_coll_kind_name[trier_of(k)->kind], k->n_bucket, (k->n_bucket == 1) ? "" : "s",
            1e-3 * (double)((int64_t)1 << k->magnitude),
            1e-3 * (double)((int64_t)2 << k->magnitude), k->way[k->now].ops->name,
            (k->now == 0) ? "" : ", not what the model says",
            (tried.text != NULL) ? tried.text : "");
    ct_text_destroy(&tried);
}

/* The class goes as its trier does. */
static ct_status class_settle(void *ctx, int best)
{
    tune_class *k = ctx;
    const ct_coll_ops *ops = k->way[best].ops;

    CT_TRY(class_go(k, best));
    close_ways(k);
    for (int i = 0; i < k->gp->n_bucket; ++i) {
        ct_persistent_coll *ways = ct_bucket_main_ways(&k->gp->bucket[i], k->second);
        ct_coll_candidate *way = NULL, *old = NULL;

        if ((i == k->trier) || !belongs(&k->gp->bucket[i], k) || (ops_now(ways) == ops)) continue;
        CT_TRY(ct_persistent_coll_open(ways, ops, &way));
        ct_persistent_coll_go(ways, way, &old);
        ct_persistent_coll_close(ways, old);
    }
    log_choice(k);
    return CT_OK;
}

static const ct_tried_ops algorithms = { class_took, class_go, class_settle };

/* ---- the thread on trial */

static int64_t thread_took(void *ctx, int64_t step_ns)
{
    (void)ctx;
    return step_ns;
}

static ct_status thread_go(void *ctx, int on)
{
    ct_grad_pipe_use_thread(((const ct_coll_tuner *)ctx)->gp, on != 0);
    return CT_OK;
}

static ct_status thread_settle(void *ctx, int on)
{
    const ct_coll_tuner *t = ctx;
    const int64_t *poll = ct_trial_row(&t->thread, 0), *threaded = ct_trial_row(&t->thread, 1);

    for (int k = 0; k < CT_TRIAL_ROUNDS; ++k) {
        if ((poll[k] > 0) && (threaded[k] > 0))
            CT_DEBUG("progress: round %d: %.3f ms with polls, %.3f ms with a thread", k,
                     1e-6 * (double)poll[k], 1e-6 * (double)threaded[k]);
    }
    ct_grad_pipe_use_thread(t->gp, on != 0);
    CT_INFO("progress: %s; a step took %.3f ms with polls, %.3f ms with a thread",
            (on != 0) ? "THREAD" : "POLL", 1e-6 * ct_trial_median(poll, CT_TRIAL_ROUNDS),
            1e-6 * ct_trial_median(threaded, CT_TRIAL_ROUNDS));
    return CT_OK;
}

static const ct_tried_ops threads = { thread_took, thread_go, thread_settle };

/* ---- all of it */

/* Steps of the thread's trial. */
static int thread_steps(int tune_iterations)
{
    return (tune_iterations > CT_TRIAL_DUEL_STEPS) ? 2 * ((tune_iterations + 1) / 2)
                                                   : CT_TRIAL_DUEL_STEPS;
}

int ct_coll_tuner_most(int n)
{
    if (n == 0) return 0;
    return 1 + n + CT_TRIAL_DUEL_STEPS + thread_steps(n);
}

int ct_coll_tuner_n_step(const ct_coll_tuner *t)
{
    return 1 + t->n_look + t->n_duel + t->n_progress;
}

ct_status ct_coll_tuner_create(ct_grad_pipe *gp, ct_coll_tuner **tuner_p)
{
    const ct_grad_pipe_config *config = &gp->config;
    ct_coll_tuner *t = NULL;
    ct_status status = CT_OK;

    if ((config->tune_iterations == 0) || (gp->comm->size == 1) || (gp->n_bucket == 0) ||
        (config->dense_elsewhere && ct_grad_pipe_is_dense(gp)))
        return CT_OK;
    t = calloc(1, sizeof(*t));
    if (t != NULL) t->class = calloc(2 * (size_t)gp->n_bucket, sizeof(*t->class));
    if ((t == NULL) || (t->class == NULL)) {
        free(t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to try algorithms");
    }
    t->gp = gp;
    t->thread.decided = true;
    for (int i = 0; i < 2 * gp->n_bucket; ++i) t->class[i].trial.decided = true;
    if ((config->progress == CT_PROGRESS_AUTO) && (gp->thread != NULL)) {
        t->n_progress = thread_steps(config->tune_iterations);
        CT_TRY_GOTO(status, err_destroy,
                    ct_trial_begin(&t->thread, &ct_trial_pairs, 2, t->n_progress, -1));
    }
    if (strcmp(config->allreduce, "auto") == 0) {
        find_classes(t, false);
        find_classes(t, true);
        CT_TRY_GOTO(status, err_destroy, open_ways(t));
    }
    *tuner_p = t;
    return CT_OK;

err_destroy:
    ct_coll_tuner_destroy(t);
    return status;
}

void ct_coll_tuner_destroy(ct_coll_tuner *t)
{
    if (t == NULL) return;
    for (int i = 0; i < t->n_class; ++i) {
        close_ways(&t->class[i]);
        free(t->class[i].way);
        ct_trial_release(&t->class[i].trial);
    }
    ct_trial_release(&t->thread);
    free(t->class);
    free(t);
}

/* The first step warms up. Then the algorithms, in all classes at a time. *decided_p: in all. */
static ct_status step_classes(ct_coll_tuner *t, bool first, bool *decided_p)
{
    bool duels = false;

    *decided_p = true;
    for (int i = 0; i < t->n_class; ++i) {
        tune_class *k = &t->class[i];

        if (k->trial.decided) continue;
        CT_TRY(first ? ct_trial_start(&k->trial, &algorithms, k)
                     : ct_trial_step(&k->trial, t->gp->comm, &algorithms, k, 0));
        *decided_p = *decided_p && k->trial.decided;
        duels = duels || (k->trial.rival > 0);
    }
    if (*decided_p && !duels) t->n_duel = 0; /* nobody met the model's choice again */
    return CT_OK;
}

ct_status ct_coll_tuner_step(ct_coll_tuner *t)
{
    int step = t->step++;
    double now = ct_clock_s();
    int64_t last_ns = (int64_t)(1e9 * (now - t->begun_at));
    bool decided = false;

    if (step > ct_coll_tuner_n_step(t)) return CT_OK;
    t->begun_at = now;
    if (step == 0) return CT_OK;
    if (t->tries_thread) return ct_trial_step(&t->thread, t->gp->comm, &threads, t, last_ns);
    CT_TRY(step_classes(t, step == 1, &decided));
    if (!decided || t->thread.decided) return CT_OK;
    t->tries_thread = true;
    return ct_trial_start(&t->thread, &threads, t);
}
