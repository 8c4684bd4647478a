/** @file scheduler.h  Which requests run in the next batch.
 *
 * A scheduler knows requests by their tokens alone. Its caller says what time it is, runs the
 * batches that it gets, and tells how long they took. So it has no threads and no clock of its own,
 * and whoever shares it holds a lock.
 *
 * A request is of one of two kinds:
 *
 *   whole      all its tokens in one batch: embeddings, classes
 *   sequence   a prompt in chunks over several batches, then a token a batch, each given by the
 *              one before: completions. From its first chunk on it holds room in the cache for all
 *              that it may become, so that it never has to give way in between.
 *
 * Policy PACKED puts requests side by side without padding. A batch has at most `budget` tokens,
 * by default the knee of the measured cost; then one of 16 may have twice as many, so that the
 * table learns of them. Steps of sequences come first, then what arrived first;
 * later ones fill what is left. PADDED pads the requests of a batch to the longest of them: groups
 * of least total time (batch_cost.h), found again for each batch, of which the one with the oldest
 * request runs.
 *
 * What arrived first is in the next batch in any case, so nothing starves. A chunk takes half of
 * what is free while others wait. All steps are in each batch, which only a whole request makes
 * longer than the budget, so where there are sequences alone a token follows the one before within
 * the time of one batch. Where a net cannot run chunks and steps in one pass (`mixed` false), they
 * take turns, and it is two.
 *
 * A batch that others' next tokens wait for has a limit of time, too, whatever the budget has
 * become: that of the knee for chunks, which is less than the budget. It is at most 8 times that of
 * the steps alone, and at least twice, so that prompts get on. What is expected of a chunk counts
 * the tokens behind which it runs (batch_cost.h). Where the options say the budget, its time is
 * the limit.
 *
 * A sequence grows on one replica, which has its cache. What came first is given to a replica that
 * has room for it, and holds that room from then on; only then the next is given to one. Of several
 * replicas it gets the one with the least to do: what is left of the prompts there, the sequences
 * there, and what the replica's cache lacks of its own prompt. Each replica then begins its own.
 */
#ifndef CT_SCHEDULER_H
#define CT_SCHEDULER_H

#include <stdbool.h>

#include "serve/schedule/batch_cost.h"

/** Over the time in which a request is expected to end, this share must be left for its reply, or
 * it is refused. With none a percent of replies under overload came a millisecond late. */
#define CT_REPLY_SHARE (1.0 / 16)

typedef enum { CT_POLICY_PACKED, CT_POLICY_PADDED } ct_policy;

typedef struct ct_scheduler_options {
    ct_policy policy;
    int most_waiting;     /* requests that have not begun, >= 1                              */
    int most_count;       /* requests of a batch, steps left out, >= 1                       */
    int most_sequences;   /* of a replica, not ended; 0: the net makes none                  */
    int64_t most_tokens;  /* of a batch: what the net was planned for                        */
    int64_t budget;       /* tokens of a batch; 0: the knee, or, PADDED, what the net was
                           * planned for. At least 2 most_sequences                          */
    int64_t cache_tokens; /* of a replica, for keys and values; 0 with most_sequences 0      */
    double max_wait_s;    /* how long to wait for a fuller batch; 0: run what is there       */
    bool mixed;           /* one pass may have chunks and steps                              */
    int64_t page_tokens;  /* room in the cache is taken in pages of so many; 0: single tokens */
    /** A sequence begins on a replica: how many tokens of its prompt the cache there has already,
     *  so that its first chunk begins behind them, less than all; or CT_BEGIN_LATER,
     *  CT_BEGIN_FAILED. NULL: 0. */
    int64_t (*begin)(void *ctx, void *what, int replica);
    /** How many it would be, were it to begin there now. NULL: 0. */
    int64_t (*peek)(void *ctx, void *what, int replica);
    void *ctx;
} ct_scheduler_options;

enum { CT_BEGIN_LATER = -1, CT_BEGIN_FAILED = -2 };

typedef struct ct_request {
    int64_t tokens;    /* >= 1: a sequence's prompt, or all                               */
    int64_t most_new;  /* tokens that a sequence makes at most; 0: a whole request        */
    double deadline_s; /* by the caller's clock; INFINITY: none                           */
    void *what;        /* the caller's                                                    */
    int64_t samples;   /* PADDED: of one length each, that its tokens are; 0: it is one   */
} ct_request;

/** Of a request, until ct_scheduler_take_ended() gave it back; then of none. */
typedef int64_t ct_request_id;

typedef enum {
    CT_ADMITTED,
    CT_REFUSED_FULL,    /* as many wait as may                                            */
    CT_REFUSED_LATE,    /* by what is in front of it, what is expected of it, and how far
                         * such expectations were off of late (outlook.h), it would miss
                         * its deadline                                                   */
    CT_REFUSED_LONG,    /* more tokens than a batch, or the cache, may ever have          */
    CT_REFUSED_DRAINING /* ct_scheduler_drain()                                           */
} ct_admission;

