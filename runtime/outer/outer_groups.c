#include "runtime/outer/outer_groups.h"

#include "framework/base/log.h"

/* Which group a rank is in, and how many there are. */
static ct_status number_group(const ct_comm *c, int groups, int *group_p, int *n_p)
{
    const ct_topo *topo = c->topo;
    int least = ct_topo_min_node_size(topo), most = ct_topo_max_node_size(topo);

    if ((groups == 0) && (least != most))
        return CT_FAIL(CT_ERR_CONFIG,
                       "outer.groups is 0, one a node, but nodes have %d to %d ranks, and groups "
                       "are of equal size: say how many",
                       least, most);
    if ((groups > 0) && (c->size % groups != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "outer.groups is %d, but %d ranks make no such groups of equal size", groups,
                       c->size);
    *n_p = (groups > 0) ? groups : topo->n_node;
    *group_p = (groups > 0) ? c->rank / (c->size / groups) : topo->node[c->rank];
    return CT_OK;
}

static ct_status open_exchange(void *ctx, ct_net *part, ct_exchange *out)
{
    ct_outer_groups *g = ctx;

    if ((g->across->size == 1) && !ct_exchange_is_coded(&g->param.solver, part)) {
        ct_exchange_single(part->n_param, out);
        return CT_OK;
    }
    return ct_exchange_mpi_create(g->across, &g->param.solver, part, false, &g->mpi, out);
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
    int group = 0, n = 1;

    *g = (ct_outer_groups){ .data = all };
    if (param->outer == NULL) return CT_OK;
    ct_outer_param_fill(param, &g->param);
    CT_TRY(number_group(all, param->outer->groups, &group, &n));
    g->inner = g->across = all;
    if (all->size > 1) {
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
