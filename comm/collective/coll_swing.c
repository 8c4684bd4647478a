/* swing: reduce-scatter and allgather, whose partners are 1, 1, 3, 5, 11 … places away, to one side
 * and the other in turn: least traffic, 2 log2 p messages deep, like rhd. Partners of late rounds
 * are nearer than those of rhd, which are 1, 2, 4, 8 … away: on rings and tori fewer messages share
 * a link (De Sensi et al., NSDI 2024). Where p is no power of two, those beyond the largest one
 * hand their terms to another rank first, and get the sum from it last. */
#include <stdlib.h>

#include "comm/collective/coll_types.h"

/* Ranks 0 … n - 1 take part in the rounds: a power of two. */
typedef struct swing {
    int n, n_round;
} swing;

static swing swing_of(int size)
{
    swing w = { .n = 1, .n_round = 0 };

    for (; 2 * w.n <= size; w.n *= 2) w.n_round += 1;
    return w;
}

/* Even places go up by the sum of (-2)^i for i = 0 … round, odd ones down: equation 1. */
static int partner(const swing *w, int place, int round)
{
    int64_t away = 0;

    for (int i = round; i >= 0; --i) away = 1 - 2 * away;
    if (place % 2 == 1) away = -away;
    return (int)(((place + away) % w->n + w->n) % w->n);
}

/* Does a place keep the upper half of what it has before this round? Those who go on with each
 * other must keep the same one, so that every range stays in one piece. In all rounds but the last,
 * ranks that will meet stand for one even place, and their partner's differs in bit round + 1. */
static bool keeps_upper(const swing *w, int place, int round)
{
    int even = (place % 2 == 0) ? place : partner(w, place, w->n_round - 1);

    if (round == w->n_round - 1) return place % 2 == 1;
    return ((even >> (round + 1)) & 1) != 0;
}

static int64_t element(const ct_coll_req *r, const swing *w, int64_t unit)
{
    return ct_hierarchical_plan_at(unit, r->count, w->n);
}

/* One round: [mine_a, mine_b) is added up here, [other_a, other_b) at the partner. */
static ct_status add_round(const ct_coll_req *r, const swing *w, int to, const int64_t *mine,
                           const int64_t *other, bool back, ct_schedule *s)
{
    const int64_t *out = back ? mine : other, *in = back ? other : mine;
    int rank = r->comm->topo->order[to];
    ct_sched_step step = { .send_to = rank, .recv_from = rank, .add = !back };

    step.send_at = element(r, w, out[0]);
    step.send_n = element(r, w, out[1]) - step.send_at;
    step.recv_at = element(r, w, in[0]);
    step.recv_n = element(r, w, in[1]) - step.recv_at;
    return ct_schedule_add(s, &step);
}

/* The rounds up, and down unless it is a half. */
static ct_status both_ways(const ct_coll_req *r, const swing *w, int me, bool down, ct_schedule *s)
{
    int64_t mine[32][2], other[32][2], a = 0, b = CT_HIERARCHICAL_PLAN_UNITS;

    for (int k = 0; k < w->n_round; ++k) {
        int64_t cut = a + (b - a) / 2;
        bool upper = keeps_upper(w, me, k);

        mine[k][0] = upper ? cut : a;
        mine[k][1] = upper ? b : cut;
        other[k][0] = upper ? a : cut;
        other[k][1] = upper ? cut : b;
        a = mine[k][0];
        b = mine[k][1];
        CT_TRY(add_round(r, w, partner(w, me, k), mine[k], other[k], false, s));
    }
    for (int k = w->n_round - 1; down && (k >= 0); --k)
        CT_TRY(add_round(r, w, partner(w, me, k), mine[k], other[k], true, s));
    return CT_OK;
}

/* All elements, from one place to another. */
static ct_status hand_over(const ct_coll_req *r, int me, int from, int to, bool add, ct_schedule *s)
{
    const int *order = r->comm->topo->order;
    ct_sched_step step = { .send_to = -1, .recv_from = -1, .add = add };

    if (me == from) {
        step.send_to = order[to];
        step.send_n = r->count;
    } else {
        step.recv_from = order[from];
        step.recv_n = r->count;
    }
    return ct_schedule_add(s, &step);
}

