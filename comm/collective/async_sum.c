#include "comm/collective/async_sum.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/collective/repro.h"
#include "comm/collective/schedule.h"
#include "comm/core/message.h"
#include "comm/core/reduce.h"

enum { MAX_MESSAGE = 32 /* a rank's children in a binomial tree, and some */ };

typedef enum {
    GATHERS, /* every rank gets all numbers and adds them                         */
    UP,      /* adds what comes from the ranks above it in the tree, passes it on */
    DOWN,    /* the sum is there: passes it on                                    */
    RING,    /* of floats: an algorithm of ct_coll_table                          */
    AT_END   /* of floats, reproducible                                           */
} way;

struct ct_async_sum {
    ct_comm *comm;
    ct_async_sum *next; /* under way, too, and begun before */
    way way;
    double *v;
    int n;
    double *room; /* what comes: of all ranks, or of one */
    int64_t step; /* of the tree: how far the ranks of a pair are apart */
    int tag;
    ct_message message[MAX_MESSAGE]; /* of GATHERS the first one's request, by MPI */
    int n_message;
    const ct_coll_ops *ops; /* of floats */
    ct_coll_req coll;
};

/* ---- a binomial tree, as ct_comm_sum_tree(): of each pair of neighbours the right one hands its
 * sum to the left one. The sum comes back the same way. */

static ct_status send_to(ct_async_sum *s, int64_t rank)
{
    CT_TRY(ct_message_send(s->comm, &s->message[s->n_message], s->v, s->n, MPI_DOUBLE, (int)rank,
                           s->tag));
    s->n_message += 1;
    return CT_OK;
}

static ct_status receive_from(ct_async_sum *s, int64_t rank)
{
    CT_TRY(ct_message_recv(s->comm, &s->message[s->n_message], s->room, s->n, MPI_DOUBLE, (int)rank,
                           s->tag));
    s->n_message += 1;
    return CT_OK;
}

/* The sum is in v: to those who handed theirs to this rank. */
static ct_status pass_down(ct_async_sum *s)
{
    s->way = DOWN;
    for (s->step /= 2; s->step >= 1; s->step /= 2) {
        if (s->comm->rank + s->step < s->comm->size) CT_TRY(send_to(s, s->comm->rank + s->step));
    }
    return CT_OK;
}

static ct_status climb(ct_async_sum *s)
{
    const ct_comm *c = s->comm;

    for (; s->step < c->size; s->step *= 2) {
        if ((c->rank & s->step) != 0) {
            CT_TRY(send_to(s, c->rank - s->step));
            return receive_from(s, c->rank - s->step);
        }
        if (c->rank + s->step < c->size) return receive_from(s, c->rank + s->step);
    }
    return pass_down(s);
}

/* What was waited for has come. */
static ct_status next_of_tree(ct_async_sum *s)
{
    if ((s->comm->rank & s->step) != 0) {
        memcpy(s->v, s->room, (size_t)s->n * sizeof(*s->v));
        return pass_down(s);
    }
    for (int i = 0; i < s->n; ++i) s->v[i] += s->room[i];
    s->step *= 2;
    return climb(s);
}

/* ---- moving */

static void add_gathered(const ct_async_sum *s)
{
    for (int i = 0; i < s->n; ++i) {
        double sum = s->room[i];

        for (int r = 1; r < s->comm->size; ++r)
            sum += s->room[(size_t)r * (size_t)s->n + (size_t)i];
        s->v[i] = sum;
    }
}

/* CT_OK: it is done. With the lock held. */
static ct_status progress(ct_async_sum *s)
{
    if (s->way == AT_END) return CT_INPROGRESS;
    if (s->way == RING) return s->ops->progress(&s->coll);
    for (;;) {
        for (; s->n_message > 0; s->n_message -= 1) {
            int done = 0;

            CT_TRY(ct_message_test(s->comm, &s->message[s->n_message - 1], &done));
            if (!done) return CT_INPROGRESS;
        }
        if (s->way != UP) break;
        CT_TRY(next_of_tree(s));
        if (s->n_message == 0) break; /* nobody below */
    }
    if (s->way == GATHERS) add_gathered(s);
    s->way = DOWN;
    return CT_OK;
}

