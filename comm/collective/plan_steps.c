/* From what a group does to what one of its members sends and receives, step by step.
 *
 * All of a phase's groups go through their rounds side by side: the steps are ordered by phase,
 * round and group, on all ranks alike, so that no circle of ranks waits for each other. */
#include "comm/collective/schedule.h"

#include "comm/cost/hierarchical_plan.h"

enum { SPLIT = 128 << 10 /* elements of an exchange that halving cuts in two */ };

typedef struct range {
    int64_t a, b; /* units */
} range;

/* One group seen by one of its members. */
typedef struct view {
    const ct_engine_plan_use *u;
    const ct_hierarchical_plan_group *g;
    const int *member; /* positions */
    int i;             /* this one  */
} view;

static int64_t element(const ct_engine_plan_use *u, int64_t unit)
{
    return ct_hierarchical_plan_at(unit, u->n, u->plan->n);
}

/* to, from: members of the group, or -1. */
static ct_status add(const view *v, int to, range send, int from, range recv, bool sum,
                     ct_schedule *s)
{
    const ct_engine_plan_use *u = v->u;
    int64_t send_at = element(u, send.a), recv_at = element(u, recv.a);

    return ct_schedule_add(
        s, &(ct_sched_step){ .send_to = (to < 0) ? -1 : u->rank[v->member[to]],
                             .recv_from = (from < 0) ? -1 : u->rank[v->member[from]],
                             .send_at = u->first + send_at,
                             .send_n = element(u, send.b) - send_at,
                             .recv_at = u->first + recv_at,
                             .recv_n = element(u, recv.b) - recv_at,
                             .add = sum });
}

static range part(const view *v, int i)
{
    range r;

    ct_hierarchical_plan_part(v->g, i, &r.a, &r.b);
    return r;
}

/* ---- ring: what goes out in a round came in one round before */

static ct_status ring_round(const view *v, int round, bool scatter, ct_schedule *s)
{
    int m = v->g->n, shift = scatter ? round + 1 : round;
    int out = (v->i - shift + 2 * m) % m, in = (v->i - shift - 1 + 2 * m) % m;

    return add(v, (v->i + 1) % m, part(v, out), (v->i + m - 1) % m, part(v, in), scatter, s);
}

/* ---- direct: all at once */

static ct_status direct_round(const view *v, bool scatter, ct_schedule *s)
{
    int m = v->g->n;
    range mine = part(v, v->i);

    for (int d = 1; d < m; ++d) {
        int to = (v->i + d) % m, from = (v->i + m - d) % m;

        CT_TRY(scatter ? add(v, to, part(v, to), from, mine, true, s)
                       : add(v, to, mine, from, part(v, from), false, s));
    }
    return CT_OK;
}

/* ---- halving */

/* What member i does in a round; false where it is alone before. *next_p: its round after, if any
 * (then true). */
static bool halving_round(const ct_hierarchical_plan_group *g, int i, int round,
                          ct_halving_round *r, ct_halving_round *next_p, bool *has_next_p)
{
    ct_halving h;

    ct_halving_begin(&h, g->n, i, g->a, g->b);
    for (int k = 0; k <= round; ++k) {
        if (!ct_halving_next(&h, r)) return false;
    }
    *has_next_p = ct_halving_next(&h, next_p);
    return true;
}

/* A range that member i holds after `round`, as two: what it sends in its next round, which comes
 * first on the way up and last on the way down, so that the next round can begin with what has
 * arrived; and what it keeps. One, where that is small. */
static int pieces(const view *v, int i, int round, bool scatter, range whole, range *piece)
{
    ct_halving_round r, next;
    bool has_next = false;
    int64_t n = element(v->u, whole.b) - element(v->u, whole.a);

    piece[0] = whole;
    if ((n < SPLIT) || !halving_round(v->g, i, round, &r, &next, &has_next) || !has_next) return 1;
    piece[scatter ? 0 : 1] = (range){ next.send_a, next.send_b };
    piece[scatter ? 1 : 0] = (range){ next.keep_a, next.keep_b };
    return 2;
}

/* Sends out[0 … n_out) to `to` while receiving in[0 … n_in) from `from`. */
static ct_status exchange(const view *v, int to, const range *out, int n_out, int from,
                          const range *in, int n_in, bool sum, ct_schedule *s)
{
    for (int k = 0; (k < n_out) || (k < n_in); ++k)
        CT_TRY(add(v, (k < n_out) ? to : -1, (k < n_out) ? out[k] : (range){ 0, 0 },
                   (k < n_in) ? from : -1, (k < n_in) ? in[k] : (range){ 0, 0 }, sum, s));
    return CT_OK;
}

static ct_status halving_scatter(const view *v, int round, ct_schedule *s)
{
    ct_halving_round r, next;
    range out[2], in[2];
    bool has_next = false;
    int n_out = 0, n_in = 0;

    if (!halving_round(v->g, v->i, round, &r, &next, &has_next)) return CT_OK;
    n_out = pieces(v, r.to, round, true, (range){ r.send_a, r.send_b }, out);
    n_in = pieces(v, v->i, round, true, (range){ r.keep_a, r.keep_b }, in);
    CT_TRY(exchange(v, r.to, out, n_out, (r.n_from > 0) ? r.from[0] : -1, in,
                    (r.n_from > 0) ? n_in : 0, true, s));
    return (r.n_from > 1) ? exchange(v, -1, out, 0, r.from[1], in, n_in, true, s) : CT_OK;
}

