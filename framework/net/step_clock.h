/** @file step_clock.h  How long steps take on a device that computes beside the host: by marks in
 * its stream, without waiting in between. Private to framework/net.
 */
#ifndef CT_STEP_CLOCK_H
#define CT_STEP_CLOCK_H

#include "framework/net/net.h"

/** Whether this pass is looked at so: it is timed or traced, and the device has marks. */
bool ct_step_clock_is_on(const ct_net *net, const ct_exec *ex);
/** Before a forward: where traced spans count from. Waits. */
ct_status ct_step_clock_begin(const ct_net *net, ct_exec *ex);
/** Before a forward that is not traced: what the traced ones before it began is added. */
ct_status ct_step_clock_end(const ct_net *net, ct_exec *ex);
/** Around step `at` of forward followed by backward. */
ct_status ct_step_clock_mark(const ct_net *net, ct_exec *ex, int at, bool ends);
/** After a list has run, which starts at `first`: waits, fills in its steps' seconds, and adds the
 *  device's spans to a trace. */
ct_status ct_step_clock_take(const ct_net *net, ct_exec *ex, ct_step *list, int n, int first);

#endif
