/** @file group.h  A group of ranks, and what they do together without knowing MPI.
 *
 * A job has several: all its ranks, the replicas that share gradients, those of a node
 * (runtime/job.h). A group of one rank needs no operations: call those below, which know. Every
 * call is collective over the group, made from the main thread, in the same order on all ranks.
 * Gradients that are under way go on meanwhile.
 */
#ifndef CT_EXCHANGE_GROUP_H
#define CT_EXCHANGE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "framework/base/status.h"
#include "framework/tensor/device.h"

typedef struct ct_group_ops {
    /** v[i] = sum over the ranks, in an order that n and their number decide: bitwise the same
     *  everywhere. */
    ct_status (*sum)(void *ctx, double *v, int n);
    /** The same of a device's numbers, behind what `st` was given so far and before what it is
     *  given next, in whatever order its library adds: the same bits on every rank. It may be
     *  recorded. Where ct_group.sums_there. */
    ct_status (*sum_there)(void *ctx, ct_stream st, double *v, int n);
    /** v[i] = max over the ranks. */
    ct_status (*max)(void *ctx, int64_t *v, int n);
    /** A sum of floats begins; v is the group's until ct_group_ops.sum_wait, which comes once a
     *  ticket, in the order of the tickets. The same bits on every rank. */
    ct_status (*sum_begin)(void *ctx, float *v, int64_t n, void **ticket_p);
    /** The same of doubles, with the bits of sum. NULL: sum does it all. */
    ct_status (*sum_begin_f64)(void *ctx, double *v, int n, void **ticket_p);
    ct_status (*sum_wait)(void *ctx, void *ticket);
    /** Lets the sums that have begun move; never waits. NULL: they need no help. */
    ct_status (*sum_poll)(void *ctx);
    /** Rank 0's bytes to everyone. */
    ct_status (*broadcast)(void *ctx, void *data, size_t bytes);
    /** all[r * n, r * n + n) = v of rank r, on every rank. */
    ct_status (*gather)(void *ctx, const int64_t *v, int n, int64_t *all);
    /** Returns when every rank has called it. */
    ct_status (*barrier)(void *ctx);
    /** The bytes of rank `from` to rank `to`, another one; the others return at once. */
    ct_status (*send)(void *ctx, void *data, size_t bytes, int from, int to);
    /** The out_n[r] floats at out[r] go to rank r, and in_n[r] come from it to in[r]. Nothing of
     *  `out` overlaps anything of `in`. Entries of one's own rank are not looked at. */
    ct_status (*exchange)(void *ctx, const float *const *out, const int64_t *out_n,
                          float *const *in, const int64_t *in_n);
} ct_group_ops;

typedef struct ct_group {
    void *ctx;
    int rank, size;
    bool sums_there;            /* a device's library adds numbers up where they are */
    const ct_group_ops *ops;    /* NULL: one rank */
    const struct ct_topo *topo; /* of its ranks: topology/topo.h; NULL: nothing is known */
} ct_group;

static inline ct_status ct_group_sum(const ct_group *g, double *v, int n)
{
    return (g->size > 1) ? g->ops->sum(g->ctx, v, n) : CT_OK;
}

static inline ct_status ct_group_max(const ct_group *g, int64_t *v, int n)
{
    return (g->size > 1) ? g->ops->max(g->ctx, v, n) : CT_OK;
}

static inline ct_status ct_group_broadcast(const ct_group *g, void *data, size_t bytes)
{
    return (g->size > 1) ? g->ops->broadcast(g->ctx, data, bytes) : CT_OK;
}

static inline ct_status ct_group_gather(const ct_group *g, const int64_t *v, int n, int64_t *all)
{
    if (g->size > 1) return g->ops->gather(g->ctx, v, n, all);
    memcpy(all, v, (size_t)n * sizeof(*v));
    return CT_OK;
}

static inline ct_status ct_group_barrier(const ct_group *g)
{
    return (g->size > 1) ? g->ops->barrier(g->ctx) : CT_OK;
}

static inline ct_status ct_group_send(const ct_group *g, void *data, size_t bytes, int from, int to)
{
    return (from != to) ? g->ops->send(g->ctx, data, bytes, from, to) : CT_OK;
}

static inline ct_status ct_group_exchange(const ct_group *g, const float *const *out,
                                          const int64_t *out_n, float *const *in,
                                          const int64_t *in_n)
{
    return (g->size > 1) ? g->ops->exchange(g->ctx, out, out_n, in, in_n) : CT_OK;
}

/** v = sum over the ranks of share * v. */
static inline ct_status ct_group_average(const ct_group *g, float *v, int64_t n, double share)
{
    void *ticket = NULL;

    if (g->size == 1) return CT_OK;
    for (int64_t i = 0; i < n; i++) v[i] = (float)(share * (double)v[i]);
    CT_TRY(g->ops->sum_begin(g->ctx, v, n, &ticket));
    return g->ops->sum_wait(g->ctx, ticket);
}

/** The worst status of all ranks, on every rank; one's own where it is bad. */
static inline ct_status ct_group_agree(const ct_group *g, ct_status mine)
{
    int64_t worst = (int64_t)mine;

    CT_TRY(ct_group_max(g, &worst, 1));
    return (mine != CT_OK) ? mine : (ct_status)worst;
}

#endif
