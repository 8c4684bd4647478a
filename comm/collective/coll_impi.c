/* impi: the MPI library's own MPI_Iallreduce, cut into pieces that an int can count, and that the
 * network adds where the machine says so. Pieces, and requests, must be started in the same order
 * on all ranks: MPI matches them by order.
 */
#include <stdlib.h>

#include "comm/collective/coll_types.h"
#include "comm/core/reduce.h"

enum { PIECE = 1 << 30 /* bytes: some MPIs count those in an int inside */ };

typedef struct impi_state {
    int n_piece;
    int64_t each; /* elements of a piece */
    MPI_Request *piece;
} impi_state;

static bool impi_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    return ct_reduce_supports(dtype);
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

static ct_status impi_prepare(ct_coll_req *r)
{
    impi_state *st = calloc(1, sizeof(*st));

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

const ct_coll_ops ct_coll_impi = {
    .name = "impi",
    .automatic = true,
    .by_mpi = true,
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
