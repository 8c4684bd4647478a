/** @file points_fill.h  The figures of a point, from what its runs wrote. */
#ifndef CT_POINTS_FILL_H
#define CT_POINTS_FILL_H

#include "cli/scale/points.h"

/** Fills step times and parts of p from the n runs that went well; define, kind and ranks of p are
 *  set. Steps of all runs are pooled; other figures are medians over the runs. */
void ct_point_fill(ct_point *p, json_t *const *run, int n);

#endif
