/* Costs: made once for a topology and an algorithm, then looked up by size. */
#include "comm/cost/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/topo.h"

enum {
    MOST_CHUNKS = 8,
    MOST_STEPS = 256,     /* of one rank's schedule, about                     */
    LEAST_CHUNK = 1 << 19 /* bytes                                             */
};

static const double pipe_pays = 0.97; /* of the time without, or it is not worth its messages */

enum {
    MOST_ROUNDS = 40,
    MOST_SHIFTS = 8 /* distances between nodes that stand for all, where there are more */
};

/* One or several equal steps, of all ranks together, for a buffer of one byte. */
typedef struct cost_round {
    double alpha_s;     /* of one step                                           */
    double beta, gamma; /* seconds on the busiest link, and of additions: of all steps */
    double gamma_each;  /* seconds to add a byte                                 */
    double message;     /* share of the buffer in the largest message            */
    int times;
    const ct_level *level; /* of the slowest messages */
    ct_pattern pattern;    /* of these               */
} cost_round;

typedef struct cost_phase {
    bool allowed[CT_GROUP_ALGORITHM_N];
    int n_round[CT_GROUP_ALGORITHM_N];
    cost_round round[CT_GROUP_ALGORITHM_N][MOST_ROUNDS];
} cost_phase;

struct ct_cost {
    const ct_topo *t;
    ct_cost_way way;
    ct_hierarchical_plan *plan;
    int *rank; /* [plan->n * n_lane] position i, lane k: rank[k * plan->n + i] */
    int n_lane;
    cost_phase *phase; /* [plan->n_phase] */
    cost_round all;    /* hier by messages: the phases together, up and down; else times 0 */
    cost_round node;   /* hier: the nodes' shared memory; times 0: none   */
    cost_round both[MOST_ROUNDS]; /* rounds of no plan, that go up and come back down */
    int n_both;
    cost_round spread;     /* in place of these, for buffers of several chunks … */
    double chunk;          /* … of so many bytes; 0: there are none               */
    ct_cost *other[2];     /* MPI's own: like the better of these, where the ranks add */
    bool adds;             /* the network adds: */
    ct_in_network network; /* … by this, at most as fast as the slowest node's link */
    double inside;         /* the slowest node's bandwidth inside over what machine.shared is of  */
};

/* What evaluating needs. */
struct ct_cost_work {
    ct_cost *c;
    ct_flow *flow;
    double *received; /* [n_rank] over the speed of the rank's node */
    int *to, *from; /* [n_rank] whom a rank sends to and receives from in this round; -1: nobody */
    double most_received, message;
};

void ct_cost_destroy(ct_cost *c)
{
    if (c == NULL) return;
    ct_hierarchical_plan_destroy(c->plan);
    free(c->rank);
    free(c->phase);
    ct_cost_destroy(c->other[0]);
    ct_cost_destroy(c->other[1]);
    free(c);
}

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for costs of a collective");
}

/* ---- seconds */

/* Where a fit measured such steps: its time, and what the busiest link and the ranks' additions
 * have to do beyond that one message. */
static double measured_s(const cost_round *r, double bytes, bool adds)
{
    double each = r->message * bytes;
    double load = r->beta * bytes / r->times - each / r->level->bandwidth;
    double sums = adds ? r->gamma * bytes / r->times - r->gamma_each * each : 0;

    return r->times *
           (ct_level_message_s(r->level, r->pattern, each) + fmax(load, 0) + fmax(sums, 0));
}

static double round_s(const cost_round *r, double bytes, bool adds)
{
    double t = r->beta * bytes / r->times, g = adds ? r->gamma * bytes / r->times : 0;
    int64_t n = (int64_t)(r->message * bytes / sizeof(float));
    int64_t each = ct_segment_elements(n), s = (n > each) ? (n + each - 1) / each : 1;
    double more = (t > g) ? t : g, less = (t > g) ? g : t;
    double through = r->alpha_s + (t + g) / (double)s;

    if ((r->level != NULL) && (r->level->n_time > 0)) return measured_s(r, bytes, adds);
    if ((r->times == 1) && (r->pattern != CT_PATTERN_ONE_WAY))
        return r->alpha_s + more + less * (1 + 1 / (double)s) / 2;
    if (r->times == 1) return r->alpha_s + more + less / (double)s;
    return r->times * ((through > more) ? through : more);
}

