/* The table of sparse allreduces, the choice among them, and what all of them begin with. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/sparse/sparse_allreduce_impl.h"

ct_status ct_sparse_allreduce_defaults(ct_sparse_allreduce_req *r)
{
    if ((r->n < 0) || (r->n > CT_SPARSE_MAX) || (r->k < 0))
        return CT_FAIL(CT_ERR_CONFIG, "a sparse exchange of %lld of %lld elements, of at most %lld",
                       (long long)r->k, (long long)r->n, (long long)CT_SPARSE_MAX);
    if (r->k > r->n) r->k = r->n;
    if (r->k_most < r->k) r->k_most = r->k;
    if (r->k_most > r->n) r->k_most = r->n;
    if (r->room == 0)
        r->room = (r->k_most + r->k_most / 4 > 2 * r->k) ? r->k_most + r->k_most / 4 : 2 * r->k;
    if (r->room < r->k_most) r->room = r->k_most;
    if (r->room > r->n) r->room = r->n;
    if (r->n_member == 0) {
        r->member = r->comm->topo->order;
        r->n_member = r->comm->size;
        r->me = 0;
        while (r->member[r->me] != r->comm->rank) r->me += 1;
    }
    r->first = 0;
    r->length = r->n;
    r->k_own = r->k;
    r->room_own = r->room;
    r->copies = r->n_member;
    r->most_lost = 2 * r->room;
    return CT_OK;
}

/* By the length of a slice: those of a hier are not all as long, and all of k = n are to go. */
int64_t ct_sparse_allreduce_own_share(const ct_sparse_allreduce_req *r, int64_t k)
{
    return (r->length == r->n) ? k : (k * r->length + r->n - 1) / r->n;
}

void ct_sparse_allreduce_want(ct_sparse_allreduce_req *r, int64_t k)
{
    r->k = (k < r->n) ? k : r->n;
    r->k_own = ct_sparse_allreduce_own_share(r, r->k);
}

ct_status ct_sparse_allreduce_take_own(ct_sparse_allreduce_req *r)
{
    if (r->own->n != r->length)
        return CT_FAIL(CT_ERR_ARG, "entries of %lld elements for an exchange of %lld",
                       (long long)r->own->n, (long long)r->length);
    if (r->own->count > r->room_own) ct_sparse_keep(r->own, r->room_own, &r->residual);
    ct_payload_round(r->form, r->own, &r->residual);
    return CT_OK;
}

void ct_sparse_allreduce_begin_list(ct_sparse_allreduce_req *r)
{
    if (r->list == NULL) return;
    r->list->n = r->n;
    r->list->count = 0;
    r->filled = 0;
}

ct_status ct_sparse_allreduce_append(const ct_sparse *list, int64_t first, ct_sparse *out,
                                     int64_t *filled_p)
{
    CT_TRY(ct_sparse_reserve(out, out->count + list->count));
    for (int64_t j = 0; j < list->count; ++j) {
        out->index[out->count] = (uint32_t)(list->index[j] + first);
        out->value[out->count++] = list->value[j];
        *filled_p += (list->value[j] != 0);
    }
    return CT_OK;
}

void ct_sparse_allreduce_stands_at(ct_sparse_allreduce_req *r, const ct_coll_where *from)
{
    ct_coll_where *to = &r->where;

    atomic_store_explicit(&to->step, atomic_load(&from->step), memory_order_relaxed);
    atomic_store_explicit(&to->n_step, atomic_load(&from->n_step), memory_order_relaxed);
    atomic_store_explicit(&to->rank, atomic_load(&from->rank), memory_order_relaxed);
    atomic_store_explicit(&to->sending, atomic_load(&from->sending), memory_order_relaxed);
}

int64_t ct_sparse_allreduce_union(int64_t n, int64_t k, int m)
{
    if ((n == 0) || (k >= n)) return n;
    return llround(-(double)n * expm1((double)m * log1p(-(double)k / (double)n)));
}

