/** @file nccl.h  As much of NCCL as the sources here use, between processes of one host: sums in
 * the order of the ranks, through shared memory, made when the stream gets there. As NCCL's, they
 * can be captured. Only where CORTADO_EMULATED_NCCL is set. */
#ifndef CT_EMULATED_NCCL_H
#define CT_EMULATED_NCCL_H

#include <cuda_runtime.h>

typedef enum {
    ncclSuccess = 0,
    ncclInvalidArgument = 4,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclFloat = 7, ncclDouble = 8 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct ct_emulated_nccl *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_rank, ncclUniqueId id, int rank);
/** Ends the program where a graph that has sums of it is left: NCCL's would hang. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/** Ends what never would on this rank's device. All ranks must call it. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/** CORTADO_EMULATED_NCCL_FAIL=N: the N-th sum never ends, on any rank, and on this one this tells
 *  of it a tenth of a second later; "N silent": it tells of nothing, as where a rank of the same
 * node is gone. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t st);
ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t st);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t st);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t st);
ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t st);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
const char *ncclGetErrorString(ncclResult_t result);

/** Sums that were called so far, and communicators that were aborted. */
extern "C" int ct_emulated_sums(void);
extern "C" int ct_emulated_aborts(void);

#endif
