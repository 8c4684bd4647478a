/** @file set_state.h  Names inside a solverstate that its writer and its reader share; private to
 *  framework/snapshot.
 */
#ifndef CT_SNAPSHOT_SET_STATE_H
#define CT_SNAPSHOT_SET_STATE_H

#include <stdint.h>

#include "framework/base/text.h"

#define CT_STATE_TITLE "cortado solverstate"
#define CT_STATE_PLAN  "/plan"

/* what a solver state may say; max_iter of a solver has 32 bits */
#define CT_MAX_ITERATION INT32_MAX
#define CT_MAX_RANK      (1 << 24)

/** "GROUP/NAME/KEY" with '/', '.' and '%' of KEY as %XX: keys are layers' names, which may have
 *  slashes. Freed with ct_text_destroy(). */
ct_text ct_state_path(const char *group, const char *name, const char *key);
/** Appends a line of /parts. */
void ct_state_add_part(ct_text *parts, const char *name, int64_t size, uint64_t hash);

#endif
