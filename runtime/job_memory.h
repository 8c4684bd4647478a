/** @file job_memory.h  Where a job keeps weights and states, as its solver's `memory` says.
 */
#ifndef CT_JOB_MEMORY_H
#define CT_JOB_MEMORY_H

#include "framework/proto/cortado.pb-c.h"
#include "framework/tensor/storage_file.h"

typedef struct ct_job_memory {
    char *folder; /* of files; NULL: there are none */
    ct_io *io;
    ct_storage_files files;
    ct_storage_open_fn open_state, open_weights; /* of the solver, with &files; NULL: in memory */
} ct_job_memory;

/** stage: the folder of --stage, NULL: not given. CT_ERR_CONFIG, CT_ERR_NOMEM. */
ct_status ct_job_memory_open(const Ct__SolverParameter *param, const char *stage, ct_job_memory *m);
/** After the solver is gone; zeroed ones too. */
void ct_job_memory_close(ct_job_memory *m);
/** Says what lies in files, once storages are open. */
void ct_job_memory_tell(const ct_job_memory *m);
/** Says what was moved so far, and how long the job waited for it. */
void ct_job_memory_tell_moved(const ct_job_memory *m);

#endif
