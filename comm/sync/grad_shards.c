/* Shards: each rank updates its own part of every bucket, and the others get its weights (ZeRO 1).
 *
 * A bucket is summed by a reduce-scatter. When its own pieces have been told of, their weights are
 * new, and an allgather brings the weights of all parts. The main thread tells of pieces; whoever
 * moves messages moves both halves. */
#include "comm/sync/grad_pipe_impl.h"

#include "framework/base/clock.h"

bool ct_grad_pipe_has_shards(const ct_grad_pipe *gp)
{
    return (gp->config.weights != NULL) && (gp->comm->size > 1);
}

void ct_grad_pipe_expect_more(ct_grad_pipe *gp, bool more)
{
    gp->more = more;
}

void ct_grad_pipe_begin_shards(ct_grad_pipe *gp)
{
    gp->n_summed = gp->n_owned = 0;
    gp->updated = !gp->config.after_all || gp->more;
    for (int i = 0; i < gp->n_range; ++i) gp->sums_left[i] = gp->parts_left[i];
}

/* What this rank has of range i in bucket b: elements of the range. */
static int64_t piece(const ct_grad_pipe *gp, const ct_bucket *b, int i, int64_t *from_p)
{
    return ct_bucket_own_piece(&b->cut, b->own_first, b->own_count, &gp->range[i], from_p);
}

bool ct_grad_pipe_own(const ct_grad_pipe *gp, int i, int k, int64_t *from_p, int64_t *count_p)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];

    if (!ct_grad_pipe_has_shards(gp)) {
        *from_p = 0;
        *count_p = gp->range[i].count;
        return k == 0;
    }
    for (int part = 0; part < b->cut.n_part; ++part) {
        *count_p = piece(gp, &b[part], i, from_p);
        if ((*count_p > 0) && (k-- == 0)) return true;
    }
    return false;
}

/* All is done that is to be done with bucket b in this step: its weights are asked for later. */
static void land(ct_grad_pipe *gp, ct_bucket *b)
{
    ct_comm_lock(gp->comm);
    atomic_store(&b->state, CT_BUCKET_LANDED);
    gp->landed[gp->n_landed++] = (int)(b - gp->bucket);
    ct_comm_unlock(gp->comm);
}

/* The weights of bucket b may travel. */
static ct_status gather(ct_grad_pipe *gp, ct_bucket *b)
{
    ct_status status = CT_OK;

    if (gp->config.visits || gp->more) {
        land(gp, b);
        return CT_OK;
    }
    ct_comm_lock(gp->comm);
    status = ct_bucket_gather(b);
    ct_comm_unlock(gp->comm);
    if ((status == CT_OK) && atomic_load(&gp->threaded)) ct_pipe_thread_wake(gp->thread);
    return status;
}

/* Range i of bucket b is summed here. */
static ct_status tell(ct_grad_pipe *gp, const ct_bucket *b, int i)
{
    int64_t from = 0, count = piece(gp, b, i, &from);

    if ((count <= 0) || (gp->part == NULL)) return CT_OK;
    return gp->part(gp->part_ctx, i, from, count);
}

static ct_status tell_all(ct_grad_pipe *gp, ct_bucket *b)
{
    for (int i = b->cut.first; i < b->cut.first + b->cut.n; ++i) CT_TRY(tell(gp, b, i));
    return gp->updated ? gather(gp, b) : CT_OK;
}

ct_status ct_grad_pipe_own_range(ct_grad_pipe *gp, int i)
{
    ct_bucket *b = &gp->bucket[gp->bucket_of[i]];

    for (int part = 0; part < b->cut.n_part; ++part) CT_TRY(tell_all(gp, &b[part]));
    return CT_OK;
}

/* The next bucket whose own part is summed; NULL: none. */
static ct_bucket *take_summed(ct_grad_pipe *gp)
{
    ct_bucket *b = NULL;

    ct_comm_lock(gp->comm);
    if (gp->n_owned < gp->n_summed) b = &gp->bucket[gp->summed[gp->n_owned]];
    ct_comm_unlock(gp->comm);
    if (b != NULL) gp->n_owned += 1;
    return b;
}

/* Rows of it are to be added. */
static bool awaits_rows(const ct_grad_pipe *gp, int i)
{
    const ct_grad_rows *r = ct_grad_pipe_rows_of(gp, i);
    int state = (r != NULL) ? atomic_load(&r->state) : CT_ROWS_NONE;

    return (r != NULL) && ((state != CT_ROWS_NONE) || gp->range[i].row_beside);
}

