/** @file watchdog.h  A thread that ends the job when a rank makes no progress.
 *
 * The main thread says what it does at every step (ct_watchdog_beat). Where it falls silent for the
 * limit, the watchdog prints one line with rank and host, what ran, and what the gradient exchange
 * waits for, and leaves with exit code 6, which makes the launcher end the job. At half the limit
 * it warns. It calls no MPI. It also answers SIGUSR2 with the same line.
 */
#ifndef CT_WATCHDOG_H
#define CT_WATCHDOG_H

#include <stddef.h>

#include "framework/base/status.h"

typedef struct ct_watchdog ct_watchdog;

/** Fills text with what the rank waits for; called from the watchdog's thread. */
typedef void (*ct_watchdog_describe)(void *ctx, char *text, size_t size);

/** seconds 0: never ends the job, still answers SIGUSR2. */
ct_status ct_watchdog_start(double seconds, ct_watchdog **w_p);
void ct_watchdog_stop(ct_watchdog *w); /* NULL allowed */
/** Progress; ctx is the watchdog: fits ct_solver_options.heartbeat. `what` is copied. */
void ct_watchdog_beat(void *ctx, const char *what);
/** Who can tell what the rank waits for; NULL: nobody (before it is destroyed). w may
 *  be NULL. */
void ct_watchdog_watch(ct_watchdog *w, ct_watchdog_describe describe, void *ctx);

#endif
