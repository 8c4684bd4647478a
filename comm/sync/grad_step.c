/* One step: gradients get ready, buckets leave, move, and are waited for and reported. Whoever
 * holds the lock moves them: the main thread, or a thread for it. */
#include "comm/sync/grad_pipe_impl.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"
#include "framework/base/thread.h"

/* ---- moving */

/* Nothing of bucket i uses its tags any more. Weights that travel after all gradients use them
 * after all of these, on every rank: messages of one tag come in the order in which they leave. */
static bool is_free(const ct_grad_pipe *gp, int i)
{
    int state = atomic_load(&gp->bucket[i].state);

    return (state == CT_BUCKET_LANDED) || (gp->config.after_all && (state == CT_BUCKET_OWNED));
}

/* All before it, in the order of leaving, have started all that they start. */
static int first_not_started(const ct_grad_pipe *gp)
{
    int i = 0;

    while ((i < gp->n_left) && ((atomic_load(&gp->bucket[i].state) > CT_BUCKET_RUNNING) ||
                                ct_bucket_is_started(&gp->bucket[i])))
        i += 1;
    return i;
}

static bool any_unsent(const ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_left; ++i)
        if (gp->bucket[i].unsent) return true;
    return false;
}

/* Buckets leave in one order on all ranks, whatever the order in which gradients get ready. Their
 * messages start in that order, too; encoding need not. */
static bool may_leave(const ct_grad_pipe *gp)
{
    int i = gp->n_left;

    if (!atomic_load(&gp->finishing) && !gp->config.overlap) return false;
    if (!gp->begun || (i >= gp->n_bucket) || (atomic_load(&gp->bucket[i].missing) > 0))
        return false;
    if (any_unsent(gp) && !ct_bucket_codes_apart(&gp->bucket[i], &gp->step)) return false;
    return (i < gp->n_lane) || is_free(gp, i - gp->n_lane); /* its tags may still be in use */
}

static ct_status leave_what_may(ct_grad_pipe *gp)
{
    while (may_leave(gp)) CT_TRY(ct_bucket_leave(&gp->bucket[gp->n_left++], &gp->step));
    return CT_OK;
}

static bool is_under_way(int state)
{
    return (state == CT_BUCKET_RUNNING) || (state == CT_BUCKET_GATHERING);
}

/* Moves the buckets under way once, the most urgent first, until one has moved that has more urgent
 * ones before it: *again_p then tells to look at those again. */
static ct_status move_round(ct_grad_pipe *gp, bool *moved_p, bool *again_p)
{
    bool limited = (gp->n_bucket <= gp->n_lane), urgent = false;

    *again_p = false;
    CT_TRY(ct_grad_pipe_move_gathers(gp, moved_p, &urgent));
    for (int k = gp->n_bucket - 1; (k >= 0) && !*again_p; --k) {
        int i = gp->order[k];
        ct_bucket *b = &gp->bucket[i];
        int state = atomic_load(&b->state);
        ct_status status = CT_OK;

        if ((i >= gp->n_left) || !is_under_way(state)) continue;
        if (state == CT_BUCKET_GATHERING)
            status = ct_bucket_gather_progress(b, limited && urgent);
        else
            status = ct_bucket_progress(b, i <= first_not_started(gp), limited && urgent);
        if (status == CT_INPROGRESS) {
            bool moved = ct_bucket_moved(b);

            *moved_p = *moved_p || moved;
            *again_p = urgent && moved;
            urgent = true;
            continue;
        }
        CT_TRY(status);
        if (atomic_load(&b->state) == CT_BUCKET_OWNED)
            gp->summed[gp->n_summed++] = i;
        else
            gp->landed[gp->n_landed++] = i;
        *moved_p = true;
        *again_p = urgent; /* it made room */
    }
    return CT_OK;
}

static bool any_coding(const ct_grad_pipe *gp, ct_bucket_coding coding)
{
    for (int i = 0; i < gp->n_left; ++i)
        if (atomic_load(&gp->bucket[i].coding) == (int)coding) return true;
    return false;
}

