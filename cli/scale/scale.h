/** @file scale.h  What the files of `cortado scale` share: a study as it was asked for.
 *
 * The verb reads options into a ct_scale, makes a list of runs (measured.c, machine_study.c), does
 * those that the folder lacks, and has the report written from the folder.
 */
#ifndef CT_SCALE_H
#define CT_SCALE_H

#include "cli/scale/spawn.h"
#include "cli/scale/study.h"
#include "cli/verb.h"
#include "topology/topo.h"

enum { CT_SCALE_MAX_POINT = 64, CT_SCALE_MAX_CONFIG = 24, CT_SCALE_MOST_RANKS = 1 << 24 };

/** A way to run the same net: the default, or an ablation. */
typedef struct ct_scale_config {
    char name[96];      /* "default", "overlap-off", "compression=bf16", … */
    ct_argv options;    /* of `cortado time`                               */
    ct_argv simulated;  /* of the simulator                                */
    char placement[32]; /* "": the study's own                             */
    char read[96];      /* modelled: changes of --read                     */
} ct_scale_config;

typedef struct ct_scale {
    const ct_call *call;
    const ct_options *options;
    ct_study study;
    char self[512];    /* the program that runs                              */
    char file[512];    /* the solver or the model                            */
    const char *word;  /* "solver" or "model"                                */
    json_t *net;       /* what `cortado check` says of it; NULL where nothing asked */
    json_t *pretended; /* the machine and the profile of a study that is not measured, or NULL */
    int n_node, n_rank;
    int64_t node[CT_SCALE_MAX_POINT], rank[CT_SCALE_MAX_POINT]; /* ascending */
    int n_config;
    ct_scale_config config[CT_SCALE_MAX_CONFIG]; /* the first is the default */
    int64_t n_core;                              /* of this node, that the study may use */
    double limit_s;                              /* of a run */
    int n_run, n_failed; /* runs that this call found or made; those that failed */
} ct_scale;

/* ---- what is asked: verb_scale.c */

/** "1,2,4,...,64": whole numbers >= 1, ascending, none twice; "..." (or "…") goes on with the ratio
 *  of the two before it. CT_ERR_CONFIG with the option's name. */
ct_status ct_scale_numbers(const char *option, const char *text, int64_t *out, int *n_p);

/** Whether `word` is in the list "a,b,c" of option; CT_ERR_CONFIG on words that are not in known.
 */
ct_status ct_scale_words(const char *option, const char *text, const char *const *known, int n,
                         bool *has);

/** The path of the running program. */
ct_status ct_scale_self(char *out, size_t size);

/* ---- jobs.c: runs by child processes */

typedef struct ct_scale_job {
    json_t *define;
    ct_child child;
    char out[800]; /* the file that the child writes its JSON to */
    bool emulated; /* more ranks than cores                       */
} ct_scale_job;

typedef struct ct_scale_jobs {
    ct_scale_job *job;
    int n, capacity, n_done_before;
} ct_scale_jobs;

/** A place for another job, unless the folder has the run already: then *job_p is NULL. Takes over
 *  define. The log and the output file are set; the caller adds the command. */
ct_status ct_scale_jobs_add(ct_scale *s, ct_scale_jobs *jobs, json_t *define, ct_scale_job **job_p);
/** Runs them, n_job at once within `memory` bytes, and saves each run as it ends. A run that fails
 *  is saved as failed, counted in s->n_failed and logged; it is no error of the function. */
ct_status ct_scale_jobs_run(ct_scale *s, ct_scale_jobs *jobs, int n_job, double memory);
void ct_scale_jobs_destroy(ct_scale_jobs *jobs);
/** Has `cortado check` read the net, as each configuration has it: bad nets and bad ablations end
 *  here, with their own message. Fills s->net. batch: 0 leaves it. */
ct_status ct_scale_check_net(ct_scale *s, int64_t batch);

/* ---- one file a kind of run */

ct_status ct_scale_measure(ct_scale *s);
/** --machine: the points that the simulator can do, and those of the model. */
ct_status ct_scale_simulate(ct_scale *s);

/* ---- the report: report*.c */

/** Makes report.md, points.csv, points.json and the plots from the runs of the folder. */
ct_status ct_scale_report(const ct_study *study);

/* ---- finding the simulator, and how it is started: verb_simulate.c */

/** CORTADO_SIM, or beside the program `self`, in the build tree, installed. out: [PATH_MAX].
 *  CT_ERR_IO where CORTADO_SIM is wrong, CT_ERR_CONFIG where the simulator is not built. */
ct_status ct_simulator_find(const char *self, char *out);

/** Writes the platform (XML) and the hosts of the ranks to two files. */
ct_status ct_simulator_platform(const ct_topo *t, const char *xml_path, const char *hosts_path);

/** smpirun with these files and the settings that SMPI needs, and the simulator: append its
 *  arguments. None may hold a space, which smpirun takes for the end of a word. */
void ct_simulator_start(const ct_machine *machine, int n_rank, const char *xml_path,
                        const char *hosts_path, const char *program, ct_argv *command);

#endif
