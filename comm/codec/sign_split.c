/* How blocks of signs are dealt to ranks, how many bytes they take, and how each part gets to the
 * rank that looks after it. */
#include "comm/codec/sign_split.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/allgatherv.h"
#include "framework/base/clock.h"

typedef struct head {
    uint64_t bytes;
    int64_t n;
} head;

static int64_t blocks_of(int64_t n)
{
    return (n + CT_SIGN_BLOCK - 1) / CT_SIGN_BLOCK;
}

static int64_t first_block(const ct_sign_cut *c, int j)
{
    return blocks_of(c->n) * j / c->parts;
}

void ct_sign_part(const ct_sign_cut *c, int j, int64_t *first_p, int64_t *n_p)
{
    int64_t first = first_block(c, j) * CT_SIGN_BLOCK, end = first_block(c, j + 1) * CT_SIGN_BLOCK;

    *first_p = (first < c->n) ? first : c->n;
    *n_p = ((end < c->n) ? end : c->n) - *first_p;
}

size_t ct_sign_bytes(int64_t n)
{
    return CT_SIGN_HEAD + CT_SIGN_BLOCK_BYTES * (size_t)blocks_of(n);
}

size_t ct_sign_at(const ct_sign_cut *c, int j)
{
    return CT_SIGN_HEAD * (size_t)j + CT_SIGN_BLOCK_BYTES * (size_t)first_block(c, j);
}

void ct_sign_head(void *payload, int64_t n)
{
    memcpy(payload, &(head){ .bytes = ct_sign_bytes(n), .n = n }, sizeof(head));
}

enum { WINDOW = 8 /* messages under way, each direction */ };

struct ct_sign_split {
    ct_comm *comm;
    ct_sign_cut cut;
    const int *order;
    int me, tag;
    int64_t n;     /* elements of its part                   */
    char *payload; /* of all parts                           */
    char *landing; /* [slots] of room bytes: signs of part `me` */
    int slots;     /* WINDOW; kept on a device: one a shift */
    const ct_device *dev;
    size_t room;
    ct_sized_message out[WINDOW], in[WINDOW];
    int sent, send_done, received, recv_done; /* of the shifts 1 .. parts - 1 */
};

