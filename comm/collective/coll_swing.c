/* swing: reduce-scatter and allgather, whose partners are 1, 1, 3, 5, 11 … places away, to one side
 * and the other in turn: least traffic, 2 log2 p messages deep, like rhd. Partners of late rounds
 * are nearer than those of rhd, which are 1, 2, 4, 8 … away: on rings and tori fewer messages share
 * a link (De Sensi et al., NSDI 2024). Where p is no power of two, those beyond the largest one
 * hand their terms to another rank first, and get the sum from it last. */
#include <stdlib.h>

#include "comm/collective/coll_types.h"

/* On a torus that the job has to itself, whose sides are powers of two, a buffer goes in as many
 * parts as a node has links. Each part takes the dimensions in turn, beginning with one of its own,
 * half of the parts mirrored, so that all links work in every round (section 4.1 there). Elsewhere
 * it is one part, on a ring in the topology's order. */
enum { PIECE = 1 << 15 /* elements: one segment of the engine */ };

typedef struct swing {
    ct_torus on; /* no side is 1 */
    int n, n_round, n_part;
    int *rank; /* [ranks of the job] of each place, the first n of them on the torus */
} swing;

static int log2_of(int n)
{
    int k = 0;

    while ((2 << k) <= n) k += 1;
    return k;
}

/* Is the job a torus for which there is a way? Then without the dimensions of one node. */
static bool find_torus(const ct_topo *t, ct_torus *on)
{
    const ct_torus *have = ct_topo_torus(t);

    *on = (ct_torus){ .n_dim = 0 };
    for (int d = 0; (have != NULL) && (d < have->n_dim); ++d) {
        if ((have->dim[d] & (have->dim[d] - 1)) != 0) return false;
        if (have->dim[d] > 1) on->dim[on->n_dim++] = have->dim[d];
    }
    return on->n_dim > 0;
}

