#include "comm/collective/persistent.h"

#include <stdlib.h>
#include <string.h>

ct_status ct_persistent_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype,
                                    const char *allreduce, bool deterministic,
                                    const ct_coll_ops **ops_p)
{
    if (!deterministic) return ct_coll_choose(c, count, dtype, allreduce, ops_p);
    CT_TRY(ct_coll_choose_own(c, count, dtype, allreduce, ops_p));
    if ((*ops_p)->by_mpi)
        return CT_FAIL(CT_ERR_CONFIG,
                       "deterministic: true, but MPI does not promise that its own allreduce adds "
                       "in the same order in every run: allreduce \"%s\" needs "
                       "reproducible_sum: true, or take another",
                       allreduce);
    return CT_OK;
}

ct_status ct_persistent_coll_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype,
                                        const char *allreduce, const char *who,
                                        const ct_coll_ops **ops_p)
{
    CT_TRY(ct_coll_choose_own(c, count, dtype, allreduce, ops_p));
    if ((*ops_p)->by_mpi)
        return CT_FAIL(CT_ERR_CONFIG,
                       "compression %s sums twice, and begins the second time when the first is "
                       "done; MPI's own allreduce wants one order on all ranks: allreduce \"%s\" "
                       "needs another codec, or take another",
                       who, allreduce);
    return CT_OK;
}

ct_status ct_persistent_coll_open(ct_persistent_coll *w, const ct_coll_ops *ops,
                                  ct_coll_candidate **way_p)
{
    ct_coll_candidate *way = calloc(1, sizeof(*way));
    ct_status status = CT_OK;

    if (way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    way->ops = ops;
    way->req.comm = w->comm;
    way->req.buf = w->buf;
    way->req.count = w->count;
    way->req.dtype = w->dtype;
    way->req.tag = w->tag;
    way->req.room = &w->room;
    status = ops->prepare(&way->req);
    if (status != CT_OK) {
        free(way);
        return status;
    }
    *way_p = way;
    return CT_OK;
}

/* An allgather begins when a rank is ready, in any order: not by MPI's own. */
ct_status ct_persistent_coll_find(const ct_persistent_coll *w, const char *allreduce,
                                  bool deterministic, const ct_coll_ops **ops_p)
{
    if (w->kind == CT_COLL_ALLGATHER)
        return ct_coll_choose_kind(w->comm, w->kind, w->count, w->dtype, "auto", true, ops_p);
    CT_TRY(ct_persistent_coll_choose(w->comm, w->count, w->dtype, allreduce, deterministic, ops_p));
    *ops_p = ct_coll_of_kind(*ops_p, w->kind);
    if (*ops_p == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "allreduce \"%s\" cannot be done in halves", allreduce);
    return CT_OK;
}

ct_status ct_persistent_coll_prepare(ct_persistent_coll *w, const char *allreduce,
                                     bool deterministic)
{
    const ct_coll_ops *ops = NULL;
    ct_coll_candidate *way = NULL;

    CT_TRY(ct_persistent_coll_find(w, allreduce, deterministic, &ops));
    CT_TRY(ct_persistent_coll_open(w, ops, &way));
    atomic_store(&w->now, way);
    return CT_OK;
}

ct_status ct_persistent_coll_count(const ct_persistent_coll *w, const char *allreduce,
                                   bool deterministic, ct_coll_size *size)
{
    const ct_coll_ops *ops = NULL;

    CT_TRY(ct_persistent_coll_find(w, allreduce, deterministic, &ops));
    return ct_coll_count(ops, w->comm, w->count, w->dtype, size);
}

void ct_persistent_coll_release(ct_persistent_coll *w)
{
    ct_persistent_coll_close(w, atomic_exchange(&w->now, NULL));
    while (w->closed != NULL) {
        ct_coll_candidate *way = w->closed;

        w->closed = way->next;
        free(way);
    }
}

void ct_persistent_coll_go(ct_persistent_coll *w, ct_coll_candidate *way, ct_coll_candidate **old_p)
{
    ct_coll_candidate *old = atomic_exchange(&w->now, way);

    w->sent_elsewhere += old->req.bytes_sent - way->req.bytes_sent;
    *old_p = old;
}

void ct_persistent_coll_close(ct_persistent_coll *w, ct_coll_candidate *way)
{
    if (way == NULL) return;
    way->ops->release(&way->req);
    way->next = w->closed;
    w->closed = way;
}

ct_status ct_persistent_coll_start(ct_persistent_coll *w)
{
    ct_coll_candidate *way = atomic_load(&w->now);

    return way->ops->start(&way->req);
}

ct_status ct_persistent_coll_progress(ct_persistent_coll *w)
{
    ct_coll_candidate *way = atomic_load(&w->now);

    return way->ops->progress(&way->req);
}

int ct_persistent_coll_pending(ct_persistent_coll *w, MPI_Request **out, int max)
{
    ct_coll_candidate *way = atomic_load(&w->now);

    return (way->ops->pending != NULL) ? way->ops->pending(&way->req, out, max) : 0;
}

ct_coll_where *ct_persistent_coll_where(ct_persistent_coll *w)
{
    return &atomic_load(&w->now)->req.where;
}

int64_t ct_persistent_coll_bytes_sent(const ct_persistent_coll *w)
{
    const ct_coll_candidate *way = atomic_load(&w->now);

    return w->sent_elsewhere + ((way != NULL) ? way->req.bytes_sent : 0);
}

double ct_persistent_coll_predicted_s(const ct_persistent_coll *w)
{
    const ct_coll_candidate *way = atomic_load(&w->now);

    if (way == NULL) return 0;
    return ct_coll_cost_s(way->ops, w->comm, w->count * (int64_t)ct_dtype_size(w->dtype), w->dtype);
}
