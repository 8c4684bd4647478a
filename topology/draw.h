/** @file draw.h  A topology as text, for people: the levels' figures and the tree. */
#ifndef CT_DRAW_H
#define CT_DRAW_H

#include "topology/topo.h"

/** Appends a table of the levels: members, latency, bandwidths, oversubscription. */
void ct_machine_draw_levels(const ct_machine *m, ct_text *out);
/** Appends the tree of a job: names, and which ranks lie where. Alike siblings share a line where
 *  there are many, so 40 960 nodes take a few lines. CT_ERR_NOMEM. */
ct_status ct_topo_draw(const ct_topo *t, ct_text *out);
/** Appends the tree of the machine itself, every node of it. One whose number of nodes is open has
 *  none. CT_ERR_NOMEM. */
ct_status ct_machine_draw(const ct_machine *m, ct_text *out);
/** Appends ascending numbers as "0-3,8,12-20:4" (from-to:step), at most 8 parts. */
void ct_draw_numbers(const int *number, int n, ct_text *out);

/** Appends the name of a level as of n of them: "switches". */
void ct_draw_noun(const char *name, int n, ct_text *out);

#endif