/* Moves every bucket under way as far as it goes, those that the next forward needs first first:
 * the arena has the order of backward, so the highest (but see order_buckets()). The others send
 * only while the link has not enough to do (schedule.c), each what those above it leave; what comes
 * in they always take. When one of them has moved, those above are asked again. To send nothing of
 * them while the highest sends would idle the link: each rank passes on what it got, and a rank
 * that got nothing of the highest for a moment would have nothing of the others either.
 *
 * This cannot deadlock. The highest bucket under way here is never held back. So of all buckets
 * under way on all ranks the highest is held back nowhere: it is the highest wherever it is under
 * way, and where it is not it has landed, or is going to leave, since backward waits for no bucket
 * and all ranks let buckets leave in one order. It lands; then the next. More buckets than tags are
 * the exception, where leaving waits for landing: there all may send.
 *
 * Without overlap all leave at once, and then in order: of the others only small messages go. */
ct_status ct_grad_pipe_move(ct_grad_pipe *gp, bool *moved_p)
{
    int left = gp->n_left;
    bool again = true;

    /* sums of exponents (reproducible) must start before those that left later add: no order there
     */
    gp->comm->in_order = !gp->config.overlap && !gp->config.reproducible;
    CT_TRY(leave_what_may(gp));
    *moved_p = (gp->n_left > left);
    CT_TRY(ct_grad_pipe_move_rows(gp, atomic_load(&gp->finishing) || gp->config.overlap, moved_p));
    while (again) {
        CT_TRY(move_round(gp, moved_p, &again));
        if (again || !may_leave(gp)) continue;
        CT_TRY(leave_what_may(gp)); /* nobody may look again before they have left */
        again = true;
    }
    if ((gp->coder != NULL) && any_coding(gp, CT_CODING_WANTED)) ct_pipe_thread_wake(gp->coder);
    return CT_OK;
}

bool ct_grad_pipe_under_way(const ct_grad_pipe *gp)
{
    bool any = !ct_grad_pipe_has_shards(gp) && (gp->n_left > gp->n_landed);

    for (int i = 0; ct_grad_pipe_has_shards(gp) && (i < gp->n_left); ++i)
        any = any || is_under_way(atomic_load(&gp->bucket[i].state));
    for (int i = 0; gp->config.visits && (i < gp->n_bucket); ++i)
        any = any || atomic_load(&gp->bucket[i].visiting);
    for (int k = 0; k < gp->n_rows; ++k)
        any = any || (atomic_load(&gp->rows[k].state) == CT_ROWS_RUNNING);
    return any;
}

ct_status ct_grad_pipe_move_any(void *ctx)
{
    ct_grad_pipe *gp = ctx;
    bool moved = false;

    return ct_grad_pipe_under_way(gp) ? ct_grad_pipe_move(gp, &moved) : CT_OK;
}

int ct_grad_pipe_pending(void *ctx, MPI_Request **out, int max)
{
    ct_grad_pipe *gp = ctx;
    int n = 0;

    for (int k = 0; k < gp->n_rows; ++k) {
        if (atomic_load(&gp->rows[k].state) == CT_ROWS_RUNNING)
            n += ct_row_sum_pending(gp->rows[k].sum, out + n, max - n);
    }
    for (int k = gp->n_bucket - 1; k >= 0; --k) {
        int i = gp->order[k];

        if (atomic_load(&gp->bucket[i].visiting))
            n += ct_persistent_coll_pending(&gp->bucket[i].gather, out + n, max - n);
        if ((i < gp->n_left) && is_under_way(atomic_load(&gp->bucket[i].state)))
            n += ct_bucket_pending(&gp->bucket[i], out + n, max - n);
    }
    return n;
}

/* ---- a thread that sleeps until it is woken */

enum { LEAST_NAP_NS = 5000, MOST_NAP_NS = 100000 };

struct ct_pipe_thread {
    ct_pipe_thread_state (*move)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change; /* of what is below */
    bool woken, held, stop;
};

static void nap(long *length)
{
    struct timespec t = { .tv_nsec = *length };

    (void)nanosleep(&t, NULL);
    *length = (2 * *length < MOST_NAP_NS) ? 2 * *length : MOST_NAP_NS;
}

/* Sleeps until there is something to do; false: the end has come. */
static bool next_task(ct_pipe_thread *p)
{
    bool stop = false;

    (void)pthread_mutex_lock(&p->lock);
    while (!p->stop && (p->held || !p->woken)) (void)pthread_cond_wait(&p->change, &p->lock);
    stop = p->stop;
    p->woken = false; /* before the move, which may find nothing: what comes now wakes again */
    (void)pthread_mutex_unlock(&p->lock);
    return !stop;
}

