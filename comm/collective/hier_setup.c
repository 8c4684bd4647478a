/* Setting a hierarchical allreduce up: which way it goes, and where its memory is. */
#include <stdlib.h>
#include <string.h>

#include "comm/collective/hier.h"

enum {
    PIPED_WINDOW = 12, /* messages of several phases at a time         */
    UNPIPED_WINDOW = 4,
    STAGE_PART = 128 << 10,   /* elements of a part of a staged chunk           */
    BETWEEN_PART = 256 << 10, /* … of a chunk that goes on to other nodes, at least */
    BETWEEN_STEP = 16 << 10   /* … and of what a ring of nodes then sends at a time */
};

/* ---- where things are */

int64_t ct_hier_first(const ct_coll_req *r, int64_t k)
{
    const ct_hier *st = r->state;
    int64_t at = k * st->chunk;

    return (at < r->count) ? at : r->count;
}

int64_t ct_hier_length(const ct_coll_req *r, int64_t k)
{
    return ct_hier_first(r, k + 1) - ct_hier_first(r, k);
}

int ct_hier_slot(const ct_hier *st, int64_t k)
{
    return (int)((st->base + (uint64_t)k) % CT_HIER_SLOTS);
}

char *ct_hier_input(const ct_coll_req *r, int64_t k, int rank)
{
    const ct_hier *st = r->state;
    int64_t at =
        (st->way == CT_HIER_DIRECT) ? ct_hier_first(r, k) : ct_hier_slot(st, k) * st->chunk;

    return st->home[rank] + (size_t)at * st->size;
}

/* Where the sum of part `lane` of chunk k is: in the owner's buffer, or staged behind the inputs.
 */
char *ct_hier_sum(const ct_coll_req *r, int64_t k, int lane)
{
    const ct_hier *st = r->state;
    int64_t part = ct_part(ct_hier_length(r, k), st->lanes.n, lane);
    int64_t at =
        CT_HIER_SLOTS * st->chunk + ct_hier_slot(st, k) * ct_part(st->chunk, st->lanes.n, 1);

    if (st->way == CT_HIER_DIRECT) return ct_hier_input(r, k, lane) + (size_t)part * st->size;
    return st->home[lane] + (size_t)at * st->size;
}

/* ---- setting up */

void ct_hier_release(ct_coll_req *r)
{
    ct_hier *st = r->state;

    if (st == NULL) return;
    ct_node_sum_destroy(st->node);
    for (int s = 0; s < CT_HIER_SLOTS; ++s) {
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
    ct_hier *st = r->state;
    ct_comm *c = r->comm;
    int64_t elements = CT_HIER_SLOTS * (st->chunk + ct_part(st->chunk, st->lanes.n, 1));
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
static int64_t chunk_for(const ct_coll_req *r, ct_hier_path w)
{
    const ct_hier *st = r->state;
    int64_t n_node = r->comm->topo->n_node, part = STAGE_PART, chunk = 0;

    if ((w == CT_HIER_DIRECT) && (n_node == 1)) return r->count;
    if (n_node > 1) part = BETWEEN_PART;
    if ((n_node > 1) && (part < n_node * BETWEEN_STEP)) part = n_node * BETWEEN_STEP;
    chunk = part * st->lanes.n;
    return (chunk < r->count) ? chunk : r->count;
}

static ct_status choose_way(ct_coll_req *r)
{
    ct_hier *st = r->state;
    ct_comm *c = r->comm;
    ct_status status = CT_UNSUPPORTED;
    bool direct = false;

    st->way = CT_HIER_MESSAGES;
    if ((r->count == 0) || !c->node_shares || (ct_topo_max_node_size(c->topo) == 1)) return CT_OK;
    status = ct_node_take_slot(c->node_memory, &st->slot);
    if (status == CT_UNSUPPORTED) st->slot = -1;
    if (status != CT_OK) return (status == CT_UNSUPPORTED) ? CT_OK : status;
    for (int i = 0; i < c->node_size; ++i)
        st->signals[i] = ct_node_signals(c->node_memory, st->slot, i);
    CT_TRY(
        ct_node_find_all(c->node_memory, r->buf, (size_t)r->count * st->size, st->home, &direct));
    if (direct) {
        st->way = CT_HIER_DIRECT;
        st->chunk = chunk_for(r, CT_HIER_DIRECT);
        return CT_OK;
    }
    st->chunk = chunk_for(r, CT_HIER_STAGED);
    status = make_stage(r);
    if (status == CT_OK) st->way = CT_HIER_STAGED;
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

static ct_status acquire_lists(ct_coll_req *r)
{
    ct_hier *st = r->state;
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
    ct_hier *st = r->state;
    ct_status status = ct_node_sum_create(r, &st->node);
    bool piped = false;

    if (status != CT_UNSUPPORTED) return status;
    CT_TRY(acquire_lists(r));
    CT_TRY(ct_lanes_find(r->comm, &st->lanes));
    CT_TRY(choose_way(r));
    if (st->way == CT_HIER_MESSAGES) {
        CT_TRY(ct_hier_messages(r, &st->schedule[0], &piped));
        return ct_sched_run_create_wide(r->comm, r->dtype, ct_schedule_most(&st->schedule[0]),
                                        piped ? PIPED_WINDOW : UNPIPED_WINDOW, &st->run[0]);
    }
    st->n_chunk = (r->count + st->chunk - 1) / st->chunk;
    if ((r->comm->topo->n_node == 1) || (st->lanes.mine < 0)) return CT_OK;
    for (int s = 0; s < CT_HIER_SLOTS; ++s)
        CT_TRY(ct_sched_run_create(r->comm, r->dtype, ct_part(st->chunk, st->lanes.n, 1),
                                   &st->run[s]));
    return CT_OK;
}

ct_status ct_hier_prepare(ct_coll_req *r)
{
    ct_hier *st = calloc(1, sizeof(*st));
    ct_status status = CT_OK;

    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    st->slot = -1;
    st->lanes.mine = -1;
    st->size = ct_dtype_size(r->dtype);
    r->state = st;
    status = set_up(r);
    if (status != CT_OK) ct_hier_release(r);
    return status;
}
