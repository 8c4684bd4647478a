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
 * out, and so after all owners are done with it. Signals count chunks over all uses. */
#include "comm/collective/hier.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/collective/node_sum.h"
#include "comm/core/reduce.h"

enum { SLOTS = 2 /* chunks between nodes, or in staging, at a time */ };

/* How a request travels on a node. */
typedef enum {
    BY_MESSAGES,
    STAGED,
    DIRECT
} hier_path; /* an allgather: by messages or node_sum.h */

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
} hier_state;

/* ---- its cost */

static bool sums_on_nodes(const ct_topo *t, bool shares)
{
    return shares && (ct_topo_max_node_size(t) > 1);
}

static ct_status hier_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    const ct_topo *t = ct_cost_topo(w);
    ct_hierarchical_plan *plan = NULL;

    (void)dim;
    if (sums_on_nodes(t, shares)) return ct_cost_by_nodes(w);
    CT_TRY(ct_hierarchical_plan_tree(t, 0, &plan));
    return ct_cost_by_plan(w, plan, CT_COST_ANY, true);
}

static double hier_weight(const ct_topo *t, bool shares)
{
    if (shares && (ct_topo_min_node_size(t) > 1)) return CT_COST_IN_PLACE;
    return sums_on_nodes(t, shares) ? 1 : CT_COST_CROSSING;
}

static const ct_cost_ops hier_cost = { .rounds = hier_rounds, .weight = hier_weight };

/* Halves add in the order of the whole. In a node's memory, or by messages, they are halves;
 * between nodes that share memory, the reduce-scatter is the whole, and the allgather goes by
 * messages. */
static ct_status gather_rounds(ct_cost_work *w, const int *dim, bool shares)
{
    return hier_rounds(w, dim, shares && (ct_cost_topo(w)->n_node == 1));
}

static const ct_cost_ops hier_scatter_cost = {
    .rounds = hier_rounds, .weight = hier_weight, .way = CT_COST_UP, .whole = &hier_cost
};
static const ct_cost_ops hier_gather_cost = {
    .rounds = gather_rounds, .weight = hier_weight, .way = CT_COST_DOWN, .whole = &hier_cost
};

/* ---- lanes: between the nodes */

void ct_lanes_destroy(ct_lanes *l)
{
    free(l->member);
    *l = (ct_lanes){ .mine = -1 };
}

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l)
{
    const ct_topo *t = c->topo;
    int at = -1;

    *l = (ct_lanes){ .n = ct_topo_min_node_size(t), .mine = -1 };
    CT_TRY(ct_coll_cost(c, &hier_cost, true, &l->cost));
    if (c->node_rank >= l->n) return CT_OK;
    l->mine = c->node_rank;
    l->member = malloc(sizeof(*l->member) * (size_t)t->n_node);
    if (l->member == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", t->n_node);
    for (int i = 0; i < t->n_rank; ++i) {
        int r = t->order[i];

        if ((i == 0) || (t->node[t->order[i - 1]] != t->node[r])) at += 1;
        if (t->node[r] == t->node[c->rank]) l->me = at;
        if (t->local_rank[r] == l->mine) l->member[at] = r;
    }
    return CT_OK;
}

ct_status ct_lanes_between(const ct_lanes *l, int64_t first, int64_t n, size_t element_bytes,
                           ct_schedule *s)
{
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    ct_engine_plan_use use = { .way = way, .rank = l->member, .me = l->me, .first = first, .n = n };

    ct_cost_algorithms(l->cost, (double)n * (double)element_bytes * l->n,
                       way); /* all lanes travel */
    use.plan = ct_cost_plan(l->cost);
    CT_TRY(ct_hierarchical_plan_scatter(&use, s));
    return ct_hierarchical_plan_gather(&use, s);
}

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

    CT_TRY(ct_coll_cost(r->comm, &hier_cost, false, &cost));
    n_chunk = (kind == CT_COLL_ALLGATHER) ? 1 : ct_cost_chunks(cost, bytes);
    *piped_p = (n_chunk > 1);
    if (n_chunk == 1) return ct_coll_p2p_plan(r, &hier_cost, kind, s);
    ct_cost_algorithms(cost, bytes / n_chunk, way);
    use.plan = ct_cost_plan(cost);
    use.rank = ct_cost_rank(cost);
    CT_TRY(ct_hierarchical_plan_pipelined(&use, n_chunk, kind == CT_COLL_REDUCE_SCATTER, s));
    if (kind == CT_COLL_ALLREDUCE) return CT_OK;
    return ct_coll_p2p_deal(r, use.plan, n_chunk, false, s);
}

/* ---- which way it goes, and where its memory is */

enum {
    PIPED_WINDOW = 12, /* messages of several phases at a time         */
    UNPIPED_WINDOW = 4,
    STAGE_PART = 128 << 10,   /* elements of a part of a staged chunk           */
    BETWEEN_PART = 256 << 10, /* … of a chunk that goes on to other nodes, at least */
    BETWEEN_STEP = 16 << 10   /* … and of what a ring of nodes then sends at a time */
};

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

/* Which slot chunk k has: counted over all uses, so that a new use cannot overtake an old one. */
static int hier_slot(const hier_state *st, int64_t k)
{
    return (int)((st->base + (uint64_t)k) % SLOTS);
}