const ct_sparse_allreduce_ops *const ct_sparse_allreduce_table[] = {
    &ct_sparse_allreduce_allgather, &ct_sparse_allreduce_hier,  &ct_sparse_allreduce_gtopk,
    &ct_sparse_allreduce_oktopk,    &ct_sparse_allreduce_dense, NULL
};

/* Lists that travel when p ranks merge, those of one rank apart: sparse_gtopk.c. */
static void count_lists(int p, int64_t *single, int64_t *merged)
{
    int low = (p + 1) / 2, high = p / 2;

    if (p <= 1) return;
    count_lists(low, single, merged);
    count_lists(high, single, merged);
    *((high == 1) ? single : merged) += low;
    *((low == 1) ? single : merged) += high;
}

/* gtopk: in the mean over the ranks. dense: of a reduce-scatter and an allgather of f32. */
int64_t ct_sparse_allreduce_bytes(ct_sparse_allreduce_kind kind, int p, int64_t n, int64_t k,
                                  ct_payload_form form)
{
    ct_payload_form merged = ct_sparse_allreduce_merged_form(form);
    int64_t region = n / p, share = ct_sparse_allreduce_share(k, p), single = 0, several = 0;

    if (kind == CT_SPARSE_ALLREDUCE_ALLGATHER)
        return (p - 1) * (int64_t)ct_payload_bytes(form, n, k);
    if (kind == CT_SPARSE_ALLREDUCE_OKTOPK)
        return (p - 1) * (int64_t)(ct_payload_bytes(form, region, share) + sizeof(ct_region_news) +
                                   ct_payload_bytes(merged, region, share));
    if (kind == CT_SPARSE_ALLREDUCE_DENSE) return 2 * (int64_t)sizeof(float) * n / p * (p - 1);
    count_lists(p, &single, &several);
    return (single * (int64_t)ct_payload_bytes(form, n, k) +
            several * (int64_t)ct_payload_bytes(merged, n, k)) /
           p;
}

int64_t ct_sparse_allreduce_hier_bytes(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    const ct_sparse_allreduce_model *m = NULL;

    if (ct_sparse_allreduce_model_of(c, &m) != CT_OK) return 0;
    return ct_sparse_allreduce_model_bytes(m, CT_SPARSE_ALLREDUCE_HIER, n, k, form);
}

static ct_status fail_unknown(const char *name)
{
    char known[128] = "auto";

    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        size_t n = strlen(known);

        snprintf(known + n, sizeof(known) - n, ", %s", (*at)->name);
    }
    return CT_FAIL(CT_ERR_CONFIG, "no exchange is called \"%s\": %s", name, known);
}

ct_status ct_sparse_allreduce_choose(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form,
                                     const char *name, const ct_sparse_allreduce_ops **ops_p)
{
    bool any = (strcmp(name, "auto") == 0);
    const ct_sparse_allreduce_ops *best = NULL;
    double least = 0;

    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        double cost = 0;

        if (!any && (strcmp(name, (*at)->name) != 0)) continue;
        if (any) cost = (*at)->cost_s(c, n, k, form);
        if ((best != NULL) && (cost >= least)) continue;
        best = *at;
        least = cost;
    }
    if (best == NULL) return fail_unknown(name);
    *ops_p = best;
    return CT_OK;
}

ct_status ct_sparse_allreduce_run(const ct_sparse_allreduce_ops *ops, ct_sparse_allreduce_req *r)
{
    ct_comm *c = r->comm;
    ct_status status = CT_OK;
    int idle = 0;

    ct_comm_lock(c);
    status = ops->start(r);
    ct_comm_unlock(c);
    while (status == CT_OK) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        int n = 0;

        ct_comm_lock(c);
        status = ops->progress(r);
        if (status == CT_INPROGRESS) n = ops->pending(r, req, CT_COMM_MAX_PENDING);
        ct_comm_unlock(c);
        if (status != CT_INPROGRESS) break;
        idle += 1;
        status = ct_comm_wait_any(c, req, n, &idle);
    }
    return status;
}
