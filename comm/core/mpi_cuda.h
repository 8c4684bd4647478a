/** @file mpi_cuda.h  Whether this MPI says that it takes addresses on a CUDA device. */
#ifndef CT_COMM_MPI_CUDA_H
#define CT_COMM_MPI_CUDA_H

/** "yes", "no", or "it does not say"; static. */
const char *ct_mpi_takes_cuda(void);

#endif
