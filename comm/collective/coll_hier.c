/* hier: shared memory inside the nodes, messages between them.
 *
 * Three ways, the same on all ranks:
 *   direct    every rank's buffer lies in a window of its node: owners add straight from their
 *             neighbours' buffers and write the result straight into them; nothing is copied
 *   staged    buffers elsewhere: chunks go through two slots per rank in a window of our own
 *   messages  no window to be had: schedules of messages (hier.h), on the node too
 *
 * In the first two a chunk moves through: published by every rank (signal `in`), summed on the node
 * by its owners, summed between the nodes, handed back (signal `done` of every owner), out. The
 * two signals suffice, also for the slots: a rank publishes chunk k + 2 only after it took chunk k
 * out, and so after all owners are done with it. Signals count chunks over all uses.
 *
 * A reduce-scatter adds in the same order: its chunks are summed on the node and then only
 * scattered between the nodes. Of what a node then has, a rank's part goes to it in shared memory.
 * What lies on another node than its part is sent at last, by who summed it to whose part it is.
 * That is nothing but a few elements where one chunk holds all and nodes are alike, else 1 / nodes
 * of what the nodes have, on top of the scatter. An allgather adds nothing, so it is one chunk:
 * owners take their lane's share of the node's parts, gather it between the nodes, and write it to
 * the node. */
#include "comm/collective/hier.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/collective/node_sum.h"
#include "comm/core/reduce.h"

enum {
    SLOTS = 2,       /* chunks between nodes, or in staging, at a time */
    DEAL_TAG = SLOTS /* behind the tags of slots                       */
};

/* How a request travels on a node. */
typedef enum { BY_MESSAGES, STAGED, DIRECT } hier_path; /* an allgather: not staged */

typedef struct hier_state {
    ct_coll_kind kind;
    ct_node_sum *node; /* all ranks on one node, where that works: the rest is not used */
    hier_path way;
    ct_lanes lanes;
    int64_t chunk, n_chunk;                  /* elements; how many                                */
    uint64_t base;                           /* chunks of earlier uses                            */
    int64_t published, summed, between, out; /* chunks that are past each stage  */
    bool waiting[SLOTS];                     /* between nodes: the slot's chunk has not come back */
    ct_schedule schedule[SLOTS];
    ct_sched_run *run[SLOTS];
    int slot;             /* signals; -1: none                                 */
    ct_signals **signals; /* [node_size]                                       */
    char **home;          /* [node_size] direct: buffers; staged: windows      */
    const void **src;     /* [node_size] scratch                               */
    void **dst;           /* [node_size] scratch                               */
    char *window;         /* staged: this rank's                               */
    size_t size;          /* of an element                                     */
    /* a half: the parts of the node's ranks; where each rank of the topology's order is, which
     * node, and which of them own lanes */
    int64_t *part_first, *part_n; /* [node_size]                       */
    int *node_at;                 /* [ranks] nodes in the order, too   */
    int *owner_at;                /* [nodes * lanes.n] places of ranks */
    ct_schedule deal;             /* a reduce-scatter's last messages  */
    ct_sched_run *deal_run;
    bool dealing;
} hier_state;

/* ---- which way it goes, and where its memory is */

enum {
    PIPED_WINDOW = 12, /* messages of several phases at a time         */
    UNPIPED_WINDOW = 4,
    STAGE_PART = 128 << 10 /* elements of a part of a staged chunk           */
};

/* Appends the hierarchical allreduce, or a half, as messages, for nodes without shared memory.
 * *piped_p: in chunks that are on several levels at a time. */
static ct_status hier_messages(const ct_coll_req *r, ct_coll_kind kind, ct_schedule *s,
                               bool *piped_p)
{
    double bytes = (double)r->count * (double)ct_dtype_size(r->dtype);
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .me = ct_coll_p2p_place(r->comm), .n = r->count };
    const ct_cost *cost = NULL;
    int n_chunk = 0;

    CT_TRY(ct_coll_cost(r->comm, &ct_cost_hier, false, &cost));
    n_chunk = (kind == CT_COLL_ALLGATHER) ? 1 : ct_cost_chunks(cost, bytes);
    *piped_p = (n_chunk > 1);
    if (n_chunk == 1) return ct_coll_p2p_plan(r, &ct_cost_hier, kind, s);
    ct_cost_algorithms(cost, bytes / n_chunk, way);
    use.plan = ct_cost_plan(cost);
    use.rank = ct_cost_rank(cost);
    CT_TRY(ct_hierarchical_plan_pipelined(&use, n_chunk, kind == CT_COLL_REDUCE_SCATTER, s));
    if (kind == CT_COLL_ALLREDUCE) return CT_OK;
    return ct_coll_p2p_deal(r, use.plan, n_chunk, false, s);
}

