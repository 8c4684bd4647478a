/* What goes on inside a node: additions, and sums in shared memory. */
#include <math.h>
#include <string.h>

#include "comm/collective/node_sum.h"
#include "comm/core/reduce.h"
#include "cli/bench/bench_fit_time.h"
#include "cli/bench/fit_math.h"

enum { N_SHARED = 15, ADD_COUNT = 1 << 18 /* elements */ };

/* ---- additions */

typedef struct addition {
    float *x, *y;
    int n_thread;
} addition;

static ct_status renew_terms(void *ctx)
{
    addition *a = ctx;

    for (int i = 0; i < ADD_COUNT; ++i) a->x[i] = a->y[i] = 1;
    return CT_OK;
}

static ct_status add(void *ctx, int times)
{
    addition *a = ctx;

    for (int i = 0; i < times; ++i) ct_reduce_add(CT_F32, ADD_COUNT, a->x, a->y, a->n_thread);
    return CT_OK;
}

ct_status ct_fit_sums(ct_comm *c, ct_fit_report *report)
{
    addition a = { .n_thread = c->n_thread };
    ct_fit_experiment e = { c, renew_terms, add, &a, 1, true, false };
    double seconds = 0;
    ct_status status = CT_OK;

    a.x = ct_mem_acquire(2 * sizeof(*a.x) * ADD_COUNT);
    if (a.x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
    a.y = a.x + ADD_COUNT;
    status = ct_fit_measure(&e, &seconds);
    ct_mem_release(a.x);
    report->machine.sum_bandwidth = sizeof(float) * ADD_COUNT / seconds;
    return status;
}

/* ---- shared memory */

typedef struct shared {
    ct_comm *node; /* of the ranks of this node alone */
    float *buf;
    ct_coll_req req;
    ct_node_sum *sum;
} shared;

static ct_status renew_gradients(void *ctx)
{
    shared *s = ctx;

    for (int64_t i = 0; i < s->req.count; ++i) s->buf[i] = 1;
    return CT_OK;
}

static ct_status sum_shared(void *ctx, int times)
{
    shared *s = ctx;
    ct_status status = CT_OK;
    int idle = 0;

    (void)times; /* the terms are new each time */
    CT_TRY(ct_node_sum_start(s->sum));
    while ((status = ct_node_sum_progress(s->sum, NULL)) == CT_INPROGRESS) {
        idle += 1;
        ct_comm_relax(s->node, &idle);
    }
    return status;
}

static ct_status time_shared(ct_comm *c, shared *s, int64_t bytes, double *seconds_p)
{
    ct_fit_experiment e = { c, renew_gradients, sum_shared, s, 1, true, false };
    ct_status status = CT_OK;

    s->req = (ct_coll_req){
        .comm = s->node, .buf = s->buf, .count = bytes / 4, .dtype = CT_F32, .tag = 0
    };
    CT_TRY(ct_node_sum_create(&s->req, &s->sum));
    status = ct_fit_measure(&e, seconds_p);
    ct_node_sum_destroy(s->sum);
    s->sum = NULL;
    return status;
}

/* The times themselves are what counts; the line with a knee says in few words what they are. */
static ct_status fit_curve(ct_comm *c, shared *s, int n, ct_shared_memory *m)
{
    ct_fit_curve k = { .n = n };
    double bytes[CT_MAX_TIME], seconds[CT_MAX_TIME];
    ct_fit_knee fit;

    for (int i = 0; i < n; ++i) {
        k.bytes[i] = ldexp(4096, i);
        CT_TRY(time_shared(c, s, (int64_t)k.bytes[i], &k.seconds[i]));
    }
    fit = ct_fit_knee_of(bytes, seconds, ct_fit_pick(&k, 0, bytes, seconds));
    if (fit.beyond <= 0) return CT_OK; /* more bytes for nothing: no fit */
    m->latency_s = fit.alpha_s / 2;
    m->cached = (fit.beta > 0) ? fit.knee : 0;
    m->cached_bandwidth = (fit.beta > 0) ? 2 / fit.beta : 0;
    m->bandwidth = 2 / fit.beyond;
    m->residual = ct_fit_held_out(&k);
    m->n_time = n;
    memcpy(m->time_bytes, k.bytes, sizeof(k.bytes));
    memcpy(m->time_s, k.seconds, sizeof(k.seconds));
    return CT_OK;
}

ct_status ct_fit_shared(ct_comm *c, ct_fit_report *report)
{
    const int64_t most = (int64_t)512 << 20; /* of all ranks of a node */
    const ct_arena_ops *arena = NULL;
    shared s = { .node = NULL };
    void *block = NULL;
    int n = N_SHARED, window = -1, all = 0;
    int64_t offset = 0;
    ct_status status = CT_OK;

    report->machine.shared = (ct_shared_memory){ 0 };
    if (!c->node_shares || (ct_topo_min_node_size(c->topo) == 1)) return CT_OK;
    while ((n > 8) && (((int64_t)4096 << (n - 1)) > most / ct_topo_max_node_size(c->topo))) n -= 1;
    CT_TRY(ct_comm_create(c->node, "auto", &s.node));
    arena = ct_comm_arena(s.node);
    CT_TRY_GOTO(status, done, arena->acquire(arena->ctx, (size_t)4096 << (n - 1), "a fit", &block));
    s.buf = block;
    all = ct_node_find(s.node->node_memory, block, 1, &window, &offset); /* else no room for it */
    if (MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, c->world) != MPI_SUCCESS) all = 0;
    if (all) status = fit_curve(c, &s, n, &report->machine.shared);

done:
    if (block != NULL) arena->release(arena->ctx, block);
    ct_comm_destroy(s.node);
    return status;
}
