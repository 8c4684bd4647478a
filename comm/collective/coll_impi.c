/* impi: the MPI library's own MPI_Iallreduce, cut into pieces that an int can count, and that the
 * network adds where the machine says so. Pieces, and requests, must be started in the same order
 * on all ranks: MPI matches them by order.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/core/reduce.h"
#include "framework/base/memory.h"

enum { PIECE = 1 << 30 /* bytes: some MPIs count those in an int inside */ };

typedef struct impi_state {
    int n_piece;
    int64_t each; /* elements of a piece */
    MPI_Request *piece;
} impi_state;

static bool impi_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)count;
    return ct_reduce_supports(dtype) && (c->checks == MPI_COMM_NULL); /* it sends unseen */
}

/* The library leaves operations of its own to the network, not sums that we defined. */
static bool on_host(ct_dtype dtype)
{
    return (dtype == CT_BF16) || (dtype == CT_F16);
}

static ct_status rounds(ct_cost_work *w, const ct_in_network *network)
{
    return ct_cost_by_mpi(w, ct_coll_ring.cost, ct_coll_rhd.cost, network);
}

static ct_status network_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(w);

    (void)dim;
    (void)shares;
    return rounds(w, (t->n_node > 1) ? &t->machine.in_network : NULL);
}

static ct_status host_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return rounds(w, NULL);
}

static const ct_cost_ops impi_cost = { .rounds = network_rounds };
static const ct_cost_ops impi_host_cost = { .rounds = host_rounds };

/* Bytes of a piece. */
static int64_t piece_of(const ct_coll_req *r)
{
    const ct_in_network *n = &r->comm->topo->machine.in_network;
    int64_t bytes = r->count * (int64_t)ct_dtype_size(r->dtype);
    bool leaves = !on_host(r->dtype) && (r->comm->topo->n_node > 1) && (n->max_bytes > 0) &&
                  (ct_in_network_pieces(n, (double)bytes) > 0);

    return (leaves && (n->max_bytes < PIECE)) ? n->max_bytes : PIECE;
}

/* The library says nothing of its buffers: sums have one copy of the elements under way. */
static ct_status count_buffers(ct_coll_req *r)
{
    r->size->bytes += r->count * (int64_t)ct_dtype_size(r->dtype);
    return CT_OK;
}

static ct_status impi_prepare(ct_coll_req *r)
{
    impi_state *st = NULL;

    if (r->size != NULL) return count_buffers(r);
    st = calloc(1, sizeof(*st));
    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    st->each = piece_of(r) / (int64_t)ct_dtype_size(r->dtype);
    st->n_piece = (int)((r->count + st->each - 1) / st->each);
    st->piece = malloc(sizeof(*st->piece) * (size_t)(st->n_piece + 1));
    if (st->piece == NULL) {
        free(st);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    }
    for (int i = 0; i < st->n_piece; ++i) st->piece[i] = MPI_REQUEST_NULL;
    r->state = st;
    return CT_OK;
}

static MPI_Op op_of(const ct_coll_req *r)
{
    if (r->dtype == CT_BF16) return r->comm->bf16_sum;
    if (r->dtype == CT_F16) return r->comm->f16_sum;
    return (r->dtype == CT_U8) ? MPI_MAX : MPI_SUM;
}

static ct_status impi_start(ct_coll_req *r)
{
    impi_state *st = r->state;
    size_t size = ct_dtype_size(r->dtype);

    for (int i = 0; i < st->n_piece; ++i) {
        int64_t first = i * st->each;
        int n = (int)((r->count - first < st->each) ? r->count - first : st->each);

        CT_TRY_MPI(MPI_Iallreduce(MPI_IN_PLACE, (char *)r->buf + (size_t)first * size, n,
                                  ct_comm_datatype(r->dtype), op_of(r), r->comm->sums,
                                  &st->piece[i]));
    }
    return CT_OK;
}

static ct_status impi_progress(ct_coll_req *r)
{
    impi_state *st = r->state;
    int done = 0;

    CT_TRY_MPI(MPI_Testall(st->n_piece, st->piece, &done, MPI_STATUSES_IGNORE));
    atomic_store_explicit(&r->where.step, done, memory_order_relaxed);
    atomic_store_explicit(&r->where.n_step, 1, memory_order_relaxed);
    atomic_store_explicit(&r->where.rank, -1, memory_order_relaxed);
    if (!done) return CT_INPROGRESS;
    /* what the library sends is its secret: count what the best algorithms need */
    r->bytes_sent +=
        2 * r->count * (int64_t)ct_dtype_size(r->dtype) * (r->comm->size - 1) / r->comm->size;
    return CT_OK;
}

