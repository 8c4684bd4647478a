/** @file engine_plan_impl.h  What the files of an engine plan share; private to framework/net. */
#ifndef CT_ENGINE_PLAN_IMPL_H
#define CT_ENGINE_PLAN_IMPL_H

#include "framework/net/engine_plan.h"

typedef struct ct_engine_plan_section {
    ct_engine_plan_machine machine;
    ct_engine_plan_entry *row;
    int n, capacity;
} ct_engine_plan_section;

struct ct_engine_plan {
    ct_engine_plan_options o;
    ct_engine_plan_section *section; /* [0]: this machine's */
    int n_section;
    void *scratch;
    size_t scratch_bytes;
    const struct ct_device *scratch_dev, *dev; /* where it lies; of the ask under way. NULL: CPU */
    ct_engine_plan_counts tally;
};

/** The row of that key, or NULL. */
ct_engine_plan_entry *ct_engine_plan_find(const ct_engine_plan_section *s, const char *key);
/** Appends a zeroed one; NULL without memory. */
ct_engine_plan_entry *ct_engine_plan_add(ct_engine_plan_section *s);
bool ct_engine_plan_machine_equal(const ct_engine_plan_machine *a, const ct_engine_plan_machine *b);

#endif
