#include "comm/core/message.h"

#include <inttypes.h>
#include <string.h>

#include "framework/base/hash.h"

enum { BYTES, HASH };

static uint64_t hash_of(const void *data, uint64_t bytes)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, data, (size_t)bytes);
    return ct_hash_value(&h);
}

static bool verifies(const ct_comm *c)
{
    return c->checks != MPI_COMM_NULL;
}

ct_status ct_message_send(ct_comm *c, ct_message *m, const void *data, int n, MPI_Datatype type,
                          int to, int tag)
{
    int size = 0;

    *m = (ct_message){ .request = MPI_REQUEST_NULL, .check = MPI_REQUEST_NULL, .peer = to };
    if (verifies(c)) {
        CT_TRY_MPI(MPI_Type_size(type, &size));
        m->sum[BYTES] = (uint64_t)n * (uint64_t)size;
        m->sum[HASH] = hash_of(data, m->sum[BYTES]);
    }
    CT_TRY_MPI(MPI_Isend(data, n, type, to, tag, c->mpi, &m->request));
    if (verifies(c)) CT_TRY_MPI(MPI_Isend(m->sum, 2, MPI_UINT64_T, to, tag, c->checks, &m->check));
    return CT_OK;
}

ct_status ct_message_recv(ct_comm *c, ct_message *m, void *data, int n, MPI_Datatype type, int from,
                          int tag)
{
    int size = 0;

    *m = (ct_message){
        .request = MPI_REQUEST_NULL, .check = MPI_REQUEST_NULL, .data = data, .peer = from
    };
    CT_TRY_MPI(MPI_Irecv(data, n, type, from, tag, c->mpi, &m->request));
    if (!verifies(c)) return CT_OK;
    CT_TRY_MPI(MPI_Type_size(type, &size));
    m->room = (uint64_t)n * (uint64_t)size;
    CT_TRY_MPI(MPI_Irecv(m->sum, 2, MPI_UINT64_T, from, tag, c->checks, &m->check));
    return CT_OK;
}

/* Two ranks of c, as the launcher counts them where it does. */
static void name_ranks(const ct_comm *c, const int *of, int *rank)
{
    MPI_Group group = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    int found[2];

    memcpy(rank, of, sizeof(found));
    if ((MPI_Comm_group(c->mpi, &group) == MPI_SUCCESS) &&
        (MPI_Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS) &&
        (MPI_Group_translate_ranks(group, 2, of, all, found) == MPI_SUCCESS))
        for (int i = 0; i < 2; i++)
            if (found[i] != MPI_UNDEFINED) rank[i] = found[i];
    if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
}

/* What came may be wrong in any way, also in how much it says that it is. */
static ct_status verify(const ct_comm *c, const ct_message *m)
{
    bool fits = (m->sum[BYTES] <= m->room);
    int of[2] = { m->peer, c->rank }, rank[2];

    if (fits && (hash_of(m->data, m->sum[BYTES]) == m->sum[HASH])) return CT_OK;
    name_ranks(c, of, rank);
    return CT_FAIL(CT_ERR_DIVERGED,
                   "verify_wire: a message of %" PRIu64 " bytes from rank %d to rank %d has not "
                   "arrived as it was sent: the network, MPI or the memory of one of them has "
                   "changed it",
                   fits ? m->sum[BYTES] : m->room, rank[0], rank[1]);
}

static void drop(MPI_Request *request, bool receives)
{
    int done = 0;

    if (*request == MPI_REQUEST_NULL) return;
    if ((MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) || done) return;
    if (receives) MPI_Cancel(request);
    MPI_Request_free(request);
}

void ct_message_drop(ct_message *m)
{
    drop(&m->request, m->data != NULL);
    drop(&m->check, m->data != NULL);
}

ct_status ct_message_test(ct_comm *c, ct_message *m, int *done_p)
{
    CT_TRY_MPI(ct_comm_test(&m->request, done_p));
    if (!*done_p || !verifies(c)) return CT_OK;
    CT_TRY_MPI(ct_comm_test(&m->check, done_p));
    if (!*done_p || (m->data == NULL)) return CT_OK;
    CT_TRY(verify(c, m));
    m->data = NULL; /* it is who asks again */
    return CT_OK;
}
