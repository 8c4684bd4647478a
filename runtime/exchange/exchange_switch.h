/** @file exchange_switch.h  Two exchanges of the same gradients: one that compresses, and another
 * for the steps in which nothing is compressed.
 *
 * `compression { type: AUTO }` may find, when a run begins or after trials, that all gradients had
 * better travel as they are. On GPUs these are then added up by the device's own library, or not at
 * all on one rank, in the graph of the step; through the host, where codecs meet, they would cost
 * more than that. Which of the two has a step is decided when it begins, alike on all ranks.
 */
#ifndef CT_EXCHANGE_SWITCH_H
#define CT_EXCHANGE_SWITCH_H

#include "framework/exchange/exchange.h"

typedef struct ct_exchange_switch ct_exchange_switch;

/** coded and dense are copied; what their ctx points to is borrowed. skips: called after coded's
 *  begin with skips_ctx; true: the step is over for coded, and dense's. by: who dense is, static,
 *  for the log; NULL: nobody who is worth a word. Other sums on the device are dense's in all
 * steps. CT_ERR_NOMEM. */
ct_status ct_exchange_switch_create(const ct_exchange *coded, const ct_exchange *dense,
                                    bool (*skips)(void *ctx), void *skips_ctx, const char *by,
                                    ct_exchange_switch **x_p);
/** What the solver gets. */
void ct_exchange_switch_wrap(ct_exchange_switch *x, ct_exchange *out);
/** Whether the step under way is dense's. From any thread. */
bool ct_exchange_switch_is_dense(const ct_exchange_switch *x);
void ct_exchange_switch_destroy(ct_exchange_switch *x); /* NULL allowed; neither of the two */

#endif
