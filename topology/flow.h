/** @file flow.h  What one step of a collective takes, when all its messages travel at once.
 *
 * The bulk-synchronous model: a step lasts as long as its busiest link. A message climbs from its
 * sender's rank up to the vertex where both ranks meet, through the uplink of one member of each
 * level on the way, and down again on the other side; each uplink counts its two directions apart.
 * It also fills its own pair's bandwidth, the link between two members that are joined pairwise
 * (where the ranks meet on such a level), and the bus of the vertex where they meet. O(levels) a
 * message. No MPI in here.
 */
#ifndef CT_FLOW_H
#define CT_FLOW_H

#include "topology/topo.h"

typedef struct ct_flow ct_flow;

/** t is borrowed. */
ct_status ct_flow_create(const ct_topo *t, ct_flow **flow_p);
void ct_flow_destroy(ct_flow *f); /* NULL allowed */
/** Forgets all messages: a new step. */
void ct_flow_clear(ct_flow *f);
/** A message; from == to is none. CT_ERR_NOMEM (only where members are joined pairwise). */
ct_status ct_flow_add(ct_flow *f, int from, int to, double bytes);
/** Since clear: alpha, the largest latency of a level met; beta, the seconds that the busiest link
 *  works. A step takes alpha + beta. */
void ct_flow_time(const ct_flow *f, double *alpha_s_p, double *beta_s_p);
/** Since clear: the level with that latency; -1: no messages. */
int ct_flow_slowest(const ct_flow *f);
/** Bytes since clear of messages whose ranks meet on level l. */
double ct_flow_met(const ct_flow *f, int level);

#endif
