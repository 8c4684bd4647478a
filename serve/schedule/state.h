/** @file state.h  What a scheduler knows, for its own files alone.
 *
 * Each request has a slot, in one state and in the list of that state. What is done with them has a
 * file each:
 *
 *     state.c      slots, their lists, how a request ends
 *     batch.c      a batch, how many tokens it may have and what it is expected to take
 *     admission.c  who is let in, by what is in front of it
 *     placement.c  which replica has which sequence
 *     packed.c     what goes side by side into a packed batch, and chunks of prompts beside steps
 *     padded.c     which requests are padded to one length
 *     scheduler.c  when a batch runs, and what it did to its requests
 */
#ifndef CT_SCHEDULER_STATE_H
#define CT_SCHEDULER_STATE_H

#include "serve/schedule/outlook.h"
#include "serve/schedule/scheduler.h"

typedef enum ct_slot_state {
    CT_SLOT_FREE,
    CT_SLOT_WAITING, /* in `waiting`, no token has run   */
    CT_SLOT_WHOLE,   /* in the batch with all its tokens */
    CT_SLOT_PROMPT,  /* in `begun`, holds cache          */
    CT_SLOT_STEPS,   /* … and its prompt has run         */
    CT_SLOT_ENDED    /* in `ended`, until it is taken    */
} ct_slot_state;

enum { CT_NO_REPLICA = -1 };

typedef struct ct_slot {
    ct_request request;
    ct_slot_state state;
    ct_outcome outcome;
    bool running, cancelled;
    int64_t run, made; /* tokens that have run, or that its replica is thought to have; new ones */
    double arrival_s;
    ct_outlook expected; /* when it came */
    int replica;         /* a sequence's, from when it is given to one */
    int64_t turn;        /* counts up with every use of the slot */
} ct_slot;

/** Slots in the order in which they came. */
typedef struct ct_slot_list {
    int *at, n;
} ct_slot_list;

/** The sequences that were given to a replica, begun or not. */
typedef struct ct_given {
    int n, n_running;
    int64_t cache;  /* tokens that they hold               */
    int64_t prompt; /* of their prompts, that have not run */
    bool turn_of_steps;
} ct_given;

struct ct_scheduler {
    ct_scheduler_options o;
    ct_batch_cost cost;
    int n_slot;
    ct_slot *slot;
    ct_slot_list unused, waiting, begun, ended;
    ct_given *replica; /* [at_once] */
    int64_t n_given;
    int at_once, n_running; /* batches: that may run, and do                    */
    double sum_ends;        /* of those that run: when they end, as the costs say */
    ct_growth growth;
    ct_lateness late[2]; /* of whole requests, of sequences */
    bool draining;
    ct_scheduler_stats stats;
    /* PADDED: waiting requests by length, and room for ct_group_lengths() */
    int *order, *from, *end;
    int64_t *length, *samples;
    double *best;
};

/* ---- state.c */

void ct_slot_list_put(ct_slot_list *list, int i);
/** In the order of arrival. */
void ct_slot_list_put_in_order(ct_scheduler *s, ct_slot_list *list, int i);
void ct_slot_list_take_out(ct_slot_list *list, int i);
bool ct_slot_is_sequence(const ct_slot *r);
bool ct_slot_has_begun(const ct_slot *r);
/** What of it must still run before it gives something. */
int64_t ct_slot_rest(const ct_slot *r);
/** What it takes of the cache, in whole pages. */
int64_t ct_slot_cache(const ct_scheduler *s, const ct_request *r);
void ct_scheduler_end(ct_scheduler *s, int i, ct_outcome outcome);

/* ---- batch.c */

/** The next n tokens of a request. */
void ct_serve_batch_add(ct_scheduler *s, ct_serve_batch *b, int i, int64_t n, bool step);
int64_t ct_scheduler_budget(const ct_scheduler *s);
/** Of a batch of so many tokens; `behind` as of ct_serve_batch. */
double ct_scheduler_expect_s(const ct_scheduler *s, int64_t tokens, int64_t behind);

/* ---- admission.c */

/** A request is over, or too late: what that says of others' outlooks. */
void ct_scheduler_learn(ct_scheduler *s, const ct_slot *r, double now);

/* ---- placement.c */

/** Gives waiting sequences to replicas, as long as there is room for the first of them. */
void ct_scheduler_give(ct_scheduler *s);
/** One that was given to a replica begins there. False: not now, or it failed. */
bool ct_scheduler_begin(ct_scheduler *s, int i);

/* ---- packed.c, padded.c: fill a batch from what waits and has begun */

void ct_scheduler_fill_packed(ct_scheduler *s, ct_serve_batch *b, double now);
void ct_scheduler_fill_padded(ct_scheduler *s, ct_serve_batch *b, double now);

#endif
