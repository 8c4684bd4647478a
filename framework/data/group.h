/** @file group.h  How the ranks of a job read data together; filled by the verb, over MPI.
 *
 * framework/ and layers/ know no MPI, so what data layers need of the other ranks is here: who else
 * is on this node, memory that they share, and one agreement. All calls come from the main thread
 * while nets are made, reshaped and destroyed, in the same order on all ranks.
 */
#ifndef CT_GROUP_H
#define CT_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/exchange/group.h"

typedef struct ct_data_group {
    ct_group data;     /* the ranks that share a batch: this one's part of it is its rank's  */
    ct_group node;     /* those of them on this node; its rank 0 reads for the others        */
    const int *member; /* [node.size] their ranks in `data`                                  */
    bool one_reader;   /* solver's node_reader: else every rank reads for itself   */
    int64_t room;      /* bytes of records of a step; 0: enough for all but unusual ones */
    const char *stage; /* --stage: the folder of node-local copies; NULL: none     */
    bool copies;       /* this rank copies for its host                            */
    /** Collective: CT_OK where all ranks say CT_OK; else the status of the first that does not, and
     *  a line on every other rank that says which one failed, and how: its last logged error. */
    ct_status (*agree)(void *ctx, ct_status mine);
    /** `bytes` zeroed bytes that all ranks of the node have, mapped where each likes. Collective;
     *  CT_UNSUPPORTED, on all ranks alike, where they cannot be had. bytes may differ from node to
     *  node, and count on the node's rank 0 alone. */
    ct_status (*acquire)(void *ctx, size_t bytes, void **base_p, void **handle_p);
    void (*release)(void *ctx, void *handle); /* collective */
    void *ctx;
} ct_data_group;

/* ---- copies of data sets on a disk of the node: --stage=DIR.
 *
 * A copy is a folder DIR/NAME-HASH (of the source's full path) with the set's files and stage.txt,
 * which says what was copied: names, sizes, times of change. It is made under another name and
 * renamed when it is whole, and used again as long as the source is as it was.
 */

/** Whether sets of this backend are staged: LMDB, in shards too, and HDF5 files; lists stay. */
bool ct_stage_can(const char *backend, const char *source);
/** Where the copy of source is, or would be; freed by the caller. NULL: no such source, no memory.
 */
char *ct_stage_path(const char *stage, const char *source);
/** Copies source, unless an up-to-date copy is there. CT_ERR_IO: source not readable, no space, DIR
 *  not writable; logged, and nothing half-made is left. One process of a host calls it. */
ct_status ct_stage_make(const char *stage, const char *source, const char *who);

#endif
