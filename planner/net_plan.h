/** @file net_plan.h  What of a net is made again on one rank, so that it fits into a limit of
 * memory and takes the least time.
 *
 * The net is cut into blocks (net_chain.h); the chain solver keeps each of them or puts it into a
 * segment (chain.h). What comes out is made as a net, without memory, and its bytes are those of
 * its plan. Where they are above the limit, or more than 2 % below, the chain is solved again with
 * as many bytes less or more. So a plan always fits, to the byte.
 */
#ifndef CT_NET_PLAN_H
#define CT_NET_PLAN_H

#include "framework/base/text.h"
#include "planner/net_chain.h"

typedef struct ct_net_plan_request {
    const Ct__NetParameter *param; /* borrowed, until the search is destroyed                   */
    const ct_net_options *options; /* of phase TRAIN; state_bytes are the update rule's         */
    ct_net_limits limits;
    int64_t limit; /* bytes that ct_net_plan.memory_bytes may be; 0: any                        */
} ct_net_plan_request;

typedef struct ct_net_plan {
    int n_segment; /* 0: everything is kept; their names are the message's */
    ct_net_segment *segment;
    int64_t memory_bytes;    /* = weight_bytes + kept_bytes + transient_bytes           */
    int64_t weight_bytes;    /* weights, gradients, the update rule's states            */
    int64_t kept_bytes;      /* from forward to backward                                */
    int64_t transient_bytes; /* what else the plan of memory needs                    */
    ct_net_seconds time;
    double step_s; /* the sum of these */
} ct_net_plan;

typedef struct ct_net_search {
    ct_net_chain chain;
    uint64_t hash;       /* of the net                                             */
    int64_t batch;       /* samples of its step                                    */
    ct_net_plan whole;   /* keeps everything                                       */
    ct_net_plan best;    /* of least step_s, of those that fit                     */
    bool fits;           /* there is a best                                        */
    int64_t least_bytes; /* the least memory_bytes of all plans that were looked at */
    int n_configuration; /* nets that were made and compared …                      */
    ct_net_plan *tried;  /* … in their order, without the segments' names           */
    double search_s;     /* that all of it took                                    */
} ct_net_search;

/** Nothing fits: CT_OK, with fits false. CT_ERR_CONFIG: as ct_net_chain_make(); CT_ERR_NOMEM. */
ct_status ct_net_search_run(const ct_net_plan_request *request, ct_net_search *s);
void ct_net_search_destroy(ct_net_search *s); /* zeroed ones too */

/** The best plan as a parallel file (docs/parallel.md) of one rank. */
void ct_net_plan_write(const ct_net_search *s, ct_text *out);

#endif
