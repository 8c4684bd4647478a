#include "comm/collective/sized_message.h"

#include <string.h>

#include "comm/core/reduce.h"

static int next_part(const ct_sized_message *p)
{
    size_t part = (p->part > 0) ? (size_t)p->part : CT_SIZED_MESSAGE_PART;
    size_t end = (p->receives && (p->at == 0)) ? p->room : p->bytes;

    return (int)((end - p->at < part) ? end - p->at : part);
}

static ct_status post(ct_comm *c, ct_sized_message *p)
{
    int n = next_part(p);
    char *data = p->data + p->at;

    p->at += (size_t)n;
    if (p->receives)
        CT_TRY_MPI(MPI_Irecv(data, n, MPI_BYTE, p->peer, p->tag, c->world, &p->request));
    else
        CT_TRY_MPI(MPI_Isend(data, n, MPI_BYTE, p->peer, p->tag, c->world, &p->request));
    return CT_OK;
}

ct_status ct_sized_message_send(ct_comm *c, ct_sized_message *p, const void *data, size_t bytes,
                                int to, int tag)
{
    *p = (ct_sized_message){ .data = (char *)(uintptr_t)data,
                             .bytes = bytes,
                             .peer = to,
                             .tag = tag,
                             .busy = true,
                             .part = p->part };
    return post(c, p);
}

ct_status ct_sized_message_recv(ct_comm *c, ct_sized_message *p, void *data, size_t room,
                                size_t expected, int from, int tag)
{
    *p = (ct_sized_message){ .data = data,
                             .room = room,
                             .expected = expected,
                             .peer = from,
                             .tag = tag,
                             .receives = true,
                             .busy = true,
                             .part = p->part };
    memset(data, 0, sizeof(uint64_t));
    return post(c, p);
}

ct_status ct_sized_message_progress(ct_comm *c, ct_sized_message *p, bool *done_p)
{
    *done_p = false;
    while (p->busy) {
        int done = 0;

        CT_TRY_MPI(ct_comm_test(&p->request, &done));
        if (!done) return CT_OK;
        if (p->receives && (p->bytes == 0)) {
            p->bytes = ct_reduce_stated_size(p->data, p->expected);
            if ((p->bytes > p->room) || (p->bytes == 0))
                return CT_FAIL(CT_ERR_COMM, "rank %d sends a message of %zu bytes, over %zu",
                               p->peer, p->bytes, p->room);
        }
        if (p->at >= p->bytes) {
            p->busy = false;
            break;
        }
        CT_TRY(post(c, p));
    }
    *done_p = true;
    return CT_OK;
}
