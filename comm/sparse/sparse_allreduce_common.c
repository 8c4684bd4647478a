/* What all sparse exchanges begin with. */
#include <math.h>

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

int64_t ct_sparse_allreduce_union(int64_t n, int64_t k, int m)
{
    if ((n == 0) || (k >= n)) return n;
    return llround(-(double)n * expm1((double)m * log1p(-(double)k / (double)n)));
}
