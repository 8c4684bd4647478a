/** @file job_memory.h  Where a job keeps weights and states, as its solver's `memory` says.
 */
#ifndef CT_JOB_MEMORY_H
#define CT_JOB_MEMORY_H

#include "comm/core/comm.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/tensor/storage_file.h"
#include "framework/tensor/storage_ring.h"

typedef struct ct_job_memory {
    char *folder; /* of files; NULL: there are none */
    ct_io *io;
    ct_storage_files files;
    ct_storage_rings rings;
    /* of the solver; NULL: in memory of the device, or of the host that updates */
    ct_storage_open_fn open_state, open_weights;
    void *open_state_ctx, *open_weights_ctx;
    bool on_host;       /* ct_solver_options.on_host */
    int64_t host_piece; /* likewise */
    char why[160];      /* … or not: what was measured; empty: nobody asked */
} ct_job_memory;

/** What a job asks for. */
typedef struct ct_job_memory_ask {
    const Ct__SolverParameter *param;
    const char *stage; /* the folder of --stage, NULL: not given */
    const ct_device *dev;
    ct_comm *comm; /* the replicas; they all decide alike */
    bool divided;  /* among ranks, by --parallel */
} ct_job_memory_ask;

/** Where files lie. stage: as above. Borrowed from what is there. */
const char *ct_job_memory_folder(const Ct__MemoryParameter *p, const char *stage);
/** Of files as `memory` says: chunk, ahead and checksum; the rest is empty. */
ct_storage_files ct_job_memory_files(const Ct__MemoryParameter *p);
/** Collective. CT_ERR_CONFIG, CT_ERR_NOMEM. */
ct_status ct_job_memory_open(const ct_job_memory_ask *ask, ct_job_memory *m);
/** After the solver is gone; zeroed ones too. */
void ct_job_memory_close(ct_job_memory *m);
/** Says what lies where, once storages are open. */
void ct_job_memory_tell(const ct_job_memory *m);
/** Says what was moved so far, and how long the job waited for it. */
void ct_job_memory_tell_moved(const ct_job_memory *m);

#endif
