/* Costs: made once for a topology and an algorithm, then looked up by size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/cost/cost_impl.h"
#include "comm/cost/segment.h"

enum {
    MOST_CHUNKS = 8,
    MOST_STEPS = 256,     /* of one rank's schedule, about                     */
    LEAST_CHUNK = 1 << 19 /* bytes                                             */
};

static const double pipe_pays = 0.97; /* of the time without, or it is not worth its messages */

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
static double measured_s(const ct_cost_round *r, double bytes, bool adds)
{
    double each = r->message * bytes;
    double load = r->beta * bytes / r->times - each / r->level->bandwidth;
    double sums = adds ? r->gamma * bytes / r->times - r->gamma_each * each : 0;

    return r->times *
           (ct_level_message_s(r->level, r->pattern, each) + fmax(load, 0) + fmax(sums, 0));
}

static double round_s(const ct_cost_round *r, double bytes, bool adds)
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

static void take_credit(const ct_cost_round *r, double bytes, credit *c)
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

static double way_s(const ct_cost_phase *p, ct_group_algorithm way, double bytes)
{
    double sum = 0;

    for (int k = 0; k < p->n_round[way]; ++k)
        sum += round_s(&p->round[way][k], bytes, true) + round_s(&p->round[way][k], bytes, false);
    return sum;
}