static void *run(void *arg)
{
    ct_pipe_thread *p = arg;
    long length = LEAST_NAP_NS;

    omp_set_num_threads(1); /* of this thread's teams: the cores compute */
    while (next_task(p)) {
        ct_pipe_thread_state state = p->move(p->ctx);

        if (state == CT_PIPE_DONE) continue;
        ct_pipe_thread_wake(p);
        if (state == CT_PIPE_MOVED) length = LEAST_NAP_NS;
        nap(&length);
    }
    return NULL;
}

ct_status ct_pipe_thread_create(ct_pipe_thread_state (*move)(void *ctx), void *ctx,
                                ct_pipe_thread **p_p)
{
    ct_pipe_thread *p = calloc(1, sizeof(*p));
    int rc = 0;

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a progress thread");
    p->move = move;
    p->ctx = ctx;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->change, NULL);
    rc = ct_thread_start(run, p, &p->thread);
    if (rc != 0) {
        (void)pthread_cond_destroy(&p->change);
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
        return CT_FAIL(CT_ERR_NOMEM, "cannot start a progress thread: error %d", rc);
    }
    *p_p = p;
    return CT_OK;
}

void ct_pipe_thread_destroy(ct_pipe_thread *p)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    (void)pthread_cond_destroy(&p->change);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

void ct_pipe_thread_wake(ct_pipe_thread *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->woken = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
}

void ct_pipe_thread_hold(ct_pipe_thread *p, bool held)
{
    (void)pthread_mutex_lock(&p->lock);
    p->held = held;
    if (!held) p->woken = true;
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
}

/* ---- the thread moves them */

/* Additions by one thread: the cores belong to the layers that compute. */
static ct_pipe_thread_state thread_move(void *ctx)
{
    ct_grad_pipe *gp = ctx;
    int n_thread = 0;
    bool moved = false, busy = false;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    n_thread = gp->comm->n_thread;
    gp->comm->n_thread = 1;
    gp->comm->prompt = true;
    if (atomic_load(&gp->threaded) && (atomic_load(&gp->fate) == CT_OK))
        status = ct_grad_pipe_move(gp, &moved);
    gp->comm->n_thread = n_thread;
    gp->comm->prompt = false;
    busy = ct_grad_pipe_under_way(gp);
    if (status != CT_OK) {
        atomic_store(&gp->fate, (int)status);
        busy = false;
    }
    ct_comm_unlock(gp->comm);
    if (!busy) return CT_PIPE_DONE;
    return moved ? CT_PIPE_MOVED : CT_PIPE_STUCK;
}

/* ---- what codecs compute, apart from messages
 *
 * A step has it apart where a thread moves messages. A codec then asks for computation and goes on
 * when that is done (codec.h). The coder does it beside the layers; where the main thread has
 * nothing to do but wait, it takes the next one, with all its threads. Nobody holds the lock
 * meanwhile, so messages move, and small sums of layers go on. A bucket that is being worked on is
 * its worker's alone. The order of messages is that without: a bucket's first ones leave in its
 * turn. */

/* What is to leave first; else the sum that the next forward reads first. NULL: none. */
static ct_bucket *next_coding(ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_left; ++i)
        if (gp->bucket[i].unsent && (atomic_load(&gp->bucket[i].coding) == CT_CODING_WANTED))
            return &gp->bucket[i];
    for (int k = gp->n_bucket - 1; k >= 0; --k) {
        int i = gp->order[k];

        if ((i < gp->n_left) && (atomic_load(&gp->bucket[i].coding) == CT_CODING_WANTED))
            return &gp->bucket[i];
    }
    return NULL;
}

/* Computes one of them; *found_p: there was one. */
static ct_status code_next(ct_grad_pipe *gp, bool alone, bool *found_p)
{
    ct_bucket *b = NULL;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    if ((ct_status)atomic_load(&gp->fate) == CT_OK) b = next_coding(gp);
    *found_p = (b != NULL);
    if (b != NULL) {
        atomic_store(&b->coding, CT_CODING_BUSY);
        b->n_thread = alone ? 1 : gp->comm->n_thread;
        ct_comm_unlock(gp->comm);
        status = ct_bucket_code(b);
        ct_comm_lock(gp->comm);
        atomic_store(&b->coding, CT_CODING_NONE);
        if (status != CT_OK) atomic_store(&gp->fate, (int)status);
    }
    ct_comm_unlock(gp->comm);
    return status;
}

