/** @file dispatch.h  From requests to batches of the model: a scheduler, its lock, and a thread for
 * each replica of the model that runs what it says.
 *
 * Replicas answer alike. Each has one batch at a time; of those that are free the first ones get
 * what waits. All have one table of costs, which batches of all of them refine: what is admitted
 * waits in one queue, and nobody knows yet which replica will take it. A sequence stays on the one
 * that it was given to.
 */
#ifndef CT_DISPATCH_H
#define CT_DISPATCH_H

#include "serve/api/model.h"
#include "serve/schedule/scheduler.h"

/** Works that are answered together. */
typedef struct ct_work_set {
    ct_work *work;
    int n;
    /** Called once all of them have ended, from one of the dispatcher's threads, with no lock held.
     */
    void (*done)(void *ctx);
    void *ctx;
    ct_outcome outcome; /* the worst of theirs */
    /* the dispatcher's */
    ct_request_id *id;
    void *tickets;
    int n_left;
    struct ct_work_set *next;
} ct_work_set;

typedef struct ct_dispatch ct_dispatch;

/** The model is borrowed. Nothing runs before ct_dispatch_start(). */
ct_status ct_dispatch_create(const ct_served_model *model, const ct_scheduler_options *options,
                             const ct_batch_cost *cost, ct_dispatch **d_p);
/** One more replica: what that model runs and its sequences, with ctx; borrowed; before
 *  ct_dispatch_start(). The first replica is the model of ct_dispatch_create(). */
ct_status ct_dispatch_add_replica(ct_dispatch *d, const ct_served_model *replica);
ct_status ct_dispatch_start(ct_dispatch *d);
/** Ends the threads; no set may be left. NULL allowed. */
void ct_dispatch_destroy(ct_dispatch *d);

/** Puts all works of the set into the queue, or none. deadline_s: from now on; INFINITY: none.
 *  *retry_p: where it is refused, the seconds after which the queue is likely to be empty. The set
 *  lives until `done`, which comes where it was admitted. CT_ERR_NOMEM, logged. */
ct_status ct_dispatch_submit(ct_dispatch *d, ct_work_set *set, double deadline_s,
                             ct_admission *admission_p, double *retry_p);
/** What the smallest request would get now, and *retry_p as above: ct_scheduler_foresee(). */
ct_admission ct_dispatch_foresee(ct_dispatch *d, double deadline_s, double *retry_p);
/** Nobody waits for it any more; `done` still comes. After `done` nothing happens. */
void ct_dispatch_cancel(ct_dispatch *d, const ct_work_set *set);
/** Runs one batch on the first replica, or nothing, in the caller's thread: tests without
 *  ct_dispatch_start(). */
void ct_dispatch_step(ct_dispatch *d);
/** Calls fn(ctx) while no batch runs on any replica; none begins before it returns. No lock is held
 *  meanwhile. */
void ct_dispatch_between(ct_dispatch *d, void (*fn)(void *ctx), void *ctx);
void ct_dispatch_drain(ct_dispatch *d);
bool ct_dispatch_is_idle(ct_dispatch *d);
void ct_dispatch_read_stats(ct_dispatch *d, ct_scheduler_stats *stats);

/** What one replica has done so far. */
typedef struct ct_replica_stats {
    int64_t batches, tokens, failed; /* of the batches: those that failed        */
    double busy_s;                   /* batches that are over                    */
    int64_t prompt, cached;          /* tokens of prompts that began, and of them those that the
                                      * cache had                                */
    int sequences;                   /* now                                      */
    int64_t cache_taken;             /* by them                                  */
} ct_replica_stats;

/** The costs as batches have refined them. */
void ct_dispatch_read_cost(ct_dispatch *d, ct_batch_cost *cost);

int ct_dispatch_replicas(const ct_dispatch *d);
void ct_dispatch_read_replica(ct_dispatch *d, int replica, ct_replica_stats *stats);

#endif
