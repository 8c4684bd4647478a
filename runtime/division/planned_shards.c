#include "runtime/division/planned_shards.h"

#include <stdlib.h>

#include "runtime/memory_plan.h"

static void drop(ct_planned_shards *p)
{
    for (int i = 0; i < CT_PLANNED_GROUPS; i++) {
        ct_comm_destroy(p->comm[i]);
        p->comm[i] = NULL;
    }
}

/* Of n ranks of the job, where `rank` is one of them. */
static ct_status plan_group(const ct_planned_shards *p, const int *list, int n, int rank,
                            ct_comm **comm_p)
{
    ct_topo *topo = NULL;
    int me = 0;

    while (list[me] != rank) me++;
    CT_TRY(ct_topo_subset(p->topo, list, n, &topo));
    return ct_comm_create_planned(topo, me, comm_p);
}

/* Ranks of a stage, all or those with one part; how many. */
static int add_ranks(const ct_parallel_stage *g, int part, int *list)
{
    int n = 0;

    for (int i = 0; i < g->n_rank; i++)
        if ((part < 0) || (i % g->tensor == part)) list[n++] = g->rank[i];
    return n;
}

static ct_status plan_groups(ct_planned_shards *p, int rank, const ct_rank_net *net, int *list)
{
    const ct_parallel *f = p->parallel;
    ct_parallel_place at = ct_parallel_place_of(f, rank);
    const ct_parallel_stage *g = &f->stage[at.stage];
    int last = f->n_stage - 1, part = net->tied_own_samples ? -1 : at.part, n;

    for (n = 0; n < f->n_rank; n++) list[n] = n;
    CT_TRY(plan_group(p, list, n, rank, &p->comm[3]));
    n = add_ranks(g, -1, list);
    CT_TRY(plan_group(p, list, n, rank, &p->comm[1]));
    n = add_ranks(g, at.part, list);
    CT_TRY(plan_group(p, list, n, rank, &p->comm[2]));
    if ((net->place.n_tied == 0) || ((at.stage != 0) && (at.stage != last))) return CT_OK;
    n = add_ranks(&f->stage[0], part, list);
    n += add_ranks(&f->stage[last], part, list + n);
    return plan_group(p, list, n, rank, &p->comm[0]);
}

static ct_status open_rank(void *ctx, const ct_parallel *parallel, int rank, const ct_rank_net *net,
                           const ct_net_window **window_p)
{
    ct_planned_shards *p = ctx;
    int *list = calloc((size_t)parallel->n_rank + 1, sizeof(*list));
    ct_status status;

    if (list == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for groups of %d ranks", parallel->n_rank);
    drop(p);
    p->parallel = parallel;
    status = plan_groups(p, rank, net, list);
    free(list);
    CT_TRY(status);
    p->groups = (ct_exchange_groups){ p->comm[1], p->comm[0], p->comm[2], false, NULL };
    if (p->parallel->n_rank == 1) { /* no division */
        *window_p = ct_exchange_window_open(&p->window.of, p->comm[3], ct_device_cpu(), p->param);
        return CT_OK;
    }
    *window_p = ct_exchange_divided_window(&p->window, &p->groups, p->comm[3], ct_device_cpu(),
                                           (int)p->parallel->micro_batches, p->param);
    return CT_OK;
}

/* As its job has it. */
static ct_status find(void *ctx, ct_net *net, ct_memory_tiers *t)
{
    const ct_planned_shards *p = ctx;
    bool shards = (p->param->memory->zero > 0) && (p->parallel->n_rank > 1);
    int iter_size = p->param->iter_size;
    int64_t length = net->grad_count, visiting = length;
    ct_shard s = { .n = 0 }, visits = { .n = 0 };

    if (p->parallel->n_rank == 1) CT_TRY(ct_solver_micro_batches(p->param, NULL, net, &iter_size));
    if (shards) {
        ct_status status = ct_exchange_divided_shard(&p->groups, p->param, net, &s);

        if (status == CT_OK) status = ct_shard_add_from(&s, ct_net_staying(net), &visits);
        length = ct_shard_length(&s);
        visiting = ct_shard_length(&visits);
        ct_shard_destroy(&s);
        ct_shard_destroy(&visits);
        CT_TRY(status);
    }
    return ct_memory_plan_add_storages(p->param, net, length, visiting, shards, iter_size, t);
}

ct_rank_shards ct_planned_shards_open(ct_planned_shards *p)
{
    return (ct_rank_shards){ .ctx = p, .open = open_rank, .find = find };
}

void ct_planned_shards_close(ct_planned_shards *p)
{
    drop(p);
}
