/** @file time_result.h  What `cortado time` measures: steps, their parts, and the profile that
 *  simulation and scaling models read.
 */
#ifndef CT_TIME_RESULT_H
#define CT_TIME_RESULT_H

#include <stdio.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/net/net.h"
#include "runtime/machine_limit.h"

/** Times in ms. Of n_step steps, in the order in which they ran. */
typedef struct ct_time_result {
    const ct_net *net; /* borrowed */
    int n_step, n_warm_up;
    int n_micro; /* batches of the net in a step; what layers take is that of the last */
    double *step, *update, *exposed, *wait_data; /* [n_step]                                    */
    double *norm;                                /* [n_step] of all gradients                   */
    bool after_all;                              /* no weight changes before all have landed    */
    double *forward, *backward;                  /* [n_forward][n_step], [n_backward][n_step]   */
    double *forward_polls, *backward_polls;      /* likewise: polls from inside the step        */
    double *scratch, *pass;                      /* [n_step]                                    */
    int64_t bytes_sent;                          /* by this rank in the last step               */
    ct_machine_limit limit;                      /* flop 0: not measured                        */
    bool engines;                                /* tell what others would take: the net's plan */
    double wake_s;                     /* what waking the team takes its first thread           */
    const struct ct_team_clock *whole; /* processor time of a step, row 0; NULL: not looked at. */
                                       /* Then net->team has that of the passes                 */
} ct_time_result;

/** A layer's forward or backward. */
typedef struct ct_time_pass {
    int layer;
    bool forward;
    double ms;          /* the median                                                           */
    double spread;      /* half the distance between the quartiles, over the median             */
    double flop, bytes; /* ct_net_estimate()                                                    */
    double bound_ms;    /* the least that the processor could take; 0: limits were not measured */
    double mean_ms;     /* processor time of a thread, in the mean; 0: not looked at            */
    double most_ms;     /* of the one that has most to do                                       */
    double first_ms;    /* of the one that begins the team, and does alone what is not split    */
    char engine[48];    /* "direct"; of backward "DATA, WEIGHTS" where they differ; or ""       */
} ct_time_pass;

/** What goes to other ranks: a parameter's gradient, for which the next forward waits, or a sum of
 * a layer (framework/net/step.h). */
typedef struct ct_time_pair {
    int pair;
    ct_pair_of of;
    int layer, param; /* param: of weights                                      */
    bool forward;     /* of a sum: of the layer's forward                       */
    int sum, count;   /* which of the layer's sums, and of how many numbers     */
    double begin_ms, wait_ms;
} ct_time_pair;

/** 0 where there is nothing to be a part of. */
static inline double ct_time_percent(double part, double of)
{
    return (of > 0) ? 100.0 * part / of : 0.0;
}

ct_status ct_time_result_create(const ct_net *net, int n_step, ct_time_result *r);
void ct_time_result_destroy(ct_time_result *r);
/** Notes the steps of the net's lists as they have just run. What prepares the diff of a layer's
 * top counts as part of its backward. */
void ct_time_result_take(ct_time_result *r, int i);
/** The median of n_step values, which stay as they are. */
double ct_time_result_median(const ct_time_result *r, const double *v);
double ct_time_result_images_per_s(const ct_time_result *r);
double ct_time_result_tokens_per_s(const ct_time_result *r); /* 0: the net has none */

/** The passes in the order of layers, forward before backward: list[2 n_layer]. */
void ct_time_result_passes(const ct_time_result *r, ct_time_pass *list, int *n_p);

/** The pairs for which some rank waits, in the order of their first steps: list[n_forward +
 *  n_backward]. */
void ct_time_result_pairs(const ct_time_result *r, ct_time_pair *list, int *n_p);

/** CT_ERR_NOMEM. */
ct_status ct_time_result_print(const ct_time_result *r, FILE *out);
/** The roofline of the net's passes as an SVG picture: needs limits. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_time_result_plot(const ct_time_result *r, const char *file);
/** Of a net of phase TEST that n_rank ranks share: appends the member "pass", which is a list
 * of planner/forward_pass.h with these times. CT_ERR_NOMEM. */
ct_status ct_time_result_add_pass(const ct_time_result *r, int n_rank, ct_json_writer *w);
/** Appends the members of the profile, of which "profile" is the first. */
void ct_time_result_json(const ct_time_result *r, ct_json_writer *w);

#endif