static int pending(ct_async_sum *s, MPI_Request **out, int max)
{
    int n = 0;

    if (s->way == RING) return s->ops->pending(&s->coll, out, max);
    for (int i = 0; (i < s->n_message) && (n < max); ++i) {
        if (s->message[i].request != MPI_REQUEST_NULL) out[n++] = &s->message[i].request;
    }
    return n;
}

ct_status ct_async_sum_poll(ct_comm *c)
{
    ct_status status = CT_OK;

    if (c->async_sums == NULL) return CT_OK;
    ct_comm_lock(c);
    for (ct_async_sum *s = c->async_sums; (s != NULL) && (status == CT_OK); s = s->next) {
        status = progress(s);
        if (status == CT_INPROGRESS) status = CT_OK;
    }
    ct_comm_unlock(c);
    return status;
}

int ct_async_sum_pending(ct_comm *c, MPI_Request **out, int max)
{
    int n = 0;

    for (ct_async_sum *s = c->async_sums; s != NULL; s = s->next) n += pending(s, out + n, max - n);
    return n;
}

/* ---- begin and end */

/* Out of the list, and gone. */
static void drop(ct_async_sum *s)
{
    for (ct_async_sum **at = &s->comm->async_sums; *at != NULL; at = &(*at)->next) {
        if (*at != s) continue;
        *at = s->next;
        break;
    }
    free(s->room);
    free(s);
}

static ct_status create(ct_comm *c, ct_async_sum **s_p)
{
    ct_async_sum *s = calloc(1, sizeof(*s));

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sum over ranks");
    s->comm = c;
    s->next = c->async_sums;
    c->async_sums = s;
    *s_p = s;
    return CT_OK;
}