static ct_pipe_thread_state thread_code(void *ctx)
{
    ct_grad_pipe *gp = ctx;
    bool found = false;

    if ((code_next(gp, true, &found) != CT_OK) || !found) return CT_PIPE_DONE;
    ct_pipe_thread_wake(gp->thread);
    return CT_PIPE_MOVED;
}

void ct_grad_pipe_rest(const ct_grad_pipe *gp)
{
    long length = LEAST_NAP_NS;

    while (any_coding(gp, CT_CODING_BUSY)) {
        ct_comm_unlock(gp->comm);
        nap(&length);
        ct_comm_lock(gp->comm);
    }
}

/* A codec on the host may come to be used. */
static bool may_code(const ct_grad_pipe *gp)
{
    bool any = (gp->config.codec != &ct_codec_none);

    for (int i = 0; i < gp->n_range; ++i) any = any || (gp->range[i].codec != NULL);
    return any && (gp->config.dev == NULL);
}

ct_status ct_grad_pipe_open_thread(ct_grad_pipe *gp)
{
    const char *why = NULL;
    bool wanted = (gp->config.progress == CT_PROGRESS_THREAD);

    if ((gp->config.progress == CT_PROGRESS_POLL) || (!wanted && gp->config.tune_iterations == 0))
        return CT_OK;
    if (gp->comm->size == 1) return CT_OK; /* perhaps without MPI */
    if (!ct_comm_may_thread(gp->comm, &why)) {
        if (wanted) return CT_FAIL(CT_ERR_CONFIG, "comm { progress: THREAD }: %s", why);
        return CT_OK;
    }
    if (!gp->config.overlap || (gp->n_bucket == 0)) return CT_OK;
    CT_TRY(ct_pipe_thread_create(thread_move, gp, &gp->thread));
    if (may_code(gp)) CT_TRY(ct_pipe_thread_create(thread_code, gp, &gp->coder));
    if (wanted) ct_grad_pipe_use_thread(gp, true);
    return CT_OK;
}

void ct_grad_pipe_use_thread(ct_grad_pipe *gp, bool on)
{
    atomic_store(&gp->threaded, on);
}

/* ---- the main thread: what is ready, what is waited for */

/* What failed stays failed, and what the thread met is the main thread's to say. */
static ct_status fate(ct_grad_pipe *gp)
{
    return (ct_status)atomic_load(&gp->fate);
}

static void observe(ct_grad_pipe *gp, ct_grad_event event, int range)
{
    if (gp->watched) gp->config.policy->observe(gp->policy, event, range);
}

/* A way that weights come by is not changed while they come. */
static ct_status land_visits(ct_grad_pipe *gp)
{
    if (!gp->config.visits || (gp->n_begun > ct_grad_pipe_n_trial(gp) + 1)) return CT_OK;
    gp->n_begun += 1;
    for (int i = 0; i < gp->n_bucket; ++i)
        if (atomic_load(&gp->bucket[i].visiting))
            CT_TRY(ct_grad_pipe_gather_wait(gp, gp->bucket[i].cut.first));
    return CT_OK;
}

/* Where the rule's mean lies, for signs of it. Once: a fixed storage has one address. */
static ct_status find_means(ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_bucket; ++i) {
        ct_bucket *b = &gp->bucket[i];
        ct_storage_range r;

        if (!b->cut.coded || !b->codec_config->freeze_variance || (b->mean != NULL)) continue;
        if ((gp->history == NULL) || !gp->history->ops->fixed)
            return CT_FAIL(CT_ERR_CONFIG,
                           "compression of %s: freeze_variance reads the rule's mean where it "
                           "lies: take memory { state: DEVICE }, or freeze_variance: false",
                           b->key);
        CT_TRY(
            ct_storage_want(gp->history, NULL, b->cut.offset, b->cut.count, CT_STORAGE_READ, &r));
        b->mean = r.data;
        CT_TRY(ct_storage_done(&r, NULL));
    }
    return CT_OK;
}

