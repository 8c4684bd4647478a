#include "planner/pipeline_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/node_orders.h"
#include "planner/partition.h"

/* A configuration, and what none of its partitions is below. */
typedef struct candidate {
    ct_pipeline_config config;
    double bound_s;
    int number; /* in the order in which they are made */
} candidate;

typedef struct search {
    const ct_pipeline_problem *p;
    ct_node_orders orders;
    int n_candidate, most_candidate;
    candidate *candidate;
    int most; /* plans that are kept */
    ct_pipeline_plans found;
} search;

/* ---- configurations */

/* Keeps the best by estimate: sorted, at most `most`. */
static ct_status keep_plan(search *s, const ct_pipeline_config *c, const int *layers,
                           double estimate_s)
{
    size_t n_node = (size_t)s->p->machine->n_node;
    ct_pipeline_plans *f = &s->found;
    ct_pipeline_plan plan = { .config = *c, .estimate_s = estimate_s, .step_s = NAN };
    int i;

    if ((f->n == s->most) && (estimate_s >= f->plan[f->n - 1].estimate_s)) return CT_OK;
    plan.order = malloc((n_node + (size_t)c->n_stage) * sizeof(*plan.order));
    if (plan.order == NULL) return CT_FAIL(CT_ERR_NOMEM, "a plan of %d stages", c->n_stage);
    plan.layers = plan.order + n_node;
    memcpy(plan.order, c->order, n_node * sizeof(*plan.order));
    memcpy(plan.layers, layers, (size_t)c->n_stage * sizeof(*plan.layers));
    plan.config.order = plan.order;
    if (f->n == s->most) free(f->plan[--f->n].order);
    for (i = f->n++; (i > 0) && (f->plan[i - 1].estimate_s > estimate_s); --i)
        f->plan[i] = f->plan[i - 1];
    f->plan[i] = plan;
    return CT_OK;
}

static ct_status add_candidate(search *s, const ct_pipeline_config *c)
{
    ct_status status = ct_pipeline_fits_ranks(s->p, c);
    candidate new = { .config = *c, .number = s->n_candidate };
    ct_pipeline_tables t;

    if (status != CT_OK) return (status == CT_UNSUPPORTED) ? CT_OK : status;
    if (s->n_candidate == s->most_candidate) {
        int most = 2 * s->most_candidate + 64;
        candidate *more = realloc(s->candidate, (size_t)most * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "%d configurations", most);
        s->candidate = more;
        s->most_candidate = most;
    }
    CT_TRY(ct_pipeline_tables_create(s->p, c, &t));
    status = ct_pipeline_bound_s(s->p, &t, &new.bound_s);
    if (status == CT_OK) s->candidate[s->n_candidate++] = new;
    ct_pipeline_tables_destroy(&t);
    return status;
}

/* The best partition of a configuration, kept if it fits its memory. */
static ct_status cut_stages(search *s, const ct_pipeline_config *c)
{
    int *layers = malloc((size_t)c->n_stage * sizeof(*layers));
    ct_pipeline_tables t = { 0 };
    double step_s = INFINITY, ratio;
    ct_status status = CT_OK;

    if (layers == NULL) status = CT_FAIL(CT_ERR_NOMEM, "cuts of %d stages", c->n_stage);
    if (status == CT_OK) status = ct_pipeline_tables_create(s->p, c, &t);
    if (status == CT_OK) {
        ct_partition cuts = { .n_stage = t.n_stage,
                              .n_layer = t.n_layer,
                              .micro_batches = t.n_micro,
                              .time_s = t.time_s,
                              .cut_s = t.cut_s,
                              .data_s = t.data_s };

        status = ct_partition_solve(&cuts, layers, &step_s);
    }
    if (status == CT_OK) {
        status = ct_pipeline_memory_ratio(s->p, c, layers, &ratio);
    }
    if (status == CT_OK) {
        s->found.least_ratio = fmin(s->found.least_ratio, ratio);
        if (ratio <= 1) status = keep_plan(s, c, layers, ct_pipeline_estimate_s(s->p, &t, layers));
    }
    free(layers);
    ct_pipeline_tables_destroy(&t);
    return status;
}

static bool may_be(int fixed, int64_t value)
{
    return (fixed == 0) || (fixed == value);
}

