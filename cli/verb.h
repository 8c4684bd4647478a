/** @file verb.h  The verbs of `cortado`, one file each.
 *
 * A verb gets its parsed options and, where it runs in a job, the job. It returns a status; main
 * turns that into the exit code of every rank.
 */
#ifndef CT_VERB_H
#define CT_VERB_H

#include "runtime/call.h"

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

/** argv[0] is "convert"; runs without MPI. CT_ERR_CONFIG: usage, logged. */
ct_status ct_verb_convert(ct_call *call);
ct_status ct_verb_train(ct_call *call);
ct_status ct_verb_test(ct_call *call);
ct_status ct_verb_extract(ct_call *call);
ct_status ct_verb_generate(ct_call *call);
ct_status ct_verb_serve(ct_call *call);
ct_status ct_verb_time(ct_call *call);
ct_status ct_verb_check(ct_call *call);
ct_status ct_verb_plan(ct_call *call);
ct_status ct_verb_info(ct_call *call);
ct_status ct_verb_bench(ct_call *call);
ct_status ct_verb_scale(ct_call *call);
ct_status ct_verb_simulate(ct_call *call);

#endif