/* The same round backwards: what was kept goes out, what was sent comes back. */
static ct_status halving_gather(const view *v, int back, ct_schedule *s)
{
    int round = ct_halving_rounds(v->g->n) - 1 - back;
    ct_halving_round r, next;
    range out[2], in[2];
    bool has_next = false;
    int n_out = 0, n_in = 0;

    if (!halving_round(v->g, v->i, round, &r, &next, &has_next)) return CT_OK;
    n_out = pieces(v, v->i, round, false, (range){ r.keep_a, r.keep_b }, out);
    n_in = pieces(v, r.to, round, false, (range){ r.send_a, r.send_b }, in);
    CT_TRY(exchange(v, (r.n_from > 0) ? r.from[0] : -1, out, (r.n_from > 0) ? n_out : 0, r.to, in,
                    n_in, false, s));
    return (r.n_from > 1) ? exchange(v, r.from[1], out, n_out, -1, in, 0, false, s) : CT_OK;
}

/* ---- phases */

static int rounds(ct_group_algorithm way, int m)
{
    if (way == CT_GROUP_ALGORITHM_DIRECT) return 1;
    return (way == CT_GROUP_ALGORITHM_RING) ? m - 1 : ct_halving_rounds(m);
}

static ct_status group_round(const view *v, ct_group_algorithm way, int round, bool scatter,
                             ct_schedule *s)
{
    if (round >= rounds(way, v->g->n)) return CT_OK;
    if (way == CT_GROUP_ALGORITHM_RING) return ring_round(v, round, scatter, s);
    if (way == CT_GROUP_ALGORITHM_DIRECT) return direct_round(v, scatter, s);
    return scatter ? halving_scatter(v, round, s) : halving_gather(v, round, s);
}

static ct_status phase_steps(const ct_engine_plan_use *u, int k, bool scatter, ct_schedule *s)
{
    const ct_hierarchical_plan_phase *p = &u->plan->phase[k];

    for (int round = 0; round < rounds(u->way[k], p->most); ++round) {
        for (int at = p->of_start[u->me]; at < p->of_start[u->me + 1]; ++at) {
            const ct_hierarchical_plan_group *g = &p->group[p->of[at]];
            view v = { .u = u, .g = g, .member = p->member + g->first };

            while (v.member[v.i] != u->me) v.i += 1;
            CT_TRY(group_round(&v, u->way[k], round, scatter, s));
        }
    }
    return CT_OK;
}

ct_status ct_hierarchical_plan_scatter(const ct_engine_plan_use *u, ct_schedule *s)
{
    for (int k = 0; k < u->plan->n_phase; ++k) CT_TRY(phase_steps(u, k, true, s));
    return CT_OK;
}

ct_status ct_hierarchical_plan_gather(const ct_engine_plan_use *u, ct_schedule *s)
{
    for (int k = u->plan->n_phase; k > 0; --k) CT_TRY(phase_steps(u, k - 1, false, s));
    return CT_OK;
}

/* Stretch t has chunk t - APART * p in phase p. A chunk's phases are two stretches apart: what it
 * sends in one has come in before the stretch between, whose messages keep the links busy. */
ct_status ct_hierarchical_plan_pipelined(const ct_engine_plan_use *u, int n_chunk, ct_schedule *s)
{
    enum { APART = 2 };
    int n_phase = u->plan->n_phase, both = 2 * n_phase;

    for (int t = 0; t < n_chunk + APART * (both - 1); ++t) {
        for (int p = both - 1; p >= 0; --p) { /* who is furthest goes first */
            int chunk = t - APART * p;
            ct_engine_plan_use part = *u;

            if ((chunk < 0) || (chunk >= n_chunk)) continue;
            part.first = u->first + ct_part(u->n, n_chunk, chunk);
            part.n = u->first + ct_part(u->n, n_chunk, chunk + 1) - part.first;
            CT_TRY(phase_steps(&part, (p < n_phase) ? p : both - 1 - p, p < n_phase, s));
        }
    }
    return CT_OK;
}

/* ---- trees */

static ct_status tree_step(const int *rank, int n, int root, int me, int d, bool up, int64_t count,
                           ct_schedule *s)
{
    bool child = (me % (2 * d) == d);
    int other = child ? me - d : me + d;
    ct_sched_step step = { .send_to = -1, .recv_from = -1, .add = up };

    if ((me % d != 0) || (other >= n)) return CT_OK;
    if (child == up) {
        step.send_to = rank[(other + root) % n];
        step.send_n = count;
    } else {
        step.recv_from = rank[(other + root) % n];
        step.recv_n = count;
    }
    return ct_schedule_add(s, &step);
}

ct_status ct_tree_reduce(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s)
{
    for (int d = 1; d < n; d *= 2) CT_TRY(tree_step(rank, n, root, me, d, true, count, s));
    return CT_OK;
}

ct_status ct_tree_broadcast(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s)
{
    int d = 1;

    while (d < n) d *= 2;
    while ((d /= 2) >= 1) CT_TRY(tree_step(rank, n, root, me, d, false, count, s));
    return CT_OK;
}
