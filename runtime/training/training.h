/** @file training.h  A solver with all that a job puts around it: communicators, exchange,
 * compression, memory, plans, traces. `cortado train` and the library run the same one.
 *
 * Its settings are a config that all ranks have. What options say is read from the call, which has
 * none where a program of users calls.
 */
#ifndef CT_TRAINING_H
#define CT_TRAINING_H

#include "framework/solver/solver.h"
#include "planner/parallel.h"
#include "runtime/call.h"
#include "runtime/division/division.h"
#include "runtime/exchange/exchange_mpi.h"
#include "runtime/job_memory.h"
#include "runtime/outer/outer_groups.h"

typedef struct ct_training {
    ct_call *call; /* borrowed, as the config */
    ct_config *config;
    ct_trace_file trace;
    ct_parallel *parallel;     /* --parallel; NULL: not given */
    ct_job_division *division; /* by it, where there are several ranks */
    ct_outer_groups outer;     /* local steps */
    ct_comm *point_comm;    /* OptEx on more ranks than points: those that share one; else NULL */
    ct_group_mpi point_mpi; /* … which this and the next are of */
    ct_group point;
    ct_exchange_open exchange;
    ct_exchange_window window;
    ct_job_memory memory;
    ct_engine_plan *plan;
    ct_text provenance;
    ct_solver *solver;
} ct_training;

/** What the caller adds to call and config. */
typedef struct ct_training_ask {
    struct ct_report *report;
    volatile int *stop_signal; /* of ct_solver_options, as keep_values */
    bool keep_values;
    const struct ct_program_layers *program; /* of ct_net_env; NULL: no layers of type Python */
    ct_status (*agree)(void *ctx, ct_status mine); /* likewise */
    void *agree_ctx;
    const char *snapshot; /* it goes on from, whose rows of engines count; NULL: none */
} ct_training_ask;

/** Reads --parallel and connects the job. t is zeroed, but for call and config. Collective.
 *  CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_LAUNCH. */
ct_status ct_training_connect(ct_training *t);
/** Makes the solver. Collective. What ct_solver_create() may answer. */
ct_status ct_training_open(ct_training *t, const ct_training_ask *ask);
/** The net as one rank would run it. */
const ct_net *ct_training_whole_net(const ct_training *t);
/** A zeroed one, too, but after errors only where all ranks had them alike. The config and the job
 *  outlive it. Collective. */
void ct_training_close(ct_training *t);
/** After an error that other ranks do not have, in place of closing it: it never calls MPI again.
 */
void ct_training_abandon(ct_training *t);

#endif
