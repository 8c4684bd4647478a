/** @file deferred_errors.h  Error lines of ranks other than 0, held back until it is clear who else
 * has them.
 *
 * A mistake in a prototxt is found by every rank; on a thousand ranks it should still be one line.
 * So ranks other than 0 keep their error lines; when the job fails the ranks compare what they
 * have to say (job.c), and a rank speaks when it says something else than rank 0.
 */
#ifndef CT_DEFERRED_ERRORS_H
#define CT_DEFERRED_ERRORS_H

/** From now on error lines of this process are kept; other lines are written. */
void ct_deferred_errors_start(void);
/** Writes the kept lines, and keeps none from now on. */
void ct_deferred_errors_flush(void);
/** The same for the watchdog: waits for no lock, and at most a second for a reader of stderr. */
void ct_deferred_errors_flush_now(void);

#endif