static ct_group_algorithm best_way(const ct_cost_phase *p, double bytes, double *least_p)
{
    ct_group_algorithm best = CT_GROUP_ALGORITHM_N;
    double least = 0;

    for (int way = 0; way < CT_GROUP_ALGORITHM_N; ++way) {
        double s = p->allowed[way] ? way_s(p, (ct_group_algorithm)way, bytes) : 0;

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
    credit used = { 0 };

    if (each * c->all.gamma > most) most = each * c->all.gamma;
    for (int k = 0; (c->plan != NULL) && (k < c->plan->n_phase); ++k) {
        const ct_cost_phase *p = &c->phase[k];
        double least = 0;
        ct_group_algorithm way = best_way(p, each, &least);

        sum += least;
        if (is_chain(c, k)) chains += least;
        if (least / 2 > most) most = least / 2; /* up; down is another stretch */
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

double ct_cost_s(const ct_cost *c, double bytes)
{
    double sum = 0;
    credit used = { 0 };

    if (c->other[0] != NULL) {
        double a, b;

        if ((c->network != NULL) && (ct_in_network_pieces(c->network, bytes) > 0))
            return ct_in_network_s(c->network, bytes);
        a = ct_cost_s(c->other[0], bytes);
        b = ct_cost_s(c->other[1], bytes);
        /* some good algorithm, but its later rounds start only when we happen to call MPI */
        return 1.25 * ((a < b) ? a : b);
    }
    for (int k = 0; k < c->n_tree; ++k) {
        sum += round_s(&c->tree[k], bytes, true) + round_s(&c->tree[k], bytes, false);
        take_credit(&c->tree[k], bytes / 2, &used);
    }
    sum += 2 * too_much_credit_s(&used); /* up by the links to the root, down by those from it */
    if ((c->node.times > 0) && (c->t->machine.shared.bandwidth > 0)) {
        sum += ct_shared_memory_s(&c->t->machine.shared, bytes);
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
    status = ct_cost_node_round(w, table);
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

/* Three factors of n that are near to each other, the smallest last. */
static void near_factors(int n, int *dim)
{
    int best[3] = { n, 1, 1 };

    for (int c = 1; (int64_t)c * c * c <= n; ++c) {
        for (int b = c; (n % c == 0) && ((int64_t)b * b <= n / c); ++b) {
            int a = n / c / b;

            if ((n / c % b == 0) && (a + b + c < best[0] + best[1] + best[2])) {
                best[0] = a;
                best[1] = b;
                best[2] = c;
            }
        }
    }
    memcpy(dim, best, sizeof(best));
}

static ct_status torus_plan(ct_cost *c, const int *dim)
{
    int n = c->t->n_rank, chosen[3] = { 1, 1, 1 };

    if ((dim == NULL) || (dim[0] == 0)) {
        near_factors(n, chosen);
    } else {
        for (int k = 0; k < 3; ++k) chosen[k] = (dim[k] > 0) ? dim[k] : 1;
        if ((int64_t)chosen[0] * chosen[1] > n || chosen[0] * chosen[1] * (int64_t)chosen[2] != n)
            return CT_FAIL(CT_ERR_CONFIG, "torus:%dx%dx%d has no place for each of %d ranks",
                           chosen[0], chosen[1], chosen[2], n);
    }
    return ct_hierarchical_plan_grid(n, chosen, 3, &c->plan);
}

static ct_status create(ct_cost_work *w, const char *algorithm, const int *dim, bool shares)
{
    ct_cost *c = w->c;
    bool ring[CT_GROUP_ALGORITHM_N] = { [CT_GROUP_ALGORITHM_RING] = true };
    bool halving[CT_GROUP_ALGORITHM_N] = { [CT_GROUP_ALGORITHM_HALVING] = true };
    bool all[CT_GROUP_ALGORITHM_N] = { true, true, true };

    if (strcmp(algorithm, "tree") == 0) {
        CT_TRY(ranks_in_order(c));
        return ct_cost_tree_rounds(w);
    }
    if ((strcmp(algorithm, "impi") == 0) || (strcmp(algorithm, "impi_host") == 0)) {
        if ((algorithm[4] == '\0') && (c->t->n_node > 1)) c->network = &c->t->machine.in_network;
        CT_TRY(ct_cost_create("ring", c->t, NULL, false, &c->other[0]));
        return ct_cost_create("rhd", c->t, NULL, false, &c->other[1]);
    }
    if ((strcmp(algorithm, "hier") == 0) && shares && (ct_topo_max_node_size(c->t) > 1)) {
        CT_TRY(lanes_of_nodes(w));
        CT_TRY(ct_hierarchical_plan_tree(c->t, c->t->machine.node_level + 1, &c->plan));
        return ct_cost_plan_rounds(w, all);
    }
    CT_TRY(ranks_in_order(c));
    if (strcmp(algorithm, "hier") == 0) {
        CT_TRY(ct_hierarchical_plan_tree(c->t, 0, &c->plan));
        if (c->plan->n_phase > 1) CT_TRY(ct_cost_whole_round(w));
        return ct_cost_plan_rounds(w, all);
    }
    if (strcmp(algorithm, "torus") == 0) {
        CT_TRY(torus_plan(c, dim));
        return ct_cost_plan_rounds(w, ring);
    }
    if ((strcmp(algorithm, "ring") == 0) || (strcmp(algorithm, "rhd") == 0)) {
        CT_TRY(ct_hierarchical_plan_flat(c->t->n_rank, &c->plan));
        return ct_cost_plan_rounds(w, (algorithm[1] == 'i') ? ring : halving);
    }
    if (strcmp(algorithm, "flat") == 0) { /* ring or rhd, whichever */
        CT_TRY(ct_hierarchical_plan_flat(c->t->n_rank, &c->plan));
        return ct_cost_plan_rounds(w, all);
    }
    return CT_FAIL(CT_ERR_CONFIG, "no cost is known of an algorithm \"%s\"", algorithm);
}

ct_status ct_cost_create(const char *algorithm, const ct_topo *t, const int *dim, bool shares,
                         ct_cost **cost_p)
{
    ct_cost_work w = { .c = calloc(1, sizeof(ct_cost)) };
    ct_status status = CT_OK;

    if (w.c == NULL) return no_memory();
    w.c->t = t;
    w.c->n_lane = 1;
    w.received = calloc((size_t)t->n_rank, sizeof(*w.received));
    w.to = malloc(sizeof(*w.to) * (size_t)t->n_rank);
    w.from = malloc(sizeof(*w.from) * (size_t)t->n_rank);
    if ((w.received == NULL) || (w.to == NULL) || (w.from == NULL))
        CT_TRY_GOTO(status, done, no_memory());
    memset(w.to, -1, sizeof(*w.to) * (size_t)t->n_rank);
    memset(w.from, -1, sizeof(*w.from) * (size_t)t->n_rank);
    CT_TRY_GOTO(status, done, ct_flow_create(t, &w.flow));
    CT_TRY_GOTO(status, done, create(&w, algorithm, dim, shares));
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

double ct_cost_weight(const char *algorithm, const ct_topo *t, bool shares)
{
    const double crossing = 1.1, in_place = 0.9;
    bool hier = (strcmp(algorithm, "hier") == 0);

    if (hier && shares && (ct_topo_min_node_size(t) > 1)) return in_place;
    if (hier && !(shares && (ct_topo_max_node_size(t) > 1))) return crossing;
    return (strcmp(algorithm, "torus") == 0) ? crossing : 1;
}

ct_status ct_cost_line_of(const char *algorithm, const ct_topo *t, ct_cost_line *out)
{
    const double large = 1e12;
    ct_cost *c = NULL;

    CT_TRY(ct_cost_create(algorithm, t, NULL, true, &c));
    out->a_s = ct_cost_s(c, 0);
    out->b_s = (ct_cost_s(c, 2 * large) - ct_cost_s(c, large)) / large;
    ct_cost_destroy(c);
    return CT_OK;
}