/* Chunk k of a rank of the node, as input: in its buffer, or staged. */
static char *hier_input(const ct_coll_req *r, int64_t k, int rank)
{
    const hier_state *st = r->state;
    int64_t at = (st->way == DIRECT) ? hier_first(r, k) : hier_slot(st, k) * st->chunk;

    return st->home[rank] + (size_t)at * st->size;
}

/* Where the sum of part `lane` of chunk k is: in the owner's buffer, or staged behind the inputs.
 */
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
    ct_lanes_destroy(&st->lanes);
    free(st->signals);
    free(st->home);
    free(st->src);
    free(st->dst);
    free(st);
    r->state = NULL;
}

/* A window for staging: on every rank two inputs of a chunk and two sums of a part. */
static ct_status make_stage(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    int64_t elements = SLOTS * (st->chunk + ct_part(st->chunk, st->lanes.n, 1));
    void *block = NULL;
    int window = -1;
    int64_t offset = 0;

    CT_TRY(ct_node_acquire(c->node_memory, (size_t)elements * st->size, "staging", &block));
    st->window = block;
    if (!ct_node_find(c->node_memory, block, 1, &window, &offset))
        return CT_FAIL(CT_ERR_COMM, "a window was lost");
    for (int i = 0; i < c->node_size; ++i) st->home[i] = ct_node_block(c->node_memory, window, i);
    return CT_OK;
}

/* Chunks: the whole where nothing runs alongside; else pieces that keep both levels busy, and
 * whose messages between nodes are not too small. */
static int64_t chunk_for(const ct_coll_req *r, hier_path w)
{
    const hier_state *st = r->state;
    int64_t n_node = r->comm->topo->n_node, part = STAGE_PART, chunk = 0;

    if ((w == DIRECT) && (n_node == 1)) return r->count;
    if (n_node > 1) part = BETWEEN_PART;
    if ((n_node > 1) && (part < n_node * BETWEEN_STEP)) part = n_node * BETWEEN_STEP;
    chunk = part * st->lanes.n;
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

static ct_status set_up(ct_coll_req *r)
{
    hier_state *st = r->state;
    ct_status status = ct_node_sum_create(r, st->kind, &st->node);
    bool piped = false;

    if (status != CT_UNSUPPORTED) return status;
    CT_TRY(acquire_lists(r));
    CT_TRY(ct_lanes_find(r->comm, &st->lanes));
    if (st->kind != CT_COLL_ALLGATHER) CT_TRY(choose_way(r));
    if (st->way == BY_MESSAGES) {
        CT_TRY(hier_messages(r, st->kind, &st->schedule[0], &piped));
        return ct_sched_run_create_wide(r->comm, r->dtype, ct_schedule_most(&st->schedule[0]),
                                        piped ? PIPED_WINDOW : UNPIPED_WINDOW, &st->run[0]);
    }
    st->n_chunk = (r->count + st->chunk - 1) / st->chunk;
    if ((r->comm->topo->n_node == 1) || (st->lanes.mine < 0)) return CT_OK;
    for (int s = 0; s < SLOTS; ++s)
        CT_TRY(ct_sched_run_create(r->comm, r->dtype, ct_part(st->chunk, st->lanes.n, 1),
                                   &st->run[s]));
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
    status = set_up(r);
    if (status != CT_OK) hier_release(r);
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

/* The owner's part of chunk k, added up over the node; straight to everyone where that is all. */
static void sum_node(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    ct_comm *c = r->comm;
    int lane = st->lanes.mine, n_dst = 1;
    int64_t first = ct_part(hier_length(r, k), st->lanes.n, lane);
    int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) - first;

    for (int i = 0; i < c->node_size; ++i)
        st->src[i] = hier_input(r, k, i) + (size_t)first * st->size;
    st->dst[0] = hier_sum(r, k, lane);
    if ((st->way == DIRECT) && (c->topo->n_node == 1)) {
        n_dst = c->node_size;
        for (int i = 0; i < n_dst; ++i) st->dst[i] = hier_input(r, k, i) + (size_t)first * st->size;
    }
    ct_reduce_many(r->dtype, n, st->src, c->node_size, st->dst, n_dst, c->n_thread);
    r->bytes_sent += (int64_t)st->size * (hier_length(r, k) - n + n * (c->node_size - 1));
}

static ct_status start_between(ct_coll_req *r, int64_t k)
{
    hier_state *st = r->state;
    int s = hier_slot(st, k), lane = st->lanes.mine;
    int64_t n = ct_part(hier_length(r, k), st->lanes.n, lane + 1) -
                ct_part(hier_length(r, k), st->lanes.n, lane);

    ct_schedule_clear(&st->schedule[s]);
    CT_TRY(ct_lanes_between(&st->lanes, 0, n, st->size, &st->schedule[s]));
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

    if ((st->way == DIRECT) && (c->topo->n_node > 1)) {
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

            memcpy((char *)r->buf + (size_t)(first + at) * st->size, hier_sum(r, k, lane),
                   (size_t)n * st->size);
        }
        if (st->lanes.mine < 0) r->bytes_sent += (int64_t)st->size * hier_length(r, k);
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
    .cost = &hier_scatter_cost,
    .prepare = hier_scatter_prepare,
    HIER_MOVES,
};

static const ct_coll_ops hier_gather = {
    .name = "hier",
    .kind = CT_COLL_ALLGATHER,
    .automatic = true,
    .shares_memory = true,
    .supports = ct_coll_p2p_moves,
    .cost = &hier_gather_cost,
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
    .cost = &hier_cost,
    .prepare = hier_prepare,
    HIER_MOVES,
};