ct_status ct_sign_split_create(ct_comm *c, const ct_sign_cut *cut, const int *order, int me,
                               int tag, ct_sign_split **s_p)
{
    ct_sign_split *s = calloc(1, sizeof(*s));
    int64_t first = 0;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to exchange signs");
    s->comm = c;
    s->cut = *cut;
    s->order = order;
    s->me = me;
    s->tag = tag;
    ct_sign_part(cut, me, &first, &s->n);
    s->room = ct_align_up(ct_sign_bytes(s->n));
    s->slots = WINDOW;
    s->payload = ct_mem_acquire(ct_sign_at(cut, cut->parts));
    s->landing = ct_mem_acquire(WINDOW * s->room);
    if ((s->payload == NULL) || (s->landing == NULL)) {
        ct_sign_split_destroy(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the signs of %lld elements", (long long)cut->n);
    }
    *s_p = s;
    return CT_OK;
}

static void release(const ct_sign_split *s, void *block)
{
    if (s->dev == NULL)
        ct_mem_release(block);
    else if (block != NULL)
        s->dev->host_release(block);
}

void ct_sign_split_destroy(ct_sign_split *s)
{
    if (s == NULL) return;
    release(s, s->payload);
    release(s, s->landing);
    free(s);
}

ct_status ct_sign_split_keep_on(ct_sign_split *s, const ct_device *dev)
{
    void *payload = NULL, *landing = NULL;

    release(s, s->payload);
    release(s, s->landing);
    s->payload = s->landing = NULL;
    s->dev = dev;
    s->slots = s->cut.parts;
    CT_TRY(dev->host_acquire(ct_sign_at(&s->cut, s->cut.parts), &payload));
    s->payload = payload;
    CT_TRY(dev->host_acquire((size_t)s->slots * s->room, &landing));
    s->landing = landing;
    return CT_OK;
}

static char *landing_of(const ct_sign_split *s, int shift)
{
    return s->landing + (size_t)(shift % s->slots) * s->room;
}

void *ct_sign_split_landed(ct_sign_split *s, int shift)
{
    return landing_of(s, shift);
}

void *ct_sign_split_payload(ct_sign_split *s)
{
    return s->payload;
}

void ct_sign_split_start(ct_sign_split *s)
{
    s->sent = s->send_done = s->received = s->recv_done = 1;
}

/* Message `shift` goes to the rank so many places on, and one comes from as many places back.
 * Parts that have no elements are left out, on both sides. */
static ct_status post(ct_sign_split *s, bool *moved, int64_t *bytes_sent)
{
    int p = s->cut.parts;

    for (; (s->received < p) && (s->received < s->recv_done + WINDOW); ++s->received) {
        int slot = s->received % WINDOW, from = (s->me - s->received + p) % p;

        *moved = true;
        s->in[slot].busy = false;
        if (s->n == 0) continue;
        CT_TRY(ct_sized_message_recv(s->comm, &s->in[slot], landing_of(s, s->received), s->room,
                                     ct_sign_bytes(s->n), s->order[from], s->tag));
    }
    for (; (s->sent < p) && (s->sent < s->send_done + WINDOW); ++s->sent) {
        int slot = s->sent % WINDOW, to = (s->me + s->sent) % p;
        int64_t first = 0, n = 0;

        *moved = true;
        ct_sign_part(&s->cut, to, &first, &n);
        s->out[slot].busy = false;
        if (n == 0) continue;
        CT_TRY(ct_sized_message_send(s->comm, &s->out[slot], s->payload + ct_sign_at(&s->cut, to),
                                     ct_sign_bytes(n), s->order[to], s->tag));
        *bytes_sent += (int64_t)ct_sign_bytes(n);
    }
    return CT_OK;
}

static ct_status take(ct_sign_split *s, float *part, bool *moved, double *decode_s)
{
    bool done = true;

    for (; s->recv_done < s->received; ++s->recv_done) {
        int slot = s->recv_done % WINDOW;
        double start = 0;

        CT_TRY(ct_sized_message_progress(s->comm, &s->in[slot], &done));
        if (!done) break;
        *moved = true;
        if ((s->n == 0) || (part == NULL)) continue;
        start = ct_clock_s();
        CT_TRY(ct_sign_add(landing_of(s, s->recv_done), s->in[slot].bytes, part, s->n,
                           s->comm->n_thread));
        *decode_s += ct_clock_s() - start;
    }
    for (; s->send_done < s->sent; ++s->send_done) {
        CT_TRY(ct_sized_message_progress(s->comm, &s->out[s->send_done % WINDOW], &done));
        if (!done) break;
        *moved = true;
    }
    return CT_OK;
}

static void note_place(const ct_sign_split *s, bool moved, ct_coll_where *where)
{
    int p = s->cut.parts, from = -1;

    if (s->recv_done < p)
        from = s->order[(s->me - s->recv_done + p) % p];
    else if (s->send_done < p)
        from = s->order[(s->me + s->send_done) % p];
    if (moved) (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
    atomic_store_explicit(&where->n_step, 2 * (p - 1), memory_order_relaxed);
    atomic_store_explicit(&where->step, s->recv_done - 1, memory_order_relaxed);
    atomic_store_explicit(&where->rank, from, memory_order_relaxed);
    atomic_store_explicit(&where->sending, s->sent - s->send_done, memory_order_relaxed);
}

ct_status ct_sign_split_progress(ct_sign_split *s, float *part, int64_t *bytes_sent,
                                 double *decode_s, ct_coll_where *where)
{
    bool moved = true, any = false;

    while (moved) {
        moved = false;
        CT_TRY(post(s, &moved, bytes_sent));
        CT_TRY(take(s, part, &moved, decode_s));
        any = any || moved;
        if (where->brief) break;
    }
    note_place(s, any, where);
    return ((s->recv_done < s->cut.parts) || (s->send_done < s->cut.parts)) ? CT_INPROGRESS : CT_OK;
}

int ct_sign_split_pending(ct_sign_split *s, MPI_Request **out, int max)
{
    ct_sized_message *in = &s->in[s->recv_done % WINDOW], *sent = &s->out[s->send_done % WINDOW];
    int n = 0;

    if ((s->recv_done < s->received) && in->busy && (n < max)) out[n++] = &in->message.request;
    if ((s->send_done < s->sent) && sent->busy && (n < max)) out[n++] = &sent->message.request;
    return n;
}
