/** @file job_file.h  What the step of a parallel file takes, as plans are judged.
 *
 * Files may be written by hand: stages with unlike replicas and tensor degrees, any splits, cuts
 * and segments within blocks, values that skip stages. So each stage is priced with its layers as
 * the file splits them (job_split.h), and simulated as the step of any plan.
 */
#ifndef CT_JOB_FILE_H
#define CT_JOB_FILE_H

#include "planner/job_plan.h"

/** The plan that a file is, its step simulated. file: bound to n->net, for the ranks of the
 * machine. zero: of its job. Seconds alone are told of its stages, no bytes. The caller destroys
 * it, also after errors. */
ct_status ct_job_file_plan(const ct_job_net *n, const ct_job_machine *m, const ct_parallel *file,
                           int zero, ct_job_plan *p);
/** Gives a plan the seconds of its file: those of the same stages, groups and zero. */
ct_status ct_job_file_price(const ct_job_net *n, const ct_job_machine *m, const ct_parallel *file,
                            ct_job_plan *p);

#endif
