/** @file simulate.h  One step of a pipeline in time: an event simulation.
 *
 * Workers (a replica of a stage each) run their lists one item after the other. What an item gives
 * goes to other workers over links, which flows share; whoever waits for it begins when it is
 * there. Behind the last micro-batch's backward gradients are summed over the replicas, bucket by
 * bucket. Nothing is random and no clock is read: the same input gives the same times, bit for bit.
 *
 * What is assumed of links: all streams under way share a link's bandwidth alike, and a flow is as
 * fast as its slowest link lets one of its streams be. What a link's other flows leave unused so is
 * lost. Shared links can therefore make a step longer when something else becomes shorter; without
 * them the step is monotonic in every time.
 */
#ifndef CT_PIPELINE_SIMULATE_H
#define CT_PIPELINE_SIMULATE_H

#include "planner/schedule.h"

/** Streams of a flow on one link; a link has one direction. */
typedef struct ct_pipeline_load {
    int link;
    double streams; /* above 0 */
} ct_pipeline_load;

/** Equal streams that go side by side and end together: a message of all ranks of a tensor group,
 *  or all edges of a ring. */
typedef struct ct_pipeline_flow {
    double bytes;     /* of one stream                                 */
    double latency_s; /* from the last byte's leaving to its arrival   */
    double bandwidth; /* bytes/s of a stream at most; 0: no such limit */
    int n_load;
    const ct_pipeline_load *load; /* borrowed; each link once */
} ct_pipeline_flow;

typedef struct ct_pipeline_worker {
    const ct_pipeline_list *list; /* borrowed */
    double forward_s, backward_s; /* of a micro-batch */
} ct_pipeline_worker;

/** With every micro-batch `from` sends to `to` behind its forward, and back behind `to`'s backward.
 */
typedef struct ct_pipeline_message {
    int from, to;
    ct_pipeline_flow forward, backward;
} ct_pipeline_message;

typedef struct ct_pipeline_bucket {
    double
        ready; /* part of the members' last backward after which its gradients are there, 0 .. 1 */
    double share; /* of the sum's bytes */
} ct_pipeline_bucket;

/** The sum of gradients of the replicas of a stage. Buckets go one after the other, each when all
 *  members have its gradients. */
typedef struct ct_pipeline_sum {
    int n_member;
    const int *member;     /* workers; borrowed */
    ct_pipeline_flow flow; /* bytes: of all buckets together; latency_s: of each */
    int n_bucket;
    const ct_pipeline_bucket *bucket; /* borrowed; in the order in which they leave */
} ct_pipeline_sum;

typedef struct ct_pipeline_step {
    int n_worker, n_message, n_sum, n_link;
    const ct_pipeline_worker *worker;
    const ct_pipeline_message *message;
    const ct_pipeline_sum *sum;
    const double *link; /* bytes/s, above 0 */
    int n_micro;
    bool sends_block; /* a worker begins its next item when what the last one sends has arrived */
} ct_pipeline_step;

typedef struct ct_pipeline_times {
    double step_s;    /* everything has ended               */
    double compute_s; /* the last backward of all has ended */
} ct_pipeline_times;

/** end_s: [n_worker], when each worker's last item ends; or NULL. CT_ERR_CONFIG: the workers wait
 *  for each other for ever. */
ct_status ct_pipeline_simulate(const ct_pipeline_step *step, ct_pipeline_times *times_p,
                               double *end_s);

#endif