/* Each measured step and its step back were let through a burst of their own. In a row there is one
 * for all: what of them was too fast, and what it was. Seconds. */
typedef struct credit {
    double taken, most, sent, per_byte;
} credit;

static void take_credit(const cost_round *r, double bytes, credit *c)
{
    double both = 2 * r->message * bytes;

    if ((r->level == NULL) || (r->level->n_time == 0) || (r->level->burst == 0)) return;
    c->taken += r->times * fmin(both, r->level->burst);
    c->sent += r->times * both;
    c->most = r->level->burst;
    c->per_byte = 1 / r->level->bandwidth;
}

static double too_much_credit_s(const credit *c)
{
    return (c->taken - fmin(c->sent, c->most)) * c->per_byte;
}

/* A round up and the same down, or one of them. */
static double rounds_s(const cost_round *r, ct_cost_way way, double bytes)
{
    double sum = (way != CT_COST_DOWN) ? round_s(r, bytes, true) : 0;

    return (way != CT_COST_UP) ? sum + round_s(r, bytes, false) : sum;
}

static double way_s(const cost_phase *p, ct_group_algorithm group, ct_cost_way way, double bytes)
{
    double sum = 0;

    for (int k = 0; k < p->n_round[group]; ++k) sum += rounds_s(&p->round[group][k], way, bytes);
    return sum;
}

static ct_group_algorithm best_way(const cost_phase *p, double bytes, double *least_p)
{
    ct_group_algorithm best = CT_GROUP_ALGORITHM_N;
    double least = 0;

    for (int way = 0; way < CT_GROUP_ALGORITHM_N; ++way) {
        double s =
            p->allowed[way] ? way_s(p, (ct_group_algorithm)way, CT_COST_BOTH_WAYS, bytes) : 0;

        if (!p->allowed[way] || ((best != CT_GROUP_ALGORITHM_N) && (s >= least))) continue;
        best = (ct_group_algorithm)way;
        least = s;
    }
    *least_p = least;
    return best;
}

void ct_cost_algorithms(const ct_cost *c, double bytes, ct_group_algorithm *way)
{
    double least = 0;

    for (int k = 0; k < c->plan->n_phase; ++k) way[k] = best_way(&c->phase[k], bytes, &least);
}

/* In steps of which each waits for the one before, or leaves after it. */
static bool is_chain(const ct_cost *c, int k)
{
    return c->plan->phase[k].most > 2;
}

/* The phases, `n` chunks of the buffer after each other: each chunk as long as the links and the
 * additions of all phases together, or the phase that takes longest by itself, or all phases of
 * several steps: what a rank sends leaves in the order of its steps, so that behind a round that
 * waits wait the other chunks, too. */
static double phases_s(const ct_cost *c, double bytes, int n)
{
    double each = bytes / n, sum = 0, chains = 0, most = each * c->all.beta;
    double stretches = (c->way == CT_COST_BOTH_WAYS) ? 2 : 1;
    credit used = { 0 };

    most /= 3 - stretches; /* c->all has both */
    if (each * c->all.gamma > most) most = each * c->all.gamma;
    for (int k = 0; (c->plan != NULL) && (k < c->plan->n_phase); ++k) {
        const cost_phase *p = &c->phase[k];
        double least = 0;
        ct_group_algorithm way = best_way(p, each, &least);

        if (c->way != CT_COST_BOTH_WAYS) least = way_s(p, way, c->way, each);
        sum += least;
        if (is_chain(c, k)) chains += least;
        if (least / stretches > most) most = least / stretches; /* up; down is another stretch */
        for (int i = 0; i < n * p->n_round[way]; ++i)
            take_credit(&p->round[way][i / n], each, &used);
    }
    if (chains > most) most = chains;
    return sum + (n - 1) * most + too_much_credit_s(&used);
}

