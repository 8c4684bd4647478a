/** @file divided_net.h  The net of `cortado bench serve --parallel`: a tensor group runs it. */
#ifndef CT_BENCH_DIVIDED_NET_H
#define CT_BENCH_DIVIDED_NET_H

#include "runtime/division/division.h"
#include "serve/net/served.h"

typedef struct ct_divided_net {
    ct_job *job;
    const char *file; /* borrowed */
    ct_parallel *parallel;
    ct_job_division *division;
    ct_served_division served; /* for ct_served_options.division */
} ct_divided_net;

/** Reads the file. n_p lives until it is closed, behind the net. Collective, as the net's runs. */
ct_status ct_divided_net_open(ct_job *job, const char *file, ct_divided_net *n_p);
void ct_divided_net_close(ct_divided_net *n); /* zeroed ones too */

#endif