int64_t ct_grad_pipe_variance_steps(const ct_grad_pipe *gp, int i)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];

    if (!b->cut.coded || !b->codec_config->freeze_variance) return -1;
    return (gp->step.iteration >= ct_bucket_dense_until(b)) ? ct_bucket_dense_until(b) : -1;
}

ct_status ct_grad_pipe_begin(ct_grad_pipe *gp, int64_t iteration, float scale, float rate)
{
    bool begins = false;
    float least = 0;
    ct_status status = CT_OK;

    if (gp->open) return CT_FAIL(CT_ERR_ARG, "a gradient exchange begins inside another");
    CT_TRY(fate(gp));
    CT_TRY(land_visits(gp));
    ct_comm_lock(gp->comm); /* nothing is under way: the thread, if it looks, finds that */
    observe(gp, CT_GRAD_ENTER, -1);
    if (gp->policy != NULL)
        status = gp->config.policy->begin_step(gp->policy, iteration, &begins, &least);
    if (status == CT_OK) status = find_means(gp); /* the policy may have made buckets anew */
    if (status != CT_OK) {
        ct_comm_unlock(gp->comm);
        return status;
    }
    gp->step = (ct_codec_step){ .iteration = iteration,
                                .scale = scale,
                                .clip = 1,
                                .rate = rate,
                                .begins = begins,
                                .least = least,
                                .apart = atomic_load(&gp->threaded) && (gp->coder != NULL) };
    gp->n_landed = gp->n_reported = gp->n_left = 0;
    gp->step_s = 0;
    memset(gp->ready, 0, sizeof(*gp->ready) * (size_t)gp->n_range);
    memset(gp->parts_left, 0, sizeof(*gp->parts_left) * (size_t)gp->n_range);
    memset(gp->parts_full, 0, sizeof(*gp->parts_full) * (size_t)gp->n_range);
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket_cut *cut = &gp->bucket[i].cut;

        for (int k = cut->first; k < cut->first + cut->n; ++k) gp->parts_left[k] += 1;
        gp->bucket[i].silent = false;
        atomic_store(&gp->bucket[i].state, CT_BUCKET_FILLING);
        atomic_store(&gp->bucket[i].missing, cut->n);
    }
    ct_grad_pipe_begin_shards(gp);
    ct_grad_pipe_begin_rows(gp);
    gp->begun = true;
    gp->open = (gp->n_bucket > 0);
    atomic_store(&gp->finishing, false);
    observe(gp, CT_GRAD_LEAVE, -1);
    ct_comm_unlock(gp->comm);
    return CT_OK;
}

bool ct_grad_pipe_is_dense(const ct_grad_pipe *gp)
{
    bool dense = true;

    for (int i = 0; i < gp->n_bucket; ++i) dense = dense && !gp->bucket[i].cut.coded;
    return dense;
}

void ct_grad_pipe_skip(ct_grad_pipe *gp)
{
    ct_comm_lock(gp->comm);
    for (int i = 0; i < gp->n_bucket; ++i) atomic_store(&gp->bucket[i].state, CT_BUCKET_LANDED);
    gp->open = false;
    ct_comm_unlock(gp->comm);
}

/* Where the thread moves messages, nobody asks. */
static void note_step(ct_grad_pipe *gp)
{
    double least = 0;

    for (int i = 0; (i < gp->n_left) && !atomic_load(&gp->threaded); ++i) {
        double s = 0;

        if (!is_under_way(atomic_load(&gp->bucket[i].state))) continue;
        s = ct_bucket_step_s(&gp->bucket[i]);
        if ((least == 0) || (s < least)) least = s;
    }
    gp->step_s = least;
}

const double *ct_grad_pipe_step_s(const ct_grad_pipe *gp)
{
    return &gp->step_s;
}

/* Moves what can move, and adds the time to *seconds; what of it codecs on the host took is exposed
 * in any case. */
static ct_status move_timed(ct_grad_pipe *gp, double *seconds)
{
    double start = ct_clock_s(), coded = 0;
    bool moved = false;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    coded = ct_grad_pipe_encode_s(gp);
    status = ct_grad_pipe_move(gp, &moved);
    if (status != CT_OK) atomic_store(&gp->fate, (int)status);
    /* apart it was somebody else's time, of which we hear now */
    coded = gp->step.apart ? 0 : ct_grad_pipe_encode_s(gp) - coded;
    note_step(gp);
    ct_comm_unlock(gp->comm);
    *seconds += ct_clock_s() - start - coded;
    if (gp->config.dev == NULL) gp->stats.exposed_s += coded;
    return status;
}

