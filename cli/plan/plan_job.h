/** @file plan_job.h  A plan for several ranks, from what is asked to what is printed; and the step
 *  of a plan that a file has, for `cortado check --parallel`. The rest is private to cli/plan.
 */
#ifndef CT_CLI_PLAN_JOB_H
#define CT_CLI_PLAN_JOB_H

#include "framework/base/json_writer.h"
#include "cli/plan/plan.h"
#include "planner/job_search.h"
#include "planner/rank_memory.h"
#include "runtime/division/planned_shards.h"

/** Of --ranks. */
#define CT_PLAN_MOST_RANKS 65536

typedef struct ct_plan_job_state {
    ct_call *call;
    ct_plan_input in;
    ct_machine *machine; /* NULL: this one */
    ct_job_machine job;
    ct_job_fix fix;
    int64_t batch;
    ct_job_net net;
    ct_job_search search;
    /* of plans whose replicas share out */
    ct_topo *topo; /* NULL: none do */
    Ct__SolverParameter param;
    Ct__MemoryParameter memory;
    ct_planned_shards planned;
    ct_rank_shards shards;
    ct_text file;         /* the parallel file */
    ct_rank_memory *rank; /* of each rank of the plan */
} ct_plan_job_state;

/** Reads --machine and --ranks_per_node for so many ranks. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA.
 */
ct_status ct_plan_job_read_machine(ct_plan_job_state *p, int64_t ranks);
/** Frees all that it owns; zeroed ones too, but for the call. */
void ct_plan_job_close(ct_plan_job_state *p);
/** Reads the profiles of --profile and of the machine's classes into the net. CT_ERR_CONFIG. */
ct_status ct_plan_job_measure(ct_plan_job_state *p);
/** The rank of a plan that lacks most bytes; what it needs and may take. */
int ct_plan_job_lacks(const ct_plan_job_state *p, const ct_job_plan *n, double *need_p,
                      double *limit_p);
/** For people: what machine the ranks are on. */
void ct_plan_job_print_machine(const ct_plan_job_state *p, FILE *to);
/** For people. */
void ct_plan_job_print(const ct_plan_job_state *p, FILE *to);
/** For people: the step of a plan that was read from a file. */
void ct_plan_file_print(const ct_plan_job_state *p, const ct_job_plan *n, FILE *to);
/** For programs: an object. */
void ct_plan_job_json(const ct_plan_job_state *p, ct_text *out);

/** `check --parallel=PATH`: what a step of the file takes on --machine, with --profile. Prints it
 * to `to` (NULL: nowhere) and appends the member "step_s". CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_plan_file_step(ct_call *call, const char *path, FILE *to, ct_json_writer *w);
/** A plan of a net that is only run: in which groups its ranks answer. p: with what is asked and
 * the net, the machine not yet read. Prints it, and writes --out and --json. CT_ERR_CONFIG,
 * CT_ERR_IO.
 */
ct_status ct_plan_groups(ct_plan_job_state *p);
/** `check --parallel=PATH --phase=TEST`: what one forward of the file takes on --machine. Prints
 * it, and writes --json, with the list of steps. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_plan_file_forward(ct_call *call);

#endif
