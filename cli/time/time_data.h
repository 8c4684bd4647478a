/** @file time_data.h  `cortado time --data`: what the data layers deliver when nothing waits behind
 *  them.
 *
 * Batches are read, decoded and transformed by the layers' own threads as in training; the main
 * thread does nothing but take them. Batches that were made ahead go first and are not counted.
 */
#ifndef CT_TIME_DATA_H
#define CT_TIME_DATA_H

#include "framework/net/net.h"
#include "cli/verb.h"

typedef struct ct_time_data {
    int n_batch;             /* timed                                                */
    int64_t batch;           /* samples of this rank in each                         */
    double wall_s, cpu_s;    /* of all of them; CPU time of the whole process        */
    double batch_ms, max_ms; /* median and longest time that a batch was waited for  */
} ct_time_data;

/** Runs the layers of `net` that have no bottoms for n_batch batches. options: those of the whole
 *  net. CT_ERR_CONFIG, logged, where there is no such layer; otherwise what the layers fail with.
 *  Not collective. */
ct_status ct_time_data_run(const ct_call *call, const Ct__NetParameter *net,
                           const ct_net_options *options, int n_batch, ct_time_data *result_p);
void ct_time_data_print(const ct_time_data *r, FILE *to);
/** `"wall_s":…`: members of a JSON object. */
void ct_time_data_json(const ct_time_data *r, ct_text *out);

#endif