static ct_status swing_build(const ct_coll_req *r, ct_schedule *s)
{
    int size = r->comm->size, me = ct_coll_p2p_place(r->comm);
    swing w = swing_of(size);
    int low = (me < w.n) ? me : me - w.n, high = low + w.n;

    if (high < size) CT_TRY(hand_over(r, me, high, low, true, s));
    if (me < w.n) CT_TRY(both_ways(r, &w, me, true, s));
    return (high < size) ? hand_over(r, me, low, high, false, s) : CT_OK;
}

/* Which of w->n equal pieces a place has the sum of. */
static int piece_of(const swing *w, int place)
{
    int at = 0;

    for (int k = 0; k < w->n_round; ++k) at = 2 * at + (keeps_upper(w, place, k) ? 1 : 0);
    return at;
}

/* The way up, and from there the pieces to whose parts they are. */
static ct_status swing_scatter_build(const ct_coll_req *r, ct_schedule *s)
{
    int size = r->comm->size, me = ct_coll_p2p_place(r->comm);
    swing w = swing_of(size);
    int low = (me < w.n) ? me : me - w.n, high = low + w.n;
    ct_sched_piece *part = NULL, *piece = malloc(sizeof(*piece) * (size_t)w.n);
    ct_status status = CT_OK;

    if (piece == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d pieces", w.n);
    for (int place = 0; place < w.n; ++place) {
        int k = piece_of(&w, place);

        piece[k].owner = place;
        piece[k].end = element(r, &w, CT_HIERARCHICAL_PLAN_UNITS / w.n * (k + 1));
    }
    if (high < size) CT_TRY_GOTO(status, done, hand_over(r, me, high, low, true, s));
    if (me < w.n) CT_TRY_GOTO(status, done, both_ways(r, &w, me, false, s));
    CT_TRY_GOTO(status, done, ct_coll_p2p_parts(r, &part));
    status = ct_schedule_deal(piece, part, r->comm->topo->order, me, r->count, s);

done:
    free(part);
    free(piece);
    return status;
}

static ct_status swing_rounds(ct_cost_work *work, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(work);
    swing w = swing_of(t->n_rank);
    double share = 1;

    (void)dim;
    (void)shares;
    for (int i = w.n; i < t->n_rank; ++i)
        CT_TRY(ct_cost_message(work, t->order[i], t->order[i - w.n], 1));
    if (w.n < t->n_rank) CT_TRY(ct_cost_end_round(work));
    for (int k = 0; k < w.n_round; ++k) {
        share /= 2;
        for (int i = 0; i < w.n; ++i)
            CT_TRY(ct_cost_message(work, t->order[i], t->order[partner(&w, i, k)], share));
        CT_TRY(ct_cost_end_round(work));
    }
    return CT_OK;
}

static const ct_cost_ops swing_cost = { .rounds = swing_rounds };

static ct_status swing_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, swing_build);
}

/* What is dealt out behind the rounds: about as much as a place has. */
static ct_status swing_scatter_rounds(ct_cost_work *work, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(work);
    swing w = swing_of(t->n_rank);

    CT_TRY(swing_rounds(work, dim, shares));
    for (int i = 0; i < w.n; ++i) {
        int to = t->n_rank - 1 - i;

        if (to != i) CT_TRY(ct_cost_message(work, t->order[i], t->order[to], 1.0 / w.n));
    }
    return (w.n > 1) ? ct_cost_end_copies(work) : CT_OK;
}

static const ct_cost_ops swing_scatter_cost = { .rounds = swing_scatter_rounds,
                                                .way = CT_COST_UP,
                                                .whole = &swing_cost };

static ct_status swing_scatter_prepare(ct_coll_req *r)
{
    return ct_coll_p2p_prepare(r, swing_scatter_build);
}

static const ct_coll_ops swing_scatter = {
    .name = "swing",
    .kind = CT_COLL_REDUCE_SCATTER,
    .cost = &swing_scatter_cost,
    .prepare = swing_scatter_prepare,
    CT_COLL_P2P_OPS,
};

/* Not automatic: no machine has shown yet where it is the fastest. */
const ct_coll_ops ct_coll_swing = {
    .name = "swing",
    .cost = &swing_cost,
    .scatter = &swing_scatter,
    .prepare = swing_prepare,
    CT_COLL_P2P_OPS,
};
