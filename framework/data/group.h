/** @file group.h  How the ranks of a job read data together; filled by the verb, over MPI.
 *
 * framework/ and layers/ know no MPI, so what data layers need of the other ranks is here: who else
 * is on this node, memory that they share, and one agreement. All calls come from the main thread
 * while nets are made, reshaped and destroyed, in the same order on all ranks.
 */
#ifndef CT_GROUP_H
#define CT_GROUP_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "framework/base/status.h"

typedef struct ct_data_group {
    int rank, n_rank;         /* of the job                                               */
    int node_rank, node_size; /* of this node; its rank 0 reads for the others            */
    const int *member;        /* [node_size] their ranks in the job                       */
    int n_node;
    bool one_reader;   /* solver's node_reader: else every rank reads for itself   */
    int64_t room;      /* bytes of records of a step; 0: enough for all but unusual ones */
    const char *stage; /* --stage: the folder of node-local copies; NULL: none     */
    bool copies;       /* this rank copies for its host                            */
    /** Collective: CT_OK where all ranks say CT_OK; else the status of the first that does not, and
     *  a line on every other rank that says which one failed, and how: its last logged error. */
    ct_status (*agree)(void *ctx, ct_status mine);
    /** Bytes of the node's rank 0 to the others of the node. Collective on the node. */
    ct_status (*share)(void *ctx, void *data, size_t size);
    /** `bytes` zeroed bytes that all ranks of the node have, mapped where each likes. Collective;
     *  CT_UNSUPPORTED, on all ranks alike, where they cannot be had. bytes may differ from node to
     *  node, and count on the node's rank 0 alone. */
    ct_status (*acquire)(void *ctx, size_t bytes, void **base_p, void **handle_p);
    void (*release)(void *ctx, void *handle); /* collective */
    void *ctx;
} ct_data_group;

#endif
