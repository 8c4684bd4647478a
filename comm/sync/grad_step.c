/* One step: gradients get ready, buckets are waited for and reported. */
#include <string.h>

#include "comm/sync/grad_pipe_impl.h"
#include "framework/base/clock.h"

/* What failed stays failed, and what the thread met is the main thread's to say. */
static ct_status fate(ct_grad_pipe *gp)
{
    return (ct_status)atomic_load(&gp->fate);
}

static void observe(ct_grad_pipe *gp, ct_grad_event event, int range)
{
    if (gp->policy != NULL) gp->config.policy->observe(gp->policy, event, range);
}

ct_status ct_grad_pipe_begin(ct_grad_pipe *gp, int64_t iteration, float scale, float rate)
{
    bool begins = false;
    float least = 0;
    ct_status status = CT_OK;

    if (gp->open) return CT_FAIL(CT_ERR_ARG, "a gradient exchange begins inside another");
    CT_TRY(fate(gp));
    ct_comm_lock(gp->comm); /* nothing is under way: the thread, if it looks, finds that */
    observe(gp, CT_GRAD_ENTER, -1);
    if (gp->policy != NULL)
        status = gp->config.policy->begin_step(gp->policy, iteration, &begins, &least);
    if (status != CT_OK) {
        ct_comm_unlock(gp->comm);
        return status;
    }
    gp->step = (ct_codec_step){ .iteration = iteration,
                                .scale = scale,
                                .clip = 1,
                                .rate = rate,
                                .begins = begins,
                                .least = least };
    gp->n_landed = gp->n_reported = gp->n_left = 0;
    memset(gp->ready, 0, sizeof(*gp->ready) * (size_t)gp->n_range);
    memset(gp->parts_left, 0, sizeof(*gp->parts_left) * (size_t)gp->n_range);
    memset(gp->parts_full, 0, sizeof(*gp->parts_full) * (size_t)gp->n_range);
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket_cut *cut = &gp->bucket[i].cut;

        for (int k = cut->first; k < cut->first + cut->n; ++k) gp->parts_left[k] += 1;
        atomic_store(&gp->bucket[i].state, CT_BUCKET_FILLING);
        atomic_store(&gp->bucket[i].missing, cut->n);
    }
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
    for (int i = 0; i < gp->n_bucket; ++i) atomic_store(&gp->bucket[i].state, CT_BUCKET_SUMMED);
    gp->open = false;
    ct_comm_unlock(gp->comm);
}

/* Moves what can move, and adds the time less that of the codecs to *seconds. */
static ct_status move_timed(ct_grad_pipe *gp, double *seconds)
{
    double start = ct_clock_s(), coded = 0;
    bool moved = false;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    coded = ct_grad_pipe_encode_s(gp);
    status = ct_grad_pipe_move(gp, &moved);
    if (status != CT_OK) atomic_store(&gp->fate, (int)status);
    coded = ct_grad_pipe_encode_s(gp) - coded;
    ct_comm_unlock(gp->comm);
    *seconds += ct_clock_s() - start - coded;
    return status;
}

static ct_status poll(ct_grad_pipe *gp)
{
    CT_TRY(fate(gp));
    if (!gp->open || atomic_load(&gp->threaded)) return CT_OK;
    if (!gp->config.overlap || (gp->n_left == gp->n_landed)) return CT_OK;
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
    if (gp->n_reported == gp->n_bucket) gp->open = false;
    return b;
}

/* Without the lock: who hears of a gradient works on it, while the others move. */
static ct_status report(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    const ct_bucket *b = NULL;

    while ((b = take_landed(gp)) != NULL) {
        for (int i = b->cut.first; i < b->cut.first + b->cut.n; ++i) gp->parts_left[i] -= 1;
        if ((b->cut.n_part > 1) && (gp->part != NULL))
            CT_TRY(gp->part(gp->part_ctx, b->cut.first,
                            b->cut.offset - gp->range[b->cut.first].offset, b->cut.count));
        if ((landed != NULL) && (gp->parts_left[b->cut.first] == 0))
            CT_TRY(landed(ctx, b->cut.first, b->cut.n));
    }
    return CT_OK;
}

static bool all_reported(const ct_grad_pipe *gp, int first, int n)
{
    for (int i = first; i < first + n; ++i) {
        if (gp->parts_left[i] > 0) return false;
    }
    return true;
}

static ct_status check_all_ready(const ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_range; ++i) {
        if (!gp->ready[i])
            return CT_FAIL(CT_ERR_ARG, "the gradient of %s did not get ready", gp->range[i].key);
    }
    return CT_OK;
}

/* Nothing to do but wait. */
static ct_status idle_on(ct_grad_pipe *gp, int *idle)
{
    MPI_Request *request[CT_COMM_MAX_PENDING];
    double start = ct_clock_s();
    int n = 0;
    ct_status status = CT_OK;

    ct_comm_lock(gp->comm);
    n = ct_grad_pipe_pending(gp, request, CT_COMM_MAX_PENDING);
    ct_comm_unlock(gp->comm);
    *idle += 1;
    status = ct_comm_wait_any(gp->comm, request, n, idle);
    gp->stats.exposed_s += ct_clock_s() - start;
    return status;
}

/* Reports until [first, first + n) is, waiting where it must. The main thread moves by itself.
 * While somebody works on what was reported messages come, so we look again before we wait. */
static ct_status wait_for(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    int idle = 0;

    for (;;) {
        int reported = gp->n_reported;

        CT_TRY(move_timed(gp, &gp->stats.exposed_s));
        CT_TRY(report(gp, landed, ctx));
        if (all_reported(gp, first, n)) return CT_OK;
        if (gp->n_reported > reported)
            idle = 0;
        else
            CT_TRY(idle_on(gp, &idle));
    }
}

static ct_status take_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    if (!gp->begun || (first < 0) || (n < 0) || (first + n > gp->n_range))
        return CT_FAIL(CT_ERR_ARG, "wait for gradients %d to %d of %d%s", first, first + n - 1,
                       gp->n_range, gp->begun ? "" : ", before a step");
    if (!gp->open) return CT_OK;
    CT_TRY(check_all_ready(gp));
    CT_TRY(fate(gp));
    atomic_store(&gp->finishing, true);
    CT_TRY(report(gp, landed, ctx));
    if (all_reported(gp, first, n)) return poll(gp);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, true);
    status = wait_for(gp, first, n, landed, ctx);
    if (atomic_load(&gp->threaded)) ct_pipe_thread_hold(gp->thread, false);
    return (status == CT_OK) ? fate(gp) : status;
}

ct_status ct_grad_pipe_wait(ct_grad_pipe *gp, int first, int n, ct_pipe_landed_fn landed, void *ctx)
{
    ct_status status = CT_OK;

    observe(gp, CT_GRAD_ENTER, -1);
    status = take_wait(gp, first, n, landed, ctx);
    observe(gp, CT_GRAD_LEAVE, -1);
    return status;
}

ct_status ct_grad_pipe_finish(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx)
{
    if (!gp->begun) return CT_FAIL(CT_ERR_ARG, "a gradient exchange ends that did not begin");
    return ct_grad_pipe_wait(gp, 0, gp->n_range, landed, ctx);
}
