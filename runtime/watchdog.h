/** @file watchdog.h  A thread that ends the job when a rank makes no progress.
 *
 * It starts in main, before MPI does. The main thread says what it does: at each stage of the start
 * and at every step (ct_watchdog_beat). Where it falls silent for the limit, the watchdog writes
 * one line with rank and host, what ran, and what the gradient exchange waits for. It leaves with
 * exit code 6, which makes the launcher end the job. At half the limit it warns. It calls no MPI,
 * its lines wait at most a second for a reader of stderr, and it goes by the monotonic clock. It
 * also answers SIGUSR2 with the same line.
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
/** Another limit from now on: that of the start ends, that of the steps begins. w may be NULL. */
void ct_watchdog_limit(ct_watchdog *w, double seconds);
/** Progress; ctx is the watchdog, or NULL: fits ct_solver_options.heartbeat. `what` is copied. */
void ct_watchdog_beat(void *ctx, const char *what);
/** What the last beat said, for the line of a crash: readable while the watchdog lives. */
const char *ct_watchdog_what(const ct_watchdog *w);
/** Who can tell what the rank waits for; NULL: nobody (before it is destroyed). w may
 *  be NULL. */
void ct_watchdog_watch(ct_watchdog *w, ct_watchdog_describe describe, void *ctx);

#endif
