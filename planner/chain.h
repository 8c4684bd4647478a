/** @file chain.h  A strategy for each block of a chain, and which blocks are made again in
 * backward.
 *
 * A chain is a net cut where one value is alive: block l reads what block l - 1 made. A block has
 * several strategies. What it makes for backward is kept, or the block belongs to a segment. Of a
 * segment only the input of its first block is kept. Backward makes the rest again, once, when it
 * comes to the segment. Both are chosen together, exactly, under a limit of memory.
 *
 * Sizes are whole numbers of slots. Of a choice, with k micro-batches in flight,
 *
 *     memory = sum of weight + k (sum of kept of the kept blocks + sum of input of first blocks)
 *              + the largest segment's sum of kept
 *     time   = sum of time_s + sum of again_s of the blocks in segments + sum of reshard_s
 *
 * reshard_s[l][a][b] is paid once before block l where block l - 1 has strategy a and l has b.
 *
 * The method: for a bound Q on the largest segment a table holds the least time by (strategy,
 * memory without that segment, kept by the segment under way), block by block. One table with bound
 * Q tells the least times of every memory, and those bound the times with any smaller Q from below.
 * So most bounds are never tried. Time is at most proportional to blocks x strategies^2 x slots^3.
 */
#ifndef CT_CHAIN_H
#define CT_CHAIN_H

#include <stdint.h>

#include "framework/base/status.h"

/** Slots of the limit beside the least weights, which every choice takes. Sizes are first divided
 * by what divides them all, and a limit above what the chain can use is none. */
#define CT_CHAIN_MOST_SLOTS 4096
/** Of the tables. While searching they take at most 16 bytes x strategies x slots^2; the last one
 *  takes about a quarter of (blocks + 16) x strategies x slots^2 bytes. */
#define CT_CHAIN_MOST_BYTES      ((int64_t)1 << 30)
#define CT_CHAIN_MOST_STRATEGIES 64
/** Of finite times: larger ones might add up to infinity. */
#define CT_CHAIN_MOST_S 1e200

typedef enum {
    CT_CHAIN_KEEP,    /* what the block makes is kept                   */
    CT_CHAIN_START,   /* first of a segment                             */
    CT_CHAIN_CONTINUE /* in the segment of the block before; not behind KEEP */
} ct_chain_mode;

/** Borrowed. An infinite time: the block cannot have this strategy. */
typedef struct ct_chain {
    const char *name;                     /* in front of messages; NULL: "chain" */
    int n_block, n_strategy;              /* >= 1 */
    int64_t limit;                        /* slots, >= 0 */
    int64_t in_flight;                    /* micro-batches, >= 1 */
    const double *time_s, *again_s;       /* [block][strategy], >= 0 */
    const int64_t *weight, *kept, *input; /* [block][strategy], >= 0 */
    const double *reshard_s;              /* [block][from][to], >= 0; NULL: nothing is paid */
} ct_chain;

/** The choice of least time that fits: strategy and mode [n_block], and its time. Where nothing
 *  fits, *step_s_p is INFINITY and the lists are left alone. CT_ERR_ARG: sizes or times out of
 *  range; CT_ERR_CONFIG: too many slots, logged; CT_ERR_NOMEM. */
ct_status ct_chain_solve(const ct_chain *c, int *strategy, ct_chain_mode *mode, double *step_s_p);

/** A choice's time and memory by the formulas above. Memory beyond INT64_MAX is INT64_MAX. */
double ct_chain_time(const ct_chain *c, const int *strategy, const ct_chain_mode *mode);
int64_t ct_chain_memory(const ct_chain *c, const int *strategy, const ct_chain_mode *mode);

#endif