/* Chunk k starts at this element; k = n_chunk gives the count. */
static int64_t hier_first(const ct_coll_req *r, int64_t k)
{
    const hier_state *st = r->state;
    int64_t at = k * st->chunk;

    return (at < r->count) ? at : r->count;
}

static int64_t hier_length(const ct_coll_req *r, int64_t k)
{
    return hier_first(r, k + 1) - hier_first(r, k);
}

/* Which slot chunk k has: counted over all uses, so that a new use cannot overtake an old one. An
 * allgather has one chunk, and nothing of it is staged. */
static int hier_slot(const hier_state *st, int64_t k)
{
    if (st->kind == CT_COLL_ALLGATHER) return 0;
    return (int)((st->base + (uint64_t)k) % SLOTS);
}

/* Chunk k of a rank of the node, as input: in its buffer, or staged. */
static char *hier_input(const ct_coll_req *r, int64_t k, int rank)
{
    const hier_state *st = r->state;
    int64_t at = (st->way == DIRECT) ? hier_first(r, k) : hier_slot(st, k) * st->chunk;

    return st->home[rank] + (size_t)at * st->size;
}

/* Where the sum of part `lane` of chunk k is: in its owner's buffer, or staged behind the inputs.
 */
static char *hier_sum(const ct_coll_req *r, int64_t k, int lane)
{
    const hier_state *st = r->state;
    int64_t part = ct_part(hier_length(r, k), st->lanes.n, lane);
    int64_t at = SLOTS * st->chunk + hier_slot(st, k) * ct_part(st->chunk, st->lanes.n, 1);

    if (st->way == DIRECT) return hier_input(r, k, lane) + (size_t)part * st->size;
    return st->home[lane] + (size_t)at * st->size;
}

/* ---- halves: whose the sums are */

typedef struct stretch {
    int64_t a, b; /* elements [a, b) of the buffer */
} stretch;

static stretch common(stretch x, stretch y)
{
    stretch z = { (x.a > y.a) ? x.a : y.a, (x.b < y.b) ? x.b : y.b };

    if (z.b < z.a) z.b = z.a;
    return z;
}

static stretch part_of(const hier_state *st, int rank)
{
    return (stretch){ st->part_first[rank], st->part_first[rank] + st->part_n[rank] };
}

/* Part `lane` of chunk k. */
static stretch lane_part(const ct_coll_req *r, int64_t k, int lane)
{
    const hier_state *st = r->state;
    int64_t n = hier_length(r, k), first = hier_first(r, k);

    return (stretch){ first + ct_part(n, st->lanes.n, lane),
                      first + ct_part(n, st->lanes.n, lane + 1) };
}

/* Piece i of it, of which `owner` has the sum once the nodes have scattered it. */
static stretch lane_piece(const hier_state *st, stretch lane, int64_t i)
{
    const ct_hierarchical_plan *plan = ct_cost_plan(st->lanes.cost);
    int64_t n = lane.b - lane.a, from = (i > 0) ? plan->piece[i - 1].end : 0;

    return (stretch){ lane.a + ct_hierarchical_plan_at(from, n, plan->n),
                      lane.a + ct_hierarchical_plan_at(plan->piece[i].end, n, plan->n) };
}

/* Copies [what.a, what.b); to, from: where element `first` of the buffer is. Bytes. */
static int64_t copy(const hier_state *st, stretch what, char *to, const char *from, int64_t first)
{
    size_t at = (size_t)(what.a - first) * st->size, bytes = (size_t)(what.b - what.a) * st->size;

    if (bytes > 0) memcpy(to + at, from + at, bytes);
    return (int64_t)bytes;
}

static char *element(const hier_state *st, char *buf, int64_t at)
{
    return buf + (size_t)at * st->size;
}

