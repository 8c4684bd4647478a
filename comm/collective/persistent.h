/** @file persistent.h  A buffer that is summed again and again, and the collective it goes by:
 * which may change between two sums. Private to comm/.
 */
#ifndef CT_COLL_WAYS_H
#define CT_COLL_WAYS_H

#include "comm/collective/coll.h"

/** A collective prepared for the buffer. */
typedef struct ct_coll_way {
    const ct_coll_ops *ops;
    ct_coll_req req;
    struct ct_coll_way *next; /* of those that are closed */
} ct_coll_way;

typedef struct ct_coll_ways {
    ct_comm *comm; /* borrowed */
    void *buf;     /* likewise */
    int64_t count;
    ct_dtype dtype;
    int tag;
    _Atomic(ct_coll_way *) now; /* NULL: not prepared                                   */
    ct_coll_way *closed;        /* the watchdog may still look at them                  */
    int64_t sent_elsewhere;     /* bytes, by ways that it does not go now               */
} ct_coll_ways;

/** What `allreduce` says for count elements; deterministic: none that may add in another order in
 *  another run. CT_ERR_CONFIG. */
ct_status ct_coll_ways_choose(const ct_comm *c, int64_t count, ct_dtype dtype,
                              const char *allreduce, bool deterministic, const ct_coll_ops **ops_p);
/** For a sum that begins in `progress`, when ranks begin it in any order: not MPI's own, but the
 *  cheapest of ours where `auto` would take it. who names it. CT_ERR_CONFIG. */
ct_status ct_coll_ways_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype,
                                  const char *allreduce, const char *who,
                                  const ct_coll_ops **ops_p);
/** The members from comm to tag are set, the rest is zero. Collective, in one order on all ranks,
 *  as all but start, progress and the looks. */
ct_status ct_coll_ways_prepare(ct_coll_ways *w, const char *allreduce, bool deterministic);
void ct_coll_ways_release(ct_coll_ways *w); /* unprepared ones too */
/** Prepares another way for the same buffer. */
ct_status ct_coll_ways_open(ct_coll_ways *w, const ct_coll_ops *ops, ct_coll_way **way_p);
/** From now on it goes that way; *old_p is the caller's, to use later or to close. Between sums. */
void ct_coll_ways_go(ct_coll_ways *w, ct_coll_way *way, ct_coll_way **old_p);
/** Gives up a way that is not gone now. NULL allowed. */
void ct_coll_ways_close(ct_coll_ways *w, ct_coll_way *way);

ct_status ct_coll_ways_start(ct_coll_ways *w);
ct_status ct_coll_ways_progress(ct_coll_ways *w);
int ct_coll_ways_pending(ct_coll_ways *w, MPI_Request **out, int max);
/** The way it goes, from any thread; prepared ones only. */
ct_coll_where *ct_coll_ways_where(ct_coll_ways *w);
int64_t ct_coll_ways_bytes_sent(const ct_coll_ways *w);
double ct_coll_ways_predicted_s(const ct_coll_ways *w);

#endif
