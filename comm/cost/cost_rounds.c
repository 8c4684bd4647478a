/* From plans to loads on links: what each round of all ranks together costs. */
#include <stdlib.h>
#include <string.h>

#include "comm/cost/cost_impl.h"
#include "comm/cost/halving.h"

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for costs of a collective");
}

static ct_status add(ct_cost_work *w, int from, int to, double share, double message)
{
    CT_TRY(ct_flow_add(w->flow, from, to, share));
    w->received[to] += share;
    if (w->received[to] > w->most_received) w->most_received = w->received[to];
    if (message > w->message) w->message = message;
    if (from == to) return CT_OK;
    w->to[from] = to;
    w->from[to] = from;
    return CT_OK;
}

/* All that both send and receive have one partner, or not; or there are none. */
static ct_pattern take_pattern(ct_cost_work *w)
{
    size_t n = (size_t)w->c->t->n_rank;
    ct_pattern p = CT_PATTERN_ONE_WAY;

    for (size_t r = 0; r < n; ++r) {
        if ((w->to[r] < 0) || (w->from[r] < 0)) continue;
        if (w->to[r] != w->from[r]) p = CT_PATTERN_SHIFT;
        if (p == CT_PATTERN_ONE_WAY) p = CT_PATTERN_SWAP;
    }
    memset(w->to, -1, sizeof(*w->to) * n);
    memset(w->from, -1, sizeof(*w->from) * n);
    return p;
}

/* What was added since the last, as a round. */
static ct_cost_round take_round(ct_cost_work *w, int times)
{
    const ct_topo *t = w->c->t;
    ct_cost_round r = { .message = w->message, .times = times, .pattern = take_pattern(w) };

    int slowest = ct_flow_slowest(w->flow);

    ct_flow_time(w->flow, &r.alpha_s, &r.beta);
    if (slowest >= 0) r.level = &t->machine.level[slowest];
    if (t->machine.sum_bandwidth > 0) {
        r.gamma = w->most_received / t->machine.sum_bandwidth;
        r.gamma_each = 1 / t->machine.sum_bandwidth;
    }
    ct_flow_clear(w->flow);
    memset(w->received, 0, sizeof(*w->received) * (size_t)t->n_rank);
    w->most_received = w->message = 0;
    return r;
}

static double share_of(const ct_cost *c, int64_t units)
{
    return (double)units / (double)CT_HIERARCHICAL_PLAN_UNITS / c->n_lane;
}

/* Member i of a group sends to member k in every lane. */
static ct_status add_lanes(ct_cost_work *w, const int *member, int i, int k, double share,
                           double message)
{
    const ct_cost *c = w->c;

    for (int lane = 0; lane < c->n_lane; ++lane) {
        const int *rank = c->rank + (size_t)lane * (size_t)c->plan->n;

        CT_TRY(add(w, rank[member[i]], rank[member[k]], share, message));
    }
    return CT_OK;
}

static ct_status ring_rounds(ct_cost_work *w, const ct_hierarchical_plan_phase *p,
                             ct_cost_phase *out)
{
    for (int g = 0; g < p->n_group; ++g) {
        int m = p->group[g].n;
        double part = share_of(w->c, p->group[g].b - p->group[g].a) / m;

        for (int i = 0; i < m; ++i)
            CT_TRY(
                add_lanes(w, p->member + p->group[g].first, i, (i + 1) % m, part * (m - 1), part));
    }
    out->round[CT_GROUP_ALGORITHM_RING][0] = take_round(w, p->most - 1);
    out->n_round[CT_GROUP_ALGORITHM_RING] = 1;
    return CT_OK;
}

static ct_status direct_rounds(ct_cost_work *w, const ct_hierarchical_plan_phase *p,
                               ct_cost_phase *out)
{
    for (int g = 0; g < p->n_group; ++g) {
        int m = p->group[g].n;
        double part = share_of(w->c, p->group[g].b - p->group[g].a) / m;

        for (int i = 0; i < m; ++i) {
            for (int k = 0; k < m; ++k) {
                if (k == i) continue;
                CT_TRY(add_lanes(w, p->member + p->group[g].first, i, k, part, part));
            }
        }
    }
    out->round[CT_GROUP_ALGORITHM_DIRECT][0] = take_round(w, 1);
    out->n_round[CT_GROUP_ALGORITHM_DIRECT] = 1;
    return CT_OK;
}

