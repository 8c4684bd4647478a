/** @file sort.h  Numbers in order: what measurements are told by. */
#ifndef CT_SORT_H
#define CT_SORT_H

#include <stdint.h>

/** Sorts v[n], the least first. None is NaN. */
void ct_sort(double *v, int64_t n);
/** The one in the middle of v[n], of an even number the mean of two; n > 0. Sorts them. */
double ct_median(double *v, int64_t n);

#endif