int ct_cost_chunks(const ct_cost *c, double bytes)
{
    double least = 0, s = 0;
    int best = 1, steps = 0;

    if (c->all.times == 0) return 1;
    for (int k = 0; k < c->plan->n_phase; ++k) steps += c->plan->phase[k].most;
    least = pipe_pays * phases_s(c, bytes, 1);
    for (int n = 2; (n <= MOST_CHUNKS) && (n * steps <= MOST_STEPS) && (bytes >= n * LEAST_CHUNK);
         n *= 2) {
        s = phases_s(c, bytes, n);
        if (s >= least) continue;
        best = n;
        least = s;
    }
    return best;
}

/* A sum in the memory of the node where it takes longest. */
static double shared_memory_s(const ct_cost *c, double bytes)
{
    const ct_shared_memory *m = &c->t->machine.shared;
    double seconds = ct_shared_memory_s(m, bytes), least = 0;

    if (c->inside == 1) return seconds;
    least = ct_shared_memory_s(m, 0);
    return least + (seconds - least) / c->inside;
}

double ct_cost_s(const ct_cost *c, double bytes)
{
    bool spread = (c->chunk > 0) && (bytes > c->chunk);
    const cost_round *both = spread ? &c->spread : c->both;
    double sum = 0;
    credit used = { 0 };

    if (c->other[0] != NULL) {
        double a, b;

        if (c->adds && (ct_in_network_pieces(&c->network, bytes) > 0))
            return ct_in_network_s(&c->network, bytes);
        a = ct_cost_s(c->other[0], bytes);
        b = ct_cost_s(c->other[1], bytes);
        /* some good algorithm, but its later rounds start only when we happen to call MPI */
        return 1.25 * ((a < b) ? a : b);
    }
    for (int k = 0; k < (spread ? 1 : c->n_both); ++k) {
        sum += rounds_s(&both[k], c->way, bytes);
        take_credit(&both[k], bytes / 2, &used);
    }
    /* up by the links to the root, down by those from it */
    sum += ((c->way == CT_COST_BOTH_WAYS) ? 2 : 1) * too_much_credit_s(&used);
    if ((c->node.times > 0) && (c->t->machine.shared.bandwidth > 0)) {
        /* a sum in place reads all buffers and writes all; a half does one of both */
        sum += shared_memory_s(c, bytes) / ((c->way == CT_COST_BOTH_WAYS) ? 1 : 2);
    } else if ((c->node.times > 0) && (c->way != CT_COST_BOTH_WAYS)) {
        double t = c->node.beta * bytes, g = c->node.gamma * bytes;

        sum += c->node.alpha_s + (((c->way == CT_COST_UP) && (g > t)) ? g : t);
    } else if (c->node.times > 0) {
        double t = c->node.beta * bytes, g = c->node.gamma * bytes;

        sum += 2 * c->node.alpha_s + t + ((t > g) ? t : g);
    }
    return sum + phases_s(c, bytes, ct_cost_chunks(c, bytes));
}

const ct_hierarchical_plan *ct_cost_plan(const ct_cost *c)
{
    return c->plan;
}

const int *ct_cost_rank(const ct_cost *c)
{
    return c->rank;
}

/* ---- from plans to loads on links: what each round of all ranks together costs */

static ct_status add(ct_cost_work *w, int from, int to, double share, double message)
{
    const ct_topo *t = w->c->t;

    CT_TRY(ct_flow_add(w->flow, from, to, share));
    w->received[to] += share / ct_topo_speed(t, t->node[to]);
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
static cost_round take_round(ct_cost_work *w, int times)
{
    const ct_topo *t = w->c->t;
    cost_round r = { .message = w->message, .times = times, .pattern = take_pattern(w) };

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

static ct_status ring_rounds(ct_cost_work *w, const ct_hierarchical_plan_phase *p, cost_phase *out)
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
                               cost_phase *out)
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
                                cost_phase *out)
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

