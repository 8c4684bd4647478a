#include "runtime/outer/outer_groups.h"

#include "framework/base/log.h"

ct_status ct_outer_groups_count(const ct_topo *topo, int groups, int *n_p)
{
    int least = ct_topo_min_node_size(topo), most = ct_topo_max_node_size(topo);

    if ((groups == 0) && (least != most))
        return CT_FAIL(CT_ERR_CONFIG,
                       "outer.groups is 0, one a node, but nodes have %d to %d ranks, and groups "
                       "are of equal size: say how many",
                       least, most);
    if ((groups > 0) && (topo->n_rank % groups != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "outer.groups is %d, but %d ranks make no such groups of equal size", groups,
                       topo->n_rank);
    *n_p = (groups > 0) ? groups : topo->n_node;
    return CT_OK;
}

int ct_outer_groups_of(const ct_topo *topo, int groups, int rank)
{
    return (groups > 0) ? rank / (topo->n_rank / groups) : topo->node[rank];
}

static ct_status open_exchange(void *ctx, ct_net *part, ct_exchange *out)
{
    ct_outer_groups *g = ctx;

    if ((g->across->size == 1) && !ct_exchange_is_coded(&g->param.solver, part)) {
        ct_exchange_single(part->n_param, out);
        return CT_OK;
    }
    return ct_exchange_mpi_create(g->across, &g->param.solver, part, NULL, false, &g->mpi, out);
}

static void close_exchange(void *ctx)
{
    ct_outer_groups *g = ctx;

    ct_exchange_mpi_destroy(g->mpi);
    g->mpi = NULL;
}

ct_status ct_outer_groups_open(const ct_job *job, const Ct__SolverParameter *param,
                               ct_outer_groups *g)
{
    ct_comm *all = job->data_comm;
    int groups, n = 1;

    *g = (ct_outer_groups){ .data = all };
    if (param->outer == NULL) return CT_OK;
    ct_outer_param_fill(param, &g->param);
    groups = param->outer->groups;
    CT_TRY(ct_outer_groups_count(all->topo, groups, &n));
    g->inner = g->across = all;
    if (all->size > 1) {
        int group = ct_outer_groups_of(all->topo, groups, all->rank);

        CT_TRY(ct_comm_split(all, group, all->rank, &g->inner));
        CT_TRY(ct_comm_split(all, g->inner->rank, group, &g->across));
    }
    g->group = (ct_group_mpi){ .comm = g->inner, .reproducible = param->reproducible_sum };
    g->ranks =
        (ct_outer_ranks){ .n_group = n, .open = open_exchange, .close = close_exchange, .ctx = g };
    if (g->inner->size > 1)
        ct_group_mpi_open(&g->group, &g->ranks.inner);
    else
        g->ranks.inner = (ct_group){ .size = 1, .topo = g->inner->topo };
    return CT_OK;
}

void ct_outer_groups_close(ct_outer_groups *g)
{
    if (g->across != g->data) ct_comm_destroy(g->across);
    if (g->inner != g->data) ct_comm_destroy(g->inner);
    *g = (ct_outer_groups){ .data = NULL };
}
