/** @file plan_open.h  The plan of engines that a verb's options and a snapshot ask for. */
#ifndef CT_PLAN_OPEN_H
#define CT_PLAN_OPEN_H

#include "framework/net/engine_plan.h"
#include "runtime/call.h"

/** "model name" of the first processor, as Linux tells it, or "unknown". */
void ct_cpu_name(char *text, size_t size);

/** snapshot: the .solverstate.h5 that the run goes on from, NULL: none. Its rows come first, then
 *  those of --plan=FILE, which need not be there unless the run is deterministic. What is in
 * neither is timed, with --plan and not deterministic, or taken by the static rules. survey:
 * everything is timed, and without --plan the static rules decide. *plan_p: NULL where nothing was
 * asked for. Collective. */
ct_status ct_call_plan_open(ct_call *call, const ct_config *c, const char *snapshot, bool survey,
                            ct_engine_plan **plan_p);
/** After the nets are made: tells what came of it and completes FILE. Collective. */
ct_status ct_call_plan_close(ct_call *call, const ct_config *c, ct_engine_plan *plan);

#endif