static ct_status halving_rounds(ct_cost_work *w, const ct_hierarchical_plan_phase *p,
                                ct_cost_phase *out)
{
    int64_t total = 0, at = 0;
    ct_halving *state = NULL;
    ct_status status = CT_OK;

    for (int g = 0; g < p->n_group; ++g) total += p->group[g].n;
    state = malloc(sizeof(*state) * (size_t)(total + 1));
    if (state == NULL) return no_memory();
    for (int g = 0; g < p->n_group; ++g) {
        for (int i = 0; i < p->group[g].n; ++i)
            ct_halving_begin(&state[at++], p->group[g].n, i, p->group[g].a, p->group[g].b);
    }
    for (int k = 0; k < ct_halving_rounds(p->most); ++k) {
        at = 0;
        for (int g = 0; g < p->n_group; ++g) {
            for (int i = 0; i < p->group[g].n; ++i) {
                ct_halving_round r;
                double share = 0;

                if (!ct_halving_next(&state[at++], &r)) continue;
                share = share_of(w->c, r.send_b - r.send_a);
                CT_TRY_GOTO(status, done,
                            add_lanes(w, p->member + p->group[g].first, i, r.to, share, share));
            }
        }
        out->round[CT_GROUP_ALGORITHM_HALVING][k] = take_round(w, 1);
    }
    out->n_round[CT_GROUP_ALGORITHM_HALVING] = ct_halving_rounds(p->most);

done:
    free(state);
    return status;
}

ct_status ct_cost_plan_rounds(ct_cost_work *w, const bool *allowed)
{
    ct_cost *c = w->c;

    c->phase = calloc((size_t)c->plan->n_phase + 1, sizeof(*c->phase));
    if (c->phase == NULL) return no_memory();
    for (int k = 0; k < c->plan->n_phase; ++k) {
        const ct_hierarchical_plan_phase *p = &c->plan->phase[k];
        ct_cost_phase *out = &c->phase[k];

        memcpy(out->allowed, allowed, sizeof(out->allowed));
        if (p->most > CT_HIERARCHICAL_PLAN_DIRECT) out->allowed[CT_GROUP_ALGORITHM_DIRECT] = false;
        if (out->allowed[CT_GROUP_ALGORITHM_RING]) CT_TRY(ring_rounds(w, p, out));
        if (out->allowed[CT_GROUP_ALGORITHM_HALVING]) CT_TRY(halving_rounds(w, p, out));
        if (out->allowed[CT_GROUP_ALGORITHM_DIRECT]) CT_TRY(direct_rounds(w, p, out));
    }
    return CT_OK;
}

/* In each way a member sends and receives as much as in a ring. */
ct_status ct_cost_whole_round(ct_cost_work *w)
{
    const ct_hierarchical_plan *plan = w->c->plan;

    for (int k = 0; k < plan->n_phase; ++k) {
        const ct_hierarchical_plan_phase *p = &plan->phase[k];

        for (int g = 0; g < p->n_group; ++g) {
            int m = p->group[g].n;
            double part = share_of(w->c, p->group[g].b - p->group[g].a) / m;

            for (int i = 0; i < m; ++i)
                CT_TRY(add_lanes(w, p->member + p->group[g].first, i, (i + 1) % m,
                                 2 * part * (m - 1), part));
        }
    }
    w->c->all = take_round(w, 1);
    w->c->all.gamma /= 2; /* what comes down is not added */
    return CT_OK;
}

ct_status ct_cost_tree_rounds(ct_cost_work *w)
{
    ct_cost *c = w->c;
    int n = c->t->n_rank;

    for (int64_t d = 1; d < n; d *= 2) {
        for (int64_t i = d; i < n; i += 2 * d)
            CT_TRY(add(w, c->t->order[i], c->t->order[i - d], 1, 1));
        c->tree[c->n_tree++] = take_round(w, 1);
    }
    return CT_OK;
}

/* In the nodes' memory: every owner reads its part from all neighbours. */
ct_status ct_cost_node_round(ct_cost_work *w, const int *table)
{
    const ct_topo *t = w->c->t;

    for (int v = 0; v < t->n_node; ++v) {
        const int *member = table + (size_t)v * (size_t)ct_topo_max_node_size(t);

        for (int i = 0; i < t->node_size[t->node[member[0]]]; ++i) {
            for (int k = 0; k < w->c->n_lane; ++k)
                CT_TRY(add(w, member[i], member[k], 1.0 / w->c->n_lane, 0));
        }
    }
    w->c->node = take_round(w, 1);
    return CT_OK;
}
