#include "comm/collective/coll_p2p.h"

#include <stdlib.h>

#include "comm/core/reduce.h"

typedef struct p2p_state {
    ct_schedule schedule;
    ct_sched_run *run;
} p2p_state;

bool ct_coll_p2p_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    return ct_reduce_supports(dtype);
}

int ct_coll_p2p_place(const ct_comm *c)
{
    int at = 0;

    while (c->topo->order[at] != c->rank) at += 1;
    return at;
}

ct_status ct_coll_p2p_plan(const ct_coll_req *r, const char *algorithm, bool scatter, bool gather,
                           ct_schedule *s)
{
    const ct_cost *cost = NULL;
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .me = ct_coll_p2p_place(r->comm), .n = r->count };

    CT_TRY(ct_coll_cost(r->comm, algorithm, false, &cost));
    ct_cost_algorithms(cost, (double)r->count * (double)ct_dtype_size(r->dtype), way);
    use.plan = ct_cost_plan(cost);
    use.rank = ct_cost_rank(cost);
    if (scatter) CT_TRY(ct_hierarchical_plan_scatter(&use, s));
    return gather ? ct_hierarchical_plan_gather(&use, s) : CT_OK;
}

void ct_coll_p2p_release(ct_coll_req *r)
{
    p2p_state *st = r->state;

    if (st == NULL) return;
    ct_sched_run_destroy(st->run);
    ct_schedule_destroy(&st->schedule);
    free(st);
    r->state = NULL;
}

ct_status ct_coll_p2p_prepare(ct_coll_req *r, ct_p2p_build_fn build)
{
    p2p_state *st = calloc(1, sizeof(*st));
    ct_status status = CT_OK;

    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    r->state = st;
    CT_TRY_GOTO(status, err_release, build(r, &st->schedule));
    CT_TRY_GOTO(status, err_release,
                ct_sched_run_create(r->comm, r->dtype, ct_schedule_most(&st->schedule), &st->run));
    return CT_OK;

err_release:
    ct_coll_p2p_release(r);
    return status;
}

ct_status ct_coll_p2p_start(ct_coll_req *r)
{
    p2p_state *st = r->state;

    return ct_sched_run_start(st->run, &st->schedule, r->buf, r->tag);
}

ct_status ct_coll_p2p_progress(ct_coll_req *r)
{
    p2p_state *st = r->state;

    return ct_sched_run_progress(st->run, &r->bytes_sent, &r->where);
}

int ct_coll_p2p_pending(ct_coll_req *r, MPI_Request **out, int max)
{
    p2p_state *st = r->state;

    return ct_sched_run_pending(st->run, out, max);
}