static ct_status start(ct_async_sum *s)
{
    ct_comm *c = s->comm;
    bool tree = ct_comm_sums_by_tree(c, s->n);
    ct_status status = CT_UNSUPPORTED;

    s->room = malloc(sizeof(*s->room) * (size_t)s->n * (tree ? 1 : (size_t)c->size));
    if (s->room == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d numbers", s->n);
    ct_comm_lock(c);
    if (!tree) {
        s->way = GATHERS;
        s->n_message = 1;
        s->message[0] = (ct_message){ .check = MPI_REQUEST_NULL };
        status = ct_comm_gather_begin(c, s->v, s->n, s->room, &s->message[0].request);
    }
    if (status == CT_UNSUPPORTED) {
        s->way = UP;
        s->n_message = 0;
        s->step = 1;
        s->tag = ct_comm_take_tags(c, 1);
        status = climb(s);
    }
    ct_comm_unlock(c);
    return status;
}

ct_status ct_async_sum_begin(ct_comm *c, double *v, int n, ct_async_sum **s_p)
{
    ct_async_sum *s;
    ct_status status = CT_OK;

    CT_TRY(create(c, &s));
    s->way = DOWN; /* done, where nothing is to be added */
    s->v = v;
    s->n = n;
    if ((c->size > 1) && (n > 0)) status = start(s);
    if (status == CT_OK)
        *s_p = s;
    else
        drop(s);
    return status;
}

/* By name: sums in one order, the same bits on every rank, for which MPI gives no promise. */
ct_status ct_async_sum_begin_f32(ct_comm *c, float *v, int64_t n, bool reproducible,
                                 ct_async_sum **s_p)
{
    ct_async_sum *s;
    ct_status status = CT_OK;

    CT_TRY(create(c, &s));
    s->way = reproducible ? AT_END : RING;
    s->coll = (ct_coll_req){ .comm = c, .buf = v, .count = n, .dtype = CT_F32 };
    if (!reproducible) {
        s->coll.tag = ct_comm_take_tags(c, CT_COLL_TAGS);
        status = ct_coll_choose(c, n, CT_F32, "ring", &s->ops);
        if (status == CT_OK) status = ct_coll_begin(s->ops, &s->coll);
    }
    if (status == CT_OK)
        *s_p = s;
    else
        drop(s);
    return status;
}

static ct_status wait_for(ct_async_sum *s)
{
    ct_comm *c = s->comm;
    int idle = 0;

    for (;;) {
        MPI_Request *request[CT_COMM_MAX_PENDING];
        ct_status status, moved = CT_OK;
        int n = 0;

        ct_comm_lock(c);
        status = progress(s);
        if (status == CT_INPROGRESS) n = pending(s, request, CT_COMM_MAX_PENDING);
        if (status == CT_INPROGRESS) {
            moved = ct_comm_move(c);
            n += ct_comm_pending(c, request + n, CT_COMM_MAX_PENDING - n);
        }
        ct_comm_unlock(c);
        if (status != CT_INPROGRESS) return status;
        CT_TRY(moved);
        idle += 1;
        CT_TRY(ct_comm_wait_any(c, request, n, &idle));
    }
}

ct_status ct_async_sum_end(ct_async_sum *s)
{
    ct_status status;

    if (s->way == AT_END)
        status = ct_repro_run(s->comm, "ring", s->coll.buf, s->coll.count);
    else if (s->way == RING)
        status = ct_coll_end(s->ops, &s->coll);
    else
        status = wait_for(s);
    drop(s);
    return status;
}

/* ---- transfers */

typedef enum {
    SCATTERS, /* of each rank its piece of the sum */
    GATHERS_PIECES,
    MOVES, /* between two ranks */
    THERE, /* the device's library has it */
    OVER
} stage;

/* Memory of the host that a device's numbers cross, used again. */
typedef struct crossing {
    struct crossing *next; /* free, too */
    const ct_device *dev;
    char *data;
    size_t bytes;
} crossing;

typedef struct transfer {
    ct_transfers *of;
    struct transfer *next; /* begun after it */
    ct_transfer t;
    stage stage;
    void *to;             /* on the device, of what crosses; else NULL  */
    crossing *room_there; /* that it crosses                      */
    void *ticket;         /* the library's                              */
    int tag;
    char *room; /* other ranks' numbers of this rank's piece, one rank behind the other */
    ct_message *message;
    int n_message;
} transfer;

struct ct_transfers {
    ct_comm *group, *peers;       /* peers: owned */
    const ct_device_sum_ops *lib; /* NULL: none */
    void *library;                /* its group  */
    crossing *free;
    ct_comm_mover mover;
    transfer *first;         /* under way */
    _Atomic int awaits, tag; /* what the main thread waits for: a peer and its message's tag, … */
};

/* … or one of these */
enum { NOTHING = -1, GROUP = -2 };

static int64_t piece_at(const transfer *x, int rank)
{
    const ct_transfer *t = &x->t;
    int64_t at = 0;

    if (t->kind == CT_TRANSFER_SUM) return ct_part(t->n, x->of->group->size, rank);
    for (int r = 0; r < rank; ++r) at += t->piece[r] * t->unit;
    return at;
}

static int64_t piece_n(const transfer *x, int rank)
{
    return piece_at(x, rank + 1) - piece_at(x, rank);
}

static char *place_in(const transfer *x, const void *whole, int64_t at)
{
    return (char *)(uintptr_t)whole + (size_t)at * ct_dtype_size(x->t.dtype);
}

/* n elements to the rank, or from it, as the next message. Nothing is none. */
static ct_status add_message(transfer *x, ct_comm *c, bool receives, void *data, int64_t n,
                             int rank)
{
    ct_message *m = &x->message[x->n_message];
    MPI_Datatype type = ct_comm_datatype(x->t.dtype);

    if (n == 0) return CT_OK;
    if (n > INT_MAX)
        return CT_FAIL(CT_ERR_ARG, "a message of %lld numbers is more than MPI counts",
                       (long long)n);
    if (receives)
        CT_TRY(ct_message_recv(c, m, data, (int)n, type, rank, x->tag));
    else
        CT_TRY(ct_message_send(c, m, data, (int)n, type, rank, x->tag));
    x->n_message += 1;
    return CT_OK;
}

/* To every other rank its piece of what this one has, and theirs of this one's into the room. */
static ct_status start_scatter(transfer *x)
{
    ct_comm *c = x->of->group;
    int64_t mine = piece_n(x, c->rank);

    x->stage = SCATTERS;
    x->n_message = 0;
    for (int i = 1; i < c->size; ++i) {
        int from = (c->rank + c->size - i) % c->size;

        CT_TRY(add_message(x, c, true, place_in(x, x->room, (i - 1) * mine), mine, from));
    }
    for (int i = 1; i < c->size; ++i) {
        int to = (c->rank + i) % c->size;

        CT_TRY(
            add_message(x, c, false, place_in(x, x->t.from, piece_at(x, to)), piece_n(x, to), to));
    }
    return CT_OK;
}

/* This rank's piece, which lies there, to all others; theirs to their places. */
static ct_status start_gather(transfer *x, const void *piece)
{
    ct_comm *c = x->of->group;

    x->stage = GATHERS_PIECES;
    x->n_message = 0;
    for (int i = 1; i < c->size; ++i) {
        int from = (c->rank + c->size - i) % c->size;

        CT_TRY(add_message(x, c, true, place_in(x, x->t.to, piece_at(x, from)), piece_n(x, from),
                           from));
    }
    for (int i = 1; i < c->size; ++i)
        CT_TRY(add_message(x, c, false, place_in(x, piece, 0), piece_n(x, c->rank),
                           (c->rank + i) % c->size));
    return CT_OK;
}

/* All ranks' numbers of this rank's piece are here. */
static ct_status add_pieces(transfer *x)
{
    const ct_comm *c = x->of->group;
    int64_t mine = piece_n(x, c->rank), at = piece_at(x, c->rank);
    const void **src = malloc(sizeof(*src) * (size_t)c->size);
    void *dst = (x->t.kind == CT_TRANSFER_SUM) ? place_in(x, x->t.to, at) : x->t.to;

    if (src == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sum of %d ranks", c->size);
    src[c->rank] = place_in(x, x->t.from, at);
    for (int i = 1; i < c->size; ++i)
        src[(c->rank + c->size - i) % c->size] = place_in(x, x->room, (i - 1) * mine);
    if (mine > 0) ct_reduce_many(x->t.dtype, mine, src, c->size, &dst, 1, c->n_thread);
    free(src);
    if (x->t.kind == CT_TRANSFER_SUM) return start_gather(x, dst);
    x->stage = OVER;
    return CT_OK;
}

static ct_comm *comm_of(const transfer *x)
{
    return (x->stage == MOVES) ? x->of->peers : x->of->group;
}

/* CT_OK: it is over. With the lock held. */
static ct_status move(transfer *x)
{
    while (x->stage != OVER) {
        for (; x->n_message > 0; x->n_message -= 1) {
            int done = 0;

            CT_TRY(ct_message_test(comm_of(x), &x->message[x->n_message - 1], &done));
            if (!done) return CT_INPROGRESS;
        }
        if (x->stage == SCATTERS)
            CT_TRY(add_pieces(x));
        else
            x->stage = OVER;
    }
    return CT_OK;
}

static ct_status move_all(void *ctx)
{
    for (transfer *x = ((ct_transfers *)ctx)->first; x != NULL; x = x->next) {
        ct_status status = move(x);

        if ((status != CT_OK) && (status != CT_INPROGRESS)) return status;
    }
    return CT_OK;
}

static int pending_of_all(void *ctx, MPI_Request **out, int max)
{
    int n = 0;

    for (const transfer *x = ((ct_transfers *)ctx)->first; x != NULL; x = x->next) {
        for (int i = 0; (x->stage != OVER) && (i < x->n_message) && (n < max); ++i) {
            if (x->message[i].request != MPI_REQUEST_NULL) out[n++] = &x->message[i].request;
        }
    }
    return n;
}

/* Another thread that waits may be moving those of the list. */
static void forget(transfer *x)
{
    ct_comm_lock(x->of->peers);
    for (transfer **at = &x->of->first; *at != NULL; at = &(*at)->next) {
        if (*at != x) continue;
        *at = x->next;
        break;
    }
    ct_comm_unlock(x->of->peers);
    if (x->room_there != NULL) {
        x->room_there->next = x->of->free;
        x->of->free = x->room_there;
    }
    free(x->room);
    free(x->message);
    free(x);
}

/* At the end of the list: the oldest moves first. */
static void remember(transfer *x)
{
    transfer **at = &x->of->first;

    while (*at != NULL) at = &(*at)->next;
    *at = x;
}

static bool is_of_group(ct_transfer_kind kind)
{
    return (kind == CT_TRANSFER_SUM) || (kind == CT_TRANSFER_GATHER) ||
           (kind == CT_TRANSFER_SCATTER);
}

static ct_status make_room(transfer *x)
{
    int n = is_of_group(x->t.kind) ? x->of->group->size : 1;
    size_t bytes = 1;

    if ((x->t.kind == CT_TRANSFER_SUM) || (x->t.kind == CT_TRANSFER_SCATTER))
        bytes +=
            (size_t)(n - 1) * (size_t)piece_n(x, x->of->group->rank) * ct_dtype_size(x->t.dtype);
    x->room = malloc(bytes);
    x->message = malloc(sizeof(*x->message) * 2 * (size_t)n);
    return ((x->room != NULL) && (x->message != NULL))
               ? CT_OK
               : CT_FAIL(CT_ERR_NOMEM, "no memory to exchange %lld numbers", (long long)x->t.n);
}

/* ---- numbers of a device */

static bool is_there(const ct_transfers *all, const ct_transfer *t)
{
    return (t->dev != NULL) && (all->lib != NULL) && is_of_group(t->kind) && (t->dtype == CT_F32);
}

/* Of a transfer: what this rank gives, and what it gets. */
static size_t bytes_of(const transfer *x, bool gives)
{
    ct_transfer_kind piece = gives ? CT_TRANSFER_GATHER : CT_TRANSFER_SCATTER;
    int64_t n = (x->t.kind == piece) ? piece_n(x, x->of->group->rank) : x->t.n;

    if (x->t.kind == (gives ? CT_TRANSFER_RECEIVE : CT_TRANSFER_SEND)) n = 0;
    return (size_t)n * ct_dtype_size(x->t.dtype);
}

static ct_status take_crossing(ct_transfers *all, const ct_device *dev, size_t bytes,
                               crossing **c_p)
{
    crossing *c;
    void *data = NULL;

    for (crossing **at = &all->free; *at != NULL; at = &(*at)->next) {
        if ((*at)->bytes < bytes) continue;
        *c_p = *at;
        *at = (*at)->next;
        return CT_OK;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a transfer");
    if (dev->host_acquire(bytes, &data) != CT_OK) {
        free(c);
        return CT_ERR_NOMEM;
    }
    *c = (crossing){ .dev = dev, .data = data, .bytes = bytes };
    *c_p = c;
    return CT_OK;
}

/* From here on x is a transfer of the host's memory. */
static ct_status cross_down(transfer *x)
{
    const ct_device *dev = x->t.dev;
    size_t down = bytes_of(x, true), at = ct_align_up(down);
    const void *from = x->t.from;

    CT_TRY(take_crossing(x->of, dev, at + bytes_of(x, false) + 1, &x->room_there));
    x->to = x->t.to;
    x->t.from = x->room_there->data;
    x->t.to = x->room_there->data + at;
    return (down > 0) ? dev->to_host(x->t.stream, x->room_there->data, from, down) : CT_OK;
}

static ct_status cross_up(const transfer *x)
{
    const ct_device *dev = x->t.dev;
    size_t up = bytes_of(x, false);

    if ((x->room_there == NULL) || (up == 0)) return CT_OK;
    return ((dev->upload != NULL) ? dev->upload : dev->from_host)(x->t.stream, x->to, x->t.to, up);
}

static ct_status start_there(transfer *x)
{
    x->stage = THERE;
    return x->of->lib->transfer(x->of->library, &x->t, &x->ticket);
}

/* ---- begin, wait */

static ct_status start_transfer(transfer *x)
{
    const ct_comm *c = x->of->group;
    const ct_transfer *t = &x->t;

    if (!is_of_group(t->kind)) {
        x->stage = MOVES;
        x->tag = t->tag;
        return (t->kind == CT_TRANSFER_RECEIVE)
                   ? add_message(x, x->of->peers, true, t->to, t->n, t->peer)
                   : add_message(x, x->of->peers, false, place_in(x, t->from, 0), t->n, t->peer);
    }
    x->tag = ct_comm_take_tags(x->of->group, 1);
    if (t->kind != CT_TRANSFER_GATHER) return start_scatter(x);
    memcpy(place_in(x, t->to, piece_at(x, c->rank)), t->from,
           (size_t)piece_n(x, c->rank) * ct_dtype_size(t->dtype));
    return start_gather(x, t->from);
}

static ct_status transfer_begin(void *ctx, const ct_transfer *t, void **ticket_p)
{
    ct_transfers *all = ctx;
    transfer *x;
    ct_status status;

    if (is_of_group(t->kind) && (all->group == NULL))
        return CT_FAIL(CT_ERR_ARG, "no group divides layers");
    x = calloc(1, sizeof(*x));
    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a transfer");
    x->of = all;
    x->t = *t;
    x->stage = OVER; /* it moves once it has started */
    if (is_there(all, t)) {
        status = start_there(x);
    } else {
        status = (t->dev != NULL) ? cross_down(x) : CT_OK;
        if (status == CT_OK) status = make_room(x);
        ct_comm_lock(all->peers);
        remember(x);
        if (status == CT_OK) status = start_transfer(x);
        ct_comm_unlock(all->peers);
    }
    if (status == CT_OK)
        *ticket_p = x;
    else
        forget(x);
    return status;
}

static ct_status transfer_wait(void *ctx, void *ticket)
{
    ct_transfers *all = ctx;
    transfer *x = ticket;
    ct_status status = CT_INPROGRESS, moved = CT_OK;
    bool one = (x->t.kind == CT_TRANSFER_SEND) || (x->t.kind == CT_TRANSFER_RECEIVE);
    int idle = 0;

    if (x->stage == THERE) {
        status = all->lib->follow(all->library, x->t.stream, x->ticket);
        forget(x);
        return status;
    }
    all->tag = x->t.tag;
    all->awaits = one ? x->t.peer : GROUP;
    while ((status == CT_INPROGRESS) && (moved == CT_OK)) {
        MPI_Request *request[CT_COMM_MAX_PENDING];
        int n = 0;

        ct_comm_lock(all->peers);
        status = move(x);
        if (status == CT_INPROGRESS) {
            moved = ct_comm_move(all->peers);
            n = ct_comm_pending(all->peers, request, CT_COMM_MAX_PENDING);
        }
        ct_comm_unlock(all->peers);
        idle += 1;
        if ((status == CT_INPROGRESS) && (moved == CT_OK))
            moved = ct_comm_wait_any(all->peers, request, n, &idle);
    }
    all->awaits = NOTHING;
    if (moved != CT_OK) status = moved;
    if (status == CT_OK) status = cross_up(x);
    forget(x);
    return status;
}

static ct_status transfer_poll(void *ctx)
{
    ct_transfers *all = ctx;
    ct_status status;

    if (all->first == NULL) return CT_OK;
    ct_comm_lock(all->peers);
    status = move_all(all);
    ct_comm_unlock(all->peers);
    return status;
}

static void transfer_drop(void *ctx, void *ticket)
{
    ct_transfers *all = ctx;
    transfer *x = ticket;

    if (x->stage == THERE) all->lib->drop(all->library, x->ticket);
    ct_comm_lock(all->peers);
    for (int i = 0; (x->stage != OVER) && (i < x->n_message); ++i) ct_message_drop(&x->message[i]);
    ct_comm_unlock(all->peers);
    forget(x);
}

const ct_transfer_ops ct_transfers_ops = { transfer_begin, transfer_wait, transfer_poll,
                                           transfer_drop };

ct_status ct_transfers_create(ct_comm *group, ct_comm *peers, ct_transfers **t_p)
{
    ct_transfers *t = calloc(1, sizeof(*t));
    ct_status status = CT_OK;

    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for transfers");
    t->group = group;
    t->awaits = NOTHING;
    status = ct_comm_split(peers, 0, peers->rank, &t->peers);
    if (status != CT_OK) {
        free(t);
        return status;
    }
    t->mover = (ct_comm_mover){ .move = move_all, .pending = pending_of_all, .ctx = t };
    ct_comm_plug(t->peers, &t->mover);
    *t_p = t;
    return CT_OK;
}

void ct_transfers_use(ct_transfers *t, const ct_device_sum_ops *lib, void *library)
{
    t->lib = lib;
    t->library = library;
}

void ct_transfers_describe(const ct_transfers *t, char *text, size_t size)
{
    int awaits = t->awaits;

    if ((awaits == NOTHING) && (t->lib != NULL))
        snprintf(text, size, "the %d ranks of its replica exchange values on the GPUs, by %s",
                 t->group->size, t->lib->name);
    else if (awaits == NOTHING)
        snprintf(text, size, "no value is waited for");
    else if (awaits == GROUP)
        snprintf(text, size, "it waits for a value that the %d ranks of its replica share",
                 t->group->size);
    else
        snprintf(text, size, "it waits for rank %d: value %d between the two", awaits, t->tag);
}

void ct_transfers_destroy(ct_transfers *t)
{
    if (t == NULL) return;
    ct_comm_unplug(t->peers, &t->mover);
    ct_comm_destroy(t->peers);
    while (t->free != NULL) {
        crossing *c = t->free;

        t->free = c->next;
        c->dev->host_release(c->data);
        free(c);
    }
    free(t);
}
