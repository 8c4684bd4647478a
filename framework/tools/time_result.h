/** @file time_result.h  What `cortado time` measures: steps, their parts, and the profile that
 *  simulation and scaling models read.
 */
#ifndef CT_TIME_RESULT_H
#define CT_TIME_RESULT_H

#include <stdio.h>

#include "framework/base/text.h"
#include "framework/net/net.h"

/** Times in ms. Of n_step steps, in the order in which they ran. */
typedef struct ct_time_result {
    const ct_net *net; /* borrowed */
    int n_step, n_warm_up;
    double *step, *update, *exposed, *wait_data; /* [n_step]                                    */
    double *forward, *backward;                  /* [n_forward][n_step], [n_backward][n_step]   */
    double *forward_polls, *backward_polls;      /* likewise: polls from inside the step        */
    double *scratch;                             /* [n_step]                                    */
    int64_t bytes_sent;                          /* by this rank in the last step               */
} ct_time_result;

ct_status ct_time_result_create(const ct_net *net, int n_step, ct_time_result *r);
void ct_time_result_destroy(ct_time_result *r);
/** Notes the steps of the net's lists as they have just run. What prepares the diff of a layer's
 * top counts as part of its backward. */
void ct_time_result_take(ct_time_result *r, int i);
/** The median of n_step values, which stay as they are. */
double ct_time_result_median(const ct_time_result *r, const double *v);
double ct_time_result_images_per_s(const ct_time_result *r);

void ct_time_result_print(const ct_time_result *r, FILE *out);
/** Appends the members of the profile: ,"profile":1,… */
void ct_time_result_json(const ct_time_result *r, ct_text *out);

#endif