/* What this node has of chunk k's part `lane`: straight to the ranks whose parts it is in. Staged,
 * the owner takes it out first, to send what belongs to other nodes; the others take theirs. */
static void hand_sums(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    const ct_hierarchical_plan *plan = ct_cost_plan(st->lanes.cost);
    stretch lane = lane_part(r, k, st->lanes.mine);
    const char *sum = hier_sum(r, k, st->lanes.mine);

    for (int64_t i = 0, n = ct_hierarchical_plan_pieces(plan); i < n; ++i) {
        stretch piece = lane_piece(st, lane, i);

        if (plan->piece[i].owner != st->lanes.me) continue;
        if (st->way == STAGED) (void)copy(st, piece, element(st, r->buf, lane.a), sum, lane.a);
        for (int j = 0; (st->way == DIRECT) && (j < r->comm->node_size); ++j) {
            if (j == st->lanes.mine) continue;
            r->bytes_sent += copy(st, common(piece, part_of(st, j)),
                                  element(st, st->home[j], lane.a), sum, lane.a);
        }
    }
}

static void take_sums(ct_coll_req *r, int64_t k, int lane)
{
    hier_state *st = r->state;
    const ct_hierarchical_plan *plan = ct_cost_plan(st->lanes.cost);
    stretch whole = lane_part(r, k, lane), mine = part_of(st, r->comm->node_rank);

    if (lane == st->lanes.mine) return; /* hand_sums() has */
    for (int64_t i = 0, n = ct_hierarchical_plan_pieces(plan); i < n; ++i) {
        if (plan->piece[i].owner != st->lanes.me) continue;
        r->bytes_sent += copy(st, common(lane_piece(st, whole, i), mine),
                              element(st, r->buf, whole.a), hier_sum(r, k, lane), whole.a);
    }
}

/* An allgather: of this lane what the node's other ranks have, into the owner's buffer. */
static void take_parts(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    stretch lane = lane_part(r, 0, st->lanes.mine);

    for (int i = 0; i < c->node_size; ++i) {
        if (i == st->lanes.mine) continue;
        r->bytes_sent += copy(st, common(lane, part_of(st, i)), r->buf, st->home[i], 0);
    }
    r->bytes_sent += (int64_t)st->size * (r->count - (lane.b - lane.a)); /* other owners' */
}