static ct_status plan_rounds(ct_cost_work *w, unsigned ways)
{
    ct_cost *c = w->c;

    c->phase = calloc((size_t)c->plan->n_phase + 1, sizeof(*c->phase));
    if (c->phase == NULL) return no_memory();
    for (int k = 0; k < c->plan->n_phase; ++k) {
        const ct_hierarchical_plan_phase *p = &c->plan->phase[k];
        cost_phase *out = &c->phase[k];

        for (int way = 0; way < CT_GROUP_ALGORITHM_N; ++way)
            out->allowed[way] = ((ways >> way) & 1) != 0;
        if (p->most > CT_HIERARCHICAL_PLAN_DIRECT) out->allowed[CT_GROUP_ALGORITHM_DIRECT] = false;
        if (out->allowed[CT_GROUP_ALGORITHM_RING]) CT_TRY(ring_rounds(w, p, out));
        if (out->allowed[CT_GROUP_ALGORITHM_HALVING]) CT_TRY(halving_rounds(w, p, out));
        if (out->allowed[CT_GROUP_ALGORITHM_DIRECT]) CT_TRY(direct_rounds(w, p, out));
    }
    return CT_OK;
}

/* What all phases together put on the links. In each way a member sends and receives as much as in
 * a ring. */
static ct_status whole_round(ct_cost_work *w)
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

ct_status ct_cost_message(ct_cost_work *w, int from, int to, double share)
{
    return add(w, from, to, share, share);
}

ct_status ct_cost_end_round(ct_cost_work *w)
{
    if (w->c->n_both == MOST_ROUNDS)
        return CT_FAIL(CT_ERR_CONFIG, "an algorithm of more than %d rounds", MOST_ROUNDS);
    w->c->both[w->c->n_both++] = take_round(w, 1);
    return CT_OK;
}

ct_status ct_cost_end_copies(ct_cost_work *w)
{
    CT_TRY(ct_cost_end_round(w));
    w->c->both[w->c->n_both - 1].gamma = 0;
    return CT_OK;
}

/* Between the pieces of a plan over all ranks and the parts: what another rank has of one's part,
 * or needs of one's piece. */
static ct_status deal_round(ct_cost_work *w)
{
    const ct_hierarchical_plan *plan = w->c->plan;
    ct_hierarchical_plan *parts = NULL;
    int64_t at = 0, i = 0, k = 0;
    bool any = false;
    ct_status status = CT_OK;

    CT_TRY(ct_hierarchical_plan_flat(plan->n, &parts));
    while (at < CT_HIERARCHICAL_PLAN_UNITS) {
        const ct_hierarchical_plan_piece *have = &plan->piece[i], *part = &parts->piece[k];
        int64_t end = (have->end < part->end) ? have->end : part->end;
        double share = share_of(w->c, end - at);

        if (have->owner != part->owner) {
            CT_TRY_GOTO(status, done,
                        add(w, w->c->rank[have->owner], w->c->rank[part->owner], share, share));
            any = true;
        }
        i += (have->end == end);
        k += (part->end == end);
        at = end;
    }
    if (any) status = ct_cost_end_copies(w);

done:
    ct_hierarchical_plan_destroy(parts);
    return status;
}

/* Between the sums that the nodes have of one chunk and the parts, where these are on other nodes.
 * A few elements move always, since lanes and parts are cut at other cache lines. */
