/** @file progress.h  One line at the bottom of a terminal that moves; private to framework/report.
 *
 * While it is shown, log lines go through it: they erase it first and it is drawn again below.
 */
#ifndef CT_PROGRESS_H
#define CT_PROGRESS_H

#include "framework/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ct_progress ct_progress;

/** NULL in *progress_p where stderr is no terminal: nothing ever goes into a file. */
ct_status ct_progress_create(ct_progress **progress_p);
void ct_progress_destroy(ct_progress *p); /* NULL allowed; erases the line */
/** Redraws, at most ten times a second. */
void ct_progress_move(ct_progress *p, int64_t iteration, int64_t max_iteration, double loss,
                      double images_per_s);
/** "  1200/10000  loss 0.1234  3120 images/s  3m12s left"; seconds_left < 0: unknown. */
void ct_progress_format(char *text, size_t size, int64_t iteration, int64_t max_iteration,
                        double loss, double images_per_s, double seconds_left);

#endif
