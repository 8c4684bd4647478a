/** @file division.h  A job whose ranks run a net together, by a parallel file: the groups of its
 * ranks, what carries values between them, and what of the net each has.
 */
#ifndef CT_RUNTIME_DIVISION_H
#define CT_RUNTIME_DIVISION_H

#include "comm/collective/async_sum.h"
#include "framework/solver/solver.h"
#include "framework/solver/train_step.h"
#include "planner/rank_memory.h"
#include "planner/schedule.h"
#include "runtime/call.h"
#include "runtime/division/exchange_divided.h"
#include "runtime/job.h"
#include "runtime/memory_plan.h"

typedef struct ct_job_division {
    const ct_parallel *parallel;
    const Ct__SolverParameter *solver;
    ct_job *job;
    ct_parallel_place at;
    ct_comm *stage;    /* the ranks of this one's stage, in the file's order                 */
    ct_comm *replicas; /* of these, those that have the same part of their replicas          */
    ct_comm *tied;     /* those that have its parameters of first and last stage; NULL: nobody */
    ct_comm *tensor;   /* the ranks of its replica; NULL: it is alone there                  */
    ct_transfers *transfers;
    ct_group_mpi tensor_mpi; /* with the device's library that carries what it can of these */
    ct_trace_file *trace;    /* borrowed, NULL or empty: none; set before the exchange opens */
    ct_exchange_divided *exchange;
    ct_divided_window window;
    ct_whole_nets whole;
    ct_sharded_net *sharded; /* [1 + n_test]: the train net's first */
    ct_rank_net *net;        /* likewise                            */
    const Ct__NetParameter **test;
    ct_schedule_item *item;
    ct_group_mpi group_mpi[2]; /* behind sums_of */
    ct_rank_sums sums_of[2];   /* of a net that is only tested: ct_exec.sums_of */
    ct_division division;      /* for ct_solver_options */
} ct_job_division;

/** Binds p to the solver's train net, whose message is `param`. Fills in what `options` say of the
 * division but for the window: nets, environment, exchange. p, options->param and the job outlive
 * it; the job is connected. Collective. CT_ERR_CONFIG, CT_ERR_LAUNCH. */
ct_status ct_job_division_open(ct_job *job, ct_parallel *p, const Ct__NetParameter *param,
                               ct_solver_options *options, ct_job_division **d_p);
/** The same for one net, of the phase that options have: they and *param_p become this rank's. Its
 *  exec is to be filled by ct_job_division_fill_exec(). Whoever runs the net keeps the message that
 *  *param_p was. Collective. */
ct_status ct_job_division_open_net(ct_job *job, ct_parallel *p, const Ct__SolverParameter *solver,
                                   const Ct__NetParameter **param_p, ct_net_options *options,
                                   ct_job_division **d_p);
/** What a plan of memory asks of it, and what plans one: options of d's nets, with the division. */
ct_memory_groups ct_job_division_memory(ct_job_division *d);
/** The train net's window, as `memory` of the solver says now. NULL: gradients and weights have
 *  memory of their own. */
const ct_net_window *ct_job_division_window(ct_job_division *d, const ct_device *dev);
void ct_job_division_fill_exec(const ct_job_division *d, ct_exec *ex);
/** The exchange of this rank's net of TRAIN: fits ct_solver_options.open_exchange, with the
 * division as ctx. Collective. */
ct_status ct_job_division_open_exchange(void *ctx, ct_net *net, ct_exchange *out);
/** After the solver or the net. NULL allowed. Collective. */
void ct_job_division_close(ct_job_division *d);

#endif
