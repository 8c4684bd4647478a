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
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_cost.h"
#include "comm/collective/coll_types.h"
#include "comm/collective/hier.h"
#include "comm/core/reduce.h"

static ct_status hier_start(ct_coll_req *r)
{
    ct_hier *st = r->state;

    if (st->node != NULL) return ct_node_sum_start(st->node);
    if (st->way == CT_HIER_MESSAGES)
        return ct_sched_run_start(st->run[0], &st->schedule[0], r->buf, r->tag);
    st->published = st->summed = st->between = st->out = 0;
    if (st->way == CT_HIER_DIRECT) {
        st->published = st->n_chunk;
        ct_node_signal(&st->signals[r->comm->node_rank]->in, st->base + (uint64_t)st->n_chunk);
    }
    return CT_OK;
}

/* True once the signals of ranks 0 .. n-1 of the node have passed chunk k; else who has not. */
static bool all_reached(const ct_coll_req *r, bool done, int n, int64_t k, int *late)
{
    const ct_hier *st = r->state;
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
    ct_hier *st = r->state;
    bool moved = false;

    while ((st->published < st->n_chunk) && (st->published < st->out + CT_HIER_SLOTS)) {
        int64_t k = st->published++;

        memcpy(ct_hier_input(r, k, r->comm->node_rank),
               (char *)r->buf + (size_t)ct_hier_first(r, k) * st->size,
               (size_t)ct_hier_length(r, k) * st->size);
        ct_node_signal(&st->signals[r->comm->node_rank]->in, st->base + (uint64_t)st->published);
        moved = true;
    }
    return moved;
}

/* The owner's part of chunk k, added up over the node; straight to everyone where that is all. */
static void sum_node(ct_coll_req *r, int64_t k)
{
    ct_hier *st = r->state;
    ct_comm *c = r->comm;
    int lane = st->lanes.mine, n_dst = 1;
    int64_t first = ct_part(ct_hier_length(r, k), st->lanes.n, lane);
    int64_t n = ct_part(ct_hier_length(r, k), st->lanes.n, lane + 1) - first;

    for (int i = 0; i < c->node_size; ++i)
        st->src[i] = ct_hier_input(r, k, i) + (size_t)first * st->size;
    st->dst[0] = ct_hier_sum(r, k, lane);
    if ((st->way == CT_HIER_DIRECT) && (c->topo->n_node == 1)) {
        n_dst = c->node_size;
        for (int i = 0; i < n_dst; ++i)
            st->dst[i] = ct_hier_input(r, k, i) + (size_t)first * st->size;
    }
    ct_reduce_many(r->dtype, n, st->src, c->node_size, st->dst, n_dst, c->n_thread);
    r->bytes_sent += (int64_t)st->size * (ct_hier_length(r, k) - n + n * (c->node_size - 1));
}

static ct_status start_between(ct_coll_req *r, int64_t k)
{
    ct_hier *st = r->state;
    int s = ct_hier_slot(st, k), lane = st->lanes.mine;
    int64_t n = ct_part(ct_hier_length(r, k), st->lanes.n, lane + 1) -
                ct_part(ct_hier_length(r, k), st->lanes.n, lane);

    ct_schedule_clear(&st->schedule[s]);
    CT_TRY(ct_lanes_between(&st->lanes, 0, n, st->size, &st->schedule[s]));
    st->waiting[s] = true;
    return ct_sched_run_start(st->run[s], &st->schedule[s], ct_hier_sum(r, k, lane), r->tag + s);
}

/* Hands the finished part of chunk k to the node. */
static void hand_back(ct_coll_req *r, int64_t k)
{
    ct_hier *st = r->state;
    ct_comm *c = r->comm;
    int lane = st->lanes.mine;
    int64_t first = ct_part(ct_hier_length(r, k), st->lanes.n, lane);
    int64_t n = ct_part(ct_hier_length(r, k), st->lanes.n, lane + 1) - first;

    if ((st->way == CT_HIER_DIRECT) && (c->topo->n_node > 1)) {
        for (int i = 0; i < c->node_size; ++i) {
            if (i == lane) continue;
            memcpy(ct_hier_input(r, k, i) + (size_t)first * st->size, ct_hier_sum(r, k, lane),
                   (size_t)n * st->size);
        }
    }
    ct_node_signal(&st->signals[lane]->done, st->base + (uint64_t)k + 1);
}

static ct_status own(ct_coll_req *r, bool *moved, int *late)
{
    ct_hier *st = r->state;
    bool alone = (r->comm->topo->n_node == 1);

    while ((st->summed < st->n_chunk) && (alone || (st->summed < st->between + CT_HIER_SLOTS)) &&
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
        int s = ct_hier_slot(st, k);
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
    ct_hier *st = r->state;
    bool moved = false;

    while ((st->out < st->published) && all_reached(r, true, st->lanes.n, st->out, late)) {
        int64_t k = st->out++, first = ct_hier_first(r, k);

        moved = true;
        for (int lane = 0; (st->way == CT_HIER_STAGED) && (lane < st->lanes.n); ++lane) {
            int64_t at = ct_part(ct_hier_length(r, k), st->lanes.n, lane);
            int64_t n = ct_part(ct_hier_length(r, k), st->lanes.n, lane + 1) - at;

            memcpy((char *)r->buf + (size_t)(first + at) * st->size, ct_hier_sum(r, k, lane),
                   (size_t)n * st->size);
        }
        if (st->lanes.mine < 0) r->bytes_sent += (int64_t)st->size * ct_hier_length(r, k);
    }
    return moved;
}

static ct_status progress_node(ct_coll_req *r)
{
    ct_hier *st = r->state;
    ct_status status = ct_node_sum_progress(st->node, &r->where);

    if (status == CT_OK) r->bytes_sent += ct_node_sum_bytes(st->node);
    return status;
}

static ct_status hier_progress(ct_coll_req *r)
{
    ct_hier *st = r->state;
    bool moved = true;
    int late = -1;

    if (st->node != NULL) return progress_node(r);
    if (st->way == CT_HIER_MESSAGES)
        return ct_sched_run_progress(st->run[0], &r->bytes_sent, &r->where);
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
    ct_hier *st = r->state;
    int n = 0;

    if (st->node != NULL) return 0; /* no messages */
    if (st->way == CT_HIER_MESSAGES) return ct_sched_run_pending(st->run[0], out, max);
    for (int s = 0; s < CT_HIER_SLOTS; ++s) {
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

static double hier_cost_s(const ct_comm *c, int64_t bytes, ct_dtype dtype)
{
    (void)dtype;
    return ct_coll_cost_s(c, "hier", bytes);
}

const ct_coll_ops ct_coll_hier = {
    .name = "hier",
    .shares_memory = true,
    .supports = hier_supports,
    .cost_s = hier_cost_s,
    .prepare = ct_hier_prepare,
    .start = hier_start,
    .progress = hier_progress,
    .release = ct_hier_release,
    .pending = hier_pending,
};
