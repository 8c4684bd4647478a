#include "comm/collective/allgatherv.h"

#include <stdlib.h>
#include <string.h>

#include "comm/core/reduce.h"

/* ---- one message */

static int next_part(const ct_sized_message *p)
{
    size_t part = (p->part > 0) ? (size_t)p->part : CT_SIZED_MESSAGE_PART;
    size_t end = (p->receives && (p->at == 0)) ? p->room : p->bytes;

    return (int)((end - p->at < part) ? end - p->at : part);
}

static ct_status post_part(ct_comm *c, ct_sized_message *p)
{
    int n = next_part(p);
    char *data = p->data + p->at;

    p->at += (size_t)n;
    if (p->receives) return ct_message_recv(c, &p->message, data, n, MPI_BYTE, p->peer, p->tag);
    return ct_message_send(c, &p->message, data, n, MPI_BYTE, p->peer, p->tag);
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
    return post_part(c, p);
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
    return post_part(c, p);
}

ct_status ct_sized_message_progress(ct_comm *c, ct_sized_message *p, bool *done_p)
{
    *done_p = false;
    while (p->busy) {
        int done = 0;

        CT_TRY(ct_message_test(c, &p->message, &done));
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
        CT_TRY(post_part(c, p));
    }
    *done_p = true;
    return CT_OK;
}

enum {
    WINDOW = 8,     /* messages under way, each direction */
    PART = 1 << 30, /* bytes of a message at most */
    HEAD = 8        /* bytes of a payload's size */
};

/* Message t, of both directions, is part t % n_part of step t / n_part. In step s this rank sends
 * the payload of member me - s, and receives that of me - s - 1. What travels is a payload's size,
 * 8 bytes that lie before it, and the payload: so nobody has to ask MPI what has come in. */
struct ct_allgatherv {
    ct_comm *comm;
    int *member; /* [n] ranks; this one is member[me]; the ring is in this order */
    int n, me;
    size_t *size; /* [n] of the payloads that are here */
    size_t stride, bound;
    int tag, n_part;
    int64_t n_message;
    char *payload; /* [size] of stride bytes; each starts CT_ALIGN into its own, after its size */
    const ct_device *dev; /* whose `block` holds them; NULL: nobody's */
    void *block;
    ct_message send[WINDOW], recv[WINDOW];
    int64_t send_posted, send_done, recv_posted, recv_done;
};

static size_t stride_of(size_t bound)
{
    return CT_ALIGN + ct_align_up(bound);
}

size_t ct_allgatherv_room(int n, size_t bound)
{
    return stride_of(bound) * (size_t)n;
}

