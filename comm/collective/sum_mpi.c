#include "comm/collective/coll.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "comm/core/comm.h"

/* MPI counts with int: a sum of more goes in parts. */
enum { MOST_PART = 1 << 30, PARTS = 8, ROOM = 4096 /* sums under way */ };

typedef struct sum {
    float *data;
    int64_t n;
    void *marker; /* a copy behind the gradient; NULL: the gradient is there */
    int n_part;   /* begun; 0: none */
    MPI_Request part[PARTS];
} sum;

typedef struct group {
    const ct_device *dev;
    MPI_Comm comm;
    int rank;
    float *mark;      /* where markers go */
    sum sum[ROOM];    /* in turn */
    int64_t begun;    /* by the caller, … */
    int64_t started;  /* … by MPI, … */
    int64_t followed; /* … and waited for */
} group;

static bool there(void)
{
    return strcmp(ct_mpi_takes_cuda(), "yes") == 0;
}

/* MPI knows who is there. */
static ct_status make_id(void *id)
{
    memset(id, 0, CT_DEVICE_SUM_ID);
    return CT_OK;
}

static ct_status check(const group *g, int err, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (err == MPI_SUCCESS) return CT_OK;
    (void)MPI_Error_string(err, text, &n);
    return CT_FAIL(CT_ERR_COMM, "rank %d: %s: %s", g->rank, what, text);
}

static void close_group(void *of)
{
    group *g = of;

    if (g == NULL) return;
    if (g->mark != NULL) g->dev->host_release(g->mark);
    if (g->comm != MPI_COMM_NULL) (void)MPI_Comm_free(&g->comm);
    free(g);
}

static ct_status open_group(const ct_device *dev, void *comm, const void *id, int rank, int n_rank,
                            void **group_p)
{
    const ct_comm *of = comm;
    group *g = calloc(1, sizeof(*g));
    void *mark = NULL;
    int size = 0;
    ct_status status = CT_OK;

    (void)id;
    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sums by MPI");
    g->dev = dev;
    g->rank = rank;
    g->comm = MPI_COMM_NULL;
    status = check(g, MPI_Comm_dup(of->mpi, &g->comm), "a communicator for sums");
    if (status == CT_OK) {
        (void)MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
        (void)MPI_Comm_size(g->comm, &size);
        if (size != n_rank)
            status = CT_FAIL(CT_ERR_COMM, "sums of %d ranks among MPI's %d", n_rank, size);
    }
    if (status == CT_OK) status = dev->host_acquire(sizeof(*g->mark), &mark);
    g->mark = mark;
    if (status != CT_OK) {
        close_group(g);
        return status;
    }
    *group_p = g;
    return CT_OK;
}

/* Each rank begins the same sums in the same order. */
static ct_status start(group *g, sum *s)
{
    for (int64_t at = 0; at < s->n; at += MOST_PART) {
        int64_t left = s->n - at;

        CT_TRY(check(g,
                     MPI_Iallreduce(MPI_IN_PLACE, s->data + at,
                                    (int)((left < MOST_PART) ? left : MOST_PART), MPI_FLOAT,
                                    MPI_SUM, g->comm, &s->part[s->n_part]),
                     "sum of gradients"));
        s->n_part += 1;
    }
    g->started += 1;
    return CT_OK;
}

/* Starts what can be; wait: up to that one, which must be. */
static ct_status advance(group *g, int64_t end, bool wait)
{
    while (g->started < end) {
        sum *s = &g->sum[g->started % ROOM];
        bool done = true;

        if (s->marker != NULL) CT_TRY(g->dev->copy_done(s->marker, wait, &done));
        if (!done) return CT_OK;
        s->marker = NULL;
        CT_TRY(start(g, s));
    }
    return CT_OK;
}

static ct_status poll(void *of)
{
    group *g = of;
    int done = 0;

    CT_TRY(advance(g, g->begun, false));
    if (g->followed == g->started) return CT_OK;
    return check(g,
                 MPI_Testall(g->sum[g->followed % ROOM].n_part, g->sum[g->followed % ROOM].part,
                             &done, MPI_STATUSES_IGNORE),
                 "sum of gradients");
}

/* The copy comes behind the gradient in the order of the stream. */
static ct_status begin(void *of, ct_stream st, float *data, int64_t n, void **ticket_p)
{
    group *g = of;
    sum *s = &g->sum[g->begun % ROOM];

    if ((g->begun - g->followed == ROOM) || (n > (int64_t)PARTS * MOST_PART))
        return CT_FAIL(CT_ERR_ARG, "sum %lld of %lld elements, and %lld under way",
                       (long long)g->begun, (long long)n, (long long)(g->begun - g->followed));
    *s = (sum){ .data = data, .n = n };
    if (n > 0) CT_TRY(g->dev->copy_begin(st, g->mark, data, sizeof(*g->mark), true, &s->marker));
    g->begun += 1;
    *ticket_p = s;
    return poll(g);
}

static ct_status follow(void *of, ct_stream st, void *ticket)
{
    group *g = of;
    sum *s = &g->sum[g->followed % ROOM];

    (void)st; /* what it is given from here on is given later than MPI ends */
    if (ticket != s)
        return CT_FAIL(CT_ERR_ARG, "sum %lld is not the next one", (long long)g->followed);
    CT_TRY(advance(g, g->followed + 1, true));
    CT_TRY(check(g, MPI_Waitall(s->n_part, s->part, MPI_STATUSES_IGNORE), "sum of gradients"));
    g->followed += 1;
    return poll(g);
}

const ct_device_sum_ops ct_device_sum_mpi = {
    .name = "MPI",
    .there = there,
    .make_id = make_id,
    .open = open_group,
    .close = close_group,
    .begin = begin,
    .follow = follow,
    .poll = poll,
};
