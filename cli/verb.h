/** @file verb.h  The verbs of `cortado`, one file each.
 *
 * A verb gets its parsed options and, where it runs in a job, the job. It returns a status; main
 * turns that into the exit code of every rank.
 */
#ifndef CT_VERB_H
#define CT_VERB_H

#include <stdio.h>

#include "runtime/call.h"

/** What may follow a verb: options, or a word with options of its own. */
typedef struct ct_verb_form {
    const char *verb; /* "scale", "bench comm": as the option's tables say it */
    const char *summary;
    const ct_option *option; /* a table; ct_option_serves() tells which are its own */
    int n_option;
} ct_verb_form;

/** Form i of a verb, from 0 on. False: there is none. */
typedef bool (*ct_verb_form_fn)(int i, ct_verb_form *form_p);

typedef struct ct_exit_code {
    int code;
    const char *meaning;
} ct_exit_code;

extern const ct_exit_code ct_exit_code_table[]; /* ends with a NULL meaning */

typedef enum {
    CT_VERB_ALONE,
    CT_VERB_IN_JOB,  /* MPI is started for it, and all ranks run it                        */
    CT_VERB_ON_FIRST /* alone; where a launcher started several ranks the first one runs it */
} ct_verb_place;

typedef struct ct_verb {
    const char *name;
    const char *summary;
    const char *usage;
    ct_verb_place place;
    ct_verb_form_fn form; /* reads argv itself; NULL: by ct_option_table    */
    ct_status (*run)(ct_call *call);
} ct_verb;

extern const ct_verb ct_verb_table[]; /* ends with a NULL name */
/** NULL: there is none. */
const ct_verb *ct_verb_find(const char *name);
/** As ct_verb_form_fn says, of any verb. */
bool ct_verb_form_of(const ct_verb *verb, int i, ct_verb_form *form_p);

/* ---- what the program prints on itself (help.c) */

/** The verbs, and the exit codes. */
void ct_help_verbs(FILE *to);

/** Whether --help or -h stands anywhere, or "help" in front of the verb or behind it. */
bool ct_help_is_asked(int argc, char *const *argv);

/** Prints to stdout what was asked for: all verbs, a verb's options, its kinds, or the options of
 *  one kind. CT_ERR_CONFIG, logged: there is no such verb or kind. */
ct_status ct_help(int argc, char *const *argv);

/** CT_ERR_CONFIG, logged, with the nearest verb. */
ct_status ct_help_fail_verb(const char *name);

/** Which form of a verb that a word follows, as images of convert. CT_ERR_CONFIG, logged with the
 *  nearest: there is none of that name, or name is NULL. */
ct_status ct_help_find_kind(const ct_verb *verb, const char *name, int *kind_p);

extern const ct_option ct_option_table[];
extern const int ct_option_table_n;

/** argv[0] is "convert"; runs without MPI. CT_ERR_CONFIG: usage, logged. */
ct_status ct_verb_convert(ct_call *call);
ct_status ct_verb_train(ct_call *call);
ct_status ct_verb_sweep(ct_call *call);
ct_status ct_verb_find_rate(ct_call *call);
ct_status ct_verb_test(ct_call *call);
ct_status ct_verb_extract(ct_call *call);
ct_status ct_verb_new(ct_call *call);
ct_status ct_verb_predict(ct_call *call);
ct_status ct_verb_report(ct_call *call);
ct_status ct_verb_generate(ct_call *call);
ct_status ct_verb_serve(ct_call *call);
ct_status ct_verb_time(ct_call *call);
ct_status ct_verb_check(ct_call *call);
ct_status ct_verb_plan(ct_call *call);
ct_status ct_verb_info(ct_call *call);
ct_status ct_verb_bench(ct_call *call);
ct_status ct_verb_scale(ct_call *call);
ct_status ct_verb_simulate(ct_call *call);

bool ct_bench_form(int i, ct_verb_form *form_p);
bool ct_convert_form(int i, ct_verb_form *form_p);
bool ct_scale_form(int i, ct_verb_form *form_p);
bool ct_simulate_form(int i, ct_verb_form *form_p);

#endif