/* All micro-batches and orders of a tensor degree and a number of replicas. */
static ct_status add_micro_batches(search *s, ct_pipeline_config c)
{
    int64_t samples = s->p->global_batch / c.data;

    for (int64_t b = 1; b <= samples; ++b) {
        if ((samples % b != 0) || !may_be(s->p->fix.micro_batches, samples / b)) continue;
        c.micro_batch = (int)b;
        for (int i = 0; i < s->orders.n; ++i) {
            c.order = s->orders.order + (size_t)i * (size_t)s->p->machine->n_node;
            CT_TRY(add_candidate(s, &c));
        }
    }
    return CT_OK;
}

static ct_status add_all(search *s)
{
    const ct_pipeline_machine *m = s->p->machine;
    int64_t ranks = (int64_t)m->n_node * m->ranks_per_node;

    for (int d = 0; d < s->p->net->n_degree; ++d) {
        int64_t groups = ranks / s->p->net->degree[d];

        if ((ranks % s->p->net->degree[d] != 0) || !may_be(s->p->fix.tensor, s->p->net->degree[d]))
            continue;
        for (int64_t data = 1; (data <= groups) && (data <= s->p->global_batch); ++data) {
            ct_pipeline_config c = { .degree = d, .data = (int)data };

            if ((groups % data != 0) || (s->p->global_batch % data != 0)) continue;
            c.n_stage = (int)(groups / data);
            if (!may_be(s->p->fix.data, data) || !may_be(s->p->fix.n_stage, c.n_stage)) continue;
            CT_TRY(add_micro_batches(s, c));
        }
    }
    return CT_OK;
}

static int by_bound(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->bound_s != y->bound_s) return (x->bound_s < y->bound_s) ? -1 : 1;
    return x->number - y->number;
}

/* The lowest bounds first, until none can be among the best any more. Equal bounds stay in the
 * order in which they were made, so that the same plans are found everywhere. */
static ct_status cut_all(search *s)
{
    s->found.n_config = s->n_candidate;
    qsort(s->candidate, (size_t)s->n_candidate, sizeof(*s->candidate), by_bound);
    for (int i = 0; i < s->n_candidate; ++i) {
        const ct_pipeline_plans *f = &s->found;

        if ((f->n == s->most) &&
            (s->candidate[i].bound_s > f->plan[f->n - 1].estimate_s * (1 + 1e-12)))
            break;
        CT_TRY(cut_stages(s, &s->candidate[i].config));
    }
    return CT_OK;
}

static int by_step(const void *a, const void *b)
{
    const ct_pipeline_plan *x = a, *y = b;

    if (x->step_s != y->step_s) return (x->step_s < y->step_s) ? -1 : 1;
    return (x->estimate_s > y->estimate_s) - (x->estimate_s < y->estimate_s);
}

ct_status ct_pipeline_search(const ct_pipeline_problem *p, int most, ct_pipeline_plans *plans_p)
{
    search s = { .p = p, .most = most, .found = { .least_ratio = INFINITY } };
    ct_status status = CT_OK;

    if ((most < 1) || (p->global_batch < 1) || (p->machine->n_node < 1))
        return CT_FAIL(CT_ERR_ARG, "search: %d plans, batch %lld, %d nodes", most,
                       (long long)p->global_batch, p->machine->n_node);
    s.found.plan = calloc((size_t)most, sizeof(*s.found.plan));
    if (s.found.plan == NULL) status = CT_FAIL(CT_ERR_NOMEM, "%d plans", most);
    if (status == CT_OK)
        status = ct_node_orders_make(p->machine->node_class, p->machine->n_node,
                                     p->machine->n_class, CT_PIPELINE_MOST_ORDERS, &s.orders);
    if (status == CT_OK) status = add_all(&s);
    if (status == CT_OK) status = cut_all(&s);
    for (int i = 0; (i < s.found.n) && (status == CT_OK); ++i) {
        ct_pipeline_plan *plan = &s.found.plan[i];

        status = ct_pipeline_simulate_s(p, &plan->config, plan->layers, &plan->step_s);
    }
    ct_node_orders_destroy(&s.orders);
    free(s.candidate);
    if (status == CT_OK) {
        qsort(s.found.plan, (size_t)s.found.n, sizeof(*s.found.plan), by_step);
        *plans_p = s.found;
    } else {
        ct_pipeline_plans_destroy(&s.found);
    }
    return status;
}

void ct_pipeline_plans_destroy(ct_pipeline_plans *plans)
{
    for (int i = 0; i < plans->n; ++i) free(plans->plan[i].order);
    free(plans->plan);
    *plans = (ct_pipeline_plans){ 0 };
}
