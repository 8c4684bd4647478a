/** @file rank_memory.h  What each rank needs of memory under a parallel file, to the byte: its net
 * is made as the rank would make it, without memory, and asked for its plan.
 */
#ifndef CT_PLANNER_RANK_MEMORY_H
#define CT_PLANNER_RANK_MEMORY_H

#include "framework/base/json_writer.h"
#include "planner/memory_tiers.h"
#include "planner/rank_net.h"

typedef struct ct_rank_memory {
    int64_t memory_bytes;    /* the sum of these                                    */
    int64_t weight_bytes;    /* weights, gradients, the update rule's states        */
    int64_t kept_bytes;      /* from forward to backward, of all passes in flight   */
    int64_t transient_bytes; /* what else the plan of memory needs                  */
    ct_memory_tiers tiers;   /* the same sum, by what it is for                     */
} ct_rank_memory;

/** Who knows what a rank keeps besides its net's arenas: the plan of a job, of which this is one.
 */
typedef struct ct_rank_shards {
    void *ctx;
    /** Before the net of a rank of p is made: its window, until the next rank's. */
    ct_status (*open)(void *ctx, const ct_parallel *p, int rank, const ct_rank_net *net,
                      const ct_net_window **window_p);
    /** Adds what it keeps: states, and what lies in shards or files. */
    ct_status (*find)(void *ctx, ct_net *net, ct_memory_tiers *t);
} ct_rank_shards;

/** Where a rank's net stands: of the environment of a whole one, its place and ranks. */
void ct_rank_env(const ct_parallel *p, const ct_rank_net *net, int rank, ct_net_env *env);
/** Of one rank; as below, shards NULL or as of ct_rank_memory_with(). */
ct_status ct_rank_memory_at(const ct_parallel *p, const ct_sharded_net *s,
                            const ct_net_options *whole, const ct_rank_shards *shards, int rank,
                            ct_rank_memory *m);
/** Of every rank: m[p->n_rank]. s: of the train net; whole: the options that it was made with, with
 *  state_bytes. CT_ERR_CONFIG, CT_ERR_NOMEM. */
ct_status ct_rank_memory_of(const ct_parallel *p, const ct_sharded_net *s,
                            const ct_net_options *whole, ct_rank_memory *m);
/** The same with shards; NULL: each rank has all of its weights' states, in memory. */
ct_status ct_rank_memory_with(const ct_parallel *p, const ct_sharded_net *s,
                              const ct_net_options *whole, const ct_rank_shards *shards,
                              ct_rank_memory *m);

/** Appends member "ranks": an array of objects. seconds: of each rank's layers in a step, or NULL.
 */
void ct_rank_memory_json(const ct_parallel *p, const ct_rank_memory *m, const double *seconds,
                         ct_json_writer *w);
/** For people: a row a rank. */
void ct_rank_memory_print(const ct_parallel *p, const ct_rank_memory *m, FILE *to);

#endif