static ct_status deal_nodes(ct_cost_work *w)
{
    const ct_cost *c = w->c;
    const ct_hierarchical_plan *plan = c->plan;
    const ct_topo *t = c->t;
    int64_t n_piece = ct_hierarchical_plan_pieces(plan), at = 0, k = 0;
    ct_hierarchical_plan *parts = NULL;
    ct_status status = CT_OK;

    CT_TRY(ct_hierarchical_plan_flat(t->n_rank, &parts));
    CT_TRY_GOTO(status, done, add(w, c->rank[0], c->rank[1], 0, 0));
    for (int64_t i = 0; i < n_piece * c->n_lane; ++i) {
        const ct_hierarchical_plan_piece *piece = &plan->piece[i % n_piece];
        int64_t lane = i / n_piece;
        int64_t end = (lane * CT_HIERARCHICAL_PLAN_UNITS + piece->end) / c->n_lane;
        int from = c->rank[lane * plan->n + piece->owner];

        while (at < end) {
            int to = t->order[parts->piece[k].owner];
            int64_t next = (parts->piece[k].end < end) ? parts->piece[k].end : end;
            double share = (double)(next - at) / (double)CT_HIERARCHICAL_PLAN_UNITS;

            if (t->node[from] != t->node[to])
                CT_TRY_GOTO(status, done, add(w, from, to, share, share));
            k += (parts->piece[k].end == next);
            at = next;
        }
    }
    status = ct_cost_end_copies(w);

done:
    ct_hierarchical_plan_destroy(parts);
    return status;
}

/* The same of several chunks: each node sends every other one 1 / nodes of what it has. */
static ct_status spread_nodes(ct_cost_work *w)
{
    ct_cost *c = w->c;
    int m = c->plan->n, n_shift = (m - 1 < MOST_SHIFTS) ? m - 1 : MOST_SHIFTS;
    double share = (m - 1.0) / m / m / c->n_lane / n_shift;

    for (int64_t s = 0; s < n_shift; ++s) {
        int shift = (int)(1 + s * (m - 1) / n_shift);

        for (int i = 0; i < m * c->n_lane; ++i) {
            const int *lane = c->rank + i / m * m;

            CT_TRY(add(w, lane[i % m], lane[(i % m + shift) % m], share, share));
        }
    }
    c->spread = take_round(w, 1);
    c->spread.gamma = 0; /* copies */
    return CT_OK;
}

/* The nodes' shared memory: every owner reads its part from all neighbours. */
static ct_status node_round(ct_cost_work *w, const int *table)
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

/* ---- making one */

/* Ranks of each node by their place on it, for all nodes in the order of the topology:
 * table[position * max + place]. */
static int *list_nodes(const ct_topo *t)
{
    int most = ct_topo_max_node_size(t), n = 0;
    int *table = malloc(sizeof(*table) * (size_t)t->n_node * (size_t)most);

    for (int i = 0; (table != NULL) && (i < t->n_rank); ++i) {
        int r = t->order[i];

        if ((i > 0) && (t->node[t->order[i - 1]] != t->node[r])) n += 1;
        table[(size_t)n * (size_t)most + (size_t)t->local_rank[r]] = r;
    }
    return table;
}

static ct_status lanes_of_nodes(ct_cost_work *w)
{
    ct_cost *c = w->c;
    const ct_topo *t = c->t;
    size_t most = (size_t)ct_topo_max_node_size(t);
    int *table = list_nodes(t);
    ct_status status = CT_OK;

    c->n_lane = ct_topo_min_node_size(t);
    c->rank = malloc(sizeof(*c->rank) * (size_t)c->n_lane * (size_t)t->n_node);
    if ((table == NULL) || (c->rank == NULL)) {
        free(table);
        return no_memory();
    }
    for (size_t lane = 0; lane < (size_t)c->n_lane; ++lane) {
        for (size_t v = 0; v < (size_t)t->n_node; ++v)
            c->rank[lane * (size_t)t->n_node + v] = table[v * most + lane];
    }
    status = node_round(w, table);
    free(table);
    return status;
}

static ct_status ranks_in_order(ct_cost *c)
{
    size_t bytes = sizeof(*c->rank) * (size_t)c->t->n_rank;

    c->rank = malloc(bytes);
    if (c->rank == NULL) return no_memory();
    memcpy(c->rank, c->t->order, bytes);
    return CT_OK;
}

