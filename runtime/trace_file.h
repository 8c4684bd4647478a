/** @file trace_file.h  --trace=FILE: the spans of all ranks in one file of Chrome's trace format.
 *
 * chrome://tracing and ui.perfetto.dev read it: a process a rank, its steps in one row, gradients
 * on their way in the rows below. The ranks' clocks are laid over rank 0's.
 */
#ifndef CT_TRACE_FILE_H
#define CT_TRACE_FILE_H

#include "comm/collective/blocking.h"
#include "framework/base/trace.h"
#include "framework/net/net.h"
#include "runtime/call.h"

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
/** Room for the window's iterations of that net; nothing where f is NULL or empty. A window that
 *  nobody gave begins after the n_trial steps in which the exchange tries things out, or, in a run
 *  too short for that, with it. CT_ERR_CONFIG where the window is too long to be kept in memory. */
ct_status ct_trace_file_reserve(ct_trace_file *f, const ct_net *net,
                                const Ct__SolverParameter *param, int n_trial);
/** Compares the clocks again, and writes; while the net's and the exchange's names are there.
 *  Collective. CT_ERR_IO on all ranks. */
ct_status ct_trace_file_write(ct_trace_file *f);
void ct_trace_file_close(ct_trace_file *f);

#endif
