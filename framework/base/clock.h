/** @file clock.h  Monotonic time. */
#ifndef CT_CLOCK_H
#define CT_CLOCK_H

/** Seconds since an arbitrary moment; never goes back. In a simulation, those of the simulation. */
double ct_clock_s(void);

#endif
