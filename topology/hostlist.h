/** @file hostlist.h  Lists of node names as SLURM writes them: "n[1-4,7],login,r[1-2]c[01-16]". */
#ifndef CT_HOSTLIST_H
#define CT_HOSTLIST_H

#include "framework/base/text.h"

/** Calls each(ctx, name) for every name in the order of the list; stops at its first failure. An
 *  empty text is an empty list. A list that is none (a bracket open, an empty name, a range that
 *  runs backwards, a hole as in "n[1-,4]") is CT_ERR_CONFIG, logged as "WHAT: …"; what names the
 *  list's origin. */
ct_status ct_hostlist_each(const char *list, const char *what,
                           ct_status (*each)(void *ctx, const char *name), void *ctx);
/** Appends n names as a list, runs of the same name with rising numbers in brackets; it reads back
 *  as the same names in the same order. */
void ct_hostlist_add(ct_text *out, char *const *name, int n);

#endif
