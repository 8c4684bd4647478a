/** @file whole.h  Arrays of which ranks have parts, as rank 0 reaches them: whole.
 *
 * Rank 0 of a group reads and writes files. It works on storages that are as long as the whole
 * arrays. A range that it wants comes from the ranks that have parts of it. One that it gives back
 * goes to all that do. The others answer until it is done. Nobody needs more room than for two
 * ranges. Who has what is the answer's business (parts.h, shards.h).
 *
 * Rank 0 works in its main thread (ct_whole_run()), or in another one while all main threads do
 * something else (ct_whole_open()). These then answer from time to time, together.
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

/** own: this rank's storages. data: on rank 0 what it wants or gives, on the others room.
 *  Collective. */
typedef ct_status (*ct_whole_answer)(const void *who, ct_storage *const *own, const ct_whole_ask *a,
                                     float *data);
typedef ct_status (*ct_whole_work)(void *ctx, ct_storage *whole);

/** Arrays of `count` floats, and who has what of them; borrowed. */
typedef struct ct_whole_source {
    const ct_group *g;
    int64_t count;
    ct_whole_answer answer;
    const void *who;
} ct_whole_source;

/** Rank 0 calls work with n storages, of which the ranks have own[n]; the others call answer, as it
 *  does, for what it reaches for. The worst status of all. Collective. */
ct_status ct_whole_run(const ct_whole_source *source, ct_storage *const *own, int n,
                       ct_whole_work work, void *ctx);

/** A run whose work is done by a thread of rank 0. */
typedef struct ct_whole ct_whole;
/** own[n] stays until it is closed. Collective. */
ct_status ct_whole_open(const ct_whole_source *source, ct_storage *const *own, int n,
                        ct_whole **w_p);
/** Rank 0: what its thread works on. */
ct_storage *ct_whole_storages(ct_whole *w);
/** Rank 0's thread is done with them. */
void ct_whole_leave(ct_whole *w);
/** Rank 0: its thread waits for an answer. */
bool ct_whole_is_asked(ct_whole *w);
/** Answers what the thread asks for, for so long at most, or, with INFINITY, until it has left. An
 *  answer that has begun is given. Collective, from the main threads. */
ct_status ct_whole_serve(ct_whole *w, double seconds);
/** From now on the thread gets CT_STOPPED for an answer. */
void ct_whole_stop(ct_whole *w);
/** The first error of this rank that was noted. */
ct_status ct_whole_status(const ct_whole *w);
/** The thread is gone. NULL allowed. */
void ct_whole_close(ct_whole *w);

#endif
