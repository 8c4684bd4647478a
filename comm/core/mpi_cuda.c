/* Asked, never assumed: an MPI that cannot would read the address as the host's. */
#include "comm/core/mpi_cuda.h"

#include <mpi.h>

/* Open MPI's and MPICH's way to ask; a simulator's MPI has no such header. */
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

const char *ct_mpi_takes_cuda(void)
{
#ifdef MPIX_CUDA_AWARE_SUPPORT
    return (MPIX_Query_cuda_support() != 0) ? "yes" : "no";
#else
    return "it does not say";
#endif
}
