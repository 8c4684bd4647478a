/** @file persistent.h  A buffer that is summed again and again, or goes by a half of sums, and the
 * collective it goes by: which may change between two sums. Private to comm/.
 */
#ifndef CT_PERSISTENT_COLL_H
#define CT_PERSISTENT_COLL_H

#include "comm/collective/coll.h"

/** A collective prepared for the buffer. */
typedef struct ct_coll_candidate {
    const ct_coll_ops *ops;
    ct_coll_req req;
    struct ct_coll_candidate *next; /* of those that are closed */
} ct_coll_candidate;

typedef struct ct_persistent_coll {
    ct_comm *comm; /* borrowed */
    void *buf;     /* likewise */
    int64_t count;
    ct_dtype dtype;
    int tag;
    ct_coll_kind kind;                /* a reduce-scatter goes by the half of what `allreduce` says,
                                         an allgather by the cheapest                         */
    _Atomic(ct_coll_candidate *) now; /* NULL: not prepared                                   */
    ct_coll_candidate *closed;        /* the watchdog may still look at them                  */
    ct_sched_room room;               /* of all its ways, since it goes one at a time         */
    int64_t sent_elsewhere;           /* bytes, by ways that it does not go now               */
} ct_persistent_coll;

/** What `allreduce` says for count elements; deterministic: none that may add in another order in
 *  another run. CT_ERR_CONFIG. */
ct_status ct_persistent_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype,
                                    const char *allreduce, bool deterministic,
                                    const ct_coll_ops **ops_p);
/** For a sum that begins in `progress`, when ranks begin it in any order: not MPI's own, but the
 *  cheapest of ours where `auto` would take it. who names it. CT_ERR_CONFIG. */
ct_status ct_persistent_coll_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype,
                                        const char *allreduce, const char *who,
                                        const ct_coll_ops **ops_p);
/** What `allreduce` says for w's count, dtype and kind, which are read with comm. CT_ERR_CONFIG. */
ct_status ct_persistent_coll_find(const ct_persistent_coll *w, const char *allreduce,
                                  bool deterministic, const ct_coll_ops **ops_p);
/** The members from comm to kind are set, the rest is zero. Collective, in one order on all ranks,
 *  as all but start, progress and the looks. */
ct_status ct_persistent_coll_prepare(ct_persistent_coll *w, const char *allreduce,
                                     bool deterministic);
/** Adds what that takes of this rank (ct_coll_count()). Of w comm, count, dtype and kind are read.
 *  Local. */
ct_status ct_persistent_coll_count(const ct_persistent_coll *w, const char *allreduce,
                                   bool deterministic, ct_coll_size *size);
void ct_persistent_coll_release(ct_persistent_coll *w); /* unprepared ones too */
/** Prepares another way for the same buffer. Between sums, as nothing moves meanwhile. */
ct_status ct_persistent_coll_open(ct_persistent_coll *w, const ct_coll_ops *ops,
                                  ct_coll_candidate **way_p);
/** From now on it goes that way; *old_p is the caller's, to use later or to close. Between sums. */
void ct_persistent_coll_go(ct_persistent_coll *w, ct_coll_candidate *way,
                           ct_coll_candidate **old_p);
/** Gives up a way that is not gone now. NULL allowed. */
void ct_persistent_coll_close(ct_persistent_coll *w, ct_coll_candidate *way);

ct_status ct_persistent_coll_start(ct_persistent_coll *w);
ct_status ct_persistent_coll_progress(ct_persistent_coll *w);
int ct_persistent_coll_pending(ct_persistent_coll *w, MPI_Request **out, int max);
/** The way it goes, from any thread; prepared ones only. */
ct_coll_where *ct_persistent_coll_where(ct_persistent_coll *w);
int64_t ct_persistent_coll_bytes_sent(const ct_persistent_coll *w);
double ct_persistent_coll_predicted_s(const ct_persistent_coll *w);

#endif