static ct_status poll(ct_grad_pipe *gp)
{
    CT_TRY(fate(gp));
    if (!gp->open || atomic_load(&gp->threaded)) return CT_OK;
    if (!gp->config.overlap || !ct_grad_pipe_under_way(gp)) return CT_OK;
    return move_timed(gp, &gp->stats.moving_s);
}

ct_status ct_grad_pipe_poll(ct_grad_pipe *gp)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = poll(gp);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

/* The first n_part parts of range i are there. Returns whether a bucket is complete. */
static bool fill_parts(ct_grad_pipe *gp, int i, int n_part)
{
    ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    bool complete = false;

    for (; gp->parts_full[i] < n_part; gp->parts_full[i]++)
        complete = (atomic_fetch_sub(&b[gp->parts_full[i]].missing, 1) == 1) || complete;
    return complete;
}

/* Something is ready; complete: a bucket. */
static ct_status let_leave(ct_grad_pipe *gp, bool complete)
{
    if (!gp->config.overlap) return CT_OK;
    if (!atomic_load(&gp->threaded)) return move_timed(gp, &gp->stats.moving_s);
    if (complete) ct_pipe_thread_wake(gp->thread);
    return CT_OK;
}

static ct_status take_ready(ct_grad_pipe *gp, int i)
{
    if (!gp->open || (i < 0) || (i >= gp->n_range) || gp->ready[i])
        return CT_FAIL(CT_ERR_ARG, "gradient %d of %d is ready %s", i, gp->n_range,
                       gp->open ? "twice, or does not exist" : "outside of a step");
    CT_TRY(fate(gp));
    gp->ready[i] = true;
    if (ct_grad_pipe_fill_rows(gp, i)) {
        for (int k = 0; k < gp->bucket[gp->bucket_of[i]].cut.n_part; ++k)
            gp->bucket[gp->bucket_of[i] + k].silent = true;
    }
    if (ct_grad_pipe_on_device(gp, i))
        CT_TRY(ct_bucket_ready(&gp->bucket[gp->bucket_of[i]], &gp->step));
    return let_leave(gp, fill_parts(gp, i, gp->bucket[gp->bucket_of[i]].cut.n_part));
}

ct_status ct_grad_pipe_ready(ct_grad_pipe *gp, int i)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    observe(gp, CT_GRAD_READY, i);
    status = take_ready(gp, i);
    /* weights that no layer of this backward reads any more */
    if ((status == CT_OK) && (gp->updated || gp->config.slots))
        status = ct_grad_pipe_report_shards(gp);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

static ct_status take_rows(ct_grad_pipe *gp, int i, int64_t m, const int32_t *index,
                           const float *value)
{
    ct_grad_rows *r = ct_grad_pipe_rows_of(gp, i);
    bool beside = (value != NULL);

    if ((r == NULL) || !gp->open || (gp->ready[i] != beside) ||
        (gp->range[i].row_beside != beside) ||
        (atomic_load(&r->state) > (beside ? CT_ROWS_NONE : CT_ROWS_NOTED)))
        return CT_FAIL(CT_ERR_ARG, "%lld rows of gradient %d of %d are not asked for now",
                       (long long)m, i, gp->n_range);
    CT_TRY(fate(gp));
    CT_TRY(ct_row_sum_add(r->sum, m, index, value));
    if (!beside && (atomic_load(&r->state) == CT_ROWS_NONE)) gp->parts_left[i] += 1;
    atomic_store(&r->state, beside ? CT_ROWS_FULL : CT_ROWS_NOTED);
    return beside ? let_leave(gp, true) : CT_OK;
}

ct_status ct_grad_pipe_rows(ct_grad_pipe *gp, int i, int64_t m, const int32_t *index,
                            const float *value)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_rows(gp, i, m, index, value);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