static ct_status find_parts(ct_coll_req *r)
{
    hier_state *st = r->state;
    const ct_topo *t = r->comm->topo;
    size_t p = (size_t)r->comm->node_size, n_rank = (size_t)t->n_rank;
    int v = -1;

    st->part_first = calloc(p, sizeof(*st->part_first));
    st->part_n = calloc(p, sizeof(*st->part_n));
    st->node_at = calloc(n_rank, sizeof(*st->node_at));
    st->owner_at = calloc(n_rank, sizeof(*st->owner_at)); /* owners are no more than ranks */
    if ((st->part_first == NULL) || (st->part_n == NULL) || (st->node_at == NULL) ||
        (st->owner_at == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of %zu ranks", n_rank);
    for (size_t i = 0; i < p; ++i)
        CT_TRY(ct_coll_part(r->comm, r->count, r->comm->node_member[i], &st->part_first[i],
                            &st->part_n[i]));
    for (int i = 0; i < t->n_rank; ++i) {
        int rank = t->order[i];

        if ((i == 0) || (t->node[t->order[i - 1]] != t->node[rank])) v += 1;
        st->node_at[i] = v;
        if (t->local_rank[rank] < st->lanes.n)
            st->owner_at[v * st->lanes.n + t->local_rank[rank]] = i;
    }
    return CT_OK;
}

/* Who has what once all chunks are scattered, in the order of the buffer. The caller frees it. */
static ct_status find_sums(const ct_coll_req *r, ct_sched_piece **have_p)
{
    const hier_state *st = r->state;
    const ct_hierarchical_plan *plan = ct_cost_plan(st->lanes.cost);
    int64_t n = ct_hierarchical_plan_pieces(plan), at = 0, n_lane = st->lanes.n;
    ct_sched_piece *have = malloc(sizeof(*have) * (size_t)(st->n_chunk * n_lane * n));

    if (have == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of a collective");
    for (int64_t k = 0; k < st->n_chunk; ++k) {
        for (int lane = 0; lane < n_lane; ++lane) {
            stretch whole = lane_part(r, k, lane);

            for (int64_t i = 0; i < n; ++i)
                have[at++] = (ct_sched_piece){ lane_piece(st, whole, i).b,
                                               st->owner_at[plan->piece[i].owner * n_lane + lane] };
        }
    }
    *have_p = have;
    return CT_OK;
}

/* The last messages of a reduce-scatter: those between nodes of what moves to its parts. */
static ct_status prepare_deal(ct_coll_req *r)
{
    hier_state *st = r->state;
    const ct_topo *t = r->comm->topo;
    ct_sched_piece *have = NULL, *part = NULL;
    ct_schedule all = { .step = NULL };
    ct_status status = find_sums(r, &have);

    if (status != CT_OK) return status;
    CT_TRY_GOTO(status, done, ct_coll_p2p_parts(r, &part));
    CT_TRY_GOTO(status, done,
                ct_schedule_deal(have, part, t->order, ct_coll_p2p_place(r->comm), r->count, &all));
    for (int i = 0; i < all.n_step; ++i) {
        const ct_sched_step *step = &all.step[i];
        int other = (step->send_n > 0) ? step->send_to : step->recv_from;

        if (t->node[other] == t->node[r->comm->rank]) continue; /* in shared memory */
        CT_TRY_GOTO(status, done, ct_schedule_add(&st->deal, step));
    }
    status = ct_sched_run_create(r->comm, r->dtype, 0, &st->deal_run);

done:
    ct_schedule_destroy(&all);
    free(have);
    free(part);
    return status;
}

/* An allgather between the nodes, of this rank's lane: to the pieces of the plan first. */
static ct_status prepare_gather(ct_coll_req *r)
{
    hier_state *st = r->state;
    const ct_hierarchical_plan *plan = ct_cost_plan(st->lanes.cost);
    stretch lane = lane_part(r, 0, st->lanes.mine);
    int64_t n_piece = ct_hierarchical_plan_pieces(plan), n = lane.b - lane.a;
    ct_sched_piece *part = NULL, *piece = malloc(sizeof(*piece) * (size_t)n_piece);
    ct_status status = CT_OK;

    if (piece == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the parts of a collective");
    CT_TRY_GOTO(status, done, ct_coll_p2p_parts(r, &part));
    for (int i = 0; i < r->comm->size; ++i) {
        part[i].end = (part[i].end > lane.a) ? part[i].end - lane.a : 0;
        part[i].owner = st->node_at[part[i].owner];
    }
    for (int64_t i = 0; i < n_piece; ++i)
        piece[i] = (ct_sched_piece){ lane_piece(st, lane, i).b - lane.a, plan->piece[i].owner };
    CT_TRY_GOTO(status, done,
                ct_schedule_deal(part, piece, st->lanes.member, st->lanes.me, n, &st->schedule[0]));
    CT_TRY_GOTO(status, done,
                ct_lanes_between(&st->lanes, st->kind, n, st->size, &st->schedule[0]));
    status = ct_sched_run_create(r->comm, r->dtype, 0, &st->run[0]);

done:
    free(piece);
    free(part);
    return status;
}

/* ---- setting up */

static void hier_release(ct_coll_req *r)
{
    hier_state *st = r->state;

    if (st == NULL) return;
    ct_node_sum_destroy(st->node);
    for (int s = 0; s < SLOTS; ++s) {
        ct_sched_run_destroy(st->run[s]);
        ct_schedule_destroy(&st->schedule[s]);
    }
    if (st->window != NULL) ct_node_release(r->comm->node_memory, st->window);
    if (st->slot >= 0) ct_node_give_slot(r->comm->node_memory, st->slot);
    ct_sched_run_destroy(st->deal_run);
    ct_schedule_destroy(&st->deal);
    ct_lanes_destroy(&st->lanes);
    free(st->part_first);
    free(st->part_n);
    free(st->node_at);
    free(st->owner_at);
    free(st->signals);
    free(st->home);
    free(st->src);
    free(st->dst);
    free(st);
    r->state = NULL;
}

/* Of a window for staging: on every rank two inputs of a chunk and two sums of a part. */
static size_t stage_bytes(const hier_state *st)
{
    return st->size * (size_t)(SLOTS * (st->chunk + ct_part(st->chunk, st->lanes.n, 1)));
}

static ct_status make_stage(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    void *block = NULL;
    int window = -1;
    int64_t offset = 0;

    CT_TRY(ct_node_acquire(c->node_memory, stage_bytes(st), "staging", &block));
    st->window = block;
    if (!ct_node_find(c->node_memory, block, 1, &window, &offset))
        return CT_FAIL(CT_ERR_COMM, "a window was lost");
    for (int i = 0; i < c->node_size; ++i) st->home[i] = ct_node_block(c->node_memory, window, i);
    return CT_OK;
}

/* Chunks: the whole where nothing runs alongside; else pieces that keep both levels busy. */
static int64_t chunk_for(const ct_coll_req *r, hier_path w)
{
    const hier_state *st = r->state;
    int64_t n_node = r->comm->topo->n_node, chunk = (int64_t)STAGE_PART * st->lanes.n;

    if ((w == DIRECT) && ((n_node == 1) || (st->kind == CT_COLL_ALLGATHER))) return r->count;
    if (n_node > 1) chunk = ct_lanes_chunk(n_node, st->lanes.n);
    return (chunk < r->count) ? chunk : r->count;
}

static ct_status choose_way(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    ct_status status = CT_UNSUPPORTED;
    bool direct = false;

    st->way = BY_MESSAGES;
    if ((r->count == 0) || !c->node_shares || (ct_topo_max_node_size(c->topo) == 1)) return CT_OK;
    status = ct_node_take_slot(c->node_memory, &st->slot);
    if (status == CT_UNSUPPORTED) st->slot = -1;
    if (status != CT_OK) return (status == CT_UNSUPPORTED) ? CT_OK : status;
    for (int i = 0; i < c->node_size; ++i)
        st->signals[i] = ct_node_signals(c->node_memory, st->slot, i);
    CT_TRY(
        ct_node_find_all(c->node_memory, r->buf, (size_t)r->count * st->size, st->home, &direct));
    if (direct) {
        st->way = DIRECT;
        st->chunk = chunk_for(r, DIRECT);
        return CT_OK;
    }
    if (st->kind == CT_COLL_ALLGATHER) return CT_OK;
    st->chunk = chunk_for(r, STAGED);
    status = make_stage(r);
    if (status == CT_OK) st->way = STAGED;
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

static ct_status acquire_lists(ct_coll_req *r)
{
    hier_state *st = r->state;
    size_t n = (size_t)r->comm->node_size;

    st->signals = calloc(n, sizeof(*st->signals));
    st->home = calloc(n, sizeof(*st->home));
    st->src = calloc(n, sizeof(*st->src));
    st->dst = calloc(n, sizeof(*st->dst));
    if ((st->signals == NULL) || (st->home == NULL) || (st->src == NULL) || (st->dst == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu ranks of a node", n);
    return CT_OK;
}

/* What travels between the nodes, where their ranks share memory. */
static ct_status prepare_between(ct_coll_req *r)
{
    hier_state *st = r->state;
    bool several = (r->comm->topo->n_node > 1), owns = (st->lanes.mine >= 0);

    st->n_chunk = (r->count + st->chunk - 1) / st->chunk;
    if (st->kind != CT_COLL_ALLREDUCE) CT_TRY(find_parts(r));
    if (several && (st->kind == CT_COLL_REDUCE_SCATTER)) CT_TRY(prepare_deal(r));
    if (!several || !owns) return CT_OK;
    if (st->kind == CT_COLL_ALLGATHER) return prepare_gather(r);
    for (int s = 0; s < SLOTS; ++s)
        CT_TRY(ct_sched_run_create(r->comm, r->dtype, ct_part(st->chunk, st->lanes.n, 1),
                                   &st->run[s]));
    return CT_OK;
}

static ct_status set_up(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_status status = ct_node_sum_create(r, st->kind, &st->node);
    bool piped = false;

    if (status != CT_UNSUPPORTED) return status;
    CT_TRY(acquire_lists(r));
    CT_TRY(ct_lanes_find(r->comm, &st->lanes));
    CT_TRY(choose_way(r));
    if (st->way == BY_MESSAGES) {
        CT_TRY(hier_messages(r, st->kind, &st->schedule[0], &piped));
        return ct_sched_run_create_wide(r->comm, r->dtype, ct_schedule_most(&st->schedule[0]),
                                        piped ? PIPED_WINDOW : UNPIPED_WINDOW, r->room,
                                        &st->run[0]);
    }
    return prepare_between(r);
}

/* What set_up() takes. */
static ct_status count_up(ct_coll_req *r)
{
    hier_state *st = r->state;
    const ct_topo *t = r->comm->topo;
    bool shares = r->comm->node_shares && (ct_topo_max_node_size(t) > 1) && (r->count > 0);
    bool piped = false;

    if (shares && r->size->shared && (t->n_node == 1)) return CT_OK; /* node_sum.h */
    CT_TRY(ct_lanes_find(r->comm, &st->lanes));
    if (!shares || (st->kind == CT_COLL_ALLGATHER)) {
        CT_TRY(hier_messages(r, st->kind, &st->schedule[0], &piped));
        ct_coll_count_room(r->size, ct_sched_run_bytes(r->dtype, ct_schedule_most(&st->schedule[0]),
                                                       piped ? PIPED_WINDOW : UNPIPED_WINDOW));
        return CT_OK;
    }
    st->way = r->size->shared ? DIRECT : STAGED;
    st->chunk = chunk_for(r, st->way);
    if (st->way == STAGED) r->size->bytes += (int64_t)stage_bytes(st) + CT_ALIGN;
    if ((t->n_node > 1) && (st->lanes.mine >= 0))
        r->size->bytes += SLOTS * ct_sched_run_bytes(r->dtype, ct_part(st->chunk, st->lanes.n, 1),
                                                     CT_SCHED_USUAL_WINDOW);
    return CT_OK;
}

static ct_status prepare_kind(ct_coll_req *r, ct_coll_kind kind)
{
    hier_state *st = calloc(1, sizeof(*st));
    ct_status status = CT_OK;

    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    st->slot = -1;
    st->kind = kind;
    st->lanes.mine = -1;
    st->size = ct_dtype_size(r->dtype);
    r->state = st;
    status = (r->size != NULL) ? count_up(r) : set_up(r);
    if ((status != CT_OK) || (r->size != NULL)) hier_release(r);
    return status;
}

static ct_status hier_prepare(ct_coll_req *r)
{
    return prepare_kind(r, CT_COLL_ALLREDUCE);
}

static ct_status hier_scatter_prepare(ct_coll_req *r)
{
    return prepare_kind(r, CT_COLL_REDUCE_SCATTER);
}

static ct_status hier_gather_prepare(ct_coll_req *r)
{
    return prepare_kind(r, CT_COLL_ALLGATHER);
}

/* ---- moving */

static ct_status hier_start(ct_coll_req *r)
{
    hier_state *st = r->state;

    if (st->node != NULL) return ct_node_sum_start(st->node);
    if (st->way == BY_MESSAGES)
        return ct_sched_run_start(st->run[0], &st->schedule[0], r->buf, r->tag);
    st->published = st->summed = st->between = st->out = 0;
    st->dealing = false;
    if (st->way == DIRECT) {
        st->published = st->n_chunk;
        ct_node_signal(&st->signals[r->comm->node_rank]->in, st->base + (uint64_t)st->n_chunk);
    }
    return CT_OK;
}

/* True once the signals of ranks 0 .. n-1 of the node have passed chunk k; else who has not. */
static bool all_reached(const ct_coll_req *r, bool done, int n, int64_t k, int *late)
{
    const hier_state *st = r->state;
    uint64_t value = st->base + (uint64_t)k + 1;

    for (int i = 0; i < n; ++i) {
        if (ct_node_reached(done ? &st->signals[i]->done : &st->signals[i]->in, value)) continue;
        *late = r->comm->node_member[i];
        return false;
    }
    return true;
}

static bool publish(ct_coll_req *r)
{
    hier_state *st = r->state;
    bool moved = false;

    while ((st->published < st->n_chunk) && (st->published < st->out + SLOTS)) {
        int64_t k = st->published++;

        memcpy(hier_input(r, k, r->comm->node_rank),
               (char *)r->buf + (size_t)hier_first(r, k) * st->size,
               (size_t)hier_length(r, k) * st->size);
        ct_node_signal(&st->signals[r->comm->node_rank]->in, st->base + (uint64_t)st->published);
        moved = true;
    }
    return moved;
}

/* The owner's part of chunk k, added up over the node; straight to everyone where that is all. Of
 * an allgather it is what the node has of it. */
static void sum_node(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    int lane = st->lanes.mine, n_dst = 1;
    int64_t first = ct_part(hier_length(r, k), st->lanes.n, lane);
    int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) - first;

    if (st->kind == CT_COLL_ALLGATHER) {
        take_parts(r);
        return;
    }
    for (int i = 0; i < c->node_size; ++i)
        st->src[i] = hier_input(r, k, i) + (size_t)first * st->size;
    st->dst[0] = hier_sum(r, k, lane);
    if ((st->way == DIRECT) && (c->topo->n_node == 1) && (st->kind == CT_COLL_ALLREDUCE)) {
        n_dst = c->node_size;
        for (int i = 0; i < n_dst; ++i) st->dst[i] = hier_input(r, k, i) + (size_t)first * st->size;
    }
    ct_reduce_many(r->dtype, n, st->src, c->node_size, st->dst, n_dst, c->n_thread);
    r->bytes_sent += (int64_t)st->size * n * (c->node_size - 1);
    if (st->kind == CT_COLL_ALLREDUCE)
        r->bytes_sent += (int64_t)st->size * (hier_length(r, k) - n); /* other owners' sums */
}

static ct_status start_between(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    int s = hier_slot(st, k), lane = st->lanes.mine;
    int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) -
                ct_part(hier_length(r, k), st->lanes.n, lane);

    if (st->kind != CT_COLL_ALLGATHER) {
        ct_schedule_clear(&st->schedule[s]);
        CT_TRY(ct_lanes_between(&st->lanes, st->kind, n, st->size, &st->schedule[s]));
    }
    st->waiting[s] = true;
    return ct_sched_run_start(st->run[s], &st->schedule[s], hier_sum(r, k, lane), r->tag + s);
}

/* Hands the finished part of chunk k to the node. */
static void hand_back(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    int lane = st->lanes.mine;
    int64_t first = ct_part(hier_length(r, k), st->lanes.n, lane);
    int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) - first;

    if (st->kind == CT_COLL_REDUCE_SCATTER) {
        hand_sums(r, k);
    } else if ((st->way == DIRECT) && ((c->topo->n_node > 1) || (st->kind == CT_COLL_ALLGATHER))) {
        for (int i = 0; i < c->node_size; ++i) {
            if (i == lane) continue;
            memcpy(hier_input(r, k, i) + (size_t)first * st->size, hier_sum(r, k, lane),
                   (size_t)n * st->size);
        }
    }
    ct_node_signal(&st->signals[lane]->done, st->base + (uint64_t)k + 1);
}

static ct_status own(ct_coll_req *r, bool *moved, int *late)
{
    hier_state *st = r->state;
    bool alone = (r->comm->topo->n_node == 1);

    while ((st->summed < st->n_chunk) && (alone || (st->summed < st->between + SLOTS)) &&
           all_reached(r, false, r->comm->node_size, st->summed, late)) {
        int64_t k = st->summed++;

        sum_node(r, k);
        *moved = true;
        if (!alone) {
            CT_TRY(start_between(r, k));
            continue;
        }
        hand_back(r, k);
        st->between = st->summed;
    }
    for (int64_t k = st->between; k < st->summed; ++k) {
        int s = hier_slot(st, k);
        ct_status status = CT_OK;

        if (st->waiting[s]) {
            status = ct_sched_run_progress(st->run[s], &r->bytes_sent, &r->where);
            *late = atomic_load_explicit(&r->where.rank, memory_order_relaxed);
        }
        if (status == CT_INPROGRESS) continue;
        CT_TRY(status);
        st->waiting[s] = false;
        if (k > st->between) continue; /* in order, since `done` counts */
        hand_back(r, k);
        st->between += 1;
        *moved = true;
    }
    return CT_OK;
}

static bool take_out(ct_coll_req *r, int *late)
{
    hier_state *st = r->state;
    bool moved = false;

    while ((st->out < st->published) && all_reached(r, true, st->lanes.n, st->out, late)) {
        int64_t k = st->out++, first = hier_first(r, k);

        moved = true;
        for (int lane = 0; (st->way == STAGED) && (lane < st->lanes.n); ++lane) {
            int64_t at = ct_part(hier_length(r, k), st->lanes.n, lane);
            int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) - at;

            if (st->kind == CT_COLL_REDUCE_SCATTER) {
                take_sums(r, k, lane);
                continue;
            }
            memcpy((char *)r->buf + (size_t)(first + at) * st->size, hier_sum(r, k, lane),
                   (size_t)n * st->size);
        }
        if ((st->lanes.mine < 0) && (st->kind != CT_COLL_REDUCE_SCATTER))
            r->bytes_sent += (int64_t)st->size * hier_length(r, k);
    }
    return moved;
}

static ct_status progress_node(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_status status = ct_node_sum_progress(st->node, &r->where);

    if (status == CT_OK) r->bytes_sent += ct_node_sum_bytes(st->node);
    return status;
}

/* Once nobody reads this rank's terms any more: what belongs to other nodes goes there. */
static ct_status progress_deal(ct_coll_req *r)
{
    hier_state *st = r->state;

    if (st->deal_run == NULL) return CT_OK;
    if (!st->dealing)
        CT_TRY(ct_sched_run_start(st->deal_run, &st->deal, r->buf, r->tag + DEAL_TAG));
    st->dealing = true;
    return ct_sched_run_progress(st->deal_run, &r->bytes_sent, &r->where);
}

static ct_status hier_progress(ct_coll_req *r)
{
    hier_state *st = r->state;
    bool moved = true;
    int late = -1;

    if (st->node != NULL) return progress_node(r);
    if (st->way == BY_MESSAGES) return ct_sched_run_progress(st->run[0], &r->bytes_sent, &r->where);
    while (moved) {
        moved = publish(r);
        if (st->lanes.mine >= 0) CT_TRY(own(r, &moved, &late));
        moved = take_out(r, &late) || moved;
    }
    atomic_store_explicit(&r->where.step, (int)st->out, memory_order_relaxed);
    atomic_store_explicit(&r->where.n_step, (int)st->n_chunk, memory_order_relaxed);
    atomic_store_explicit(&r->where.rank, late, memory_order_relaxed);
    if (st->out < st->n_chunk) return CT_INPROGRESS;
    CT_TRY(progress_deal(r));
    st->base += (uint64_t)st->n_chunk;
    return CT_OK;
}

/* Where this rank waits for its node there is nothing to wait for with MPI. */
static int hier_pending(ct_coll_req *r, MPI_Request **out, int max)
{
    hier_state *st = r->state;
    int n = 0;

    if (st->node != NULL) return 0; /* no messages */
    if (st->way == BY_MESSAGES) return ct_sched_run_pending(st->run[0], out, max);
    for (int s = 0; s < SLOTS; ++s) {
        if (st->waiting[s]) n += ct_sched_run_pending(st->run[s], out + n, max - n);
    }
    if (st->dealing) n += ct_sched_run_pending(st->deal_run, out + n, max - n);
    return n;
}

static bool hier_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    return ct_reduce_supports(dtype);
}

#define HIER_MOVES                                                                                 \
    .start = hier_start, .progress = hier_progress, .release = hier_release, .pending = hier_pending

static const ct_coll_ops hier_scatter = {
    .name = "hier",
    .kind = CT_COLL_REDUCE_SCATTER,
    .automatic = true,
    .shares_memory = true,
    .supports = hier_supports,
    .cost = &ct_cost_hier_scatter,
    .prepare = hier_scatter_prepare,
    HIER_MOVES,
};

static const ct_coll_ops hier_gather = {
    .name = "hier",
    .kind = CT_COLL_ALLGATHER,
    .automatic = true,
    .shares_memory = true,
    .supports = ct_coll_p2p_moves,
    .cost = &ct_cost_hier_gather,
    .prepare = hier_gather_prepare,
    HIER_MOVES,
};

const ct_coll_ops ct_coll_hier = {
    .name = "hier",
    .automatic = true,
    .shares_memory = true,
    .scatter = &hier_scatter,
    .gather = &hier_gather,
    .supports = hier_supports,
    .cost = &ct_cost_hier,
    .prepare = hier_prepare,
    HIER_MOVES,
};
