/** @file tools.h  The verbs of `cortado`, one file each.
 *
 * A verb gets its parsed options and, where it runs in a job, the job. It returns a status; main
 * turns that into the exit code of every rank.
 */
#ifndef CT_TOOLS_H
#define CT_TOOLS_H

#include "framework/base/option.h"
#include "framework/tools/config.h"
#include "framework/tools/job.h"

/** What every verb finds. */
typedef struct ct_call {
    int argc; /* argv[0] is the verb; for verbs that read their arguments themselves */
    char **argv;
    char **full_argv; /* the whole command line */
    int full_argc;
    const ct_options *options; /* NULL for those                          */
    ct_job *job;               /* NULL for verbs that run without MPI */
} ct_call;

typedef struct ct_verb {
    const char *name;
    const char *summary;
    const char *usage;
    bool in_job;      /* MPI is started for it                    */
    bool own_options; /* reads argv itself                        */
    ct_status (*run)(ct_call *call);
} ct_verb;

extern const ct_verb ct_verb_table[]; /* ends with a NULL name */
extern const ct_option ct_option_table[];
extern const int ct_option_table_n;

ct_status ct_verb_train(ct_call *call);
ct_status ct_verb_test(ct_call *call);
ct_status ct_verb_extract(ct_call *call);
ct_status ct_verb_time(ct_call *call);
ct_status ct_verb_check(ct_call *call);
ct_status ct_verb_info(ct_call *call);
ct_status ct_verb_bench(ct_call *call);
ct_status ct_verb_scale(ct_call *call);
ct_status ct_verb_simulate(ct_call *call);

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
