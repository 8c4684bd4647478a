#include "comm/collective/coll_cost.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 64 };

typedef struct kept {
    char algorithm[16];
    bool shares;
    int dim[3];
    ct_cost *cost;
} kept;

typedef struct coll_costs {
    kept kept[MAX_KEPT];
    int n;
    int torus[3];
} coll_costs;

static const char costs_key; /* of what the communicator keeps */

static void destroy_costs(void *what)
{
    coll_costs *costs = what;

    for (int i = 0; i < costs->n; ++i) ct_cost_destroy(costs->kept[i].cost);
    free(costs);
}

static ct_status find_costs(const ct_comm *c, coll_costs **costs_p)
{
    *costs_p = ct_comm_attached(c, &costs_key);
    if (*costs_p != NULL) return CT_OK;
    *costs_p = calloc(1, sizeof(**costs_p));
    if (*costs_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for costs");
    return ct_comm_attach(c, &costs_key, *costs_p, destroy_costs);
}

ct_status ct_coll_cost(const ct_comm *c, const char *algorithm, bool shares, const ct_cost **cost_p)
{
    coll_costs *all = NULL;
    bool torus = (strcmp(algorithm, "torus") == 0);
    kept *k = NULL;

    CT_TRY(find_costs(c, &all));
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
    coll_costs *all = NULL;
    const ct_cost *cost = NULL;
    int before[3];
    ct_status status = CT_OK;

    CT_TRY(find_costs(c, &all));
    memcpy(before, all->torus, sizeof(before));
    memcpy(all->torus, dim, sizeof(before));
    status = ct_coll_cost(c, "torus", c->node_shares, &cost); /* are the dimensions good? */
    if (status != CT_OK) memcpy(all->torus, before, sizeof(before));
    return status;
}
