#include "comm/coll_cost.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exch_cost.h"

enum { MAX_KEPT = 64 };

typedef struct kept {
    char algorithm[16];
    bool shares;
    int dim[3];
    ct_cost *cost;
} kept;

struct ct_coll_costs {
    kept kept[MAX_KEPT];
    int n;
    int torus[3];
    ct_exch_model *exch;
};

ct_status ct_coll_costs_create(ct_coll_costs **costs_p)
{
    *costs_p = calloc(1, sizeof(**costs_p));
    return (*costs_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for costs");
}

void ct_coll_costs_destroy(ct_coll_costs *costs)
{
    if (costs == NULL) return;
    for (int i = 0; i < costs->n; ++i) ct_cost_destroy(costs->kept[i].cost);
    ct_exch_model_destroy(costs->exch);
    free(costs);
}

ct_status ct_coll_cost(const ct_comm *c, const char *algorithm, bool shares, const ct_cost **cost_p)
{
    ct_coll_costs *all = c->costs;
    bool torus = (strcmp(algorithm, "torus") == 0);
    kept *k = NULL;

    for (int i = 0; i < all->n; ++i) {
        k = &all->kept[i];
        if ((strcmp(k->algorithm, algorithm) != 0) || (k->shares != shares)) continue;
        if (torus && (memcmp(k->dim, all->torus, sizeof(k->dim)) != 0)) continue;
        *cost_p = k->cost;
        return CT_OK;
    }
    if (all->n == MAX_KEPT)
        return CT_FAIL(CT_ERR_CONFIG, "more than %d algorithms on one communicator", MAX_KEPT);
    k = &all->kept[all->n];
    CT_TRY(ct_cost_create(algorithm, c->topo, torus ? all->torus : NULL, shares, &k->cost));
    strncpy(k->algorithm, algorithm, sizeof(k->algorithm) - 1);
    k->shares = shares;
    memcpy(k->dim, all->torus, sizeof(k->dim));
    all->n += 1;
    *cost_p = k->cost;
    return CT_OK;
}

double ct_coll_cost_s(const ct_comm *c, const char *algorithm, int64_t bytes)
{
    const ct_cost *cost = NULL;

    if (ct_coll_cost(c, algorithm, c->node_shares, &cost) != CT_OK) return DBL_MAX;
    return ct_cost_s(cost, (double)bytes);
}

ct_status ct_coll_set_torus(const ct_comm *c, const int *dim)
{
    ct_coll_costs *all = c->costs;
    const ct_cost *cost = NULL;
    int before[3];
    ct_status status = CT_OK;

    memcpy(before, all->torus, sizeof(before));
    memcpy(all->torus, dim, sizeof(before));
    status = ct_coll_cost(c, "torus", c->node_shares, &cost); /* are the dimensions good? */
    if (status != CT_OK) memcpy(all->torus, before, sizeof(before));
    return status;
}

ct_status ct_exch_model_of(const ct_comm *c, const ct_exch_model **model_p)
{
    if (c->costs->exch == NULL) CT_TRY(ct_exch_model_create(c->topo, &c->costs->exch));
    *model_p = c->costs->exch;
    return CT_OK;
}

void ct_exch_model_renew(const ct_comm *c)
{
    if (c->costs->exch != NULL) ct_exch_model_speed(c->costs->exch, &c->topo->machine);
}