static ct_status take_ready_to(ct_grad_pipe *gp, int i, int64_t count)
{
    const ct_bucket *b;
    int64_t end;
    int n = 0;

    if (!gp->open || (i < 0) || (i >= gp->n_range) || gp->ready[i] || (count < 0) ||
        (count > gp->range[i].count) || ct_grad_pipe_on_device(gp, i))
        return CT_FAIL(CT_ERR_ARG, "%lld elements of gradient %d of %d are ready", (long long)count,
                       i, gp->n_range);
    CT_TRY(fate(gp));
    b = &gp->bucket[gp->bucket_of[i]];
    end = gp->range[i].offset + count;
    if (b->cut.n_part == 1) return CT_OK; /* it leaves as a whole */
    while ((n < b->cut.n_part) && (b[n].cut.offset + b[n].cut.count <= end)) n++;
    return (n > gp->parts_full[i]) ? let_leave(gp, fill_parts(gp, i, n)) : CT_OK;
}

ct_status ct_grad_pipe_ready_to(ct_grad_pipe *gp, int i, int64_t count)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_ready_to(gp, i, count);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

void ct_grad_pipe_hear_parts(ct_grad_pipe *gp, ct_pipe_part_fn part, void *ctx)
{
    gp->part = part;
    gp->part_ctx = ctx;
}

void ct_grad_pipe_reads(ct_grad_pipe *gp, int i)
{
    observe(gp, CT_GRAD_ENTER, -1);
    observe(gp, CT_GRAD_READ, i);
    observe(gp, CT_GRAD_LEAVE, -1);
}

/* The next bucket that landed; NULL: none. */
static const ct_bucket *take_landed(ct_grad_pipe *gp)
{
    const ct_bucket *b = NULL;

    ct_comm_lock(gp->comm);
    if (gp->n_reported < gp->n_landed) b = &gp->bucket[gp->landed[gp->n_reported]];
    ct_comm_unlock(gp->comm);
    if (b == NULL) return NULL;
    gp->n_reported += 1;
    if ((gp->n_reported == gp->n_bucket) && ct_grad_pipe_rows_done(gp)) gp->open = false;
    return b;
}

/* Without the lock: who hears of a gradient works on it, while the others move. */
static ct_status report(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    const ct_bucket *b = NULL;

    CT_TRY(ct_grad_pipe_report_shards(gp));
    while ((b = take_landed(gp)) != NULL) {
        for (int i = b->cut.first; i < b->cut.first + b->cut.n; ++i) gp->parts_left[i] -= 1;
        if (!b->shards && (b->cut.n_part > 1) && (gp->part != NULL) && (b->range->row_most == 0))
            CT_TRY(gp->part(gp->part_ctx, b->cut.first,
                            b->cut.offset - gp->range[b->cut.first].offset, b->cut.count));
        if ((landed != NULL) && (gp->parts_left[b->cut.first] == 0))
            CT_TRY(landed(ctx, b->cut.first, b->cut.n));
    }
    return ct_grad_pipe_report_rows(gp, landed, ctx);
}

static bool all_reported(const ct_grad_pipe *gp, int first, int n)
{
    if (ct_grad_pipe_has_shards(gp) && !gp->updated) return ct_grad_pipe_all_owned(gp);
    for (int i = first; i < first + n; ++i) {
        if (gp->parts_left[i] > 0) return false;
    }
    return true;
}

/* What a wait is for: [first, first + n), or the gradient or the weights of the first alone. */
typedef struct awaited {
    int first, n;
    bool gradient, visit; /* visit: the weights of the first */
} awaited;

static ct_status check_ready(const ct_grad_pipe *gp, const awaited *w)
{
    int first = w->gradient ? w->first : 0, end = w->gradient ? w->first + w->n : gp->n_range;

    for (int i = first; i < end; ++i) {
        if (!gp->ready[i])
            return CT_FAIL(CT_ERR_ARG, "the gradient of %s did not get ready", gp->range[i].key);
    }
    for (int k = 0; k < gp->n_rows; ++k) {
        const ct_grad_rows *r = &gp->rows[k];

        if ((r->range < first) || (r->range >= end)) continue;
        if (gp->range[r->range].row_beside && (atomic_load(&r->state) == CT_ROWS_NONE))
            return CT_FAIL(CT_ERR_ARG, "the rows of %s were not given", gp->range[r->range].key);
    }
    return CT_OK;
}