typedef enum {
    CT_OUTCOME_DONE,
    CT_OUTCOME_EXPIRED,
    CT_OUTCOME_CANCELLED,
    CT_OUTCOME_FAILED
} ct_outcome;

/** What of a request is in a batch. */
typedef struct ct_slice {
    ct_request_id id;
    void *what;
    int64_t first, n; /* which of its tokens, those that it made counted on                  */
    bool step;        /* one token that the batch before made                                */
    bool last;        /* the end of the prompt, or a step: gives a new token                 */
    bool ended;       /* the caller's word after the batch: that token ends the sequence     */
    bool failed;      /* … or the request failed, and no other                               */
} ct_slice;

typedef struct ct_serve_batch {
    ct_slice *slice;
    int n, n_step;
    int replica;    /* that is to run it: the caller's word before ct_scheduler_next() */
    int64_t tokens; /* that the pass computes, padding counted                         */
    int64_t length; /* PADDED: of each sample                                          */
    int64_t behind; /* tokens that chunks look back on, of each of their tokens        */
    double start_s, expected_s;
} ct_serve_batch;

typedef struct ct_scheduler_stats {
    int64_t admitted, refused[CT_REFUSED_DRAINING + 1], ended[CT_OUTCOME_FAILED + 1];
    int64_t batches, tokens, padding; /* run so far; of `tokens`, those that are padding      */
    int64_t prompt, cached, made;     /* tokens of prompts that began, of them those that the
                                       * cache had, and new ones                              */
    int waiting, sequences;           /* now                                                  */
    int64_t budget, cache_taken;      /* now                                                  */
} ct_scheduler_stats;

/** Of a replica, now. */
typedef struct ct_replica_load {
    int sequences;       /* that have begun there                                      */
    int64_t cache_taken; /* tokens that they hold                                      */
} ct_replica_load;

typedef struct ct_scheduler ct_scheduler;

/** The costs are copied, and refined as batches run. CT_ERR_CONFIG, logged: options that do not go
 *  together. */
ct_status ct_scheduler_create(const ct_scheduler_options *options, const ct_batch_cost *cost,
                              ct_scheduler **s_p);
void ct_scheduler_destroy(ct_scheduler *s); /* NULL allowed */

/** So many batches may run at once, each on its own replica of the net, 0 to n - 1; 1 before that
 * is said. What waits is then shared out among the replicas that are free. Before the first
 * request. CT_ERR_NOMEM, logged. */
ct_status ct_scheduler_run_at_once(ct_scheduler *s, int n);

/** n requests that belong together: all of them wait from now on, or none. id: of each. */
ct_admission ct_scheduler_admit(ct_scheduler *s, const ct_request *request, int n, double now,
                                ct_request_id *id);
/** How many have not begun. */
int ct_scheduler_waiting(const ct_scheduler *s);
/** What one more request of a single token would get, without admitting it. One that is refused
 *  counts as such: larger ones would be, too, and need not be read. */
ct_admission ct_scheduler_foresee(ct_scheduler *s, double deadline_s, double now);
/** Seconds until what waits or has begun has ended, as the costs say: sequences with as many tokens
 *  as such have made of late (outlook.h). */
double ct_scheduler_backlog_s(ct_scheduler *s, double now);
/** One that is in a batch ends with it. An id of none is left alone. */
void ct_scheduler_cancel(ct_scheduler *s, ct_request_id id);
/** Nothing is admitted any more. */
void ct_scheduler_drain(ct_scheduler *s);
/** Nothing waits, has begun, or is still to be taken. */
bool ct_scheduler_is_idle(const ct_scheduler *s);

/** A batch for ct_scheduler_next(); several may run at once. */
ct_status ct_serve_batch_create(const ct_scheduler *s, ct_serve_batch **batch_p);
void ct_serve_batch_destroy(ct_serve_batch *b); /* NULL allowed */
/** Fills the batch for its replica: true. False: nothing is to be done before *wake_p, unless a
 * request comes; INFINITY: at no time. Requests end that can no longer keep their deadline. */
bool ct_scheduler_next(ct_scheduler *s, double now, ct_serve_batch *b, double *wake_p);
/** The batch ran until `now`, or failed: then each of its requests ends so. */
void ct_scheduler_finish(ct_scheduler *s, const ct_serve_batch *b, double now, bool failed);
/** A request that ended; false: no more. Its id is of none from now on. */
bool ct_scheduler_take_ended(ct_scheduler *s, void **what_p, ct_outcome *outcome_p);

const ct_batch_cost *ct_scheduler_cost(const ct_scheduler *s);
void ct_scheduler_read_stats(const ct_scheduler *s, ct_scheduler_stats *stats);
void ct_scheduler_read_replica(const ct_scheduler *s, int replica, ct_replica_load *load);
/** Sequences that were given to replicas so far: where it grew, one that sleeps may have work. */
int64_t ct_scheduler_given(const ct_scheduler *s);
/** Those of a replica that are in no batch. */
int ct_scheduler_due(const ct_scheduler *s, int replica);

#endif
