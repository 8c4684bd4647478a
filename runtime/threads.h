/** @file threads.h  How many threads a rank computes with.
 *
 * OMP_NUM_THREADS is respected. Without it, each core of the affinity masks is divided among the
 * ranks of the node that may run on it, so two ranks on a node of 32 cores get 16 threads each,
 * whether the launcher bound them or not.
 */
#ifndef CT_THREADS_H
#define CT_THREADS_H

#include <mpi.h>

#include "framework/base/option.h"

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

#endif
