/** @file clock.h  Monotonic time. */
#ifndef CT_CLOCK_H
#define CT_CLOCK_H

#include <time.h>

/** Seconds since an arbitrary moment; never goes back. */
static inline double ct_clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