ct_status ct_allgatherv_create(ct_comm *c, const int *member, int n, int me, size_t bound, int tag,
                               ct_allgatherv **g_p)
{
    ct_allgatherv *g = calloc(1, sizeof(*g));

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to gather payloads");
    g->comm = c;
    g->n = n;
    g->me = me;
    g->member = malloc(sizeof(*g->member) * (size_t)n);
    g->size = calloc((size_t)n, sizeof(*g->size));
    if ((g->member == NULL) || (g->size == NULL)) {
        ct_allgatherv_destroy(g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to gather payloads");
    }
    for (int i = 0; i < n; ++i) g->member[i] = member[i];
    g->bound = bound;
    g->stride = stride_of(bound);
    g->tag = tag;
    g->n_part = (int)((bound + HEAD + PART - 1) / PART);
    g->n_message = (int64_t)(n - 1) * g->n_part;
    g->payload = ct_mem_acquire(ct_allgatherv_room(n, bound));
    if (g->payload == NULL) {
        ct_allgatherv_destroy(g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d payloads of %zu bytes", n, bound);
    }
    *g_p = g;
    return CT_OK;
}

ct_status ct_allgatherv_keep_on(ct_allgatherv *g, const ct_device *dev)
{
    void *block = NULL;
    size_t bytes = g->stride * (size_t)g->n;

    if (dev->host_acquire == NULL) return CT_OK;
    CT_TRY(dev->host_acquire(bytes + CT_ALIGN, &block));
    ct_mem_release(g->payload);
    g->dev = dev;
    g->block = block;
    g->payload = (char *)(ct_align_up((size_t)(uintptr_t)block));
    memset(g->payload, 0, bytes);
    return CT_OK;
}

void ct_allgatherv_destroy(ct_allgatherv *g)
{
    if (g == NULL) return;
    if (g->dev != NULL)
        g->dev->host_release(g->block);
    else
        ct_mem_release(g->payload);
    free(g->member);
    free(g->size);
    free(g);
}

void *ct_allgatherv_payload(ct_allgatherv *g, int i)
{
    return g->payload + (size_t)i * g->stride + CT_ALIGN;
}

/* What travels: the payload's size, and the payload. */
static char *wire(ct_allgatherv *g, int i)
{
    return (char *)ct_allgatherv_payload(g, i) - HEAD;
}

size_t ct_allgatherv_bytes(const ct_allgatherv *g, int i)
{
    return g->size[i];
}

ct_status ct_allgatherv_start(ct_allgatherv *g, size_t bytes)
{
    if (bytes > g->bound)
        return CT_FAIL(CT_ERR_ARG, "a payload of %zu bytes, over the %zu that were promised", bytes,
                       g->bound);
    memcpy(wire(g, g->me), &(uint64_t){ bytes }, HEAD);
    g->size[g->me] = bytes;
    g->send_posted = g->send_done = g->recv_posted = g->recv_done = 0;
    return CT_OK;
}

/* Whose payload travels `step` steps after ours. */
static int origin(const ct_allgatherv *g, int64_t step)
{
    return (int)((g->me - step + g->n) % g->n);
}

static ct_status post(ct_allgatherv *g, bool *moved, int64_t *bytes_sent)
{
    int right = g->member[(g->me + 1) % g->n], left = g->member[(g->me + g->n - 1) % g->n];

    while ((g->recv_posted < g->n_message) && (g->recv_posted < g->recv_done + WINDOW)) {
        int64_t t = g->recv_posted;
        size_t at = (size_t)(t % g->n_part) * PART, room = g->bound + HEAD - at;
        char *to = wire(g, origin(g, t / g->n_part + 1)) + at;

        CT_TRY(ct_message_recv(g->comm, &g->recv[t % WINDOW], to,
                               (int)((room < PART) ? room : PART), MPI_BYTE, left, g->tag));
        g->recv_posted += 1;
        *moved = true;
    }
    /* what comes from the left goes on to the right; ours is there from the start */
    while ((g->send_posted < g->n_message) && (g->send_posted < g->send_done + WINDOW) &&
           (g->send_posted < g->recv_done + g->n_part)) {
        int64_t t = g->send_posted;
        int from = origin(g, t / g->n_part);
        size_t at = (size_t)(t % g->n_part) * PART;
        size_t whole = ct_allgatherv_bytes(g, from) + HEAD, rest = (whole > at) ? whole - at : 0;
        int n = (int)((rest < PART) ? rest : PART);

        CT_TRY(ct_message_send(g->comm, &g->send[t % WINDOW], wire(g, from) + at, n, MPI_BYTE,
                               right, g->tag));
        g->send_posted += 1;
        *bytes_sent += n - ((at == 0) ? HEAD : 0);
        *moved = true;
    }
    return CT_OK;
}

static ct_status take(ct_allgatherv *g, bool *moved)
{
    while (g->recv_done < g->recv_posted) {
        int64_t t = g->recv_done;
        int from = origin(g, t / g->n_part + 1), done = 0;

        CT_TRY(ct_message_test(g->comm, &g->recv[t % WINDOW], &done));
        if (!done) break;
        if (t % g->n_part == 0)
            g->size[from] = ct_reduce_stated_size(wire(g, from), g->size[g->me]);
        if (g->size[from] > g->bound)
            return CT_FAIL(CT_ERR_COMM, "rank %d sends a payload of %zu bytes, over %zu",
                           g->member[from], g->size[from], g->bound);
        g->recv_done += 1;
        *moved = true;
    }
    while (g->send_done < g->send_posted) {
        int done = 0;

        CT_TRY(ct_message_test(g->comm, &g->send[g->send_done % WINDOW], &done));
        if (!done) break;
        g->send_done += 1;
        *moved = true;
    }
    return CT_OK;
}

ct_status ct_allgatherv_progress(ct_allgatherv *g, int64_t *bytes_sent, ct_coll_where *where)
{
    bool moved = true, any = false, receives = false;

    while (moved) {
        moved = false;
        CT_TRY(post(g, &moved, bytes_sent));
        CT_TRY(take(g, &moved));
        any = any || moved;
        if (where->brief) break;
    }
    if (any) (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
    receives = (g->recv_done < g->n_message);
    atomic_store_explicit(&where->n_step, g->n - 1, memory_order_relaxed);
    atomic_store_explicit(&where->step, (int)(g->send_done / g->n_part), memory_order_relaxed);
    atomic_store_explicit(&where->rank, g->member[(g->me + (receives ? g->n - 1 : 1)) % g->n],
                          memory_order_relaxed);
    atomic_store_explicit(&where->sending, (int)(g->send_posted - g->send_done),
                          memory_order_relaxed);
    return (receives || (g->send_done < g->n_message)) ? CT_INPROGRESS : CT_OK;
}

int ct_allgatherv_pending(ct_allgatherv *g, MPI_Request **out, int max)
{
    int n = 0;

    if ((g->recv_done < g->recv_posted) && (n < max))
        out[n++] = &g->recv[g->recv_done % WINDOW].request;
    if ((g->send_done < g->send_posted) && (n < max))
        out[n++] = &g->send[g->send_done % WINDOW].request;
    return n;
}
