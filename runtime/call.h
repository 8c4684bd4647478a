/** @file call.h  What a verb of `cortado` was called with, and what every job begins with. */
#ifndef CT_CALL_H
#define CT_CALL_H

#include "framework/base/option.h"
#include "runtime/config/config.h"
#include "runtime/job.h"

/** What every verb finds. */
typedef struct ct_call {
    int argc; /* argv[0] is the verb; for verbs that read their arguments themselves */
    char **argv;
    char **full_argv; /* the whole command line */
    int full_argc;
    const ct_options *options; /* NULL for those                          */
    ct_job *job;               /* NULL for verbs that run without MPI */
} ct_call;

/** Rank 0 reads the files and applies the options, the others receive the result; then the log
 *  (--log), the header's first lines, the threads. Collective. */
ct_status ct_call_setup(ct_call *call, ct_phase phase, ct_config *c);
/** ct_job_connect() with the config's topology. Collective. */
ct_status ct_call_connect(ct_call *call, const ct_config *c);
/** The device of the config's solver_mode. */
ct_status ct_call_device(const ct_call *call, const ct_config *c, const ct_device **dev_p);
/** `"version":…,"host":…`: members of a JSON object that tell where a run came from: versions,
 *  compiler, libraries, command line, host, ranks, threads, job id, effective config. */
void ct_call_provenance(const ct_call *call, const ct_config *c, ct_text *out);

#endif
