/** @file memory_plan.h  Gives regions with lifetimes offsets in one block. Private to
 * framework/net. */
#ifndef CT_HIERARCHICAL_PLAN_H
#define CT_HIERARCHICAL_PLAN_H

#include <stddef.h>

#include "framework/base/status.h"

typedef struct ct_region {
    size_t bytes;
    int first, last; /* steps in which it is alive, both included */
    size_t offset;   /* the result: a multiple of CT_ALIGN        */
} ct_region;

/** The largest sum of bytes (each rounded up to CT_ALIGN) alive in one step: no plan is smaller. */
size_t ct_engine_plan_peak(const ct_region *r, int n);
/** Sets the offsets so that regions alive in the same step do not overlap; *bytes_p is the size of
 *  the block. Greedy, in several orders; the best is kept. The same regions always get the same
 *  plan. */
ct_status ct_engine_plan_place(ct_region *r, int n, size_t *bytes_p);

#endif