static ct_status swing_create(const ct_topo *t, swing *w)
{
    bool torus = find_torus(t, &w->on);

    w->n_round = log2_of(t->n_rank);
    w->n = 1 << w->n_round;
    w->n_part = torus ? 2 * w->on.n_dim : 1;
    if (!torus) w->on = (ct_torus){ .n_dim = 1, .dim = { w->n } };
    w->rank = malloc(sizeof(*w->rank) * (size_t)t->n_rank);
    if (w->rank == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", t->n_rank);
    for (int i = 0; i < t->n_rank; ++i) {
        if (torus)
            w->rank[t->torus_place[t->node[i]]] = i;
        else
            w->rank[i] = t->order[i];
    }
    return CT_OK;
}

/* Which dimension a part takes in a round, and which round of a ring along it that is. */
static int find_round(const swing *w, int part, int round, int *of_ring)
{
    int done[CT_MAX_TORUS] = { 0 };

    for (int d = part % w->on.n_dim;; d = (d + 1) % w->on.n_dim) {
        *of_ring = done[d];
        if (done[d] == log2_of(w->on.dim[d])) continue;
        if (round-- == 0) return d;
        done[d] += 1;
    }
}

/* On a ring of n even places go up by the sum of (-2)^i for i = 0 … round, odd ones down:
 * equation 1. */
static int partner_on_ring(int n, int at, int round)
{
    int64_t away = 0;

    for (int i = round; i >= 0; --i) away = 1 - 2 * away;
    if (at % 2 == 1) away = -away;
    return (int)(((at + away) % n + n) % n);
}

/* Does a place of a ring of n keep the upper half of what it has before this round? Those who go on
 * with each other must keep the same one, so that every range stays in one piece. In all rounds but
 * the last, places that will meet stand for one even place, and their partner's differs in bit
 * round + 1. Along other dimensions only those meet that have the same place in this one. */
static bool keeps_upper_on_ring(int n, int at, int round)
{
    int last = log2_of(n) - 1;
    int even = (at % 2 == 0) ? at : partner_on_ring(n, at, last);

    if (round == last) return at % 2 == 1;
    return ((even >> (round + 1)) & 1) != 0;
}

/* The partner of a place in a round of a part, and which half the place keeps. */
static int partner(const swing *w, int part, int place, int round, bool *upper_p)
{
    int at[CT_MAX_TORUS], of_ring = 0, d = find_round(w, part, round, &of_ring), n = w->on.dim[d];
    bool mirrored = (part >= w->on.n_dim);
    int mine, other;

    ct_torus_place(&w->on, place, at);
    mine = mirrored ? (n - at[d]) % n : at[d];
    other = partner_on_ring(n, mine, of_ring);
    if (upper_p != NULL) *upper_p = keeps_upper_on_ring(n, mine, of_ring);
    at[d] = mirrored ? (n - other) % n : other;
    return (int)ct_torus_node(&w->on, at);
}

static int64_t element(const ct_coll_req *r, const swing *w, int part, int64_t unit)
{
    int64_t first = ct_part(r->count, w->n_part, part);

    return first +
           ct_hierarchical_plan_at(unit, ct_part(r->count, w->n_part, part + 1) - first, w->n);
}

/* What a place has of a part before and after its rounds, in units. */
typedef struct range {
    int64_t a, b;
} range;

/* Goes on by one round: *mine is kept and added up here, *other_p at the partner. */
static int next_round(const swing *w, int part, int place, int round, range *mine, range *other_p)
{
    bool upper = false;
    int to = partner(w, part, place, round, &upper);
    int64_t cut = mine->a + (mine->b - mine->a) / 2;

    *other_p = upper ? (range){ mine->a, cut } : (range){ cut, mine->b };
    *mine = upper ? (range){ cut, mine->b } : (range){ mine->a, cut };
    return to;
}

static range whole(void)
{
    return (range){ 0, CT_HIERARCHICAL_PLAN_UNITS };
}

/* A round of a part: what goes out and comes in, a piece of each at a time. */
static ct_status add_piece(const ct_coll_req *r, const swing *w, int part, int me, int round,
                           bool back, int piece, int n_piece, ct_schedule *s)
{
    range mine = whole(), other = whole(), out, in;
    ct_sched_step step = { .add = !back, .port = part };
    int64_t first = 0, n = 0;
    int to = 0;

    for (int k = 0; k <= round; ++k) to = next_round(w, part, me, k, &mine, &other);
    step.send_to = step.recv_from = w->rank[to];
    out = back ? mine : other;
    in = back ? other : mine;
    first = element(r, w, part, out.a);
    n = element(r, w, part, out.b) - first;
    step.send_at = first + ct_part(n, n_piece, piece);
    step.send_n = first + ct_part(n, n_piece, piece + 1) - step.send_at;
    first = element(r, w, part, in.a);
    n = element(r, w, part, in.b) - first;
    step.recv_at = first + ct_part(n, n_piece, piece);
    step.recv_n = first + ct_part(n, n_piece, piece + 1) - step.recv_at;
    return ct_schedule_add(s, &step);
}

/* A round of all parts side by side. Messages of several parts go in pieces in turn, so that a long
 * one does not keep the other links waiting; all ranks cut alike. */
static ct_status add_round(const ct_coll_req *r, const swing *w, int me, int round, bool back,
                           ct_schedule *s)
{
    int64_t most = (r->count / w->n_part) >> (round + 1);
    int n_piece = (w->n_part > 1) ? (int)(most / PIECE) + 1 : 1;

    for (int i = 0; i < n_piece; ++i)
        for (int p = 0; p < w->n_part; ++p)
            CT_TRY(add_piece(r, w, p, me, round, back, i, n_piece, s));
    return CT_OK;
}

/* The rounds up, and down unless it is a half. */
static ct_status both_ways(const ct_coll_req *r, const swing *w, int me, bool down, ct_schedule *s)
{
    s->window = (2 * w->n_part < CT_SCHED_WINDOW) ? 2 * w->n_part : CT_SCHED_WINDOW;
    for (int k = 0; k < w->n_round; ++k) CT_TRY(add_round(r, w, me, k, false, s));
    for (int k = w->n_round - 1; down && (k >= 0); --k) CT_TRY(add_round(r, w, me, k, true, s));
    return CT_OK;
}

/* All elements, from one place to another. */
static ct_status hand_over(const ct_coll_req *r, const swing *w, int me, int from, int to, bool add,
                           ct_schedule *s)
{
    ct_sched_step step = { .send_to = -1, .recv_from = -1, .add = add };

    if (me == from) {
        step.send_to = w->rank[to];
        step.send_n = r->count;
    } else {
        step.recv_from = w->rank[from];
        step.recv_n = r->count;
    }
    return ct_schedule_add(s, &step);
}

static int place_of(const swing *w, int rank)
{
    int at = 0;

    while (w->rank[at] != rank) at += 1;
    return at;
}

/* Up, and down unless it is a half. */
static ct_status build(const ct_coll_req *r, const swing *w, bool down, ct_schedule *s)
{
    int size = r->comm->size, me = place_of(w, r->comm->rank);
    int low = (me < w->n) ? me : me - w->n, high = low + w->n;

    if (high < size) CT_TRY(hand_over(r, w, me, high, low, true, s));
    if (me < w->n) CT_TRY(both_ways(r, w, me, down, s));
    return ((high < size) && down) ? hand_over(r, w, me, low, high, false, s) : CT_OK;
}

static ct_status swing_build(const ct_coll_req *r, ct_schedule *s)
{
    swing w;
    ct_status status;

    CT_TRY(swing_create(r->comm->topo, &w));
    status = build(r, &w, true, s);
    free(w.rank);
    return status;
}

/* Each part's pieces in the order of the buffer, with whose sum each is. place_at: of each rank in
 * the topology's order. */
static void find_pieces(const ct_coll_req *r, const swing *w, const int *place_at,
                        ct_sched_piece *piece)
{
    int64_t unit = CT_HIERARCHICAL_PLAN_UNITS / w->n;

    for (int p = 0; p < w->n_part; ++p) {
        for (int place = 0; place < w->n; ++place) {
            range mine = whole(), other;

            for (int k = 0; k < w->n_round; ++k) (void)next_round(w, p, place, k, &mine, &other);
            piece[p * w->n + mine.a / unit] =
                (ct_sched_piece){ element(r, w, p, mine.b), place_at[w->rank[place]] };
        }
    }
}

static ct_status deal(const ct_coll_req *r, const swing *w, ct_schedule *s)
{
    const int *order = r->comm->topo->order;
    int n = r->comm->size;
    ct_sched_piece *part = NULL, *piece = malloc(sizeof(*piece) * (size_t)w->n * (size_t)w->n_part);
    int *place_at = malloc(sizeof(*place_at) * (size_t)n);
    ct_status status = CT_OK;

    if ((piece == NULL) || (place_at == NULL))
        CT_TRY_GOTO(status, done, CT_FAIL(CT_ERR_NOMEM, "no memory for pieces of %d ranks", n));
    for (int i = 0; i < n; ++i) place_at[order[i]] = i;
    find_pieces(r, w, place_at, piece);
    CT_TRY_GOTO(status, done, ct_coll_p2p_parts(r, &part));
    status = ct_schedule_deal(piece, part, order, place_at[r->comm->rank], r->count, s);

done:
    free(part);
    free(piece);
    free(place_at);
    return status;
}

/* The way up, and from there the pieces to whose parts they are. */
static ct_status swing_scatter_build(const ct_coll_req *r, ct_schedule *s)
{
    swing w;
    ct_status status;

    CT_TRY(swing_create(r->comm->topo, &w));
    status = build(r, &w, false, s);
    if (status == CT_OK) status = deal(r, &w, s);
    free(w.rank);
    return status;
}

static ct_status rounds_of(ct_cost_work *work, const swing *w)
{
    int n_rank = ct_cost_topo(work)->n_rank;
    double share = 1.0 / w->n_part;

    for (int i = w->n; i < n_rank; ++i)
        CT_TRY(ct_cost_message(work, w->rank[i], w->rank[i - w->n], 1));
    if (w->n < n_rank) CT_TRY(ct_cost_end_round(work));
    for (int k = 0; k < w->n_round; ++k) {
        share /= 2;
        for (int p = 0; p < w->n_part; ++p) {
            for (int i = 0; i < w->n; ++i)
                CT_TRY(
                    ct_cost_message(work, w->rank[i], w->rank[partner(w, p, i, k, NULL)], share));
        }
        CT_TRY(ct_cost_end_round(work));
    }
    return CT_OK;
}

static ct_status swing_rounds(ct_cost_work *work, const int *dim, bool shares)
{
    swing w;
    ct_status status;

    (void)dim;
    (void)shares;
    CT_TRY(swing_create(ct_cost_topo(work), &w));
    status = rounds_of(work, &w);
    free(w.rank);
    return status;
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
    int n = 1 << log2_of(t->n_rank);

    CT_TRY(swing_rounds(work, dim, shares));
    for (int i = 0; i < n; ++i) {
        int to = t->n_rank - 1 - i;

        if (to != i) CT_TRY(ct_cost_message(work, t->order[i], t->order[to], 1.0 / n));
    }
    return (n > 1) ? ct_cost_end_copies(work) : CT_OK;
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

/* Elsewhere than on such a torus no machine has shown yet where it is the fastest. */
static bool on_torus(const ct_topo *t)
{
    ct_torus on;

    return find_torus(t, &on);
}

const ct_coll_ops ct_coll_swing = {
    .name = "swing",
    .automatic = true,
    .fits = on_torus,
    .cost = &swing_cost,
    .scatter = &swing_scatter,
    .prepare = swing_prepare,
    CT_COLL_P2P_OPS,
};