const ct_topo *ct_cost_topo(const ct_cost_work *w)
{
    return w->c->t;
}

ct_status ct_cost_by_plan(ct_cost_work *w, ct_hierarchical_plan *plan, unsigned ways, bool chunks)
{
    w->c->plan = plan;
    CT_TRY(ranks_in_order(w->c));
    if (chunks && (plan->n_phase > 1)) CT_TRY(whole_round(w));
    if (w->c->way != CT_COST_BOTH_WAYS) CT_TRY(deal_round(w));
    return plan_rounds(w, ways);
}

ct_status ct_cost_by_nodes(ct_cost_work *w, double chunk)
{
    ct_cost *c = w->c;
    const ct_topo *t = c->t;

    CT_TRY(lanes_of_nodes(w));
    CT_TRY(ct_hierarchical_plan_tree(t, t->machine.node_level + 1, &c->plan));
    if ((c->way != CT_COST_BOTH_WAYS) && (t->n_node > 1)) CT_TRY(deal_nodes(w));
    if ((c->way == CT_COST_UP) && (t->n_node > 1)) {
        CT_TRY(spread_nodes(w));
        c->chunk = chunk;
    }
    return plan_rounds(w, CT_COST_ANY);
}

ct_status ct_cost_by_mpi(ct_cost_work *w, const ct_cost_ops *one, const ct_cost_ops *other,
                         const ct_in_network *network)
{
    w->c->adds = (network != NULL);
    if (network != NULL) {
        double inject = ct_topo_least_inject(w->c->t);

        w->c->network = *network;
        if ((w->c->t->node_class != NULL) && (inject < network->bandwidth))
            w->c->network.bandwidth = inject;
    }
    CT_TRY(ct_cost_create(one, w->c->t, NULL, false, &w->c->other[0]));
    return ct_cost_create(other, w->c->t, NULL, false, &w->c->other[1]);
}

ct_status ct_cost_create(const ct_cost_ops *how, const ct_topo *t, const int *dim, bool shares,
                         ct_cost **cost_p)
{
    ct_cost_work w = { .c = calloc(1, sizeof(ct_cost)) };
    ct_status status = CT_OK;

    if (w.c == NULL) return no_memory();
    w.c->t = t;
    w.c->way = how->way;
    w.c->inside = ct_topo_least_inside(t);
    w.c->n_lane = 1;
    w.received = calloc((size_t)t->n_rank, sizeof(*w.received));
    w.to = malloc(sizeof(*w.to) * (size_t)t->n_rank);
    w.from = malloc(sizeof(*w.from) * (size_t)t->n_rank);
    if ((w.received == NULL) || (w.to == NULL) || (w.from == NULL))
        CT_TRY_GOTO(status, done, no_memory());
    memset(w.to, -1, sizeof(*w.to) * (size_t)t->n_rank);
    memset(w.from, -1, sizeof(*w.from) * (size_t)t->n_rank);
    CT_TRY_GOTO(status, done, ct_flow_create(t, &w.flow));
    CT_TRY_GOTO(status, done, how->rounds(&w, dim, shares));
    *cost_p = w.c;
    w.c = NULL;

done:
    ct_flow_destroy(w.flow);
    free(w.received);
    free(w.to);
    free(w.from);
    ct_cost_destroy(w.c);
    return status;
}

double ct_cost_weight(const ct_cost_ops *how, const ct_topo *t, bool shares)
{
    return (how->weight != NULL) ? how->weight(t, shares) : 1;
}

ct_status ct_cost_line_of(const ct_cost_ops *how, const ct_topo *t, ct_cost_line *out)
{
    const double large = 1e12;
    ct_cost *c = NULL;

    CT_TRY(ct_cost_create(how, t, NULL, true, &c));
    out->a_s = ct_cost_s(c, 0);
    out->b_s = (ct_cost_s(c, 2 * large) - ct_cost_s(c, large)) / large;
    ct_cost_destroy(c);
    return CT_OK;
}