static int impi_pending(ct_coll_req *r, MPI_Request **out, int max)
{
    impi_state *st = r->state;
    int n = 0;

    for (int i = 0; (i < st->n_piece) && (n < max); ++i) {
        if (st->piece[i] != MPI_REQUEST_NULL) out[n++] = &st->piece[i];
    }
    return n;
}

static void impi_release(ct_coll_req *r)
{
    impi_state *st = r->state;

    if (st == NULL) return;
    free(st->piece);
    free(st);
    r->state = NULL;
}

/* ---- halves, whose bits are MPI's own: MPI_Ireduce_scatter and MPI_Iallgatherv. No part is larger
 * than an int counts, nor are all of them together. */

typedef struct half_state {
    MPI_Request request;
    MPI_Comm comm;
    int *length, *first; /* [size], of the parts, by the ranks of comm */
    void *sum;           /* reduce-scatter: of the own part            */
    int64_t own_first, own_n;
} half_state;

static bool half_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    return impi_supports(c, count, dtype) && (count <= INT32_MAX);
}

static const char in_order_key; /* of a communicator whose ranks lie in the order of their parts */

static void free_in_order(void *what)
{
    MPI_Comm *comm = what;

    (void)MPI_Comm_free(comm);
    free(comm);
}

/* MPI's reduce-scatter deals out parts in the order of the ranks. */
static ct_status find_in_order(const ct_coll_req *r, MPI_Comm *comm_p)
{
    MPI_Comm *comm = ct_comm_attached(r->comm, &in_order_key);
    ct_sched_piece *part = NULL;
    int at = 0, result = MPI_SUCCESS;

    if (comm == NULL) {
        CT_TRY(ct_coll_p2p_parts(r, &part));
        while (part[at].owner != ct_coll_p2p_place(r->comm)) at += 1;
        free(part);
        comm = malloc(sizeof(*comm));
        if (comm == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a communicator");
        result = MPI_Comm_split(r->comm->sums, 0, at, comm);
        if (result != MPI_SUCCESS) free(comm);
        CT_TRY_MPI(result);
        CT_TRY(ct_comm_attach(r->comm, &in_order_key, comm, free_in_order));
    }
    *comm_p = *comm;
    return CT_OK;
}

static void half_release(ct_coll_req *r)
{
    half_state *st = r->state;

    if (st == NULL) return;
    free(st->length);
    free(st->first);
    ct_mem_release(st->sum);
    free(st);
    r->state = NULL;
}

static ct_status list_parts(const ct_coll_req *r, half_state *st, bool scatter)
{
    size_t n = (size_t)r->comm->size;
    ct_sched_piece *part = NULL;

    st->length = calloc(n, sizeof(*st->length));
    st->first = calloc(n, sizeof(*st->first));
    if ((st->length == NULL) || (st->first == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu parts", n);
    CT_TRY(ct_coll_part(r->comm, r->count, r->comm->rank, &st->own_first, &st->own_n));
    CT_TRY(ct_coll_p2p_parts(r, &part));
    for (size_t i = 0; i < n; ++i) {
        size_t at = scatter ? i : (size_t)r->comm->topo->order[part[i].owner];

        st->first[at] = (i > 0) ? (int)part[i - 1].end : 0;
        st->length[at] = (int)part[i].end - st->first[at];
    }
    free(part);
    return CT_OK;
}

static ct_status half_prepare(ct_coll_req *r, bool scatter)
{
    half_state *st = calloc(1, sizeof(*st));
    ct_status status = CT_OK;

    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    st->request = MPI_REQUEST_NULL;
    st->comm = r->comm->sums;
    r->state = st;
    CT_TRY_GOTO(status, err_release, list_parts(r, st, scatter));
    if (!scatter) return CT_OK;
    CT_TRY_GOTO(status, err_release, find_in_order(r, &st->comm));
    st->sum = ct_mem_acquire((size_t)(st->own_n + 1) * ct_dtype_size(r->dtype));
    if (st->sum == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a part of a collective");
    if (status == CT_OK) return CT_OK;

err_release:
    half_release(r);
    return status;
}

static ct_status count_scatter(ct_coll_req *r)
{
    int64_t first = 0, n = 0;

    CT_TRY(ct_coll_part(r->comm, r->count, r->comm->rank, &first, &n));
    r->size->bytes += (n + 1) * (int64_t)ct_dtype_size(r->dtype);
    return count_buffers(r);
}

static ct_status scatter_prepare(ct_coll_req *r)
{
    if (r->size != NULL) return count_scatter(r);
    return half_prepare(r, true);
}

static ct_status gather_prepare(ct_coll_req *r)
{
    if (r->size != NULL) return CT_OK; /* from place to place */
    return half_prepare(r, false);
}

static ct_status scatter_start(ct_coll_req *r)
{
    half_state *st = r->state;

    CT_TRY_MPI(MPI_Ireduce_scatter(r->buf, st->sum, st->length, ct_comm_datatype(r->dtype),
                                   op_of(r), st->comm, &st->request));
    return CT_OK;
}

static ct_status gather_start(ct_coll_req *r)
{
    half_state *st = r->state;

    CT_TRY_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r->buf, st->length, st->first,
                               ct_comm_datatype(r->dtype), st->comm, &st->request));
    return CT_OK;
}

static ct_status half_progress(ct_coll_req *r)
{
    half_state *st = r->state;
    size_t size = ct_dtype_size(r->dtype);
    int done = 0;

    CT_TRY_MPI(MPI_Test(&st->request, &done, MPI_STATUS_IGNORE));
    atomic_store_explicit(&r->where.step, done, memory_order_relaxed);
    atomic_store_explicit(&r->where.n_step, 1, memory_order_relaxed);
    atomic_store_explicit(&r->where.rank, -1, memory_order_relaxed);
    if (!done) return CT_INPROGRESS;
    if (st->sum != NULL)
        memcpy((char *)r->buf + (size_t)st->own_first * size, st->sum, (size_t)st->own_n * size);
    r->bytes_sent += r->count * (int64_t)size * (r->comm->size - 1) / r->comm->size;
    return CT_OK;
}

static int half_pending(ct_coll_req *r, MPI_Request **out, int max)
{
    half_state *st = r->state;

    if ((max == 0) || (st->request == MPI_REQUEST_NULL)) return 0;
    out[0] = &st->request;
    return 1;
}

static ct_status scatter_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return ct_cost_by_mpi(w, ct_coll_ring.scatter->cost, ct_coll_rhd.scatter->cost, NULL);
}

static ct_status gather_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    (void)dim;
    (void)shares;
    return ct_cost_by_mpi(w, ct_coll_ring.gather->cost, ct_coll_rhd.gather->cost, NULL);
}