ct_status ct_grad_pipe_report_shards(ct_grad_pipe *gp)
{
    ct_bucket *b = NULL;

    if (!ct_grad_pipe_has_shards(gp)) return CT_OK;
    while ((b = take_summed(gp)) != NULL) {
        for (int i = b->cut.first; i < b->cut.first + b->cut.n; ++i) gp->sums_left[i] -= 1;
        if (!awaits_rows(gp, b->cut.first)) CT_TRY(tell_all(gp, b));
    }
    return CT_OK;
}

bool ct_grad_pipe_is_owned(const ct_grad_pipe *gp, int i)
{
    const ct_grad_rows *r = ct_grad_pipe_rows_of(gp, i);

    return (gp->sums_left[i] == 0) &&
           (!awaits_rows(gp, i) || (atomic_load(&r->state) == CT_ROWS_ADDED));
}

bool ct_grad_pipe_all_owned(const ct_grad_pipe *gp)
{
    return (gp->n_owned == gp->n_bucket) && ct_grad_pipe_rows_done(gp);
}

ct_status ct_grad_pipe_updated(ct_grad_pipe *gp)
{
    if (!ct_grad_pipe_has_shards(gp) || gp->updated) return CT_OK;
    if (!ct_grad_pipe_all_owned(gp))
        return CT_FAIL(CT_ERR_ARG, "weights are updated before all gradients are summed");
    gp->updated = true;
    for (int i = 0; i < gp->n_bucket; ++i) CT_TRY(gather(gp, &gp->bucket[i]));
    return CT_OK;
}

/* ---- weights that are asked for by themselves (ZeRO 3) */

/* The buckets that range i is in. */
static int buckets_of(const ct_grad_pipe *gp, int i, ct_bucket **first_p)
{
    *first_p = &gp->bucket[gp->bucket_of[i]];
    return (*first_p)->cut.n_part;
}

ct_status ct_grad_pipe_gather(ct_grad_pipe *gp, int i)
{
    ct_bucket *b = NULL;
    int n = buckets_of(gp, i, &b);
    ct_status status = CT_OK;

    if (!ct_grad_pipe_has_shards(gp)) return CT_OK;
    for (int k = 0; k < n; ++k) {
        if (atomic_load(&b[k].visiting))
            return CT_FAIL(CT_ERR_ARG, "the weights of %s are asked for twice", b[k].key);
        ct_narrow_gather_pack(&b[k].narrow, gp->comm, b[k].gather.buf);
    }
    ct_comm_lock(gp->comm);
    for (int k = 0; (k < n) && (status == CT_OK); ++k) {
        b[k].gather_at = ct_clock_s();
        status = ct_persistent_coll_start(&b[k].gather);
        if (status == CT_OK) atomic_store(&b[k].visiting, true);
    }
    ct_comm_unlock(gp->comm);
    if ((status == CT_OK) && atomic_load(&gp->threaded)) ct_pipe_thread_wake(gp->thread);
    return status;
}

void ct_grad_pipe_unpack(ct_grad_pipe *gp, int i)
{
    ct_bucket *b = NULL;
    int n = buckets_of(gp, i, &b);

    for (int k = 0; k < n; ++k) ct_narrow_gather_unpack(&b[k].narrow, gp->comm, b[k].gather.buf);
}

bool ct_grad_pipe_is_visiting(const ct_grad_pipe *gp, int i)
{
    ct_bucket *b = NULL;
    int n = buckets_of(gp, i, &b);

    for (int k = 0; k < n; ++k)
        if (atomic_load(&b[k].visiting)) return true;
    return false;
}

ct_status ct_grad_pipe_move_gathers(ct_grad_pipe *gp, bool *moved_p, bool *urgent_p)
{
    for (int i = 0; gp->config.visits && (i < gp->n_bucket); ++i) {
        ct_bucket *b = &gp->bucket[i];
        ct_coll_where *where;
        unsigned before;
        ct_status status;

        if (!atomic_load(&b->visiting)) continue;
        where = ct_persistent_coll_where(&b->gather);
        before = atomic_load(&where->n_moved);
        status = ct_persistent_coll_progress(&b->gather);
        *moved_p = *moved_p || (atomic_load(&where->n_moved) != before) || (status == CT_OK);
        if (status == CT_OK) {
            b->gather_s = ct_clock_s() - b->gather_at;
            atomic_store(&b->visiting, false);
        }
        if (status == CT_INPROGRESS) *urgent_p = true;
        if ((status != CT_OK) && (status != CT_INPROGRESS)) return status;
    }
    return CT_OK;
}
