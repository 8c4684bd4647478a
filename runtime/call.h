/** @file call.h  What a verb of `cortado` was called with, and what every job begins with: its
 * settings, device, net and plan of engines. */
#ifndef CT_CALL_H
#define CT_CALL_H

#include "comm/collective/blocking.h"
#include "framework/base/json_writer.h"
#include "framework/base/option.h"
#include "framework/base/trace.h"
#include "framework/data/absent/absent_shapes.h"
#include "framework/net/engine_plan.h"
#include "framework/net/net.h"
#include "runtime/config/config.h"
#include "runtime/job.h"

/** What every verb finds. */
typedef struct ct_call {
    int argc; /* argv[0] is the verb; for verbs that read their arguments themselves */
    char **argv;
    char **full_argv; /* the whole command line */
    int full_argc;
    ct_options *options; /* NULL for those                                */
    ct_job *job;         /* NULL for verbs that run without MPI */
    bool told; /* out: a program that the verb runs has said why it fails; for those without MPI */
} ct_call;

/** Rank 0 reads the files and applies the options, the others receive the result; then the log
 *  (--log), the header's first lines, the threads. Collective. */
ct_status ct_call_setup(ct_call *call, ct_phase phase, ct_config *c);
/** Rank 0's config to the other ranks. Collective. */
ct_status ct_config_share(ct_job *job, ct_config *c);
/** ct_job_connect() with the config's topology. Collective. */
ct_status ct_call_connect(ct_call *call, const ct_config *c);
/** The device of the config's solver_mode. */
ct_status ct_call_device(const ct_call *call, const ct_config *c, const ct_device **dev_p);
/** `"version":…,"host":…`: members of a JSON object that tell where a run came from: versions,
 *  compiler, libraries, command line, host, ranks, threads, job id, effective config. */
void ct_call_provenance(const ct_call *call, const ct_config *c, ct_json_writer *w);

/* ---- nets for the verbs that have no solver: test, time, check */

#define CT_MAX_STAGE 16

typedef struct ct_net_state { /* --level and --stage, and the memory they need */
    char text[256];
    const char *stage[CT_MAX_STAGE];
    int n_stage, level;
} ct_net_state;

ct_status ct_net_state_read(const ct_options *o, ct_net_state *state);
/** The options of a net of that phase, as config and job have it; state must outlive the net. */
void ct_net_options_fill(const ct_call *call, const ct_config *c, ct_phase phase,
                         const ct_net_state *state, ct_net_options *out);
/** An exec context for it; sum_ranks is the sum over the job's data group, where that has several
 * ranks. */
void ct_exec_fill(const ct_call *call, const ct_net *net, ct_exec *ex);

/** Tops that are stored in 16 bits; and all there are. */
int ct_precision_tops(const ct_net *net, int *all_p);
/** As what: "bf16" or "f16"; static. */
const char *ct_precision_stored(const ct_net *net);
/** What the solver's precision means on this processor: "F32", or "BF16: …"; static. */
const char *ct_precision_text(const ct_net *net);

/** What stands in a column of the per-layer tables. */
int64_t ct_net_layer_params(const ct_net *net, int layer);

/* ---- --data_shape: what samples look like whose source is not there: data_shapes.c */

/** What the option gives; zero-initialise. */
typedef struct ct_data_shapes {
    ct_given_shape *given; /* names are the option's text */
    int n;
} ct_data_shapes;

/** Reads --data_shape=[NAME:]C,H,W, of which one may have several, separated by commas. The sizes
 *  of one shape are separated by commas or 'x'. o outlives *d. CT_ERR_CONFIG. */
ct_status ct_data_shapes_read(const ct_options *o, ct_data_shapes *d);
/** ct_absent_shapes_fill() with these; before each net that is made. */
ct_status ct_data_shapes_fill(const ct_data_shapes *d, const ct_net_options *o,
                              Ct__NetParameter *net);
/** The layers of this net may be meant by names. */
void ct_data_shapes_meet(const ct_data_shapes *d, const Ct__NetParameter *net);
/** When all nets are known: CT_ERR_CONFIG, logged, where no data layer has a name that was given.
 */
ct_status ct_data_shapes_check_names(const ct_data_shapes *d);
void ct_data_shapes_destroy(ct_data_shapes *d); /* zeroed allowed */

/* ---- the plan of engines that a verb's options and a snapshot ask for */

/** "model name" of the first processor, as Linux tells it, or "unknown". */
void ct_cpu_name(char *text, size_t size);

/** What rows hold for. With a GPU its name stands in place of the processor's: that of the first,
 * as nodes have equal ones. */
void ct_call_plan_machine(int n_thread, bool gpu, ct_engine_plan_machine *m);

/** snapshot: the .solverstate.h5 that the run goes on from, NULL: none. Its rows come first, then
 *  those of --plan=FILE, which need not be there unless the run is deterministic. What is in
 * neither is timed, with --plan and not deterministic, or taken by the static rules. survey:
 * everything is timed, and without --plan the static rules decide. *plan_p: NULL where nothing was
 * asked for. Collective. */
ct_status ct_call_plan_open(ct_call *call, const ct_config *c, const char *snapshot, bool survey,
                            ct_engine_plan **plan_p);
/** After the nets are made: tells what came of it and completes FILE. Collective. */
ct_status ct_call_plan_close(ct_call *call, const ct_config *c, ct_engine_plan *plan);

/* ---- `cortado info --topology[=SPEC|FILE|NAME]`: show_topology.c */

/** True where `info --topology` runs in a job that a launcher started, so that MPI has a word. */
bool ct_show_topology_in_job(int argc, char *const *argv);
/** Draws the machine that is named or, in a job, the job's tree; rank 0 prints. Collective in a
 * job. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_show_topology(const ct_call *call, const char *topology);

/* ---- --trace=FILE: the spans of all ranks in one file of Chrome's trace format.
 *
 * chrome://tracing and ui.perfetto.dev read it: a process a rank, its steps in one row, gradients
 * on their way in the rows below. The ranks' clocks are laid over rank 0's.
 */

typedef struct ct_trace_file {
    const char *path; /* NULL: no trace is wanted; the rest is empty then */
    ct_job *job;
    ct_trace *trace;
    ct_clock_offset first; /* of the clocks, at the start */
    const char *coding;    /* what compression did, JSON members; borrowed; NULL, "": nothing */
} ct_trace_file;

/** Reads --trace and --trace_iterations, tries the file on rank 0 and compares the clocks. The job
 *  is connected. Collective. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_trace_file_open(const ct_call *call, ct_trace_file *f);
/** Room for the window's iterations of that net, which is whole or a rank's part of `whole`;
 * nothing where f is NULL or empty. A window that nobody gave begins after the n_trial steps in
 * which the exchange tries things out, or, in a run too short for that, with it. CT_ERR_CONFIG
 * where the window is too long to be kept in memory. */
ct_status ct_trace_file_reserve(ct_trace_file *f, const ct_net *net, const ct_net *whole,
                                const Ct__SolverParameter *param, int n_trial);
/** The same for a net that runs forward alone: a window that nobody gave begins with the first run,
 *  which is 0. f may be empty. */
ct_status ct_trace_file_reserve_forward(ct_trace_file *f, const ct_net *net);
/** Compares the clocks again, and writes; while the net's and the exchange's names are there.
 *  Collective. CT_ERR_IO on all ranks. */
ct_status ct_trace_file_write(ct_trace_file *f);
void ct_trace_file_close(ct_trace_file *f);

#endif
