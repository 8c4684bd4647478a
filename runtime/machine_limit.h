/** @file machine_limit.h  What this rank's threads can do at most: multiply-adds and memory.
 *
 * Measured, not looked up, in a fraction of a second, and not kept anywhere. Both are what our own
 * code reaches on the vector path in use; a machine may have a little more.
 *   Multiply-adds: every thread runs independent chains of them in registers.
 *   Memory: every thread reads, or runs the triad a = b + s c of STREAM (J. McCalpin 1995) on, its
 * part of arrays far larger than the caches. The triad counts its three arrays, not what caches
 * fetch before a line is written.
 */
#ifndef CT_MACHINE_LIMIT_H
#define CT_MACHINE_LIMIT_H

#include <stddef.h>

#include "framework/base/status.h"

typedef struct ct_machine_limit {
    int n_thread;
    const char *simd;   /* "avx512" …; static                */
    double flop;        /* a second, all threads; an addition and a multiplication are two */
    double read, triad; /* bytes a second, all threads       */
    size_t array;       /* bytes of each of the three arrays */
    double memory;      /* the larger of read and triad      */
    double seconds;     /* that the measurement took         */
} ct_machine_limit;

/** n_local: ranks of this node, which all measure at the same time or wait; they share its memory.
 *  CT_ERR_NOMEM. */
ct_status ct_machine_limit_measure(int n_local, ct_machine_limit *out);
/** Multiply-adds once more, where something ran meanwhile: processors change their clock. The
 * better counts. */
void ct_machine_limit_again(ct_machine_limit *m);
/** The least time that flop operations and bytes of memory traffic take, in seconds: the larger of
 *  the two (roofline: S. Williams, A. Waterman, D. Patterson, CACM 2009). */
double ct_machine_limit_bound(const ct_machine_limit *m, double flop, double bytes);

#endif
