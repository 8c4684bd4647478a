/** @file job_machine.h  The ranks of a job on the nodes of a machine, as plans see them: what a
 * rank computes and keeps, and what links carry.
 *
 * Ranks are counted node after node. A plan may take the nodes in another order, and counts places
 * along it: tensor first, then replicas, then stages (ct_job_layout). A node's ranks share its
 * operations, its memory, the traffic of its memory and its link into the network alike.
 *
 * A byte's seconds on a link are those of its slowest part. The parts are what one pair gets, the
 * cards of both nodes with all streams that leave and enter them, and the links of switches above.
 * Where all nodes send at a time (a cut between stages) those links are shared by all nodes below;
 * in a ring only the nodes at the ends of a switch send through it.
 */
#ifndef CT_JOB_MACHINE_H
#define CT_JOB_MACHINE_H

#include "planner/net_chain.h"
#include "planner/parallel.h"
#include "topology/machine.h"

typedef struct ct_job_class {
    double flop, bytes; /* what a rank does at most, a second               */
    double speed;       /* of the node that was measured: 1                 */
    double memory;      /* bytes that a rank may take; 0: any               */
    double inside;      /* bytes/s between two ranks of a node, while all of them send */
    double inject;      /* bytes/s of a node's link, each direction         */
    int measured;       /* set of ct_job_net.measured; -1: none, its layers take what they move */
    double measured_speed; /* … over the speed of the node that was measured */
} ct_job_class;

typedef struct ct_job_level {
    int64_t nodes;    /* below a vertex; 0: all      */
    double latency_s; /* of a message                */
    double bandwidth; /* bytes/s that one pair gets  */
    double uplink;    /* … of the link of a member; of the first level the nodes' own count */
} ct_job_level;

typedef struct ct_job_machine {
    int n_rank, ranks_per_node, n_node, n_class;
    int *node_class; /* [n_node] */
    ct_job_class kind[CT_MAX_NODE_CLASS];
    double latency_s; /* inside a node */
    int n_level;      /* above the node, innermost first */
    ct_job_level level[CT_MAX_LEVEL];
} ct_job_machine;

typedef struct ct_job_request {
    const ct_machine *machine; /* NULL: one node, this one; what its memory moves links carry */
    int n_rank, ranks_per_node;
    ct_net_limits limits; /* of a node of speed 1 */
    double memory;        /* bytes of a rank beside what the machine says; 0: any */
} ct_job_request;

/** CT_ERR_CONFIG: ranks that are not as many on each node, or more nodes than there are. */
ct_status ct_job_machine_make(const ct_job_request *q, ct_job_machine *m);
void ct_job_machine_destroy(ct_job_machine *m); /* zeroed ones too */

/** Where a plan's ranks lie. */
typedef struct ct_job_layout {
    const ct_job_machine *machine;
    const int *order; /* [n_node]: the nodes along the places; borrowed */
    int tensor, data, n_stage;
    const ct_parallel *file; /* borrowed; not NULL: stages, replicas and ranks are as it lists them,
                              * and order, tensor and data do not count */
} ct_job_layout;

/** Replicas of a stage, and ranks of each. */
int ct_job_data_of(const ct_job_layout *l, int stage);
int ct_job_tensor_of(const ct_job_layout *l, int stage);

/** The rank of a job that has a place of the plan. */
int ct_job_rank(const ct_job_layout *l, int stage, int replica, int part);
int ct_job_node(const ct_job_layout *l, int stage, int replica, int part);
/** The class of a replica; its nodes' first where it lies on several. */
int ct_job_class_of(const ct_job_layout *l, int stage, int replica);

/** A link: seconds of a byte of each of the streams that go side by side, and of a message. */
typedef struct ct_job_link {
    double byte_s, latency_s;
    double
        card_s; /* the part of byte_s that the nodes' cards are to blame for; 0: no card is used */
} ct_job_link;

/** Neighbours in the slowest tensor group of a stage. */
ct_job_link ct_job_tensor_link(const ct_job_layout *l, int stage);
/** Neighbours in the rings of a stage's replicas, one ring for each rank of a tensor group. */
ct_job_link ct_job_ring_link(const ct_job_layout *l, int stage);
/** From each rank of a stage to that at its place in a later one. */
ct_job_link ct_job_cut_link(const ct_job_layout *l, int stage, int to);

#endif
