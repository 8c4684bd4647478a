/** @file feed_private.h  What the ranks of a node share, and where it lies: of feed.c, which every
 * rank runs, and feed_fetch.c, the threads of the node's rank 0. Private to framework/data. */
#ifndef CT_FEED_PRIVATE_H
#define CT_FEED_PRIVATE_H

#include <pthread.h>

#include "framework/base/memory.h"
#include "framework/data/feed.h"
#include "framework/data/loader.h"

enum { RUNS = 8, MAX_THREADS = 64 };

/* Steps [first, end) of a seed; end is known once a rank has left the run. */
typedef struct run {
    int64_t generation, next, end;
    uint64_t seed;
    bool failed; /* nothing is made behind a step that failed */
} run;

typedef enum { SLOT_NEW, SLOT_FILLING, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    int64_t generation, step;
    ct_status status;
    char text[600];
} slot;

/* The shared memory: this, then one `member` a rank, then the slots (each: slot, mark a rank, place
 * a sample, records). Ranks map it at different addresses, so it holds no pointers. */
typedef struct head {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t top, making; /* generations: the newest asked for; the one being made */
    run run[RUNS];       /* of generation g: run[g % RUNS]                        */
} head;

typedef struct member {
    int64_t generation; /* that this rank is in */
} member;

typedef struct mark { /* of a rank, on a slot */
    int busy;
    bool done;
} mark;

typedef struct place {
    int64_t offset; /* in the slot's records; -1: it did not fit */
    int64_t size;
} place;

struct ct_feed {
    ct_feed_options o;
    ct_share *share; /* [node_size] */
    int64_t *base;   /* [node_size] each rank's first place in a slot */
    int64_t n_sample, room;
    int n_slot;
    size_t mark_at, place_at, data_at, slot_bytes; /* in a slot */
    char *memory;                                  /* shared */
    void *handle;
    bool stop; /* this rank waits no more; under the lock */
    bool ended;
    pthread_t thread[MAX_THREADS];
    int n_thread;
};

/* ---- where things lie */

static inline head *head_of(const ct_feed *f)
{
    return (head *)(void *)f->memory;
}

static inline member *member_of(const ct_feed *f, int r)
{
    return (member *)(void *)(f->memory + ct_align_up(sizeof(head)) + (size_t)r * CT_ALIGN);
}

static inline char *slot_start(const ct_feed *f, int i)
{
    return f->memory + ct_align_up(sizeof(head)) + (size_t)f->o.group->node_size * CT_ALIGN +
           (size_t)i * f->slot_bytes;
}

static inline slot *slot_of(const ct_feed *f, int i)
{
    return (slot *)(void *)slot_start(f, i);
}

static inline mark *mark_of(const ct_feed *f, int i, int r)
{
    return (mark *)(void *)(slot_start(f, i) + f->mark_at) + r;
}

static inline place *places_of(const ct_feed *f, int i)
{
    return (place *)(void *)(slot_start(f, i) + f->place_at);
}

/* ---- feed_fetch.c */

/** On the node's rank 0; ct_feed_destroy() joins them. */
ct_status ct_feed_start_threads(ct_feed *f);

#endif
