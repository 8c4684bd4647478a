/* allgather: everyone's payload goes round a ring, in the order in which the ranks lie near each
 * other, and is added in that order by everybody. */
#include <stdlib.h>

#include "comm/sparse/sparse_allreduce_impl.h"
#include "framework/base/clock.h"

typedef struct allgather {
    ct_allgatherv *gather;
    const void **payload; /* [n_member] */
    size_t *bytes;        /* [n_member] */
    bool summed;
} allgather;

static void allgather_release(ct_sparse_allreduce_req *r)
{
    allgather *a = r->state;

    if (a == NULL) return;
    ct_allgatherv_destroy(a->gather);
    free(a->payload);
    free(a->bytes);
    free(a);
    r->state = NULL;
}

static ct_status allgather_prepare(ct_sparse_allreduce_req *r)
{
    allgather *a = NULL;

    CT_TRY(ct_sparse_allreduce_defaults(r));
    r->state = a = calloc(1, sizeof(*a));
    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange");
    a->payload = malloc(sizeof(*a->payload) * (size_t)r->n_member);
    a->bytes = malloc(sizeof(*a->bytes) * (size_t)r->n_member);
    if ((a->payload == NULL) || (a->bytes == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a sparse exchange of %d ranks", r->n_member);
    return ct_allgatherv_create(r->comm, r->member, r->n_member, r->me,
                                ct_payload_bytes(r->form, r->n, r->room), r->tag, &a->gather);
}

static ct_status allgather_start(ct_sparse_allreduce_req *r)
{
    allgather *a = r->state;
    double at = ct_clock_s();
    size_t bytes = 0;

    CT_TRY(ct_sparse_allreduce_take_own(r));
    bytes = ct_payload_pack(r->form, r->own, ct_allgatherv_payload(a->gather, r->me));
    a->summed = false;
    r->decode_s += ct_clock_s() - at;
    return ct_allgatherv_start(a->gather, bytes);
}

static ct_status allgather_progress(ct_sparse_allreduce_req *r)
{
    allgather *a = r->state;
    double at = 0;

    if (a->summed) return CT_OK;
    {
        ct_status status = ct_allgatherv_progress(a->gather, &r->bytes_sent, &r->where);

        if (status != CT_OK) return status;
    }
    at = ct_clock_s();
    for (int i = 0; i < r->n_member; ++i) {
        a->payload[i] = ct_allgatherv_payload(a->gather, i);
        a->bytes[i] = ct_allgatherv_bytes(a->gather, i);
    }
    CT_TRY(ct_payload_sum_all(a->payload, a->bytes, r->n_member, r->sum, r->n, r->comm->n_thread,
                              &r->filled));
    r->decode_s += ct_clock_s() - at;
    a->summed = true;
    return CT_OK;
}

static int allgather_pending(ct_sparse_allreduce_req *r, MPI_Request **out, int max)
{
    allgather *a = r->state;

    return a->summed ? 0 : ct_allgatherv_pending(a->gather, out, max);
}

static int64_t allgather_bytes(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_bytes(CT_SPARSE_ALLREDUCE_ALLGATHER, c->size, n, k, form);
}

static double allgather_cost_s(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form)
{
    return ct_sparse_allreduce_cost_s(c, CT_SPARSE_ALLREDUCE_ALLGATHER, n, k, form);
}

const ct_sparse_allreduce_ops ct_sparse_allreduce_allgather = {
    .name = "allgather",
    .prepare = allgather_prepare,
    .start = allgather_start,
    .progress = allgather_progress,
    .pending = allgather_pending,
    .release = allgather_release,
    .cost_s = allgather_cost_s,
    .bytes_theory = allgather_bytes,
};