static const ct_cost_ops impi_scatter_cost = { .rounds = scatter_rounds,
                                               .way = CT_COST_UP,
                                               .whole = &impi_cost };
static const ct_cost_ops impi_gather_cost = { .rounds = gather_rounds,
                                              .way = CT_COST_DOWN,
                                              .whole = &impi_cost };

#define IMPI_HALF(_kind, _cost, _half)                                                             \
    .name = "impi", .kind = (_kind), .automatic = true, .by_mpi = true, .supports = half_supports, \
    .cost = (_cost), .prepare = _half##_prepare, .start = _half##_start,                           \
    .progress = half_progress, .release = half_release, .pending = half_pending

static const ct_coll_ops impi_scatter = { IMPI_HALF(CT_COLL_REDUCE_SCATTER, &impi_scatter_cost,
                                                    scatter) };
static const ct_coll_ops impi_gather = { IMPI_HALF(CT_COLL_ALLGATHER, &impi_gather_cost, gather) };

const ct_coll_ops ct_coll_impi = {
    .name = "impi",
    .automatic = true,
    .by_mpi = true,
    .scatter = &impi_scatter,
    .gather = &impi_gather,
    .supports = impi_supports,
    .cost = &impi_cost,
    .host_cost = &impi_host_cost,
    .on_host = on_host,
    .prepare = impi_prepare,
    .start = impi_start,
    .progress = impi_progress,
    .release = impi_release,
    .pending = impi_pending,
};
