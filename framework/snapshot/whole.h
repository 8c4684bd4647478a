/** @file whole.h  Arrays of which ranks have parts, as rank 0 reaches them: whole.
 *
 * Rank 0 of a group reads and writes files. It works on storages that are as long as the whole
 * arrays: a range that it wants comes from the ranks that have parts of it, and one that it gives
 * back goes to all that do. The others answer until it is done. Nobody needs more room than for two
 * ranges. Who has what is the answer's business (parts.h, shards.h).
 */
#ifndef CT_SNAPSHOT_WHOLE_H
#define CT_SNAPSHOT_WHOLE_H

#include "framework/exchange/group.h"
#include "framework/tensor/storage.h"

enum { CT_WHOLE_ARENAS = 8 }; /* of one run, at most */

/** What rank 0 reaches for: floats [from, from + count) of storage k, CT_STORAGE_CHUNK at most. */
typedef struct ct_whole_ask {
    bool fetch; /* it wants them; else it gives them back */
    int k;
    int64_t from, count;
    float *room;       /* [CT_STORAGE_CHUNK] of the rank's own */
    ct_status *status; /* ct_whole_note() */
} ct_whole_ask;

/** An error of this rank that the others need not wait for. The first is kept. */
void ct_whole_note(const ct_whole_ask *a, ct_status status);

/** data: on rank 0 what it wants or gives, on the others room. Collective. */
typedef ct_status (*ct_whole_answer)(void *ctx, const ct_whole_ask *a, float *data);
typedef ct_status (*ct_whole_work)(void *ctx, ct_storage *whole);

/** Rank 0 calls work with n storages of `count` floats; the others call answer, as it does, for
 *  what it reaches for. The worst status of all. Collective over g. */
ct_status ct_whole_run(const ct_group *g, int64_t count, int n, ct_whole_answer answer,
                       void *answer_ctx, ct_whole_work work, void *ctx);

#endif
