/** @file check.h  What `cortado check` finds out about a net of one phase, and ways to show it.
 *
 * Layers that the net adds for its own sake (Reorder) are left out everywhere; Splits, which Caffe
 * adds too and names alike, are not.
 */
#ifndef CT_CHECK_H
#define CT_CHECK_H

#include "framework/base/json_writer.h"
#include "framework/base/option.h"
#include "framework/base/text.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"
#include "planner/memory_tiers.h"
#include "topology/topo.h"

typedef struct ct_check {
    const ct_net *net;
    int64_t n_rank;
    int64_t parameters;                 /* elements of learned weights, whatever their rate     */
    int64_t statistics;                 /* of weights that are none (BatchNorm's)                */
    int64_t learned;                    /* of those that get gradients here                      */
    double forward_flop, backward_flop; /* of this rank's batch                  */
    int64_t step_tokens; /* of all ranks; 0: there is no solver, or the net has none */
    int iter_size;       /* with step_tokens                     */
    int64_t
        optimiser_bytes; /* states of the solver's rule and averages of weights; < 0: no solver */
    double caffe_bytes;  /* what Caffe logs as "Memory required for data": every top of every layer,
                          * those in place and of Splits too                      */
    double dense, gathered; /* bytes of gradients that are summed, and of payloads that every rank
                             * gets of every rank                                */
    double sent;            /* bytes a rank sends in a step                      */
    double sent_first; /* … in the first of a warm-up in which the density falls, dense where that
                        * is less                                                */
    int64_t falls_until; /* the iteration that ends it; 0: there is none              */
    bool divided;        /* --parallel: its ranks are told of elsewhere */
    bool has_blocks;     /* a net that trains, with a `repeat` or segments of a parallel file:
                          * what the next three say                                       */
    size_t keeps_all, makes_blocks; /* bytes planned with recompute NEVER, and BLOCKS  */
    double again_flop;              /* of forward, a second time with BLOCKS           */
    ct_memory_tiers tiers;          /* of the first net; of others empty               */
} ct_check;

/** Counts all but what is sent, and what blocks save. */
void ct_check_count(const ct_net *net, int64_t n_rank, ct_check *c);
/** What blocks save and cost: param and options are those of c->net. */
ct_status ct_check_blocks(const Ct__NetParameter *param, const ct_net_options *options,
                          ct_check *c);
/** The table of layers and the totals. */
void ct_check_print(const ct_check *c, FILE *to);
/** Appends the same as members of a JSON object. */
void ct_check_json(const ct_check *c, ct_json_writer *w);
/** Draws the graph: Graphviz's text into `file`, or a picture where its ending is .svg, .png or
 *  .pdf, which the program `dot` makes. CT_ERR_CONFIG where there is no such program, CT_ERR_IO. */
ct_status ct_check_draw(const ct_net *net, const char *file);

/* ---- `cortado check --nodes=N`: does compression pay, before a job is queued?
 *
 * Each codec, and AUTO's choice, in the step model (scale/step_model.h) on N nodes of a machine:
 * bytes, the length of a step, and what of it is exposed. How long the net computes comes from a
 * profile (`cortado time --json`); without one nothing hides anything, and the times are those of
 * the exchange and of coding alone.
 */

/** Ranks that --nodes and --ranks_per_node, or --ranks, ask for. CT_ERR_CONFIG. */
ct_status ct_verdict_ranks(const ct_options *o, int64_t *n_p);
/** Bytes that a rank may take, on the node of --machine with the least memory, or on this one. */
ct_status ct_verdict_memory(const ct_options *o, double *bytes_p);
/** n_rank ranks where --nodes and --machine say, else on one node. The caller destroys it. */
ct_status ct_verdict_topo(const ct_options *o, int64_t n_rank, ct_topo **topo_p);
/** tiers: what a rank takes, and moves to and from files. Prints the verdict to `to` (NULL:
 * nowhere) and appends the member "verdict" to json (NULL: not wanted); without --nodes nothing.
 * CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_verdict(const ct_options *o, const Ct__SolverParameter *solver, const ct_net *net,
                     const ct_memory_tiers *tiers, FILE *to, ct_json_writer *json);

#endif