/* Nobody rings when the coder is done: then there is no sleep. */
static ct_status wait_any(ct_grad_pipe *gp, int *idle)
{
    MPI_Request *request[CT_COMM_MAX_PENDING];
    long length = LEAST_NAP_NS;
    int n = 0;

    ct_comm_lock(gp->comm);
    n = ct_grad_pipe_pending(gp, request, CT_COMM_MAX_PENDING);
    ct_comm_unlock(gp->comm);
    *idle += 1;
    if (!gp->step.apart || (n > 0)) return ct_comm_wait_any(gp->comm, request, n, idle);
    nap(&length);
    return CT_OK;
}

/* Nothing to do but wait, or to help the coder. */
static ct_status idle_on(ct_grad_pipe *gp, int *idle)
{
    double start = ct_clock_s();
    bool found = false;
    ct_status status = fate(gp);

    if ((status == CT_OK) && gp->step.apart) status = code_next(gp, false, &found);
    if (found) *idle = 0;
    if ((status == CT_OK) && !found) status = wait_any(gp, idle);
    gp->stats.exposed_s += ct_clock_s() - start;
    return status;
}

static bool is_there(const ct_grad_pipe *gp, const awaited *w)
{
    if (w->visit) return !ct_grad_pipe_is_visiting(gp, w->first);
    if (w->gradient && ct_grad_pipe_has_shards(gp)) return ct_grad_pipe_is_owned(gp, w->first);
    return all_reported(gp, w->first, w->n);
}

/* Reports until [first, first + n) is, waiting where it must. The main thread moves by itself.
 * While somebody works on what was reported messages come, so we look again before we wait. */
static ct_status wait_for(ct_grad_pipe *gp, const awaited *w, ct_pipe_landed_fn landed, void *ctx)
{
    int idle = 0;

    for (;;) {
        int reported = gp->n_reported + gp->n_owned;

        CT_TRY(move_timed(gp, &gp->stats.exposed_s));
        CT_TRY(report(gp, landed, ctx));
        if (is_there(gp, w)) return CT_OK;
        if (gp->n_reported + gp->n_owned > reported)
            idle = 0;
        else
            CT_TRY(idle_on(gp, &idle));
    }
}

static ct_status take_wait(ct_grad_pipe *gp, const awaited *w, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    if (!gp->begun || (w->first < 0) || (w->n < 0) || (w->first + w->n > gp->n_range))
        return CT_FAIL(CT_ERR_ARG, "wait for gradients %d to %d of %d%s", w->first,
                       w->first + w->n - 1, gp->n_range, gp->begun ? "" : ", before a step");
    if (!gp->open) return CT_OK;
    CT_TRY(check_ready(gp, w));
    CT_TRY(fate(gp));
    atomic_store(&gp->finishing, true);
    CT_TRY(report(gp, landed, ctx));
    if (is_there(gp, w)) return poll(gp);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, true);
    status = wait_for(gp, w, landed, ctx);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, false);
    return (status == CT_OK) ? fate(gp) : status;
}

ct_status ct_grad_pipe_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_wait(gp, &(awaited){ .first = first, .n = n }, landed, ctx);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

ct_status ct_grad_pipe_wait_gradient(ct_grad_pipe *gp, int i, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_wait(gp, &(awaited){ .first = i, .n = 1, .gradient = true }, landed, ctx);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

/* What else lands meanwhile is told of later. */
static ct_status wait_visit(ct_grad_pipe *gp, const awaited *w)
{
    int idle = 0;

    while (!is_there(gp, w)) {
        CT_TRY(move_timed(gp, &gp->stats.exposed_s));
        if (!is_there(gp, w)) CT_TRY(idle_on(gp, &idle));
    }
    return CT_OK;
}

ct_status ct_grad_pipe_gather_wait(ct_grad_pipe *gp, int i)
{
    awaited w = { .first = i, .n = 1, .visit = true };
    ct_status status = fate(gp);

    observe(gp, CT_GRAD_ENTER, -1);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, true);
    if (status == CT_OK) status = wait_visit(gp, &w);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, false);
    if (status == CT_OK) ct_grad_pipe_unpack(gp, i);
    observe(gp, CT_GRAD_LEAVE, -1);
    return (status == CT_OK) ? fate(gp) : status;
}

ct_status ct_grad_pipe_finish(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    if (!gp->begun) return CT_FAIL(CT_ERR_ARG, "a gradient exchange ends that did not begin");
    return ct_grad_pipe_wait(gp, 0, gp->n_range, landed, ctx);
}
