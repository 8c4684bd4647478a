/** @file job_net.h  What the blocks of a net take, by the samples that a rank has of them.
 *
 * The net is cut into blocks (net_chain.h), made with two batches. What grows with the batch is
 * told by the two: operations and bytes that every layer moves, bytes that are kept, all a constant
 * and a slope. So any number of samples has its figures, and no net is made for it.
 */
#ifndef CT_JOB_NET_H
#define CT_JOB_NET_H

#include "planner/net_chain.h"

/** A figure of n samples: at0 + slope n. */
typedef struct ct_job_line {
    double at0, slope;
} ct_job_line;

double ct_job_line_at(ct_job_line l, double samples);
/** Through two points, x0 < x1; at0 is at least 0. */
ct_job_line ct_job_line_of(double x0, double y0, double x1, double y1);

enum { CT_JOB_FORWARD, CT_JOB_BACKWARD, CT_JOB_N_DIRECTION };

typedef struct ct_job_layer {
    int block;
    int first_bottom; /* in ct_job_net.maker */
    ct_job_line flop[CT_JOB_N_DIRECTION], bytes[CT_JOB_N_DIRECTION];
} ct_job_layer;

typedef struct ct_job_block {
    ct_job_line kept;  /* bytes for backward that are not, where it is made again           */
    ct_job_line fixed; /* … that are, also then                                             */
    ct_job_line input; /* … of what a segment that begins here keeps                        */
    ct_job_line other; /* what else its activations, their gradients and scratch may take   */
    double weights;    /* bytes of weights that no block before has, gradients, states      */
    double learned;    /* … of their gradients alone                                        */
    double value;      /* bytes of a sample that the blocks behind read of it               */
    double again;      /* seconds that making it again takes, of forward's                  */
    bool may_cut;      /* a stage may begin with it                                         */
} ct_job_block;

typedef struct ct_job_net {
    Ct__NetParameter *param; /* borrowed */
    ct_net_options options;
    ct_net *net;        /* of the larger batch, which keeps everything, without memory */
    ct_net_chain chain; /* of the same                                                 */
    int64_t batch;      /* its samples                                                 */
    uint64_t hash;
    int n_block;
    ct_job_block *block;     /* [n_block]        */
    ct_job_layer *layer;     /* [net->n_layer]   */
    ct_job_line *measured;   /* seconds instead of operations and bytes: [set][layer][direction];
                              * owned,   NULL: none. Which set is up to the kind of node */
    int *maker;              /* of each bottom, layer by layer; see below */
    bool one_micro_batch;    /* layers carry state, or pass on another number of samples */
    int tie_first, tie_last; /* blocks of an Embed and a head that share their table; -1: none */
    int tie_embed, tie_head; /* their layers */
    double tie_weights, tie_learned; /* bytes of it, as of blocks: twice there if in two stages */
} ct_job_net;

/** param's DummyData are given batches of their own, and stay so; it must outlive the net. batch:
 *  the larger of the two, 2 or more. CT_ERR_CONFIG: as ct_net_chain_make(). */
ct_status ct_job_net_make(Ct__NetParameter *param, const ct_net_options *options, int64_t batch,
                          const ct_net_limits *limits, ct_job_net *n);
/** The layer that makes a bottom. */
int ct_job_net_maker(const ct_job_net *n, int layer, int slot);
void ct_job_net_destroy(ct_job_net *n); /* zeroed ones too */

#endif
