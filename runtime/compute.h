/** @file compute.h  What a rank computes with: its threads, and the kernels of OpenBLAS.
 *
 * OMP_NUM_THREADS is respected. Without it, each core of the affinity masks is divided among the
 * ranks of the node that may run on it. So two ranks on a node of 32 cores get 16 threads each,
 * whether the launcher bound them or not.
 */
#ifndef CT_COMPUTE_H
#define CT_COMPUTE_H

#include <mpi.h>

#include "framework/base/option.h"
#include "framework/base/status.h"

typedef struct ct_threads {
    int n;            /* threads of this rank                                      */
    const char *from; /* "OMP_NUM_THREADS", "--threads", "affinity mask"           */
    int n_core;       /* cores this rank may run on                                */
    char cores[96];   /* "0-3,8"                                                   */
    bool too_many;    /* the node's ranks together run more threads than it has cores for them */
} ct_threads;

/** Decides and applies (OpenMP, and with it OpenBLAS). node: the ranks of this node, MPI_COMM_NULL:
 *  alone. wanted > 0 overrides all else. Collective over node. */
ct_status ct_threads_set(MPI_Comm node, int wanted, ct_threads *out);
/** Logs the map, one line each rank of rank 0's node, and warns where cores are oversubscribed.
 *  Collective over node. */
ct_status ct_threads_log(MPI_Comm node, const ct_threads *t);

/** Lets go of the team of the calling thread, when another one is to compute from here on. GNU's
 *  OpenMP counts the threads of all teams: where they are more than the cores, those that wait for
 *  work sleep at once, and each loop of the other team has to wake them. */
void ct_threads_release(void);

/* ---- OpenBLAS runs the kernels that the CPU deserves
 *
 * OpenBLAS chooses its kernels when the library loads, from the CPU's model number. A version older
 * than the CPU may fall back to SSE3 kernels, which are five times slower (0.3.21 of Debian 12 on
 * Xeons of 2023). The cure is OPENBLAS_CORETYPE in the environment, before the program starts: so
 * the program sets it and executes itself again, once.
 */

/** Called first in main. Where the user has OpenMP bind threads (OMP_PROC_BIND, OMP_PLACES), it has
 *  bound the first one to its place before main. What that starts would have this one place alone:
 *  the program that is executed again, threads of its own, and the count of cores. So the first
 *  thread gets all places back; a team's other threads stay bound. */
void ct_cores_keep(void);
/** Called behind it, before MPI starts. Returns where nothing is to be done, where it was done
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
