/** @file divided_net.h  A served net that several ranks run together, by a parallel file: what
 * serve/net asks of a division, over MPI.
 *
 * A file for N ranks divides a job of N, or each of its groups of N ranks, one behind the other.
 * Each opened net has a division of its own, so a net with other weights may be opened beside the
 * one that runs.
 */
#ifndef CT_RUNTIME_DIVIDED_NET_H
#define CT_RUNTIME_DIVIDED_NET_H

#include "runtime/division/division.h"
#include "serve/net/deployed.h"

typedef struct ct_divided_net {
    ct_job *job;
    const char *file; /* borrowed */
    int tensor;       /* of "tensor:N" in place of a file: it is made for each net; 0: a file */
    char *text;       /* of the file */
    size_t size;
    int n_rank;    /* of a group                                                      */
    ct_comm *comm; /* of this rank's group, for its nets alone                        */
    ct_job group;  /* what a division takes for the job: the ranks of that group      */
    /** Where another rank of the group fails this one logs what it said: for a job that goes on all
     * the same. Else the rank is heard when the job ends. */
    bool repeats;
    ct_deployed_division served; /* for ct_deployed_options.division */
} ct_divided_net;

/** file: a parallel file, which rank 0 reads, or "tensor:N" (ct_tensor_file_write()). groups: the
 * job may have a multiple of its ranks. n_p stays where it is until it is closed, behind its nets.
 * Collective over the job, which is connected; opens, loads, runs and closes of nets are collective
 * over a group. CT_ERR_CONFIG, CT_ERR_IO; CT_ERR_LAUNCH where the job has other ranks than the
 * file, CT_ERR_CONFIG where it has no multiple. */
ct_status ct_divided_net_open(ct_job *job, const char *file, bool groups, ct_divided_net *n_p);
void ct_divided_net_close(ct_divided_net *n); /* zeroed ones too */

#endif
