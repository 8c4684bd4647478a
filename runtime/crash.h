/** @file crash.h  One line and an end, where the process crashes.
 *
 * SEGV, BUS, FPE, ILL and ABRT write rank, signal, cause and what ran, then end the process by the
 * signal's default action, so that the launcher ends the job and cores are dumped where wanted.
 * MPI libraries have handlers of their own. Open MPI's asks for memory, so it waits for ever where
 * malloc() itself found its heap damaged. A library puts its handler only where there is none, so
 * ours come before MPI_Init; they come again after it, for one that does not look.
 */
#ifndef CT_CRASH_H
#define CT_CRASH_H

/** Installs the handlers, before MPI_Init and again after it. A handler that was there before the
 *  first call stays: a sanitizer's says more. The calling thread gets a stack of its own for them,
 *  since its own may be what ran out. */
void ct_crash_install(void);
/** A text that the line ends with, which must live until the next call; NULL: none. */
void ct_crash_tell(const char *what);

#endif
