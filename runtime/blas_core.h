/** @file blas_core.h  Makes sure that OpenBLAS runs the kernels that the CPU deserves.
 *
 * OpenBLAS chooses its kernels when the library loads, from the CPU's model number; a version older
 * than the CPU may fall back to SSE3 kernels, which are five times slower (0.3.21 of Debian 12 on
 * Xeons of 2023). The cure is OPENBLAS_CORETYPE in the environment, before the program starts:
 * so the program sets it and executes itself again, once.
 */
#ifndef CT_BLAS_CORE_H
#define CT_BLAS_CORE_H

#include "framework/base/status.h"

/** Called first in main, before MPI starts. Returns where nothing is to be done, where it was done
 *  before, where the user set OPENBLAS_CORETYPE; otherwise does not return. */
void ct_blas_core_ensure(char **argv);
/** One log line on what ct_blas_core_ensure did or could not do. After ct_log_init(). */
void ct_blas_core_log(void);
/** The name of the kernels in use. Static. */
const char *ct_blas_core_name(void);
/** The core to ask for on a CPU of `level` (0 SSE, 1 AVX, 2 AVX2 and FMA, 3 AVX-512) where OpenBLAS
 *  picked `core`; NULL: leave it. */
const char *ct_blas_core_better(const char *core, int level);

#endif
