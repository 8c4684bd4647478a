/* Blocking collectives that blocking_wait.c and its twin for simulations have in common. */
#include "comm/collective/blocking.h"

#include <stdlib.h>

#include "comm/collective/coll.h"
#include "comm/core/message.h"
#include "framework/base/clock.h"

enum {
    GATHERED =
        64 << 10, /* bytes of all ranks together, up to which gathering is the fewest steps */
    MPI_CHUNK = 1 << 30,   /* bytes of one message, well below 2^31 */
    TAG = CT_COLL_TAGS - 1 /* of the blocking collectives' own, of which one runs at a time */
};

bool ct_comm_sums_by_tree(const ct_comm *c, int n)
{
    return (int64_t)n * c->size * (int64_t)sizeof(double) > GATHERED;
}

/* The movers are at work meanwhile. */
static ct_status complete(ct_comm *c, ct_message *m)
{
    ct_status status = CT_OK;
    int done = 0;

    CT_TRY(ct_comm_complete(c, &m->request));
    if (m->check != MPI_REQUEST_NULL) CT_TRY(ct_comm_complete(c, &m->check));
    ct_comm_lock(c);
    status = ct_message_test(c, m, &done);
    ct_comm_unlock(c);
    return status;
}

static ct_status send_to(ct_comm *c, const double *v, int n, int rank)
{
    ct_message m;
    ct_status status;

    ct_comm_lock(c);
    status = ct_message_send(c, &m, v, n, MPI_DOUBLE, rank, TAG);
    ct_comm_unlock(c);
    CT_TRY(status);
    return complete(c, &m);
}

static ct_status add_from(ct_comm *c, double *v, int n, int rank, double *room)
{
    ct_message m;
    ct_status status;

    ct_comm_lock(c);
    status = ct_message_recv(c, &m, room, n, MPI_DOUBLE, rank, TAG);
    ct_comm_unlock(c);
    CT_TRY(status);
    CT_TRY(complete(c, &m));
    for (int i = 0; i < n; ++i) v[i] += room[i];
    return CT_OK;
}

/* Of each pair of neighbours the right one hands its sum to the left one and is done; those that
 * remain pair up again. */
static ct_status sum_up(ct_comm *c, double *v, int n, double *room)
{
    for (int64_t step = 1; step < c->size; step *= 2) {
        if ((c->rank & step) != 0) return send_to(c, v, n, c->rank - (int)step);
        if (c->rank + step < c->size) CT_TRY(add_from(c, v, n, c->rank + (int)step, room));
    }
    return CT_OK;
}

ct_status ct_comm_sum_tree(ct_comm *c, double *v, int n)
{
    double *room = malloc(sizeof(*room) * (size_t)n);
    ct_status status = CT_OK;

    if (room == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d numbers", n);
    status = sum_up(c, v, n, room);
    free(room);
    CT_TRY(status);
    return ct_comm_broadcast(c, v, (size_t)n * sizeof(*v));
}

ct_status ct_comm_send(ct_comm *c, void *data, size_t bytes, int from, int to)
{
    char *at = data;

    while ((bytes > 0) && ((c->rank == from) || (c->rank == to))) {
        int n = (int)((bytes < MPI_CHUNK) ? bytes : MPI_CHUNK);
        ct_status status;
        ct_message m;

        ct_comm_lock(c);
        status = (c->rank == from) ? ct_message_send(c, &m, at, n, MPI_BYTE, to, TAG)
                                   : ct_message_recv(c, &m, at, n, MPI_BYTE, from, TAG);
        ct_comm_unlock(c);
        CT_TRY(status);
        CT_TRY(complete(c, &m));
        at += n;
        bytes -= (size_t)n;
    }
    return CT_OK;
}

/* Floats of one message. */
static int part_of(int64_t left)
{
    int64_t most = MPI_CHUNK / (int64_t)sizeof(float);

    return (int)((left < most) ? left : most);
}

/* To one rank and from another, both ways at once, in parts that both ends count alike. */
static ct_status swap(ct_comm *c, const float *out, int64_t out_n, int to, float *in, int64_t in_n,
                      int from)
{
    while ((out_n > 0) || (in_n > 0)) {
        int n_out = part_of(out_n), n_in = part_of(in_n);
        ct_status status = CT_OK;
        ct_message m[2];

        ct_comm_lock(c);
        if (n_in > 0) status = ct_message_recv(c, &m[0], in, n_in, MPI_FLOAT, from, TAG);
        if ((n_out > 0) && (status == CT_OK))
            status = ct_message_send(c, &m[1], out, n_out, MPI_FLOAT, to, TAG);
        ct_comm_unlock(c);
        CT_TRY(status);
        if (n_in > 0) CT_TRY(complete(c, &m[0]));
        if (n_out > 0) CT_TRY(complete(c, &m[1]));
        out += n_out, out_n -= n_out;
        in += n_in, in_n -= n_in;
    }
    return CT_OK;
}

ct_status ct_comm_exchange(ct_comm *c, const float *const *out, const int64_t *out_n,
                           float *const *in, const int64_t *in_n)
{
    for (int k = 1; k < c->size; ++k) {
        int to = (c->rank + k) % c->size, from = (c->rank - k + c->size) % c->size;

        CT_TRY(swap(c, out[to], out_n[to], to, in[from], in_n[from], from));
    }
    return CT_OK;
}

enum { ROUNDS = 20 };

static ct_status answer(ct_comm *c, int rank, int tag)
{
    for (int i = 0; i < ROUNDS; ++i) {
        double now = 0;

        CT_TRY_MPI(MPI_Recv(&now, 1, MPI_DOUBLE, rank, tag, c->mpi, MPI_STATUS_IGNORE));
        now = ct_clock_s();
        CT_TRY_MPI(MPI_Send(&now, 1, MPI_DOUBLE, rank, tag, c->mpi));
    }
    return CT_OK;
}

static ct_status ask(ct_comm *c, int tag, ct_clock_offset *out)
{
    double shortest = -1;

    for (int i = 0; i < ROUNDS; ++i) {
        double there = 0, left = ct_clock_s(), back = 0;

        CT_TRY_MPI(MPI_Send(&left, 1, MPI_DOUBLE, 0, tag, c->mpi));
        CT_TRY_MPI(MPI_Recv(&there, 1, MPI_DOUBLE, 0, tag, c->mpi, MPI_STATUS_IGNORE));
        back = ct_clock_s();
        if ((shortest >= 0) && (back - left >= shortest)) continue;
        shortest = back - left;
        *out = (ct_clock_offset){ .at_s = back,
                                  .offset_s = left + 0.5 * shortest - there,
                                  .error_s = 0.5 * shortest };
    }
    return CT_OK;
}

ct_status ct_clock_sync(ct_comm *c, ct_clock_offset *out)
{
    int tag = ct_comm_take_tags(c, 1);

    *out = (ct_clock_offset){ .at_s = ct_clock_s() };
    CT_TRY(ct_comm_barrier(c)); /* those who come late keep rank 0 from nobody */
    for (int r = 1; r < c->size; ++r) {
        if (c->rank == 0) {
            CT_TRY(answer(c, r, tag));
        } else if (c->rank == r) {
            CT_TRY(ask(c, tag, out));
        }
    }
    return CT_OK;
}
