#include "comm/coll_p2p.h"

#include <stdlib.h>

#include "comm/reduce.h"

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

ct_status ct_coll_p2p_world(const ct_coll_req *r, ct_schedule *s,
                            ct_status (*append)(ct_schedule *, const ct_group *, int64_t, int64_t))
{
    int n = r->comm->size;
    int *member = malloc(sizeof(*member) * (size_t)n);
    ct_group all = { .n = n, .me = r->comm->rank, .member = member };
    ct_status status = CT_OK;

    if (member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of %d ranks", n);
    for (int i = 0; i < n; ++i) member[i] = i;
    status = append(s, &all, 0, r->count);
    free(member);
    return status;
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
