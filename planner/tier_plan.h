/** @file tier_plan.h  Where the model state of a net lies that the GPUs of a node train together:
 * on them, in the node's memory, in files. Modelled: bytes are counted, and nothing is run.
 *
 * A rank is a GPU. Ranks train replicas and share weights, gradients and states out (stage 3 of
 * ZeRO). Each GPU has:
 *
 *   activations, logits   the plan of memory of a net that is made for this rank, without memory
 *   window                places of weights that come for the steps that read them, and of
 * gradients until they are summed: the plan of the same net (ct_net_options.window) communication
 * what a sum over the ranks leaves here of the largest gradients, twice
 *
 * The rank's shard of what learns is cut into chunks of equal size. A chunk is its weights, their
 * states and, where something waits for all gradients, their sums; it is updated where it lies. As
 * many as fit lie on the GPU, as many others as fit in the node's memory, the rest in files. What
 * is left over at the end of a tier is less than a chunk, and is not used.
 *
 * The weights of a chunk that lies elsewhere come for the visits of the net's lists that read them,
 * to places on the GPU. As many come as a visit reads, or a block reads from where it is made again
 * to where its gradients are made. Loads are those of the plan that needs the fewest
 * (chunk_plan.h), and of chunks in those places at the end of a step, which the update changed
 * elsewhere. Of n chunks that a chain reads forward and backward, with D of them on the GPU and S
 * places, this is 2 (n - D - S) + S. Gradients go the other way.
 */
#ifndef CT_PLANNER_TIER_PLAN_H
#define CT_PLANNER_TIER_PLAN_H

#include "framework/base/json_writer.h"
#include "framework/net/net.h"
#include "planner/memory_tiers.h"
#include "topology/machine.h"

/** A node with GPUs, and what a plan may take of it. Speeds of 0 are not known. */
typedef struct ct_tier_node {
    int n_rank;          /* GPUs                                                       */
    double device, host; /* bytes: of one GPU; of the node                             */
    double flop;         /* operations/s of a GPU                                      */
    double link, host_bandwidth, file_read, file_write; /* bytes/s, as of a ct_node_class */
    double between; /* bytes/s that a GPU gets from the others, and gives              */
} ct_tier_node;

typedef struct ct_tier_request {
    const Ct__NetParameter *param; /* borrowed                                            */
    const ct_net_options *options; /* of phase TRAIN                                      */
    ct_tier_node node;
    bool files;            /* take what memory has no room for                         */
    int64_t chunk_bytes;   /* of a chunk's weights                                     */
    double state_bytes;    /* a parameter, the 4 of its weight among them              */
    double gradient_bytes; /* … and those of its gradient, where that waits            */
    bool probabilities;    /* attention keeps its probabilities (T x T a head) for backward, and
                            * makes their gradient whole                                       */
} ct_tier_request;

typedef struct ct_tier_plan {
    ct_memory_tiers rank; /* all ranks are alike; its part of what the node has        */
    int64_t parameters;   /* that learn                                                */
    int64_t batch;        /* samples of a step, of all ranks                           */
    int64_t shard;        /* elements of the arena that a rank has                     */
    int64_t n_chunk, on[CT_N_TIER];
    int64_t chunk_bytes; /* of one: weights, states and sums                           */
    int64_t missing;     /* bytes that a rank lacks in all; below 0: what is left      */
    ct_tier lacks;       /* where                                                      */
    double compute_s;    /* operations alone, of what is made again, too               */
    /* bytes a step: over a GPU's link to and from the host; of a GPU from the others; of the node's
     * memory; of the node's files; and the seconds of each, 0 where its speed is not known */
    double up_bytes, down_bytes, between_bytes, host_bytes, read_bytes, write_bytes;
    double up_s, down_s, between_s, host_s, read_s, write_s;
    double step_s; /* the longest: the others run beside it                            */
} ct_tier_plan;

/** A node of a class of that machine. usable: in place of the class's two shares; 0: those. half:
 *  operations are those in 16 bits. CT_ERR_CONFIG: it has no GPUs, or does not say what they have.
 */
ct_status ct_tier_node_of(const ct_machine *m, int node_class, double usable, bool half,
                          ct_tier_node *node);
/** Makes the net and lays it out. What does not fit is no error. CT_ERR_CONFIG, CT_ERR_NOMEM. */
ct_status ct_tier_plan_make(const ct_tier_request *q, ct_tier_plan *p);

/** Appends members of an object, the tiers of each rank under "ranks". */
void ct_tier_plan_json(const ct_tier_request *q, const ct_tier_plan *p, ct_json_writer *w);
void ct_tier_plan_print(const ct_tier_request *q, const ct_tier_plan *p, FILE *to);

#endif
