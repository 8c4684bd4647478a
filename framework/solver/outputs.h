/** @file outputs.h  The outputs of a net as means over the batch of all ranks, whether each runs
 * the whole net or a part of it.
 */
#ifndef CT_SOLVER_OUTPUTS_H
#define CT_SOLVER_OUTPUTS_H

#include "framework/exchange/group.h"
#include "framework/net/net.h"
#include "framework/solver/average_precision.h"

/** The outputs of one net as numbers. Where an output has not the same size on all ranks (its
 *  elements are samples, and the batch does not divide evenly), rank 0's stand for it. */
typedef struct ct_outputs {
    const ct_net *net;  /* whose outputs they are                                            */
    const ct_net *runs; /* what this rank runs of it                                         */
    int *own;           /* … and which of that one's they are, or -1                         */
    int n_rank;
    int64_t n;     /* elements of all outputs; the same number on all ranks                  */
    int64_t *size; /* of each, on the rank with the most                                     */
    bool *uneven;  /* this output has another size on another rank                           */
    bool *stands;  /* … and this rank's stands for all                                       */
    double *sum;   /* n + 3 (three for the caller): this rank's shares, to be summed over ranks */
    ct_detections *seen; /* of outputs that evaluate, since ct_outputs_begin() */
    float *host;         /* as long as the largest output */
} ct_outputs;

/** net: the whole one, of which this rank runs `runs`: all of it, or by a division a part. g: who
 *  runs the whole. Collective over g. */
ct_status ct_outputs_create(const ct_net *net, const ct_net *runs, const ct_group *g,
                            ct_outputs *o);
/** Nothing has been added: sums are 0. */
void ct_outputs_begin(ct_outputs *o);
void ct_outputs_destroy(ct_outputs *o); /* zeroed ones allowed */
/** Adds the outputs of the batch that a pass of the net that this rank runs has just run to o->sum,
 *  as this rank's shares. */
ct_status ct_outputs_add(ct_outputs *o, const ct_pass *pass);

/** What all ranks have added to outputs that evaluate, as one number each: into mean, which has a
 *  place for each element of all outputs. each: logs their classes, too. Collective over g. */
ct_status ct_outputs_evaluate(const ct_outputs *o, const ct_group *g, ct_ap_version version,
                              bool each, double *mean);

#endif
