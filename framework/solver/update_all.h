/** @file update_all.h  Updates of many parameters in one pass over the arenas, where a device
 * launches a pass at a price. Private to framework/solver. */
#ifndef CT_UPDATE_ALL_H
#define CT_UPDATE_ALL_H

#include "framework/math/update.h"
#include "framework/net/net.h"

/** Which parameter a line of the arena is of, on the device; all NULL: one after the other. */
typedef struct ct_update_plan {
    void *part, *part_of_line;
} ct_update_plan;

/** Empty where the device sees no use in it. */
ct_status ct_update_plan_open(const ct_net *net, ct_update_plan *p);
void ct_update_plan_close(const ct_net *net, ct_update_plan *p);
/** Parameters [first, first + n), which learn. u: of the whole arenas; see ct_update_all. */
ct_status ct_update_plan_run(const ct_net *net, const ct_update_plan *p, ct_stream st,
                             ct_update_kind kind, const ct_update *u, int first, int n);

#endif
