/* dense: each rank puts its entries into a vector of zeros, and an ordinary allreduce sums it.
 *
 * All payloads together may be larger than the vector, or fill most of it: many ranks, or a high
 * density. Then lists carry more than plain numbers, and everyone adds more entries than elements.
 * Nothing is dropped. The allreduce adds in its own order, so sums are those of the others to
 * rounding. Ranks begin it in any order, so it is never MPI's own. */
#include <stdlib.h>
#include <string.h>

#include "comm/sparse/sparse_allreduce_impl.h"
#include "comm/collective/persistent.h"
#include "framework/base/clock.h"

typedef struct dense {
    ct_persistent_coll coll;
    bool summed;
} dense;

static void dense_release(ct_sparse_allreduce_req *r)
{
    dense *d = r->state;

    if (d == NULL) return;
    ct_persistent_coll_release(&d->coll);
    free(d);
    r->state = NULL;
}

/* What `allreduce` says; where that is MPI's own, the cheapest of ours. */
static ct_status choose(const ct_comm *c, int64_t n, const char *allreduce,
                        const ct_coll_ops **ops_p)
{
    CT_TRY(ct_coll_choose_own(c, n, CT_F32, (allreduce != NULL) ? allreduce : "auto", ops_p));
    return (*ops_p)->by_mpi ? ct_coll_choose_own(c, n, CT_F32, "auto", ops_p) : CT_OK;
}

static ct_status dense_prepare(ct_sparse_allreduce_req *r)
{
    dense *d = NULL;
    const ct_coll_ops *ops = NULL;
    ct_coll_candidate *way = NULL;

    CT_TRY(ct_sparse_allreduce_defaults(r));
    if (r->n_member < r->comm->size)
        return CT_FAIL(CT_ERR_CONFIG, "exchange dense is among all ranks, not %d of %d",
                       r->n_member, r->comm->size);
    r->state = d = calloc(1, sizeof(*d));
    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    d->summed = true;
    d->coll = (ct_persistent_coll){
        .comm = r->comm, .buf = r->sum, .count = r->n, .dtype = CT_F32, .tag = r->tag
    };
    CT_TRY(choose(r->comm, r->n, r->allreduce, &ops));
    CT_TRY(ct_persistent_coll_open(&d->coll, ops, &way));
    atomic_store(&d->coll.now, way);
    return CT_OK;
}

static ct_status dense_start(ct_sparse_allreduce_req *r)
{
    dense *d = r->state;
    double at = ct_clock_s();

    CT_TRY(ct_sparse_allreduce_take_own(r));
    ct_sparse_allreduce_deliver(r->own, r->sum, r->n, r->comm->n_thread, &r->filled);
    r->decode_s += ct_clock_s() - at;
    d->summed = false;
    return ct_persistent_coll_start(&d->coll);
}

static ct_status dense_progress(ct_sparse_allreduce_req *r)
{
    dense *d = r->state;
    ct_coll_where *where = NULL;
    unsigned before = 0;
    double at = 0;
    ct_status status = CT_OK;

    if (d->summed) return CT_OK;
    where = ct_persistent_coll_where(&d->coll);
    before = atomic_load_explicit(&where->n_moved, memory_order_relaxed);
    where->brief = r->where.brief;
    status = ct_persistent_coll_progress(&d->coll);
    if (before != atomic_load_explicit(&where->n_moved, memory_order_relaxed))
        (void)atomic_fetch_add_explicit(&r->where.n_moved, 1, memory_order_relaxed);
    ct_sparse_allreduce_stands_at(r, where);
    if (status != CT_OK) return status;
    r->bytes_sent = ct_persistent_coll_bytes_sent(&d->coll);
    at = ct_clock_s();
    r->filled = ct_sparse_allreduce_filled(r->sum, r->n, r->comm->n_thread,
                                           ct_sparse_allreduce_union(r->n, r->k, r->n_member));
    r->decode_s += ct_clock_s() - at;
    d->summed = true;
    return CT_OK;
}

static int dense_pending(ct_sparse_allreduce_req *r, MPI_Request **out, int max)
{
    dense *d = r->state;

    return d->summed ? 0 : ct_persistent_coll_pending(&d->coll, out, max);
}

static int64_t dense_bytes(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_bytes(CT_SPARSE_ALLREDUCE_DENSE, c->size, n, k, form);
}

static double dense_cost_s(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    const ct_coll_ops *ops = NULL;
    double work_s = ct_sparse_allreduce_cost_s(c, CT_SPARSE_ALLREDUCE_DENSE, n, k, form);

    if ((c->size == 1) || (choose(c, n, NULL, &ops) != CT_OK)) return work_s;
    return work_s + ct_coll_cost_s(ops, c, n * (int64_t)sizeof(float), CT_F32);
}

const ct_sparse_allreduce_ops ct_sparse_allreduce_dense = {
    .name = "dense",
    .prepare = dense_prepare,
    .start = dense_start,
    .progress = dense_progress,
    .pending = dense_pending,
    .release = dense_release,
    .cost_s = dense_cost_s,
    .bytes_theory = dense_bytes,
};
