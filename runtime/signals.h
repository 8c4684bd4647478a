/** @file signals.h  What signals from outside do.
 *
 * SIGTERM and SIGUSR1 ask for a snapshot and an end (exit 75), as batch systems send them before
 * the time is up. SIGINT and SIGHUP do what Caffe's --sigint_effect and --sighup_effect say.
 * SIGUSR2 asks for one line that tells what the rank does.
 *
 * From the first step on a handler only sets a flag, which the solver reads at the end of the step.
 * Before the first step there is nothing to save, and the main thread may be deep in MPI_Init: a
 * stop then writes a line and ends the process at once, with exit code 76.
 *
 * main blocks the signals in its first lines, since their default actions are none of these: a mask
 * outlives the second execution that chooses BLAS kernels, handlers do not. It unblocks them where
 * handlers stand, before it starts threads or MPI, which inherit the mask.
 *
 * The flags are mutable globals: a handler has no other way to leave word.
 */
#ifndef CT_SIGNALS_H
#define CT_SIGNALS_H

#include "framework/base/status.h"

/** The exit code of a training that was stopped before its first step. */
#define CT_EXIT_NOT_BEGUN 76

typedef enum { CT_SIGNAL_NONE = 0, CT_SIGNAL_STOP = 1, CT_SIGNAL_SNAPSHOT = 2 } ct_signal_effect;

/** effect: "stop", "snapshot" or "none". CT_ERR_CONFIG. */
ct_status ct_signals_effect(const char *effect, ct_signal_effect *effect_p);
/** Blocks TERM, USR1, INT, HUP and USR2 in the calling thread. */
void ct_signals_block(void);
/** Unblocks them. */
void ct_signals_unblock(void);
/** Installs the handlers. They are those of the start until ct_signals_begin(). */
ct_status ct_signals_install(ct_signal_effect on_int, ct_signal_effect on_hup);
/** The first step is near: a stop waits for its end from now on. Or the job fails: launchers send
 *  SIGTERM to the other ranks then, which is no stop, and must not take their words from them. */
void ct_signals_begin(void);
/** What was asked for since; read by the solver at the step boundary. Static. */
volatile int *ct_signals_request(void);
/** True once after each SIGUSR2. */
bool ct_signals_take_dump(void);

/* ---- One line and an end, where the process crashes.
 *
 * SEGV, BUS, FPE, ILL and ABRT write rank, signal, cause and what ran. Then they end the process by
 * the signal's default action, so that the launcher ends the job and cores are dumped where wanted.
 * MPI libraries have handlers of their own. Open MPI's asks for memory, so it waits for ever where
 * malloc() itself found its heap damaged. A library puts its handler only where there is none, so
 * ours come before MPI_Init; they come again after it, for one that does not look.
 */

/** Installs the handlers, before MPI_Init and again after it. A handler that was there before the
 *  first call stays: a sanitizer's says more. The calling thread gets a stack of its own for them,
 *  since its own may be what ran out. */
void ct_crash_install(void);
/** A text that the line ends with, which must live until the next call; NULL: none. */
void ct_crash_tell(const char *what);

#endif
