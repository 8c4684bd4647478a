/** @file chain_in_turn.h  Which blocks of a chain are made again, where backward frees memory as it
 * goes.
 *
 * Chains, modes and times are those of chain.h. There the limit holds all that is kept, and the
 * largest segment beside it. Here backward has freed what lies behind a segment when it makes the
 * segment again. So, with `stored` the kept of kept blocks and the input of first blocks,
 *
 *     memory = sum of weight + the larger of
 *                  the sum of stored, and
 *                  of each segment: stored in front of it + its input + its sum of kept
 *
 * which fits more. It holds for one micro-batch in flight, and is solved for one strategy. A net's
 * own plan of memory frees in this way. Source of the order: Beaumont et al., "Optimal
 * checkpointing for heterogeneous chains", 2019; its segments within segments are not taken.
 */
#ifndef CT_CHAIN_IN_TURN_H
#define CT_CHAIN_IN_TURN_H

#include "planner/chain.h"

/** The choice of least time that fits: mode [n_block], and its time. Exact; takes blocks^2 x limit
 *  operations and 16 x blocks x limit bytes. Where nothing fits, *step_s_p is INFINITY and the list
 *  is left alone. n_strategy and in_flight must be 1, and limit at most CT_CHAIN_MOST_SLOTS:
 *  CT_ERR_ARG; CT_ERR_NOMEM. */
ct_status ct_chain_solve_in_turn(const ct_chain *c, ct_chain_mode *mode, double *step_s_p);

/** A choice's memory by the formula above. */
int64_t ct_chain_memory_in_turn(const ct_chain *c, const ct_chain_mode *mode);

#endif
