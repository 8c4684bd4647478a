#include "comm/collective/async_sum.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/collective/repro.h"

enum { MAX_REQUEST = 32 /* a rank's children in a binomial tree, and some */ };

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
    MPI_Request request[MAX_REQUEST];
    int n_request;
    const ct_coll_ops *ops; /* of floats */
    ct_coll_req coll;
};

/* ---- a binomial tree, as ct_comm_sum_tree(): of each pair of neighbours the right one hands its
 * sum to the left one. The sum comes back the same way. */

static ct_status send_to(ct_async_sum *s, int64_t rank)
{
    CT_TRY_MPI(MPI_Isend(s->v, s->n, MPI_DOUBLE, (int)rank, s->tag, s->comm->mpi,
                         &s->request[s->n_request]));
    s->n_request += 1;
    return CT_OK;
}

static ct_status receive_from(ct_async_sum *s, int64_t rank)
{
    CT_TRY_MPI(MPI_Irecv(s->room, s->n, MPI_DOUBLE, (int)rank, s->tag, s->comm->mpi,
                         &s->request[s->n_request]));
    s->n_request += 1;
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
        for (; s->n_request > 0; s->n_request -= 1) {
            int done = 0;

            CT_TRY_MPI(ct_comm_test(&s->request[s->n_request - 1], &done));
            if (!done) return CT_INPROGRESS;
        }
        if (s->way != UP) break;
        CT_TRY(next_of_tree(s));
        if (s->n_request == 0) break; /* nobody below */
    }
    if (s->way == GATHERS) add_gathered(s);
    s->way = DOWN;
    return CT_OK;
}

static int pending(ct_async_sum *s, MPI_Request **out, int max)
{
    int n = 0;

    if (s->way == RING) return s->ops->pending(&s->coll, out, max);
    for (int i = 0; (i < s->n_request) && (n < max); ++i) {
        if (s->request[i] != MPI_REQUEST_NULL) out[n++] = &s->request[i];
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
        s->n_request = 1;
        status = ct_comm_gather_begin(c, s->v, s->n, s->room, &s->request[0]);
    }
    if (status == CT_UNSUPPORTED) {
        s->way = UP;
        s->n_request = 0;
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
