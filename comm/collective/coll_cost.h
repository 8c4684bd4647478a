/** @file coll_cost.h  The costs and plans of a communicator's algorithms, made when first asked
 * for.
 *
 * Private to comm/. Not safe to call from two threads at a time.
 */
#ifndef CT_COLL_COST_H
#define CT_COLL_COST_H

#include "comm/core/comm.h"
#include "comm/cost/cost.h"

/** As ct_cost_create(); borrowed until the communicator ends. Local. */
ct_status ct_coll_cost(const ct_comm *c, const char *algorithm, bool shares,
                       const ct_cost **cost_p);
/** Seconds by ct_cost_s(), sharing memory where the communicator does; DBL_MAX where it fails. */
double ct_coll_cost_s(const ct_comm *c, const char *algorithm, int64_t bytes);
/** The dimensions that later uses of "torus" on this communicator have; all 0: chosen. */
ct_status ct_coll_set_torus(const ct_comm *c, const int *dim);

#endif
