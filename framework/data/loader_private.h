/** @file loader_private.h  A loader: loader.c has its threads and the ring, loader_batch.c makes
 * one batch. Private to framework/data. */
#ifndef CT_LOADER_PRIVATE_H
#define CT_LOADER_PRIVATE_H

#include <pthread.h>

#include "framework/data/feed.h"
#include "framework/data/loader.h"

typedef enum { SLOT_EMPTY, SLOT_FILLING, SLOT_READY } ct_loader_slot_state;

typedef struct ct_loader_slot {
    ct_loader_slot_state state;
    int64_t generation;
    ct_status status;
    float *field[CT_MAX_FIELD];
    void *block;              /* room for a packed batch */
    bool packed;              /* it is used, not the fields */
    int64_t epoch, broken[2]; /* as in ct_batch */
    char why[600];            /* of a fetch that failed on another rank, which has said it */
} ct_loader_slot;

struct ct_loader {
    ct_loader_options o;
    int64_t rest_count;
    int64_t count[CT_MAX_FIELD]; /* values of a field in a batch */
    ct_pack pack;                /* of o.pack */

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* a slot became empty; a slot became ready */
    pthread_t *thread;
    int n_thread; /* running */
    bool stop;
    bool runs;   /* false: the next take starts anew */
    bool halted; /* a batch failed: none is made behind it, which would fail and log again */
    uint64_t seed;
    int64_t generation;
    int64_t next_make, next_take; /* steps */
    ct_loader_slot *slot;
    ct_feed *feed;         /* NULL: this rank reads */
    bool taken;            /* the main thread reads the slot of next_take - 1 */
    int64_t *told, n_told; /* broken samples that have been spoken of; room for skip_broken */
};

/** Memory for the fields of s as floats. */
ct_status ct_loader_place(const ct_loader *l, ct_loader_slot *s);
/** Fills s with the batch of a step, without the lock, in any thread; `local` is the reader's and
 *  `rest` has room for a sample's fields but the first. CT_STOPPED: the loader has gone on. */
ct_status ct_loader_make(ct_loader *l, int64_t generation, uint64_t seed, int64_t step, void *local,
                         float *rest, ct_loader_slot *s);

#endif
